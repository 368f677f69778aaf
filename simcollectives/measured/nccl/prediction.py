"""What NCCL would pick on one cluster: for each message, in ranges of messages, and beside what a run picked."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from simcollectives.measured.nccl.choice import LEAST_BYTES, MOST_BYTES, choose, ranges, switches
from simcollectives.measured.nccl.from_log import Picks, compare_picks, ran_as, with_log
from simcollectives.measured.nccl.tuning_log import TuningLog
from simcollectives.measured.nccl.types import Choice, Model, Range, Switch


@dataclass(frozen=True)
class Prediction:
    """The choices for some messages, and all switches and ranges from the least to the largest of them.

    With one message, or none, these are from 8 B to 16 GiB. ``picks`` is None without a log of a run of as many ranks
    and nodes.
    """

    model: Model
    choices: tuple[Choice, ...]
    switches: tuple[Switch, ...]
    ranges: tuple[Range, ...]
    picks: Picks | None


def predict(model: Model, messages: Sequence[int], log: TuningLog | None = None) -> Prediction:
    """Return what a model, with the figures of a log if there is one, says of these messages.

    Raises:
        InputError: the log has no table for the model.
    """
    if log is not None:
        model = with_log(model, log)
    sizes = sorted(set(messages))
    least, most = (sizes[0], sizes[-1]) if len(sizes) > 1 else (LEAST_BYTES, MOST_BYTES)
    return Prediction(
        model,
        tuple(choose(model, size) for size in sizes),
        switches(model, least, most),
        ranges(model, least, most),
        compare_picks(model, log.calls) if log is not None and ran_as(model, log) else None,
    )


def prediction_json(prediction: Prediction) -> dict[str, Any]:
    """Return a prediction as JSON data, in SI units."""
    model = prediction.model
    return {
        "collective": model.collective,
        "nodes": model.nodes,
        "gpus_per_node": model.gpus_per_node,
        "world_size": model.world_size,
        "source": model.source,
        "candidates": [
            {
                "algorithm": one.algorithm,
                "protocol": one.protocol,
                "latency_seconds": one.latency if one.available else None,
                "bandwidth": one.bandwidth if one.available and math.isfinite(one.bandwidth) else None,
                "unavailable_because": one.reason or None,
            }
            for one in model.candidates
        ],
        "points": [
            {
                "message_bytes": one.message_bytes,
                "choice": one.label,
                "seconds": one.seconds,
                "runner_up": one.runner_up,
                "margin": one.margin,
                "candidate_seconds": dict(one.times),
            }
            for one in prediction.choices
        ],
        "switches": [asdict(one) for one in prediction.switches],
        "picks": None if prediction.picks is None else asdict(prediction.picks),
    }
