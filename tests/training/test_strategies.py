"""Strategies worked by hand: kernels, memory, what waits for what; options, labels and warnings.

Two layers of 100 float32 weights each: 400 B of gradients a layer, 100 B/s of memory, so that a pass over the gradients
of one layer takes 4 s. Adam without a master holds 8 B a weight and moves 28.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from simcollectives.cluster import Cluster, Device, Link
from simcollectives.errors import InputError
from simcollectives.training.model import Layer, Model, Module, Parameter
from simcollectives.training.pricing import Price, Pricer
from simcollectives.training.program import Call
from simcollectives.training.setup import LayerBytes, ModuleSeconds, Optimizer, Precision, Training
from simcollectives.training.step import Step, simulate_step
from simcollectives.training.strategies.ddp import buckets_of
from simcollectives.training.strategies.ddp_hooks import factor_elements, is_compressed
from simcollectives.training.strategies.table import (
    STRATEGIES,
    find_strategy,
    label_of,
    resolve_strategy_options,
)

CLUSTER = Cluster.flat(2, Link(0.0, 1.0), device=Device(memory_bandwidth=100.0))
FLOAT32 = Precision("float32", "float32", "float32")
FORWARD, BACKWARD, PASS = 10.0, 20.0, 4.0
STANDING = 800 + 1600  # parameters and optimizer states


class TenSeconds(Pricer):
    """Every collective takes ten seconds."""

    def __call__(self, call: Call) -> Price:
        return Price(10.0, 0.0, "ring", "none", call.bytes, {})


def model(*shapes: tuple[int, ...], dtypes: tuple[str | None, ...] = (None, None), **more: Any) -> Model:
    layers = []
    for number, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=False)):
        weight = Parameter(f"{number}.weight", shape, dtype)
        layers.append(Layer(str(number), (Module(f"{number}", "linear", (weight,)),)))
    return Model("two", "plain", tuple(layers), tuple(f"{n}.weight" for n in range(len(layers))), **more)


TWO = model((10, 10), (10, 10))


def training(of: Model = TWO, **more: Any) -> Training:
    seconds = {module.name: ModuleSeconds(FORWARD, BACKWARD) for layer in of.layers for module in layer.modules}
    given = {"optimizer": Optimizer(master=False), "precision": FLOAT32, "cluster": CLUSTER} | more
    return Training(of, given.pop("cluster"), 1, 1, seconds, **given)


def ddp(of: Model = TWO, options: dict[str, Any] | None = None, **more: Any) -> Step:
    one = training(of, **more)
    return simulate_step(one, "ddp", {"bucket_cap": 400, **(options or {})}, pricer=TenSeconds(one.cluster))


def kernels(step: Step) -> float:
    """Seconds of kernels, beside the passes through the model and the optimizer."""
    count = step.training.accumulation
    known = count * 2 * (FORWARD + BACKWARD) + 28 * 200 / 100
    return sum(s.seconds for s in step.timeline.of_rank(0) if s.operation.kind == "compute") - known


VIEWS = {"gradient_as_bucket_view": True}
ZERO = {"zero_grad": "zero"}


@pytest.mark.parametrize(
    ("options", "more", "passes"),
    [
        ({}, {}, 4 + 4),  # into buckets and back: a read and a write each, of two layers
        (VIEWS, {}, 4),  # the copies in remain: gradients are made anew
        (ZERO, {}, 2 + 6 + 4 + 4),  # zeroed (a write), added (two reads and a write), in and back
        (VIEWS | ZERO, {}, 2 + 6 + 4),  # zeroed, added, and divided in place
        (VIEWS | ZERO, {"iteration": 0}, 4),  # there are none yet
        (VIEWS | ZERO, {"iteration": 1}, 2 + 6 + 4),  # of the old buckets: copied into the new ones
        ({}, {"accumulation": 3}, 12 + 4 + 4),  # two more micro-batches are added; then in and back once
        ({"no_sync": False}, {"accumulation": 3}, 12 + 3 * (4 + 4)),
        (VIEWS, {"accumulation": 3}, 12 + 4),
        (VIEWS | {"no_sync": False}, {"accumulation": 3}, 12 + 4 + 2 * 4),  # copied once, then divided in place
        (VIEWS | ZERO, {"accumulation": 3}, 2 + 18 + 4),
        ({"hook": "fp16"}, {}, 4 + 3 + 2 + 3 + 4),  # a cast (a read and half a write), a division, a cast back
        (VIEWS | ZERO | {"hook": "bf16"}, {}, 2 + 6 + 3 + 2 + 3),  # the hook divides
        ({"hook": "powersgd"}, {"iteration": 10}, 4 + 4 + 4),  # before its start it divides the buckets in place
    ],
)
def test_kernels_of_ddp(options: dict[str, Any], more: dict[str, Any], passes: float) -> None:
    """In passes over one layer's gradients: a copy of both layers is four, a read and a write of each."""
    assert kernels(ddp(options=options, **more)) == pytest.approx(passes * PASS)


def test_a_hook_of_the_dtype_of_the_bucket_only_divides() -> None:
    narrow = Precision("float16", "float16", "float16")
    step = ddp(options={"hook": "fp16", "bucket_cap": 200}, precision=narrow)
    # Of each layer 200 B are copied in and back, and divided in place; the optimizer moves 8 + 2 + 2 + 8 + 2 B each.
    moved = 200 * (8 + 2 + 2 + 8 + 2)
    compute = sum(s.seconds for s in step.timeline.of_rank(0) if s.operation.kind == "compute")
    assert compute == pytest.approx(60 + moved / 100 + (8 + 4) * 2)
    assert "compressed buckets" not in step.most_bytes
    assert [c.bytes for c in step.collectives] == [200, 200]


@pytest.mark.parametrize(
    ("options", "more", "peak"),
    [
        ({}, {}, {"gradients": 800}),
        (VIEWS, {}, {"gradients": 400}),  # a layer's at a time
        (ZERO, {}, {"gradients": 800, "gradients to be added": 400}),
        (VIEWS | ZERO, {}, {"gradients to be added": 400}),
        (VIEWS | ZERO, {"iteration": 1}, {"gradients": 800, "gradients to be added": 400}),  # old buckets and new
        (VIEWS | ZERO, {"iteration": 2}, {"gradients to be added": 400}),
        ({}, {"accumulation": 2}, {"gradients": 800, "gradients to be added": 400}),
        (VIEWS, {"accumulation": 2}, {"gradients": 800, "gradients to be added": 400}),  # apart under no_sync
        (VIEWS | {"no_sync": False}, {"accumulation": 2}, {"gradients": 400}),
        ({"hook": "fp16"}, {}, {"gradients": 800, "compressed buckets": 200}),  # in 16 bits, one at a time
    ],
)
def test_memory_of_ddp(options: dict[str, Any], more: dict[str, Any], peak: dict[str, int]) -> None:
    """Parameters, optimizer states and buckets stand all the time; the rest is what stands at the peak."""
    step = ddp(options=options, **more)
    expected = {"parameters": 800, "optimizer states": 1600, "buckets": 800, **peak}
    assert dict(step.memory) == expected
    assert step.peak_bytes == sum(expected.values())


def test_zeroed_gradients_outlive_the_first_step() -> None:
    first = ddp(options=ZERO, iteration=0)
    assert sum(change.bytes for change in first.timeline.memory) == STANDING + 800 + 800
    assert sum(change.bytes for change in ddp(iteration=0).timeline.memory) == STANDING + 800


def test_activations_and_recomputation() -> None:
    """Each layer keeps 5 B from its forward to its backward, and holds 100 B while it is computed, or again."""
    held = {"0": LayerBytes(5, 100), "1": LayerBytes(5, 100)}
    step = ddp(activations=held)
    assert step.most_bytes["activations"] == 10
    assert step.most_bytes["activations while computed"] == 100
    assert step.peak_bytes == STANDING + 800 + 800 + 100 + 5  # the second backward, with both gradients


def test_a_gradient_copy_stands_while_the_optimizer_runs() -> None:
    step = ddp(optimizer=Optimizer(gradient_copy=True))
    assert step.memory["gradients in float32"] == 800
    assert step.peak_bytes == 800 + 2400 + 800 + 800 + 800


def test_buffers_are_sent_before_a_synchronised_forward() -> None:
    """One broadcast for each dtype, copied together and apart: 8 and 40 B, twice each way."""
    buffers = (Parameter("mean", (2,)), Parameter("batches", (5,), "int64"))
    of = model((10, 10), (10, 10), buffers=buffers)
    step = ddp(of)
    sent = [(c.kind, c.elements, c.dtype, c.phase) for c in step.collectives if c.kind == "broadcast"]
    assert sent == [("broadcast", 2, "float32", "forward"), ("broadcast", 5, "int64", "forward")]
    assert kernels(step) == pytest.approx(8 * PASS + 2 * 2 * 48 / 100)
    assert step.memory["buffers"] == 48
    assert not [c for c in ddp(of, {"broadcast_buffers": False}).collectives if c.kind == "broadcast"]
    # Under no_sync only what follows a reduced backward pass is preceded by a broadcast.
    for no_sync, count in ((True, 1), (False, 3)):
        several = ddp(of, {"no_sync": no_sync}, accumulation=3)
        assert sum(c.kind == "broadcast" for c in several.collectives) == 2 * count


def test_buckets_in_registration_order_do_not_overlap() -> None:
    """The first bucket holds the first layer, whose gradient comes last: all wait for it."""
    ready, registered = ddp(), ddp(options={"bucket_order": "registration"})
    assert [c.start for c in ready.collectives] == [20 + 20 + 8, 20 + 40 + 16]
    assert [c.start for c in registered.collectives] == [76, 86]


def test_the_next_forward_waits_for_the_buckets() -> None:
    """Also where gradients are views, and nothing is copied back."""
    step = ddp(options=VIEWS | {"no_sync": False}, accumulation=2)
    ends = [c.end for c in step.collectives]
    starts = [s.start for s in step.timeline.of_rank(0) if s.operation.phase == "forward"]
    assert min(start for start in starts if start >= ends[0]) == ends[1]


def test_unused_parameters_are_looked_for() -> None:
    """A number for each parameter, after the last bucket; in a static graph only in its first iteration."""
    found = ddp(options={"find_unused_parameters": True}).collectives
    assert [(c.elements, c.dtype) for c in found] == [(100, "float32"), (100, "float32"), (2, "int32")]
    for iteration, count in ((0, 1), (1, 0), (None, 0)):
        static = ddp(options={"find_unused_parameters": True, "static_graph": True}, iteration=iteration)
        assert sum(c.dtype == "int32" and c.kind == "all_reduce" for c in static.collectives) == count


WIDE = model((100, 100), (40, 2))


def test_power_sgd() -> None:
    """100 x 100 becomes P and Q of 100 elements each; 40 x 2 is left as it is: 2 (40 + 2) is more than 80."""
    first, second = (layer.modules[0].parameters[0] for layer in WIDE.layers)
    assert is_compressed(first, 1)
    assert not is_compressed(second, 1)
    assert not is_compressed(Parameter("bias", (1000,)), 1)
    assert is_compressed(Parameter("convolution", (64, 3, 7, 7)), 4)  # as 64 x 147
    options = {"hook": "powersgd", "bucket_cap": 1e6, "powersgd_rank": 3}
    (bucket,) = buckets_of(training(WIDE), resolve_strategy_options(find_strategy("ddp"), options))
    assert factor_elements(bucket, 3) == (80, 300, 300)
    step = ddp(WIDE, options)
    assert [c.elements for c in step.collectives] == [80, 300, 300]
    assert all(c.start >= before.end for before, c in itertools.pairwise(step.collectives))
    whole, apart, matrices, factor = 40_320, 320, 40_000, 1200
    # Added error, copy, uncompressed together, P; uncompressed apart; Q; gradients; the new error.
    moved = [3 * whole + 2 * whole + 2 * apart + matrices + factor, 4 * apart]
    moved += [matrices + 2 * factor, matrices + 4 * factor, 3 * whole]
    copies = 2 * 2 * whole  # into the bucket and back
    compute = sum(s.seconds for s in step.timeline.of_rank(0) if s.operation.kind == "compute")
    assert compute == pytest.approx(60 + (28 * 10_080 + copies + sum(moved)) / 100)
    assert step.most_bytes["error feedback"] == whole
    assert step.most_bytes["factors P and Q"] == 2 * factor
    assert step.most_bytes["copies of buckets"] == 2 * whole
    early = ddp(WIDE, options, iteration=999)
    assert [c.elements for c in early.collectives] == [10_080]
    assert "error feedback" not in early.most_bytes


def test_power_sgd_stops_the_host() -> None:
    """The hook waits for the whole device: nothing is issued meanwhile, so that nothing overlaps."""
    step = ddp(options={"hook": "powersgd"})
    waits = [s for s in step.timeline.of_rank(0) if s.operation.kind == "host"]
    assert len(waits) == 2
    second = next(s for s in step.timeline.of_rank(0) if s.operation.name == "0 backward")
    assert second.start == waits[0].end > max(c.end for c in step.collectives[:3])
    assert step.overlap == 0


def test_all_reduce_once() -> None:
    step = simulate_step(training(accumulation=2), "all_reduce_once", pricer=TenSeconds(CLUSTER))
    assert [(c.elements, c.start, c.phase) for c in step.collectives] == [(200, 144, "backward")]
    assert step.step_seconds == 144 + 10 + 56
    assert step.exposed_seconds == 10
    assert kernels(step) == pytest.approx(6 * PASS)
    assert step.peak_bytes == STANDING + 800 + 400


def test_gradients_of_two_dtypes_are_two_messages() -> None:
    of = model((10, 10), (10, 10), dtypes=("float32", "bfloat16"))
    for name in ("all_reduce_once", "parameter_server"):
        step = simulate_step(training(of), name, pricer=TenSeconds(CLUSTER))
        assert [(c.elements, c.dtype) for c in step.collectives] == [(100, "float32"), (100, "bfloat16")]
    assert [(c.elements, c.dtype) for c in ddp(of, {"bucket_cap": 200}).collectives] == [
        (100, "bfloat16"),
        (100, "float32"),
    ]


def test_parameter_servers_hold_the_optimizer() -> None:
    """Dedicated ones, all of it; workers that are servers, a share each."""
    for options, states in (({}, 0), ({"servers": "co_located"}, 8 * 100)):
        step = simulate_step(training(), "parameter_server", options, pricer=TenSeconds(CLUSTER))
        assert step.most_bytes.get("optimizer states", 0) == states
        assert step.peak_bytes == 800 + 800 + states
        assert step.step_seconds == 60 + 10
        assert sum(change.bytes for change in step.timeline.memory) == 800 + states


def test_parameter_servers_send_twice_through_one_port() -> None:
    """2 N M / (k B): two workers, one server, 800 B at 1 B/s; with a server on both, 2 x 400 B."""
    one = simulate_step(training(), "parameter_server")
    assert one.communication_seconds == 2 * 2 * 800
    assert one.sent_bytes == {"all_reduce": 800}
    both = simulate_step(training(), "parameter_server", {"servers": "co_located"})
    assert both.communication_seconds == 2 * 400


@pytest.mark.parametrize("strategy", STRATEGIES, ids=[strategy.name for strategy in STRATEGIES])
def test_one_rank_communicates_nothing(strategy: Any) -> None:
    """The calls are there, as PyTorch issues them, and cost nothing; there is nothing to overlap."""
    alone = training(cluster=Cluster.flat(1, Link(1.0, 1.0)))
    step = simulate_step(alone, strategy.name)
    assert step.communication_seconds == step.exposed_seconds == step.idle_seconds == 0
    assert step.overlap is None
    assert step.efficiency == 1
    assert step.step_seconds == 60
    assert {c.group_size for c in step.collectives} <= {1}
    assert sum(step.sent_bytes.values()) == 0


def test_a_slow_rank_sets_the_pace() -> None:
    """Rank 1 takes twice as long, for its optimizer, too: in the steady state it is never waited for at its start.

    Its step takes 2 x (60 + 56) s of kernels and one all-reduce of 10 s that nobody else hides; rank 0 waits the rest.
    """
    step = simulate_step(training(slow={1: 2.0}), "all_reduce_once", pricer=TenSeconds(CLUSTER))
    assert step.step_seconds == 2 * 116 + 10
    assert step.compute_seconds == 116
    assert step.waiting_seconds == 116
    assert step.exposed_seconds == 126
    assert step.idle_seconds == 0
    assert step.communication_seconds == 126
    (collective,) = step.collectives
    assert (collective.start, collective.end) == (176, 186)
    first = simulate_step(training(slow={1: 2.0}, iteration=0), "all_reduce_once", pricer=TenSeconds(CLUSTER))
    assert first.step_seconds == 120 + 10 + 56
    assert first.waiting_seconds == 60


@pytest.mark.parametrize("factors", [(2.0, 1.0), (2.0, 2.0)])
def test_a_slow_rank_waits_for_nobody(factors: tuple[float, float]) -> None:
    slow = dict(enumerate(factors))
    step = simulate_step(training(slow=slow), "all_reduce_once", pricer=TenSeconds(CLUSTER))
    assert step.step_seconds == 2 * 116 + 10
    assert step.waiting_seconds == 0
    assert min(span.start for span in step.timeline.spans) == 0


@pytest.mark.parametrize(
    ("slow", "played"),
    [
        ({}, [0]),
        ({1: 2.0}, [0, 1]),
        ({0: 2.0}, [0, 1]),
        ({2: 1.5, 3: 1.5, 1: 1.2}, [0, 1, 2]),
        ({1: 1.0}, [0]),
        ({0: 2.0, 1: 2.0, 2: 2.0, 3: 2.0}, [0]),
    ],
)
def test_one_rank_of_each_speed_is_played(slow: dict[int, float], played: list[int]) -> None:
    four = Cluster.flat(4, Link(0.0, 1.0))
    step = simulate_step(training(cluster=four, slow=slow), "all_reduce_once")
    assert sorted({span.rank for span in step.timeline.spans}) == played


def test_options_are_all_checked_at_once() -> None:
    with pytest.raises(InputError) as caught:
        simulate_step(
            training(), "ddp", {"bucket_cap": "25", "buckets": 3, "static_graph": "yes", "hook": "fp8", "no_sync": True}
        )
    found = {problem.place: problem.message for problem in caught.value.problems}
    assert list(found) == ["bucket_cap", "buckets", "static_graph", "hook"]
    assert "25 MiB" in found["bucket_cap"] or "no unit" in found["bucket_cap"]
    assert "ddp has no option" in found["buckets"]
    assert "write true or false" in found["static_graph"]
    assert "fp16" in found["hook"]
    with pytest.raises(InputError, match=r'"dpp" is not a strategy; did you mean "ddp"\?'):
        find_strategy("dpp")
    with pytest.raises(InputError, match=r"\['ddp'\] is not a strategy; there are: ddp"):
        find_strategy(["ddp"])  # type: ignore[arg-type]


@pytest.mark.parametrize("caps", [[], ["25 MiB", "1 apple"], -1, float("inf"), True])
def test_wrong_caps(caps: Any) -> None:
    with pytest.raises(InputError, match="bucket_cap: ddp: "):
        resolve_strategy_options(find_strategy("ddp"), {"bucket_cap": caps})


@pytest.mark.parametrize(
    ("name", "options", "label"),
    [
        ("ddp", {}, "ddp"),
        ("ddp", {"bucket_cap": None, "no_sync": True}, "ddp"),
        ("ddp", {"bucket_cap": "25 MiB"}, "ddp (bucket_cap: 25 MiB)"),
        ("ddp", {"bucket_cap": ["1 MiB", "50 MB"]}, "ddp (bucket_cap: [1 MiB, 50 MB])"),
        ("ddp", {"static_graph": True, "no_sync": False}, "ddp (static_graph: true, no_sync: false)"),
        ("ddp", {"hook": "powersgd", "powersgd_rank": 4}, "ddp (hook: powersgd, powersgd_rank: 4)"),
        ("parameter_server", {"servers": "co_located"}, "parameter_server (servers: co_located)"),
        ("all_reduce_once", None, "all_reduce_once"),
    ],
)
def test_labels_show_what_is_not_a_default(name: str, options: dict[str, Any] | None, label: str) -> None:
    strategy = find_strategy(name)
    assert label_of(strategy, resolve_strategy_options(strategy, options)) == label


@pytest.mark.parametrize(
    ("options", "warnings"),
    [
        ({}, []),
        ({"bucket_cap": 799}, []),
        ({"bucket_cap": 800}, ["smaller than bucket_cap (800 B): one bucket"]),
        ({"bucket_cap": ["1 MiB", "25 MiB"]}, ["smaller than bucket_cap (1 MiB): one bucket"]),
        ({"bucket_cap": [400, "25 MiB"]}, []),
        ({"bucket_cap": 400, "powersgd_rank": 2}, ["powersgd_rank does nothing without hook: powersgd"]),
        ({"bucket_cap": 400, "hook": "powersgd", "powersgd_rank": 2}, []),
    ],
)
def test_warnings_of_ddp(options: dict[str, Any], warnings: list[str]) -> None:
    found = simulate_step(training(), "ddp", options).warnings
    assert len(found) == len(warnings)
    assert all(text in warning for text, warning in zip(warnings, found, strict=True))


def test_one_bucket_overlaps_nothing_as_the_warning_says() -> None:
    step = ddp(options={"bucket_cap": 800})
    assert step.warnings
    assert step.overlap == 0


def test_warning_of_parameter_servers() -> None:
    mixed = Precision("bfloat16", "bfloat16", "float32")
    (warning,) = simulate_step(training(precision=mixed), "parameter_server").warnings
    assert "sends parameters as float32" in warning
    assert simulate_step(training(), "parameter_server").warnings == ()
