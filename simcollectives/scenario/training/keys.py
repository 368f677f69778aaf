"""What a point of a training scenario is made of, and what an expectation may be about."""

from collections.abc import Mapping

from simcollectives.scenario.keys import ANY_BYTES, ANY_SECONDS, NUMBER, RATIO, SIZE, Kind

TRAINING_KEYS: Mapping[str, Kind] = {
    "micro_batch": SIZE,
    "sequence": SIZE,
    "accumulation": SIZE,
    "mfu": RATIO,
}
"""Keys of a point beside those of the cluster and the options of strategies, as in ``ddp.bucket_cap``."""

TRAINING_METRICS: Mapping[str, Kind] = {
    **dict.fromkeys(("step_seconds", "compute_seconds", "communication_seconds", "exposed_seconds"), ANY_SECONDS),
    **dict.fromkeys(("waiting_seconds", "idle_seconds"), ANY_SECONDS),
    **dict.fromkeys(("overlap", "efficiency", "mfu", "hfu"), RATIO),
    **dict.fromkeys(("peak_bytes", "sent_bytes_total"), ANY_BYTES),
    **dict.fromkeys(("parameter_bytes", "gradient_bytes", "optimizer_bytes", "bucket_bytes"), ANY_BYTES),
    **dict.fromkeys(("activation_bytes", "model_state_bytes"), ANY_BYTES),
    "collective_count": NUMBER,
    "tokens_per_second": NUMBER,
}
"""What an expectation may be about, with the unit of its bounds.

``parameter_bytes`` and the like are the most that an item takes at any time; ``model_state_bytes`` is the sum of
parameters, gradients and optimizer states.
"""
