"""What bandwidth offloading needs, by ZeRO-Infinity's model: efficiency = ait bw / (ait bw + peak).

``ait`` is the arithmetic intensity: FLOPs for each byte that is moved. An iteration takes 2 x 4 x batch x sequence
FLOPs a parameter (forward, recomputation, and twice that backward). Parameters and gradients move 8 bytes for each
(loads for forward, recomputation and backward, and the gradient's store), optimizer states 32 (16 read, 16 written). A
checkpoint is written and read, 2 x 2 x batch x sequence x hidden bytes, every ``interval`` layers of 12 hidden^2
parameters:

    parameters and gradients  sequence x batch
    optimizer states          sequence x batch / 4
    activation checkpoints    24 x hidden x interval

The peak is what a device achieves with all data at hand (70 TFLOP/s on a V100), the bandwidth that of one device.

Reference: Rajbhandari et al. 2021, arXiv:2104.07857, section 4. Assumes that nothing overlaps, 16-bit parameters,
gradients and activations, and Adam's states in float32.

>>> tokens, peak = 2048, 70e12
>>> round(bandwidth_efficiency(parameters_intensity(1, tokens), 60e9, peak), 2)
0.64
>>> round(needed_bandwidth(optimizer_intensity(1, tokens), 0.9, peak) / 1e9)
1230
"""

from simcollectives.errors import InputError, Problem, show_value


def parameters_intensity(batch: int, sequence: int) -> float:
    """FLOPs for each byte of parameters and gradients that is moved."""
    return float(sequence * batch)


def optimizer_intensity(batch: int, sequence: int) -> float:
    """FLOPs for each byte of optimizer states that is moved."""
    return sequence * batch / 4


def activations_intensity(hidden: int, interval: int = 1) -> float:
    """FLOPs for each byte of activation checkpoints that is moved; one checkpoint every ``interval`` layers."""
    return 24.0 * hidden * interval


def bandwidth_efficiency(intensity: float, bandwidth: float, peak: float) -> float:
    """Return compute over compute and movement; ``bandwidth`` in bytes/s and ``peak`` in FLOP/s, of one device."""
    return intensity * bandwidth / (intensity * bandwidth + peak)


def needed_bandwidth(intensity: float, efficiency: float, peak: float) -> float:
    """Return the bytes per second of one device with which an efficiency is reached.

    Raises:
        InputError: the efficiency is not between 0 and 1.
    """
    if not 0 < efficiency < 1:
        rule = f"{show_value(efficiency)} is never reached, or always; give more than 0 and less than 1, such as 0.9"
        raise InputError([Problem("efficiency", rule)])
    return peak * efficiency / (1 - efficiency) / intensity
