# ruff: noqa: E501, SIM905  (a scenario and its problems each stand on one line)
"""Whatever a file holds, it is a scenario or bad input: never a traceback, never a NaN."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simcollectives.errors import InputError
from simcollectives.scenario import run_scenario
from simcollectives.scenario.build import build_cluster, planned_runs
from simcollectives.scenario.loading import load_document
from simcollectives.scenario.numerics.types import NumericsScenario
from simcollectives.scenario.source_file import decode
from simcollectives.scenario.training.build import settings_at
from simcollectives.scenario.training.types import AnyScenario, TrainingScenario
from simcollectives.scenario.types import CrossoverExpectation
from simcollectives.scenario.yaml_text import parse_document

LINK = {"alpha": "5 us", "bandwidth": "450 GB/s", "overhead": "0 s"}
BASES: list[dict[str, Any]] = [
    {
        "title": "flat",
        "cluster": {"devices": 4, "link": LINK, "gamma": "2 ps/B", "rank_order": [3, 2, 1, 0]},
        "collective": {
            "name": "all_reduce",
            "dtype": "float32",
            "message": "1 KiB",
            "algorithms": ["ring", {"rabenseifner": {"order": "far"}}, "naive", "parameter_server"],
        },
        "sweep": [
            {"message": {"from": "4 B", "to": "4 KiB", "factor": 8}},
            {"parameter_server.servers": [1, 2, "co_located"], "message": ["1 KiB"]},
        ],
        "engine": "auto",
        "verify": "auto",
        "expect": [
            {"crossover": ["ring", "naive"], "along": "message", "from": "4 B", "to": "4 KiB", "at_most": "1 KB"},
            {"seconds": {"algorithm": "ring", "message": "1 KiB"}, "equals": "30 us", "rel": "1%", "because": "why"},
            {"ratio": [{"algorithm": "ring"}, {"algorithm": "naive"}], "message": "4 KiB", "between": [0, 9.5]},
            {"order": ["naive", "ring"], "of": "rounds", "message": "4 B"},
        ],
        "timeline": {"algorithm": "ring", "message": "4 B", "devices": 4},
        "contributions": {"algorithm": "ring"},
    },
    {
        "title": "nodes",
        "cluster": {"nodes": 2, "gpus_per_node": 2, "intra": LINK, "inter": {"alpha": "10 us", "bandwidth": "400 Gb/s"}},
        "collective": {"name": "reduce", "root": 1, "algorithms": ["tree", "direct"]},
        "sweep": {"nodes": [1, 2], "message": {"from": "0 B", "to": "1 KiB", "step": "512 B"}},
        "engine": "lockstep",
        "expect": [{"bytes_sent_max_inter": {"algorithm": "tree", "message": "4 B", "nodes": 2}, "equals": "4 B", "abs": "0 B"}],
    },
    {
        "title": "machine",
        "description": "measured",
        "cluster": {"machine": "dgx-h100", "nodes": 1},
        "collective": {"name": "all_reduce", "message": "1 KiB", "algorithms": ["butterfly", "hierarchical"]},
        "measured": {"set": "h100_1n8_aws_p5_allreduce_auto", "algorithm": "butterfly", "min": "1 KiB", "max": "64 KiB"},
    },
    {
        "title": "shared and random",
        "cluster": {
            "nodes": 2, "gpus_per_node": 2, "intra": LINK, "inter": LINK, "nics_per_node": 1,
            "pcie_switch": {"gpus": 2, "bandwidth": "63 GB/s"}, "leaf": {"nodes": 1, "oversubscription": 2},
            "slow": [{"rank": 3, "bandwidth": "50%", "gamma": 2}, {"link": [0, 1], "alpha": 2, "level": "intra"}],
        },
        "collective": {"name": "all_reduce", "message": "1 KiB", "algorithms": ["ring", "hierarchical"]},
        "skew": {"ranks": {"3": "10 us"}},
        "jitter": {"alpha": {"lognormal": "20%"}, "bandwidth": {"gamma": 0.1}, "reduction": {"gamma": "1%"}},
        "seed": 3,
        "seeds": 4,
        "expect": [{"seconds_p99": {"algorithm": "ring"}, "at_least": "1 us"}],
    },
    {
        "title": "levels",
        "cluster": {"levels": [
            {"name": "nvlink", "size": 2, **LINK}, {"name": "rail", "size": 2, **LINK},
            {"name": "spine", "size": 2, "ports_of": "rail", **LINK},
        ]},
        "collective": {"name": "all_reduce", "message": "1 KiB", "algorithms": ["ring", "hierarchical"]},
        "sweep": {"rail.bandwidth": ["50 GB/s", "5 GB/s"]},
    },
    {
        "title": "mesh",
        "cluster": {"full_mesh": 4, "link": LINK},
        "collective": {"name": "all_reduce", "message": "1 KiB", "algorithms": ["ring", "direct"]},
        "sweep": {"devices": [2, 4]},
    },
    {
        "title": "torus",
        "cluster": {"torus": [2, 3], "link": LINK, "gamma": "1 ps/B"},
        "collective": {"name": "all_to_all", "message": "1 KiB", "algorithms": ["direct", "pairwise"]},
    },
]  # fmt: skip
STEPS: list[dict[str, Any]] = [
    {
        "title": "ddp",
        "cluster": {"devices": 4, "link": LINK, "device": {"peak": {"bfloat16": "989 TFLOP/s"}, "memory": "80 GB"}},
        "training": {
            "model": {"parameters": 1000.0, "layers": 2, "tensors_per_layer": 2},
            "strategies": ["ddp", {"ddp": {"bucket_cap": ["1 KB", "4 KB"], "hook": "powersgd"}}, "all_reduce_once"],
            "sequence": 16, "micro_batch": 2, "accumulation": 2, "train_batch": 16, "mfu": "45%", "step": "steady",
            "optimizer": {"name": "adam", "master": True}, "slow": {"3": "120%"}, "collectives": {"all_reduce": "ring"},
        },
        "expect": [
            {"crossover": ["all_reduce_once", "ddp"], "along": "sequence", "from": 1, "to": 64, "at_most": 3},
            {"efficiency": {"strategy": "all_reduce_once", "mfu": "9%"}, "equals": "30%", "abs": "1%", "because": "why"},
            {"ratio": [{"strategy": "ddp"}, {"strategy": "all_reduce_once"}], "of": "overlap", "between": [0, 9.5]},
            {"order": ["all_reduce_once", "ddp"], "of": "peak_bytes"},
        ],
        "timeline": [{"strategy": "ddp", "link.alpha": "1 us"}],
    },
    {
        "title": "sweep",
        "cluster": {"nodes": 2, "gpus_per_node": 2, "intra": LINK, "inter": LINK},
        "training": {
            "model": {"tensors": {"a.0.weight": [3, 4], "a.1.weight": [5]}}, "strategy": "ddp", "sequence": 2,
            "layer_seconds": {"block": {"forward": "1 us", "backward": "2 us"}}, "dtype": "float32",
        },
        "sweep": [{"ddp.bucket_cap": {"from": "4 B", "to": "1 KB", "factor": 8}}, {"nodes": [1, 2], "accumulation": [1, 3]}],
    },
    {
        "title": "model",
        "cluster": {"machine": "dgx-h100", "nodes": 1},
        "training": {
            "model": "resnet-18", "strategy": "ddp", "sequence": 1, "recomputation": "none", "attention_flops": "causal",
            "parameters": "float32", "gradients": "bfloat16",
        },
        "sweep": {"mfu": ["10%", 0.5]},
        "timeline": {"mfu": 1},
    },
]  # fmt: skip
BASES += STEPS
KEYS = """
title cluster devices nodes gpus_per_node link intra inter machine alpha overhead bandwidth gamma rank_order collective
algorithms message root dtype sweep from to factor step points expect crossover along ratio order of equals rel abs busbw
at_most at_least between seconds algorithm link.alpha inter.bandwidth ring.order verify parameter_server.servers
hierarchical.intra full_mesh torus mesh levels ports_of slow rank rails oversubscription nics_per_node leaf pcie_switch gpus
skew ranks random jitter lognormal seed seeds rail.alpha spine.bandwidth measured timeline contributions level min a.b
training model strategy strategies parameters layers tensors config sequence micro_batch accumulation mfu optimizer
ddp ddp.bucket_cap ddp.no_sync layer_seconds forward backward recomputation step_seconds overlap peak_bytes device peak 3
""".split()
WORDS = """
ring tree direct message devices co_located near far auto float64 int8 always all_gather broadcast all_to_all
reduce_scatter round_robin ddp parameter_server sequence full first adam gpt2 bfloat16 dgx-b200 0.5% 1e300 { \u2028 \U0001f642
""".split()
QUANTITIES = "0 B,4 B,12 B,1 KiB,1 TiB,1e400 B,3 us,0 s,1e-300 s,-1 s,1 B/s,1 GB/s,1e18 B/s,2 ps/B,a: b,".split(",")
NUMBERS = (0, 1, 2, 3, -1, 8, 16, 2**40, 10**30, -0.0, 0.5, 1e-320, 1e300, 5e-324)
SCALARS = st.one_of(
    st.sampled_from([None, True, False, *NUMBERS, *WORDS, *QUANTITIES]),
    st.integers(-5, 20),
    st.text(max_size=5),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=3)),
    max_leaves=5,
)


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return found + [inner for key, item in items for inner in paths(item, (*path, key))]


def mutate(draw: st.DrawFn, data: dict[str, Any]) -> None:
    """Change one thing: replace, remove, rename, add, or move."""
    path = draw(st.sampled_from(paths(data)))
    parent: Any = data
    for key in path[:-1]:
        parent = parent[key]
    how = draw(st.sampled_from(["replace", "replace", "remove", "add", "copy"]))
    if how == "remove":
        del parent[path[-1]]
    elif how == "replace":
        parent[path[-1]] = draw(VALUES)
    elif how == "copy":
        parent[path[-1]] = copy.deepcopy(at(data, draw(st.sampled_from(paths(data)))))
    elif isinstance(parent, dict):
        parent[draw(st.sampled_from(KEYS))] = draw(VALUES)
    else:
        parent.append(draw(VALUES))


def at(data: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        data = data[key]
    return data


@st.composite
def mutated_data(draw: st.DrawFn, bases: Sequence[dict[str, Any]] = BASES) -> str:
    data = copy.deepcopy(draw(st.sampled_from(bases)))
    for _ in range(draw(st.integers(1, 4))):
        if paths(data):
            mutate(draw, data)
    return json.dumps(data, ensure_ascii=False)


TEXTS = [json.dumps(base, indent=1) for base in BASES] + [
    path.read_text(encoding="utf-8") for path in sorted((Path(__file__).parents[2] / "scenarios").rglob("*.yaml"))
]


@st.composite
def mutated_text(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from(TEXTS))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 6)))
        new = draw(
            st.sampled_from(
                ["", ":", "{", "}", "[", "]", ",", "\n", " ", "\t", "'", '"', "&a ", "*a", "!!x ", "0", "-", "#", "e9"]
            )
        )
        text = text[:start] + new + text[end:]
    return text[: draw(st.integers(0, len(text)))] if draw(st.booleans()) else text


def load(text: str) -> AnyScenario | None:
    try:
        return load_document(parse_document(decode(text.encode("utf-8", "surrogatepass"), "fuzz.yaml"), "fuzz.yaml"))
    except InputError as error:
        found = error
    assert found.source == "fuzz.yaml"
    for problem in found.problems:
        assert problem.message
        assert problem.message.isprintable(), problem
    return None


def is_small(scenario: AnyScenario) -> bool:
    """Whether running it takes no time."""
    if isinstance(scenario, TrainingScenario):
        return is_small_step(scenario)
    if isinstance(scenario, NumericsScenario):
        return is_small_training_run(scenario)
    runs = planned_runs(scenario.sweeps, scenario.entries)
    sizes = [build_cluster(scenario.cluster, point).world_size for _, point in runs[:50]]
    servers = [value for _, point in runs for value in point.values() if isinstance(value, int)]
    crossovers = sum(len(e.grid) for e in scenario.expectations if isinstance(e, CrossoverExpectation))
    return (
        len(runs) * (scenario.seeds or 1) <= 50
        and max(sizes) <= 8
        and crossovers <= 200
        and max(servers, default=0) <= 2**20
    )


def is_small_step(scenario: TrainingScenario) -> bool:
    runs = planned_runs(scenario.sweeps, scenario.entries)
    points = [*(point for _, point in runs), *(one.point for one in scenario.timelines)]
    settings = [settings_at(scenario.training, point) for point in points[:20]]
    sizes = [build_cluster(scenario.cluster, point).world_size for point in points[:20]]
    passes = max(one.accumulation for one in settings) * len(scenario.training.model.parameters)
    return len(points) <= 20 and max(sizes) <= 16 and passes <= 500


def is_small_training_run(scenario: NumericsScenario) -> bool:
    plans = scenario.numerics.plans.values()
    passes = sum(plan.steps * max(plan.samples, plan.world_size * plan.accumulation) for plan in plans)
    elements = max((sum(one.elements for one in plan.network.parameters) for plan in plans), default=0)
    return passes <= 10_000 and elements <= 10_000


def assert_finite(value: Any) -> None:
    if isinstance(value, float):
        assert math.isfinite(value)
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        assert_finite(inner)


def assert_runs(scenario: AnyScenario) -> None:
    try:
        result = run_scenario(scenario)
    except InputError:  # too large for its engine
        return
    plain = result.to_json()
    assert_finite(plain)
    json.dumps(plain, allow_nan=False)
    for row in result.rows:
        if "step_seconds" in row:
            parts = [row[f"{part}_seconds"] for part in ("compute", "exposed", "idle")]
            assert min(parts) >= 0
            assert math.isclose(row["step_seconds"], sum(parts), rel_tol=1e-12)
            continue
        assert row["seconds"] >= 0
        assert row["verified"] in (True, None)


@pytest.mark.parametrize("base", BASES, ids=lambda base: base["title"])
def test_the_bases_are_valid_and_run(base: dict[str, Any]) -> None:
    scenario = load(json.dumps(base))
    assert scenario is not None
    assert is_small(scenario)
    assert_runs(scenario)


@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(mutated_text())
def test_mutated_text_loads_or_is_refused(text: str) -> None:
    load(text)


@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(mutated_data())
def test_mutated_data_loads_or_is_refused_and_runs_without_nan(text: str) -> None:
    scenario = load(text)
    if scenario is not None and is_small(scenario):
        assert_runs(scenario)


@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(mutated_data(STEPS))
def test_mutated_steps_load_or_are_refused_and_run_without_nan(text: str) -> None:
    scenario = load(text)
    if scenario is not None and is_small(scenario):
        assert_runs(scenario)


@pytest.mark.slow
@settings(max_examples=6_000, suppress_health_check=list(HealthCheck))
@given(st.one_of(mutated_data(), mutated_text()))
def test_many_mutations(text: str) -> None:
    scenario = load(text)
    if scenario is not None and is_small(scenario):
        assert_runs(scenario)
