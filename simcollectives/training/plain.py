"""Models without a family: from a list of tensors, or from a number of parameters in equal layers."""

from collections.abc import Iterable

from simcollectives.errors import InputError, Problem, show_value
from simcollectives.training.model import Layer, Model, Module, Parameter

MOST_TENSORS = 1_000_000


def tensor_model(name: str, tensors: Iterable[Parameter], *, grouped: bool = True) -> Model:
    """Return a model made of a list of tensors, registered and computed in this order.

    ``grouped``: tensors whose names begin alike up to a number, such as ``layers.3``, make a layer, a block; those of a
    module without a number make one that is no block. Otherwise all make one layer. Tensors of one module, the name
    without its last part, belong together; where all are one-dimensional it counts as a norm. A token is multiplied
    with every element of the tensors of two dimensions and more: an embedding's too, since nothing tells it apart.

    Raises:
        InputError: there are no tensors, two have one name, or a dimension is not positive.
    """
    given = list(tensors)
    problems = _problems(given)
    if problems:
        raise InputError(problems)
    groups: dict[str, dict[str, list[Parameter]]] = {}
    for tensor in given:
        module = tensor.name.rpartition(".")[0] or tensor.name
        groups.setdefault(_layer_of(module) if grouped else name, {}).setdefault(module, []).append(tensor)
    layers = []
    for layer, modules in groups.items():
        block = not grouped or layer.rpartition(".")[2].isdecimal()
        layers.append(Layer(layer, tuple(_module(path, held) for path, held in modules.items()), block=block))
    return Model(name, "tensors", tuple(layers), tuple(tensor.name for tensor in given))


def uniform_model(parameters: float, layers: int, tensors_per_layer: int, name: str = "uniform") -> Model:
    """Return a model of equal layers of equal tensors; what does not divide goes to the first tensors, one each.

    A token is multiplied with every element, so that forward and backward are 6 FLOPs a parameter. All three numbers
    may be written as 1.36e9.

    Raises:
        InputError: a number is not whole and positive, or there are fewer parameters than tensors.
    """
    given = {"parameters": parameters, "layers": layers, "tensors_per_layer": tensors_per_layer}
    problems = [
        Problem(key, f"{value!r} is not a whole number above 0; write for instance 16")
        for key, value in given.items()
        if not _is_whole(value)
    ]
    if problems:
        raise InputError(problems)
    total, layers, tensors_per_layer = int(parameters), int(layers), int(tensors_per_layer)
    count = layers * tensors_per_layer
    if count > min(total, MOST_TENSORS):
        most = f"at most {MOST_TENSORS:,}" if count > MOST_TENSORS else f"no more than the {total} parameters"
        rule = f"{layers} x {tensors_per_layer} tensors; there may be {most}; give fewer"
        raise InputError([Problem("layers", rule)])
    share, left = divmod(total, count)
    made = []
    for layer in range(layers):
        path = f"layers.{layer}"
        modules = []
        for index in range(tensors_per_layer):
            elements = share + (layer * tensors_per_layer + index < left)
            weight = Parameter(f"{path}.{index}.weight", (elements,))
            modules.append(Module(f"{path}.{index}", "linear", (weight,), matmul_elements=elements))
        made.append(Layer(path, tuple(modules)))
    registration = tuple(p.name for layer in made for module in layer.modules for p in module.parameters)
    return Model(name, "uniform", tuple(made), registration)


def _problems(tensors: list[Parameter]) -> list[Problem]:
    if not tensors:
        return [Problem("tensors", "the list is empty; give a name and a shape for each tensor")]
    found = []
    seen: set[str] = set()
    for index, tensor in enumerate(tensors):
        place = f"tensors[{index}]"
        if not tensor.name:
            found.append(Problem(place, "the tensor has no name; give one"))
        elif tensor.name in seen:
            found.append(Problem(place, f"{show_value(tensor.name)} is there twice; give each tensor its own name"))
        seen.add(tensor.name)
        if not all(_is_whole(size, exponents=False) for size in tensor.shape):
            found.append(Problem(place, f"{show_value(list(tensor.shape))} is no shape; write positive whole numbers"))
    return found


def _is_whole(value: object, *, exponents: bool = True) -> bool:
    """Whether a value is a whole number above 0, also one written as 1e9 where ``exponents`` are allowed."""
    if isinstance(value, float):
        return exponents and value > 0 and value.is_integer()
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _layer_of(module: str) -> str:
    """The name up to its first number, or the whole name."""
    parts = module.split(".")
    end = next((index + 1 for index, part in enumerate(parts) if part.isdecimal()), len(parts))
    return ".".join(parts[:end])


def _module(name: str, parameters: list[Parameter]) -> Module:
    elements = sum(parameter.elements for parameter in parameters if len(parameter.shape) > 1)
    return Module(name, "linear" if elements else "norm", tuple(parameters), matmul_elements=elements)
