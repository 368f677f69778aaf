"""Which strategy is chosen, on steps whose memory and time are made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simcollectives.cluster import Cluster, Device, Link
from simcollectives.training import comparison
from simcollectives.training.comparison import compare
from simcollectives.training.plain import uniform_model
from simcollectives.training.setup import ModuleSeconds, Training
from simcollectives.training.step import Step, simulate_step


def made(strategy: str, peak: int, seconds: float, memory: int | None = 100) -> tuple[str, Step]:
    model = uniform_model(12, 1, 1)
    kernels = {module.name: ModuleSeconds(1.0, 2.0) for layer in model.layers for module in layer.modules}
    cluster = Cluster.flat(2, Link(0.0, 1.0), device=Device(memory_bytes=memory))
    step = simulate_step(Training(model, cluster, 1, 1, kernels), "ddp")
    items = {"optimizer states": peak - 10, "activations": 10}
    return strategy, replace(step, strategy=strategy, peak_bytes=peak, memory=items, step_seconds=seconds)


STAGES = {"plain": "nothing", "one": "optimizer states", "two": "gradients", "three": "parameters"}


@pytest.fixture(autouse=True)
def _stages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "sharded", lambda step: STAGES[step.strategy])


def test_what_shards_least_of_those_that_fit_is_chosen() -> None:
    found = compare([made("three", 30, 9.0), made("plain", 130, 7.0), made("one", 101, 7.5), made("two", 95, 8.0)])
    assert found.chosen == 3
    assert found.advice == ("choose two: of those that fit and are about as fast, it shards least (gradients)",)
    assert [one.fits for one in found.verdicts] == [True, False, False, True]
    assert [one.spare_bytes for one in found.verdicts] == [70, -30, -1, 5]
    assert found.verdicts[1].reason == "does not fit, by 30 B; the largest item: optimizer states, 120 B"
    assert found.verdicts[0].reason.startswith("12.5% longer than two: ")
    assert found.verdicts[3].reason == "fits, and shards least"


def test_a_faster_one_that_shards_more_is_told() -> None:
    found = compare([made("plain", 50, 9.9), made("one", 20, 9.0)])
    assert (found.chosen, found.fastest) == (0, 1)
    assert found.advice[0] == "choose plain: it fits, so that nothing has to be sharded"
    assert found.advice[1] == "one is the fastest that fits, 9.09% shorter, and shards optimizer states"


def test_one_that_is_much_slower_is_not_chosen_for_its_simplicity() -> None:
    found = compare([made("plain", 50, 10.0), made("one", 20, 9.0), made("two", 20, 9.5)])
    assert (found.chosen, found.fastest) == (1, 1)
    assert found.advice == ("choose one: of those that fit and are about as fast, it shards least (optimizer states)",)


def test_one_that_barely_fits_is_chosen_only_where_no_other_does() -> None:
    """Four of a hundred bytes left are less than 5 %."""
    found = compare([made("plain", 96, 9.0), made("one", 20, 9.5)])
    assert found.chosen == 1
    assert found.verdicts[0].reason.startswith("barely fits: what is not included needs more; 5.26% shorter than one")
    (first, second) = compare([made("plain", 96, 9.0), made("one", 120, 9.5)]).advice
    assert first == "choose plain: it fits, so that nothing has to be sharded"
    assert second == "plain leaves 4 B, which context and workspaces may need"


def test_of_two_that_shard_as_much_the_faster_is_chosen() -> None:
    found = compare([made("one", 50, 10.0), made("one", 60, 9.5)])
    assert found.chosen == 1
    assert found.verdicts[1].reason == "fits, and shards least; the fastest that does"


def test_nothing_fits() -> None:
    found = compare([made("plain", 300, 1.0), made("three", 150, 2.0)])
    assert (found.chosen, found.fastest) == (None, None)
    (advice,) = found.advice
    assert advice.startswith("nothing fits; three comes nearest and lacks 50 B, most of it optimizer states")


def test_a_device_of_unknown_memory() -> None:
    found = compare([made("plain", 300, 1.0, None), made("three", 150, 2.0, None)])
    assert found.chosen == 0
    assert [one.fits for one in found.verdicts] == [None, None]
    assert "whether it fits is not known" in found.advice[0]
    assert not any("fits," in text or "that fit" in text for text in (*found.advice, found.verdicts[0].reason))


def test_what_makes_the_difference_is_told() -> None:
    """The step of 9 s has 5 s of exposed communication where the chosen one has 3 s, and sends three times as much."""
    chosen = replace(made("plain", 50, 7.0)[1], exposed_seconds=3.0, compute_seconds=4.0, sent_bytes={"x": 10})
    other = replace(chosen, strategy="three", step_seconds=9.0, exposed_seconds=5.0, sent_bytes={"x": 20, "y": 10})
    verdict = compare([("a", chosen), ("b", other)]).verdicts[1]
    assert verdict.reason == ("28.6% longer than a: 5 s exposed instead of 3 s; sends 30 B instead of 10 B")
