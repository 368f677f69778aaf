"""The section ``expect:``: each expectation has one subject, one bound, and a point that exists."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from simcollectives.errors import listing, nearest, show_value
from simcollectives.scenario.bounds import BOUND_KEYS, load_bound
from simcollectives.scenario.context import Context
from simcollectives.scenario.keys import NUMBER
from simcollectives.scenario.load_crossover import load_crossover
from simcollectives.scenario.load_errors import load_error
from simcollectives.scenario.load_nccl import load_nccl_expectation
from simcollectives.scenario.load_points import BaseNamer
from simcollectives.scenario.places import Path, flow_text, shown
from simcollectives.scenario.schema import (
    ERROR_MODELS,
    METRIC_MODELS,
    NCCL_MODELS,
    CrossoverModel,
    OrderModel,
    RatioModel,
)
from simcollectives.scenario.types import (
    EMPTY,
    Common,
    Expectation,
    MetricExpectation,
    OrderExpectation,
    RatioExpectation,
    Selector,
)


@dataclass(frozen=True)
class Language:
    """What expectations of one kind of scenario may say: the model of each subject, and an example."""

    models: Mapping[str, type[BaseModel]]
    example: str


COLLECTIVE_LANGUAGE = Language(
    {
        "crossover": CrossoverModel,
        "ratio": RatioModel,
        "order": OrderModel,
        **METRIC_MODELS,
        **ERROR_MODELS,
        **NCCL_MODELS,
    },
    "write {seconds: {algorithm: ring, message: 4 KiB}, equals: 70.02 us, rel: 0.1%}",
)
SUBJECTS = tuple(COLLECTIVE_LANGUAGE.models)


def load_expectations(
    context: Context, value: Any, namer: BaseNamer | None, language: Language = COLLECTIVE_LANGUAGE
) -> tuple[Expectation, ...]:
    """Return the expectations without those that have a problem. Without a `namer` only their shape is checked."""
    path: Path = ("expect",)
    if not isinstance(value, list):
        context.add(path, f'{shown(value)} is not a list; write one expectation a line, each after "- "')
        return ()
    found = (_load(context, (*path, index), raw, namer, language) for index, raw in enumerate(value))
    return tuple(expectation for expectation in found if expectation is not None)


def _load(context: Context, path: Path, raw: Any, namer: BaseNamer | None, language: Language) -> Expectation | None:
    subject = _subject(context, path, raw, language)
    if subject is None:
        return None
    model = language.models[subject]
    parsed = context.validate(path, raw, model)
    own = {field.alias or name for name, field in model.model_fields.items()}
    shared: dict[str, Any] | None = {}
    if namer is not None:
        shared = namer.point(path, {key: one for key, one in raw.items() if key not in BOUND_KEYS}, own)
    for key in BOUND_KEYS:
        if key in raw and key not in own:
            context.add((*path, key), f"{subject} takes no {key}; leave the key out")
    if parsed is None or shared is None or namer is None:
        return None
    text, line, because = flow_text(raw), context.document.line(path), getattr(parsed, "because", None)
    return _LOADERS.get(subject, _metric)(namer, path, raw, parsed, shared, (text, line, because))


def _subject(context: Context, path: Path, raw: Any, language: Language) -> str | None:
    """Return what an expectation is about."""
    if not isinstance(raw, dict):
        context.add(path, f"{shown(raw)} is not an expectation; {language.example}")
        return None
    found: list[str] = [key for key in raw if key in language.models]
    if len(found) == 1:
        return found[0]
    if found:
        context.add(path, f"{' and '.join(found)} are subjects of two expectations; write each on a line of its own")
        return None
    for key in raw:
        near = nearest(key, language.models)
        if near is not None:
            context.add((*path, key), f"unknown key; did you mean {show_value(near)}?")
            return None
    context.add(path, f"nothing says what is expected; write one of {listing(list(language.models))}")
    return None


def _metric(
    namer: BaseNamer, path: Path, raw: dict[str, Any], parsed: Any, shared: dict[str, Any], common: Common
) -> Expectation | None:
    metric = next(key for key in raw if key in namer.metrics)
    selector = _selector(namer, (*path, metric), getattr(parsed, metric), raw[metric], shared)
    bound = load_bound(namer.context, path, parsed, namer.metrics[metric])
    if not namer.has_metric((*path, metric), metric):
        return None
    if selector is None or bound is None:
        return None
    return MetricExpectation(*common, metric, selector, bound)


def _ratio(
    namer: BaseNamer, path: Path, raw: dict[str, Any], parsed: Any, shared: dict[str, Any], common: Common
) -> Expectation | None:
    pair = [
        _selector(namer, (*path, "ratio", index), one, raw["ratio"][index], shared)
        for index, one in enumerate(parsed.ratio)
    ]
    bound = load_bound(namer.context, path, parsed, NUMBER)
    if not namer.has_metric((*path, "of"), parsed.of):
        return None
    if pair[0] is None or pair[1] is None or bound is None:
        return None
    return RatioExpectation(*common, parsed.of, pair[0], pair[1], bound)


def _order(
    namer: BaseNamer, path: Path, raw: dict[str, Any], parsed: Any, shared: dict[str, Any], common: Common
) -> Expectation | None:
    selectors = [
        namer.selector((*path, "order", index), one, EMPTY, (), shared) for index, one in enumerate(parsed.order)
    ]
    if any(selector is None for selector in selectors) or not namer.has_metric((*path, "of"), parsed.of):
        return None
    return OrderExpectation(*common, parsed.of, tuple(s for s in selectors if s is not None))


def _selector(
    namer: BaseNamer, path: Path, parsed: Any, raw: Mapping[str, Any], shared: dict[str, Any]
) -> Selector | None:
    return namer.selector(path, getattr(parsed, namer.names), raw, (namer.names,), shared)


_Loader = Callable[[BaseNamer, Path, dict[str, Any], Any, dict[str, Any], Common], Expectation | None]
_LOADERS: Mapping[str, _Loader] = {
    "crossover": load_crossover,
    "ratio": _ratio,
    "order": _order,
    **dict.fromkeys(NCCL_MODELS, load_nccl_expectation),
    **dict.fromkeys(ERROR_MODELS, load_error),
}


__all__ = ["SUBJECTS", "load_expectations"]
