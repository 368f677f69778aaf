"""How long the kernels of modules take: from FLOPs and the share of the peak that is reached, or from measurements."""

from collections.abc import Mapping

from simcollectives.training.flops import Flops, module_flops, recomputed
from simcollectives.training.model import Layer, Model
from simcollectives.training.setup import ModuleSeconds
from simcollectives.training.workload import Workload


def seconds_from_flops(model: Model, workload: Workload, flops_per_second: float) -> dict[str, ModuleSeconds]:
    """Return seconds by module, where kernels compute ``flops_per_second``; what moves bytes only takes none.

    A flash kernel's rebuilding of the attention's weights is part of its backward.
    """
    found = {}
    for layer in model.layers:
        again = recomputed(layer, workload)
        for module in layer.modules:
            flops = module_flops(module, workload, again=module.name in again)
            found[module.name] = ModuleSeconds(
                flops.forward / flops_per_second,
                (flops.backward + flops.rebuilding) / flops_per_second,
                flops.recomputation / flops_per_second,
            )
    return found


def seconds_from_layers(
    model: Model, workload: Workload, measured: Mapping[str, tuple[float, float]]
) -> dict[str, ModuleSeconds]:
    """Return seconds by module from those of each layer, forward and backward, divided by FLOPs.

    A layer without FLOPs is divided evenly. Recomputation is taken to be in the measured backward.
    """
    found = {}
    for layer in model.layers:
        forward, backward = measured[layer.name]
        for name, share in _shares(layer, workload).items():
            found[name] = ModuleSeconds(forward * share, backward * share)
    return found


def _shares(layer: Layer, workload: Workload) -> dict[str, float]:
    counted = {module.name: module_flops(module, workload) for module in layer.modules}
    whole = sum(_played(flops) for flops in counted.values())
    if whole == 0:
        return {name: 1 / len(counted) for name in counted}
    return {name: _played(flops) / whole for name, flops in counted.items()}


def _played(flops: Flops) -> int:
    return flops.forward + flops.backward
