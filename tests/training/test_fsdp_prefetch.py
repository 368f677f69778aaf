"""What FSDP's prefetching hides, over random models: formulas for compute-bound and for communication-bound steps.

Copies take no time and links have no latency, so that a collective lasts (N - 1)/N of its bytes over the bandwidth. An
embedding takes no time; F and B are seconds of a forward and a backward.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcollectives.cluster import Cluster, Link
from simcollectives.training.catalogue import load_model
from simcollectives.training.model import Layer, Model
from simcollectives.training.prepare import prepare_training
from simcollectives.training.setup import ModuleSeconds, Precision, Training
from simcollectives.training.step import Step, simulate_step
from simcollectives.training.workload import Workload
from tests.training.fsdp_cases import module
from tests.training.steps import H100, INFINIBAND, NVLINK

RANKS, BANDWIDTH = 4, 12.0
EXACT = {"rel": 1e-9, "abs": 1e-9}


@dataclass(frozen=True)
class Made:
    """Rows of the tensors of embedding and head together, and of each block; seconds of head and blocks."""

    root: int
    blocks: tuple[int, ...]
    head: tuple[float, float]
    seconds: tuple[tuple[float, float], ...]

    @property
    def gathers(self) -> list[float]:
        """Seconds of the collectives of blocks; reduce-scatters last as long."""
        return [seconds_of(rows) for rows in self.blocks]


def seconds_of(rows: int) -> float:
    return (RANKS - 1) * rows * 4 / RANKS / BANDWIDTH


def run(made: Made, strategy: str = "fsdp2", options: dict[str, Any] | None = None, micro_batches: int = 1) -> Step:
    embedding = module("embed", "embedding", weight=(made.root // 2,))
    head = module("head", "linear", weight=(made.root // 2,))
    blocks = [Layer(f"{n}", (module(f"{n}", "linear", weight=(rows,)),)) for n, rows in enumerate(made.blocks)]
    layers = (Layer("embed", (embedding,), block=False), *blocks, Layer("head", (head,), block=False))
    registration = tuple(p.name for layer in layers for part in layer.modules for p in part.parameters)
    seconds = {f"{n}": ModuleSeconds(*pair) for n, pair in enumerate(made.seconds)}
    seconds |= {"embed": ModuleSeconds(0.0, 0.0), "head": ModuleSeconds(*made.head)}
    training = Training(
        Model("made", "plain", layers, registration),
        Cluster.flat(RANKS, Link(0.0, BANDWIDTH)),
        1,
        1,
        seconds,
        accumulation=micro_batches,
        precision=Precision("float32", "float32", "float32"),
    )
    return simulate_step(training, strategy, options)


@st.composite
def computing(draw: st.DrawFn) -> Made:
    """Blocks that compute for longer than what runs beside them: any gather in forward, both kinds in backward.

    The forward of the last block, and the head, may be short.
    """
    rows = [RANKS * n for n in draw(st.lists(st.integers(1, 9), min_size=1, max_size=6))]
    longest = seconds_of(max(rows))
    slack = st.floats(1.0, 3.0)
    seconds = [(longest * draw(slack), 2 * longest * draw(slack)) for _ in rows]
    seconds[-1] = draw(st.floats(0.0, 2 * longest)), seconds[-1][1]
    head = draw(st.floats(0.0, longest)), draw(st.floats(0.0, longest))
    return Made(2 * RANKS * draw(st.integers(1, 9)), tuple(rows), head, tuple(seconds))


@settings(max_examples=20)
@given(computing())
def test_what_a_compute_bound_step_exposes(made: Made) -> None:
    """AG(root) + AG(first) + what the last block's second gather has too little time for + RS(first) + RS(root).

    The host runs ahead of the device: that gather begins with the forward of the last block. If the host waits for the
    loss it begins with the backward of the head.
    """
    gathers, (head_forward, head_backward) = made.gathers, made.head
    ends = 2 * seconds_of(made.root) + 2 * gathers[0]
    hidden = made.seconds[-1][0] + head_forward + head_backward
    assert run(made).exposed_seconds == pytest.approx(ends + max(0.0, gathers[-1] - hidden), **EXACT)
    waiting = run(made, options={"host_reads_loss": True})
    assert waiting.exposed_seconds == pytest.approx(ends + max(0.0, gathers[-1] - head_backward), **EXACT)


@settings(max_examples=15)
@given(computing())
def test_explicit_prefetch_in_forward_changes_only_the_order(made: Made) -> None:
    """The next gather waits for the same copy, whether the host has run ahead or was told to."""
    implicit = run(made)
    explicit = run(made, options={"forward_prefetch": 1})
    assert explicit.step_seconds == pytest.approx(implicit.step_seconds, **EXACT)
    assert [c.elements for c in explicit.collectives] == [c.elements for c in implicit.collectives]


@settings(max_examples=15)
@given(computing())
def test_fsdp1_without_prefetch_in_backward_hides_nothing_there(made: Made) -> None:
    """Each gather is issued after the reduce-scatter of the block before it, and both run while nothing is computed.

    With BACKWARD_PRE, and no limit, a step exposes what FSDP2 does.
    """
    gathers, unlimited = made.gathers, {"limit_all_gathers": False}
    ends = 2 * seconds_of(made.root) + 2 * gathers[0]
    early = run(made, "fsdp1", {**unlimited, "backward_prefetch": "BACKWARD_PRE"})
    late = run(made, "fsdp1", {**unlimited, "backward_prefetch": "none"})
    between = sum(gathers[1:]) + sum(gathers[:-1])
    assert early.exposed_seconds <= ends + gathers[-1] + 1e-9
    assert late.exposed_seconds >= ends + between - 1e-9
    assert late.exposed_seconds <= ends + between + gathers[-1] + 1e-9


@st.composite
def communicating(draw: st.DrawFn) -> Made:
    """Blocks that compute for less than the shortest collective."""
    rows = [RANKS * n for n in draw(st.lists(st.integers(1, 9), min_size=1, max_size=6))]
    root = 2 * RANKS * draw(st.integers(1, 9))
    short = st.floats(0.0, seconds_of(min([*rows, root])))
    pairs = [(draw(short), draw(short)) for _ in range(len(rows) + 1)]
    return Made(root, tuple(rows), pairs[0], tuple(pairs[1:]))


@settings(max_examples=20)
@given(communicating())
def test_a_communication_bound_step_lasts_as_long_as_its_collectives(made: Made) -> None:
    """And at most the forward of the last block and of the head, and the last block's backward, longer.

    The optimizer takes no time here.
    """
    step = run(made)
    longest = made.seconds[-1][0] + made.head[0] + made.seconds[-1][1]
    assert step.communication_seconds == pytest.approx(2 * seconds_of(made.root) + 3 * sum(made.gathers), **EXACT)
    assert step.communication_seconds <= step.step_seconds + 1e-9
    assert step.step_seconds <= step.communication_seconds + longest + 1e-9


def test_a_step_by_hand() -> None:
    """Three blocks, gathers and reduce-scatters of 3 s, forwards of 3 s, backwards of 4 s.

    The root's gather apart, the first block is gathered 0 to 3, forward is 3 to 12, and from 9 to 12 the third block is
    gathered again. Backward: the third block's is 12 to 16. The second is gathered 12 to 15, the third reduced 16 to
    19, the first gathered 19 to 22, since it was issued later. The second block's backward is 16 to 20, its reduction
    22 to 25; the first block's backward is 22 to 26, its reduction 26 to 29. Then the root is reduced.
    """
    made = Made(2 * RANKS, (12, 12, 12), (0.0, 0.0), ((3.0, 4.0),) * 3)
    root = seconds_of(made.root)
    assert made.gathers == [3.0, 3.0, 3.0]
    step = run(made)
    assert [(c.kind, c.name, c.end - root) for c in step.collectives] == [
        ("all_gather", "root", 0.0),
        ("all_gather", "0", 3.0),
        ("all_gather", "1", 6.0),
        ("all_gather", "2", 9.0),
        ("all_gather", "2", 12.0),
        ("all_gather", "1", 15.0),
        ("reduce_scatter", "2", 19.0),
        ("all_gather", "0", 22.0),
        ("reduce_scatter", "1", 25.0),
        ("reduce_scatter", "0", 29.0),
        ("reduce_scatter", "root", 29.0 + root),
    ]


@settings(max_examples=20)
@given(computing(), st.integers(2, 3))
def test_gradient_accumulation_repeats_the_gathers(made: Made, micro_batches: int) -> None:
    """Gathers in every micro-batch, reductions in every one or in the last; kept units are gathered once."""
    blocks = len(made.blocks)
    for options, gathers, reductions in (
        ({}, micro_batches * (2 * blocks + 1), micro_batches * (blocks + 1)),
        ({"gradient_sync": "last"}, micro_batches * (2 * blocks + 1), blocks + 1),
        (
            {"reshard_after_backward": False, "reshard_after_forward": False, "gradient_sync": "last"},
            blocks + 1,
            blocks + 1,
        ),
    ):
        kinds = [c.kind for c in run(made, options=options, micro_batches=micro_batches).collectives]
        assert (kinds.count("all_gather"), kinds.count("reduce_scatter")) == (gathers, reductions)


def test_405_billion_parameters_on_16384_ranks() -> None:
    """Two all-gathers for each of 126 blocks, one for the root, 127 reduce-scatters; rows are filled up to 16,384.

    A block's keys and values have 1,024 rows, which cost 16 times their size; the feed-forward's 53,248 cost 65,536.
    """
    model = load_model("llama-3.1-405b")
    assert model.elements == 405_853_388_800
    cluster = Cluster.two_level(2048, 8, NVLINK, INFINIBAND, device=H100)
    seconds = {layer.name: (0.01, 0.02) for layer in model.layers}
    training = prepare_training(model, cluster, Workload(1, 8192), layer_seconds=seconds)
    step = simulate_step(training, "fsdp2")
    kinds = [c.kind for c in step.collectives]
    assert (kinds.count("all_gather"), kinds.count("reduce_scatter")) == (253, 127)
    hidden, block = 16384, step.collectives[1]
    attention = 2 * hidden * hidden + 2 * hidden * hidden
    feed_forward = 2 * 65536 * hidden + hidden * 53248
    assert block.elements == attention + feed_forward + 2 * hidden
