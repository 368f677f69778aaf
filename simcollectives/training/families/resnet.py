"""ResNet in torchvision's layout, with the buffers of its BatchNorm: running mean and variance, and a count.

A sample is one image, whatever the sequence. FLOPs are those of the convolutions and the classifier, the backward taken
as twice the forward, also where the first convolution needs no gradient of its input. Reference: torchvision 0.28,
models/resnet.py, where the stride of a bottleneck is at its 3 x 3 convolution; He et al. 2015, arXiv 1512.03385.
"""

from dataclasses import dataclass

from simcollectives.training.families.config import Config, size
from simcollectives.training.families.parts import assemble, linear, norm
from simcollectives.training.families.types import Family
from simcollectives.training.model import Layer, Model, Module, Parameter

_EXPANSION = {"basic": 1, "bottleneck": 4}
_SMALLEST_IMAGE, _LARGEST_IMAGE = 32, 1 << 16
_MOST_BLOCKS = 1000


@dataclass(frozen=True, kw_only=True)
class ResNetConfig(Config):
    """Fields of a ResNet config: ``block`` is basic or bottleneck, ``layers`` the blocks of the four stages."""

    block: str = size("basic")
    layers: tuple[int, ...] = size((2, 2, 2, 2), most=_MOST_BLOCKS)
    num_classes: int = 1000
    image_size: int = 224

    def problems(self) -> list[tuple[str, str]]:
        """Return what does not fit together."""
        found = []
        if self.block not in _EXPANSION:
            found.append(("block", f'"{self.block}" is not a kind of block; write "basic" or "bottleneck"'))
        if len(self.layers) != 4:
            found.append(("layers", f"{len(self.layers)} stages; give the blocks of four, such as [2, 2, 2, 2]"))
        if not _SMALLEST_IMAGE <= self.image_size <= _LARGEST_IMAGE:
            rule = f"{self.image_size} is not from {_SMALLEST_IMAGE} to {_LARGEST_IMAGE} pixels; write for instance 224"
            found.append(("image_size", rule))
        return found


def build(config: ResNetConfig, architecture: str, name: str) -> Model:
    """Return the model of a config."""
    expansion = _EXPANSION[config.block]
    pixels = _made(config.image_size, 7, 2)
    stem = Layer("stem", (_convolution("conv1", 3, 64, 7, pixels), norm("bn1", 64, bias=True)), block=False)
    layers, channels, pixels = [stem], 64, _made(pixels, 3, 2)
    for stage, blocks in enumerate(config.layers):
        planes = 64 << stage
        for index in range(blocks):
            stride = 2 if stage and not index else 1
            layers.append(_block(f"layer{stage + 1}.{index}", channels, planes, expansion, stride, pixels))
            channels, pixels = planes * expansion, _made(pixels, 3, stride)
    classifier = linear("fc", channels, config.num_classes, bias=True, positions=1)
    layers.append(Layer("fc", (classifier,), block=False))
    modules = [module for layer in layers for module in layer.modules]
    buffers = [buffer for module in modules if module.kind == "norm" for buffer in _statistics(module)]
    return assemble(name, "resnet", layers, modules, buffers=buffers)


def _made(pixels: int, kernel: int, stride: int) -> int:
    """Side of what a convolution or pooling makes of a square, padded by half its odd kernel."""
    return (pixels + 2 * (kernel // 2) - kernel) // stride + 1


def _convolution(name: str, inputs: int, outputs: int, kernel: int, side: int) -> Module:
    weight = Parameter(f"{name}.weight", (outputs, inputs, kernel, kernel))
    return Module(name, "convolution", (weight,), matmul_elements=weight.elements, positions=side * side)


def _block(path: str, channels: int, planes: int, expansion: int, stride: int, pixels: int) -> Layer:
    """Two 3 x 3 convolutions; or 1 x 1, 3 x 3, 1 x 1 in a bottleneck. One more where the input has another shape."""
    made, outputs = _made(pixels, 3, stride), planes * expansion
    if expansion == 1:
        steps = [(channels, planes, 3, made), (planes, planes, 3, made)]
    else:
        steps = [(channels, planes, 1, pixels), (planes, planes, 3, made), (planes, outputs, 1, made)]
    modules = []
    for number, (inputs, width, kernel, side) in enumerate(steps, start=1):
        modules.append(_convolution(f"{path}.conv{number}", inputs, width, kernel, side))
        modules.append(norm(f"{path}.bn{number}", width, bias=True))
    if stride != 1 or channels != outputs:
        modules.append(_convolution(f"{path}.downsample.0", channels, outputs, 1, made))
        modules.append(norm(f"{path}.downsample.1", outputs, bias=True))
    return Layer(path, tuple(modules))


def _statistics(module: Module) -> list[Parameter]:
    width = module.parameters[0].shape
    return [
        Parameter(f"{module.name}.running_mean", width, "float32"),
        Parameter(f"{module.name}.running_var", width, "float32"),
        Parameter(f"{module.name}.num_batches_tracked", (), "int64"),
    ]


RESNET = Family(
    name="resnet",
    summary="ResNet of torchvision: convolutions and BatchNorm with its buffers",
    config=ResNetConfig,
    architectures=("ResNet",),
    build=build,
    hugging_face=False,
)
