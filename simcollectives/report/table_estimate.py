"""DeepSpeed's estimate of the memory beside what stands at the peak of a step, with the reasons of the difference."""

from simcollectives.report.text import Block, Column, TextTable, caption, heading, with_unit
from simcollectives.training.estimators import beside_peak, estimate_of
from simcollectives.training.step import Step
from simcollectives.units import format_bytes


def estimate_blocks(step: Step) -> list[Block]:
    """Return the comparison as a table; nothing where DeepSpeed has no estimator for the step."""
    estimate = estimate_of(step)
    if estimate is None:
        return []
    rows = beside_peak(estimate, step)
    estimated = [*(row.estimated_bytes for row in rows), estimate.gpu_bytes]
    simulated = [*(row.simulated_bytes for row in rows), step.peak_bytes]
    columns = [
        Column("", [*(row.item for row in rows), "in all"], right=False),
        with_unit("estimated", [format_bytes(size, family="binary") for size in estimated]),
        with_unit("at the peak", [format_bytes(size, family="binary") for size in simulated]),
        Column("why they differ", [*(row.reason for row in rows), ""], right=False, wrap_at=70),
    ]
    note = "estimated: deepspeed 0.19.8, estimate_zero2_ and estimate_zero3_model_states_mem_needs"
    table = TextTable(columns, styles=[*("" for _ in rows), "bold"])
    return [heading("Memory by DeepSpeed's estimator, and at the peak"), table, caption(note)]
