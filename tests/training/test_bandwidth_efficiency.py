"""The bandwidths that ZeRO-Infinity asks for, from its own formula, at 70 TFLOP/s on a V100."""

import pytest

from simcollectives.errors import InputError
from simcollectives.training.bandwidth_efficiency import (
    activations_intensity,
    bandwidth_efficiency,
    needed_bandwidth,
    optimizer_intensity,
    parameters_intensity,
)

PEAK = 70e12


@pytest.mark.parametrize(
    ("intensity", "bandwidth", "least", "most"),
    [
        # DeepSpeed's slides at SC21, for 2,048 tokens a GPU: 60 GB/s, overlapped, for parameters and gradients,
        # 1,500 GB/s for optimizer states, which nothing overlaps, and 4 GB/s for activations: here of hidden size
        # 8,192.
        (parameters_intensity(1, 2048), 60e9, 0.6, 0.7),
        (optimizer_intensity(1, 2048), 1500e9, 0.9, 0.92),
        (activations_intensity(8192), 4e9, 0.9, 0.92),
    ],
)
def test_published_targets(intensity: float, bandwidth: float, least: float, most: float) -> None:
    assert least <= bandwidth_efficiency(intensity, bandwidth, PEAK) <= most


def test_intensities_are_flops_over_bytes() -> None:
    """Counted for a model of 10 layers of 12 h^2 parameters: 8 FLOPs a token and parameter, over the bytes moved."""
    batch, sequence, hidden, layers, interval = 3, 128, 64, 10, 2
    parameters = 12 * layers * hidden**2
    flops = 8 * batch * sequence * parameters
    assert parameters_intensity(batch, sequence) == flops / (8 * parameters)
    assert optimizer_intensity(batch, sequence) == flops / (32 * parameters)
    checkpoints = layers // interval * 2 * 2 * batch * sequence * hidden
    assert activations_intensity(hidden, interval) == flops / checkpoints


@pytest.mark.parametrize("efficiency", [0.1, 0.5, 0.9])
def test_the_bandwidth_that_is_needed_gives_the_efficiency(efficiency: float) -> None:
    bandwidth = needed_bandwidth(512.0, efficiency, PEAK)
    assert bandwidth_efficiency(512.0, bandwidth, PEAK) == pytest.approx(efficiency)


def test_full_efficiency_is_never_reached() -> None:
    with pytest.raises(InputError, match="1 is never reached"):
        needed_bandwidth(512.0, 1.0, PEAK)
