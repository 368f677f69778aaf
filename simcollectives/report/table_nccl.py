"""Tables of what NCCL would pick, by its own cost model: ranges of messages, with times and margins."""

from collections.abc import Sequence

from rich.text import Text

from simcollectives.errors import counted, listing
from simcollectives.measured.nccl import Prediction, Range
from simcollectives.report.rows import byte_family
from simcollectives.report.table_fastest import margin_text
from simcollectives.report.text import NOTHING, Block, Column, TextTable, caption, heading
from simcollectives.units import ByteFamily, format_bytes, format_seconds

MAX_OTHERS, MAX_SOURCES = 8, 4
_MEANING = (
    "times are those of NCCL's own model, not measured nor simulated; midway: at the geometric mean of a range; "
    "margin: how much longer the runner-up takes there"
)


def nccl_blocks(predictions: Sequence[Prediction]) -> list[Block]:
    """Return what NCCL picks at which messages, one group of rows for each number of nodes."""
    if not predictions:
        return []
    first = predictions[0].model
    blocks: list[Block] = [heading(f"NCCL's choice of algorithm/protocol: {first.collective}")]
    blocks.append(_table(predictions))
    blocks.append(caption(_MEANING))
    sources = list(dict.fromkeys(one.model.source for one in predictions))
    more = f"; and {len(sources) - MAX_SOURCES} more" if len(sources) > MAX_SOURCES else ""
    blocks.append(caption(f"latencies and bandwidths: {'; '.join(sources[:MAX_SOURCES])}{more}"))
    blocks += [caption(text) for text in _unavailable(predictions)]
    for one in predictions:
        if one.picks is not None:
            blocks += _picks(one, several=len(predictions) > 1)
    return blocks


def _unavailable(predictions: Sequence[Prediction]) -> list[str]:
    """Why candidates cannot be picked that NCCL has for the collective, and where if not everywhere."""
    labels: dict[str, dict[str, None]] = {}
    nodes: dict[str, dict[int, None]] = {}
    for prediction in predictions:
        for one in prediction.model.missing:
            labels.setdefault(one.reason, {})[one.label] = None
            nodes.setdefault(one.reason, {})[prediction.model.nodes] = None
    texts = []
    for reason, some in labels.items():
        counts = list(nodes[reason])
        where = f" on {listing([str(count) for count in counts], 8)} {'node' if counts == [1] else 'nodes'}"
        texts.append(f"no {', '.join(some)}{'' if len(counts) == len(predictions) else where}: {reason}")
    return texts


def nodes_text(prediction: Prediction) -> str:
    """Return the nodes of a prediction, with their GPUs, as ``4 nodes of 8 GPUs``."""
    model = prediction.model
    return f"{counted(model.nodes, 'node')} of {counted(model.gpus_per_node, 'GPU')}"


def _table(predictions: Sequence[Prediction]) -> TextTable:
    rows = [one for prediction in predictions for one in prediction.ranges]
    family = byte_family([choice.message_bytes for one in predictions for choice in one.choices])
    headings, place = {}, 0
    for prediction in predictions:
        headings[place] = nodes_text(prediction)
        place += len(prediction.ranges)
    runners = [one.midway.runner_up or NOTHING for one in rows]
    return TextTable(
        [
            Column("from", [format_bytes(one.first, family=family) for one in rows]),
            Column("to", [_last(one, rows, place, family) for place, one in enumerate(rows)]),
            Column("choice", [one.label for one in rows], right=False),
            Column("time at\nboth ends", [_times(one) for one in rows], right=False),
            Column("runner-up\nmidway", runners, right=False),
            Column("margin", [margin_text(one.midway.margin) for one in rows]),
        ],
        headings=headings if len(predictions) > 1 else {0: headings[0]},
    )


def _last(one: Range, rows: Sequence[Range], place: int, family: ByteFamily) -> str:
    """The end of a range: where the next one begins, or the last message."""
    following = rows[place + 1] if place + 1 < len(rows) else None
    joined = following is not None and following.first == one.last + 1
    return format_bytes(one.last + 1 if joined else one.last, family=family)


def _times(one: Range) -> str:
    return f"{format_seconds(one.first_seconds)} to {format_seconds(one.last_seconds)}"


def _picks(prediction: Prediction, *, several: bool) -> list[Block]:
    """How NCCL's picks in a log agree with the prediction."""
    picks = prediction.picks
    if picks is None or not picks.calls:
        what = f"{prediction.model.collective} on {nodes_text(prediction)}"
        return [caption(f"the log lists no calls of {what} (NCCL 2.23 and later list calls)")]
    where = f" on {nodes_text(prediction)}" if several else ""
    text = f"the log lists {counted(picks.calls, 'call')}{where}: {picks.agreeing} as predicted"
    if not picks.others:
        return [Text(text)]
    others = [
        f"{format_bytes(one.message_bytes)}: {one.picked} picked, {one.predicted} predicted" for one in picks.others
    ]
    return [Text(f"{text}; not so at {'; '.join(others[:MAX_OTHERS])}{'; ..' if len(others) > MAX_OTHERS else ''}")]
