"""The sections ``skew:``, ``jitter:``, ``seed:`` and ``seeds:``: how runs differ from the ideal."""

from typing import Any

from simcollectives.engines import DEFAULT, Conditions, TimeModel, parse_time
from simcollectives.errors import InputError
from simcollectives.scenario.context import EXAMPLES, Context
from simcollectives.scenario.places import shown
from simcollectives.scenario.schema import JitterModel, ScenarioModel, SkewModel

KEYS = ("skew", "jitter", "seed", "seeds")


def load_conditions(context: Context, data: dict[str, Any], engine: str) -> tuple[Conditions | None, int | None]:
    """Return the conditions and the number of seeds; after a problem, None."""
    before = len(context.problems)
    skew, jitter = _mapping(context, data, "skew", SkewModel), _mapping(context, data, "jitter", JitterModel)
    seed, seeds = (_whole(context, data, key) for key in ("seed", "seeds"))
    if len(context.problems) > before:
        return None, None
    starts: tuple[float, ...] = ()
    if skew is not None:
        if (skew.ranks is None) == (skew.random is None):
            context.add(("skew",), "skew names ranks, or is random; write {ranks: {3: 10 us}} or {random: 20 us}")
        starts = tuple((skew.ranks or {}).get(rank, 0.0) for rank in range(max(skew.ranks or {}, default=-1) + 1))
    if jitter is not None and not jitter.model_fields_set:
        context.add(("jitter",), "nothing is drawn; write {alpha: {lognormal: 20%}}, or leave the key out")
    if len(context.problems) > before:
        return None, None
    conditions = Conditions(
        skew=starts,
        random_skew=(skew.random or 0.0) if skew is not None else 0.0,
        **({} if jitter is None else {name: getattr(jitter, name) for name in JitterModel.model_fields}),
        seed=seed or 0,
    )
    for key in ("seed", "seeds"):
        if key in data and jitter is None and (skew is None or skew.random is None):
            remedy = "write jitter: or skew: {random: 20 us}, or leave the key out"
            context.add((key,), f"nothing is random, so that every seed gives the same run; {remedy}")
    if engine == "closed_form" and not conditions.ideal:
        what = "skew" if "skew" in data else "jitter"
        context.add(("engine",), f"closed_form has no {what}; write engine: auto, or leave {what}: out")
    return conditions, seeds


def load_time(context: Context, data: dict[str, Any]) -> TimeModel | None:
    """Return what a time means; after a problem, None."""
    if "time" not in data:
        return DEFAULT
    try:
        return parse_time(data["time"])
    except InputError as error:
        for problem in error.problems:
            context.add(tuple(problem.place.removeprefix("$.").split(".")), problem.message)
    return None


def _mapping(context: Context, data: dict[str, Any], key: str, model: Any) -> Any:
    if key not in data or context.is_unusable((key,)):
        return None
    if not isinstance(data[key], dict):
        context.add((key,), f"{shown(data[key])} is not a mapping; write {EXAMPLES[key]}")
        return None
    return context.validate((key,), data[key], model)


def _whole(context: Context, data: dict[str, Any], key: str) -> Any:
    if key not in data or context.is_unusable((key,)):
        return None
    return context.validate_type((key,), data[key], ScenarioModel.model_fields[key].rebuild_annotation())


__all__ = ["KEYS", "load_conditions", "load_time"]
