"""What a point of a numerics scenario is made of, and what an expectation may be about."""

from collections.abc import Mapping

from simcollectives.errors import UnitError, show_value
from simcollectives.scenario.keys import ANY_BYTES, NUMBER, Kind, whole_kind
from simcollectives.training.numerics.plan import MOST


def _parse_truth(value: object) -> int:
    if isinstance(value, bool | int) and value in (0, 1):
        return int(value)
    raise UnitError(f"{show_value(value)} is neither true nor false; write one of them, or 1 or 0")


def _truth_text(value: float, digits: int = 6) -> str:
    del digits
    return "true" if value else "false"


TRUTH = Kind("truth", _parse_truth, _truth_text, "true", {"enum": [True, False, 1, 0]}, whole=True, exact=True)

AMOUNT = whole_kind("amount", 1, MOST["steps"], "a size", "200")
"""Of steps, samples and micro-batches."""

NUMERICS_KEYS: Mapping[str, Kind] = {"step": AMOUNT}
"""Keys of a point: one of the recorded steps."""

NUMERICS_METRICS: Mapping[str, Kind] = {
    **dict.fromkeys(("difference_from_one_device", "gradient_difference", "difference_between_replicas"), NUMBER),
    "difference_from_ddp": NUMBER,
    **dict.fromkeys(("bit_identical", "same_bits_as_ddp"), TRUTH),
    **dict.fromkeys(("loss", "loss_of_one_device"), NUMBER),
    **dict.fromkeys(("bytes_sent_max", "bytes_sent_total", "peak_bytes"), ANY_BYTES),
    **dict.fromkeys(("all_reduce_bytes", "reduce_scatter_bytes", "all_gather_bytes"), ANY_BYTES),
    **dict.fromkeys(("parameter_bytes", "gradient_bytes", "optimizer_bytes", "model_state_bytes"), ANY_BYTES),
    "unsharded_bytes": ANY_BYTES,
}
"""What an expectation may be about, with the unit of its bounds; see ``NumericsRow``."""
