"""Random models, clusters and steps for the laws of training; every strategy of the table with every option.

Nothing here names a strategy: a new line in the table is under every law by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from simcollectives.algorithms import Option, placement_of
from simcollectives.cluster import Cluster, Device, Link
from simcollectives.errors import InputError
from simcollectives.training.model import Layer, Model, Module, Parameter
from simcollectives.training.pricing import Price
from simcollectives.training.program import Builder, Call, Program
from simcollectives.training.setup import LayerBytes, ModuleSeconds, Optimizer, Precision, Training
from simcollectives.training.strategies.table import STRATEGIES, resolve_strategy_options
from simcollectives.training.strategies.types import Strategy

KINDS = ("linear", "norm", "embedding", "attention", "convolution", "other")
DTYPES = ("float32", "bfloat16")
TRIED = (True, False, 1, 2, 5, 64, 4096.0, [64, 512], "co_located")
SECONDS = st.one_of(st.just(0.0), st.sampled_from([0.25, 1.0]), st.floats(1e-3, 2.0))


@st.composite
def models(draw: st.DrawFn, quantum: int = 1) -> Model:
    """Layers of a few modules with up to two parameters, some of them tied; elements are multiples of ``quantum``."""
    known: list[Parameter] = []
    layers = []
    for layer in range(draw(st.integers(1, 4))):
        modules = []
        for number in range(draw(st.integers(1, 3))):
            name = f"{layer}.{number}"
            own: list[Parameter] = []
            for index in range(draw(st.integers(0, 2))):
                if known and draw(st.integers(0, 4)) == 0:
                    shared = draw(st.sampled_from(known))
                    if shared not in own:
                        own.append(shared)
                    continue
                shape = (draw(st.integers(1, 12)), draw(st.integers(1, 4)) * quantum)[: draw(st.integers(1, 2))]
                shape = (*shape[:-1], shape[-1] * (quantum if len(shape) == 1 else 1))
                own.append(Parameter(f"{name}.{index}", shape, draw(st.sampled_from([None, None, *DTYPES]))))
                known.append(own[-1])
            modules.append(Module(name, draw(st.sampled_from(KINDS)), tuple(own)))
        layers.append(Layer(str(layer), tuple(modules)))
    if not known:
        known.append(Parameter("only", (quantum,)))
        layers.append(Layer("last", (Module("last", "linear", (known[0],)),)))
    registration = draw(st.permutations([parameter.name for parameter in known]))
    buffers = tuple(Parameter(f"buffer {n}", (n + 1,), draw(st.sampled_from([None, "int64"]))) for n in range(2))
    return Model("random", "random", tuple(layers), tuple(registration), buffers=buffers[: draw(st.integers(0, 2))])


HOST_FIELDS = ("host_link_bandwidth", "cpu_memory_bandwidth", "nvme_read_bandwidth", "nvme_write_bandwidth")
LINKS = st.builds(Link, alpha=st.sampled_from([0.0, 1e-3, 0.1]), bandwidth=st.sampled_from([10.0, 333.0, 1e6]))


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """One level or two, from one rank to eight; memory that takes time to pass over, or none; a host, or none."""
    host = dict.fromkeys(HOST_FIELDS, draw(st.sampled_from([None, 100.0, 1e5])))
    device = Device(memory_bandwidth=draw(st.sampled_from([None, 100.0, 1e5])), **host)
    if draw(st.booleans()):
        return Cluster.flat(draw(st.sampled_from([1, 2, 3, 4, 7])), draw(LINKS), device=device)
    nodes, each = draw(st.sampled_from([(2, 2), (3, 2), (2, 4), (2, 1), (1, 3)]))
    return Cluster.two_level(nodes, each, draw(LINKS), draw(LINKS), device=device)


@st.composite
def trainings(draw: st.DrawFn, *, steady: bool = False, slow: bool = True) -> Training:
    """Steps of random models; kernels may take no time, and several may end at once."""
    model, cluster = draw(models()), draw(clusters())
    modules = [module.name for layer in model.layers for module in layer.modules]
    seconds = {
        name: ModuleSeconds(draw(SECONDS), draw(SECONDS), draw(st.sampled_from([0.0, 0.0, 0.5]))) for name in modules
    }
    held = {layer.name: LayerBytes(draw(st.integers(0, 99)), draw(st.integers(0, 99))) for layer in model.layers}
    ranks = st.integers(0, cluster.world_size - 1)
    return Training(
        model,
        cluster,
        1,
        1,
        seconds,
        accumulation=draw(st.integers(1, 3)),
        precision=Precision("bfloat16", draw(st.sampled_from(DTYPES)), draw(st.sampled_from(DTYPES))),
        optimizer=Optimizer(master=draw(st.booleans()), gradient_copy=draw(st.booleans())),
        activations=draw(st.sampled_from([{}, held])),
        iteration=None if steady else draw(st.sampled_from([None, None, 0, 1, 2, 3, 1000])),
        slow=draw(st.dictionaries(ranks, st.sampled_from([0.5, 1.0, 1.5, 4.0]), max_size=3)) if slow else {},
    )


def _values(option: Option) -> list[Any]:
    """The default, every choice, and what passes of some values."""
    values = [option.default, *option.choices]
    for value in TRIED:
        try:
            values.append(option.check(value))
        except ValueError:
            continue
    return values


VALUES = {strategy.name: {o.name: _values(o) for o in strategy.options} for strategy in STRATEGIES}


@st.composite
def choices(draw: st.DrawFn, strategy: Strategy, training: Training) -> Mapping[str, Any]:
    """Options of a strategy, as a person may give them; what does not run on the cluster is left out."""
    given = {name: draw(st.sampled_from(values)) for name, values in VALUES[strategy.name].items()}
    while problems := strategy.problems(training, resolve_strategy_options(strategy, given)):
        wrong = {problem.place for problem in problems}
        given = {name: value for name, value in given.items() if name not in wrong} if wrong & set(given) else {}
    if "servers" in given and not placement_of(training.cluster).flat:
        given["servers"] = "co_located"
    return given


def accepted(strategy: Strategy, training: Training, options: Mapping[str, Any]) -> Training:
    """Return a step that a strategy takes: some take models of one dtype only."""
    try:
        strategy.program(training, resolve_strategy_options(strategy, options))
    except InputError:
        return replace(training, model=in_one_dtype(training.model))
    return training


def in_one_dtype(model: Model) -> Model:
    """Return a model whose parameters all have the dtype of the run."""
    layers = tuple(
        replace(
            layer,
            modules=tuple(
                replace(module, parameters=tuple(replace(p, dtype=None) for p in module.parameters))
                for module in layer.modules
            ),
        )
        for layer in model.layers
    )
    return replace(model, layers=layers)


def drawn(data: st.DataObject, strategy: Strategy, **wanted: bool) -> tuple[Training, Mapping[str, Any]]:
    """Draw a step, and options of a strategy that takes it."""
    training = data.draw(trainings(**wanted))
    options = data.draw(choices(strategy, training))
    return accepted(strategy, training, options), options


GROUPS = ("world", "shard", "replicate")
STREAMS = ("compute", "one", "two")


def hand_made_price(call: Call) -> Price:
    """Seconds and shares of two levels' ports, drawn from the number of elements: some share much, some nothing."""
    n = call.elements
    use = {"inter": (n % 4) / 3, "intra": (n % 3) / 2}
    return Price((n % 5) / 4, 0.0, "by hand", "none", n, {level: share for level, share in use.items() if share})


@st.composite
def programs(draw: st.DrawFn) -> dict[int, Program]:
    """Programs of one to three ranks that issue the same, with other kernels: streams, groups, waits and the host."""
    ranks = draw(st.integers(1, 3))
    builders = [Builder() for _ in range(ranks)]
    for number in range(draw(st.integers(1, 25))):
        kind = draw(st.sampled_from(["compute", "collective", "collective", "collective", "host"]))
        stream, group = draw(st.sampled_from(STREAMS)), draw(st.sampled_from(GROUPS))
        after = draw(st.lists(st.integers(0, number - 1), max_size=2)) if number else []
        elements = draw(st.integers(0, 60))
        on = draw(st.sampled_from([None, stream]))
        for builder in builders:
            if kind == "collective":
                call = Call("all_reduce", group, 4, elements, "float32")
                builder.collective(str(number), call, stream=on, after=after)
            elif kind == "host":
                builder.host(str(number), draw(SECONDS), after=after)
            else:
                builder.compute(str(number), draw(SECONDS), stream=stream, after=after)
    return {rank: builder.program() for rank, builder in enumerate(builders)}
