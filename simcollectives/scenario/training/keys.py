"""What an expectation about a training step may be about; its keys are `scenario.keys.TRAINING_KEYS`."""

from collections.abc import Mapping

from simcollectives.scenario.keys import ANY_BYTES, ANY_SECONDS, NUMBER, RATIO, Kind

TRAINING_METRICS: Mapping[str, Kind] = {
    **dict.fromkeys(("step_seconds", "compute_seconds", "communication_seconds", "exposed_seconds"), ANY_SECONDS),
    **dict.fromkeys(("waiting_seconds", "idle_seconds"), ANY_SECONDS),
    **dict.fromkeys(("overlap", "efficiency", "mfu", "hfu"), RATIO),
    **dict.fromkeys(("peak_bytes", "sent_bytes_total"), ANY_BYTES),
    **dict.fromkeys(("parameter_bytes", "gradient_bytes", "optimizer_bytes", "bucket_bytes"), ANY_BYTES),
    **dict.fromkeys(("activation_bytes", "model_state_bytes", "unsharded_bytes"), ANY_BYTES),
    **dict.fromkeys(("all_reduce_bytes", "reduce_scatter_bytes", "all_gather_bytes", "all_to_all_bytes"), ANY_BYTES),
    "collective_count": NUMBER,
    "tokens_per_second": NUMBER,
}
"""What an expectation may be about, with the unit of its bounds.

``parameter_bytes`` and the like are the most that an item takes at any time; ``model_state_bytes`` is the sum of
parameters, gradients and optimizer states, ``unsharded_bytes`` what whole parameters and all-gathers take together.
``all_reduce_bytes`` and the like are what the rank that sends most sends in such collectives.
"""

MEASURED_METRICS: Mapping[str, Kind] = {
    name: TRAINING_METRICS[name]
    for name in (
        "step_seconds",
        "compute_seconds",
        "communication_seconds",
        "exposed_seconds",
        "waiting_seconds",
        "idle_seconds",
        "overlap",
        "efficiency",
        "tokens_per_second",
        "peak_bytes",
    )
}
"""What may be measured of a step, in the order of tables. (``mfu`` is a key of points.)"""
