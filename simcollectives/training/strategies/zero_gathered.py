"""ZeRO-3 as the paper has it: parameters are gathered when they are needed and freed after it, forward and backward.

The layers of the model are gathered one after another, the next one while the one before it is computed, so that two
stand at once. Their gradients are reduce-scattered when the layer's backward is done. All for every micro-batch.

    traffic of a rank = 3 (N - 1)/N x bytes of the parameters, whatever the layers

Reference: Rajbhandari et al. 2020, arXiv:1910.02054, sections 5 and 7.2.2. Assumes that layers are padded to a multiple
of N, that a tied parameter is gathered with each layer that uses it, and that nothing is copied.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from simcollectives.engines.job import DTYPES
from simcollectives.training.model import Layer, Parameter
from simcollectives.training.passes import GRADIENTS, PARAMETERS, Hooks, backward, forward, ready_order, stand_buffers
from simcollectives.training.pricing import WORLD
from simcollectives.training.program import Builder, Call, Item, Program
from simcollectives.training.setup import Training
from simcollectives.training.sharding import UNSHARDED, UNSHARDED_GRADIENTS, padded, stand_optimizer_shard
from simcollectives.training.strategies.zero_paper import Part, Scatterer, optimizer_on_parts, parts_of


def unit_parts(training: Training, layer: Layer) -> list[Part]:
    """Return what is gathered for a layer: each of its parameters once."""
    parameters = {p.name: p for module in layer.modules for p in module.parameters}
    return parts_of(training, layer.name, tuple(parameters.values()))


def gradient_parts(training: Training) -> list[Part]:
    """Return what is reduced after each layer's backward: a tied gradient with the layer that completes it."""
    layer_of: dict[str, str] = {}
    for layer in training.model.layers:
        for module in layer.modules:
            for parameter in module.parameters:
                layer_of.setdefault(parameter.name, layer.name)
    found: dict[str, list[Parameter]] = {}
    for parameter in ready_order(training):
        found.setdefault(layer_of[parameter.name], []).append(parameter)
    return [part for name, held in found.items() for part in parts_of(training, name, held)]


@dataclass
class _Gatherer:
    """Gathers the layers of one pass in order, one ahead."""

    builder: Builder
    training: Training
    layers: Sequence[Layer]
    place: int = 0
    ends: dict[int, list[int]] = field(default_factory=dict)

    def before(self, _layer: Layer) -> None:
        """Gather this layer and the next; compute waits for this one."""
        for place in (self.place, self.place + 1):
            if place < len(self.layers) and place not in self.ends:
                self.ends[place] = self._gather(self.layers[place])
        if ends := self.ends[self.place]:
            self.builder.compute(f"wait for {self.layers[self.place].name}", 0.0, after=ends)

    def _gather(self, layer: Layer) -> list[int]:
        builder, ranks = self.builder, self.training.world_size
        # What was freed before makes room for it.
        after = builder.latest()
        return [
            builder.collective(
                part.name,
                Call("all_gather", WORLD, ranks, padded(part.elements, ranks), part.parameter_dtype),
                after=after,
                allocates=[(UNSHARDED, _gathered_bytes(part, ranks))],
            )
            for part in unit_parts(self.training, layer)
        ]

    def after(self, layer: Layer) -> None:
        """Free this layer."""
        sizes = [_gathered_bytes(part, self.training.world_size) for part in unit_parts(self.training, layer)]
        self.builder.compute(f"free {layer.name}", 0.0, frees=[(UNSHARDED, size) for size in sizes])
        self.place += 1


def _gathered_bytes(part: Part, ranks: int) -> int:
    return padded(part.elements, ranks) * DTYPES[part.parameter_dtype]


def write_program(training: Training) -> Program:
    """Write the step of one rank."""
    builder = Builder()
    ranks, parts = training.world_size, gradient_parts(training)
    layers = training.model.layers
    builder.stand(PARAMETERS, sum(part.shard(ranks) * DTYPES[part.parameter_dtype] for part in parts))
    stand_buffers(builder, training)
    stand_optimizer_shard(builder, training, sum(part.shard(ranks) for part in parts))
    ends: list[int] = []
    for micro_batch in range(training.accumulation):
        builder.micro_batch, builder.phase = micro_batch, "forward"
        gatherer = _Gatherer(builder, training, layers)
        forward(builder, training, Hooks(before_layer=gatherer.before, after_layer=gatherer.after))
        builder.phase = "backward"
        gatherer = _Gatherer(builder, training, layers[::-1])
        scatterer = Scatterer(builder, training, parts, frees=True, first=micro_batch == 0)
        hooks = Hooks(
            before_layer=gatherer.before,
            after_layer=gatherer.after,
            ready=scatterer.ready,
            gradient_item=UNSHARDED_GRADIENTS,
        )
        backward(builder, training, hooks)
        ends = scatterer.ends
    kept: list[Item] = [(GRADIENTS, sum(part.shard_bytes(ranks) for part in parts))]
    optimizer_on_parts(builder, training, parts, ends, kept)
    return builder.program()
