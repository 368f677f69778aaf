"""The section ``expect:``: each expectation has one subject, one bound, and a point that exists."""

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from simcollectives.errors import listing, nearest, show_value
from simcollectives.scenario.bounds import BOUND_KEYS, load_bound
from simcollectives.scenario.build import levels_of, noun
from simcollectives.scenario.context import Context
from simcollectives.scenario.keys import METRIC_LINKS, METRICS, NUMBER, PERCENTILES
from simcollectives.scenario.load_crossover import load_crossover
from simcollectives.scenario.load_points import Namer
from simcollectives.scenario.places import Path, flow_text, shown
from simcollectives.scenario.schema import METRIC_MODELS, CrossoverModel, OrderModel, RatioModel
from simcollectives.scenario.types import (
    EMPTY,
    Expectation,
    MetricExpectation,
    OrderExpectation,
    RatioExpectation,
    Selector,
)

_MODELS: Mapping[str, type[BaseModel]] = {
    "crossover": CrossoverModel,
    "ratio": RatioModel,
    "order": OrderModel,
    **METRIC_MODELS,
}
SUBJECTS = tuple(_MODELS)
_EXAMPLE = "write {seconds: {algorithm: ring, message: 4 KiB}, equals: 70.02 us, rel: 0.1%}"


def load_expectations(context: Context, value: Any, namer: Namer | None) -> tuple[Expectation, ...]:
    """Return the expectations without those that have a problem. Without a `namer` only their shape is checked."""
    path: Path = ("expect",)
    if not isinstance(value, list):
        context.add(path, f'{shown(value)} is not a list; write one expectation a line, each after "- "')
        return ()
    found = (_load(context, (*path, index), raw, namer) for index, raw in enumerate(value))
    return tuple(expectation for expectation in found if expectation is not None)


def _load(context: Context, path: Path, raw: Any, namer: Namer | None) -> Expectation | None:
    subject = _subject(context, path, raw)
    if subject is None:
        return None
    model = _MODELS[subject]
    parsed = context.validate(path, raw, model)
    own = {field.alias or name for name, field in model.model_fields.items()}
    shared: dict[str, Any] | None = {}
    if namer is not None:
        shared = namer.point(path, {key: one for key, one in raw.items() if key not in BOUND_KEYS}, own)
    if subject == "order":
        for key in BOUND_KEYS:
            if key in raw:
                context.add((*path, key), "an order has no bound and no tolerance; leave the key out")
    if parsed is None or shared is None or namer is None:
        return None
    text, line, because = flow_text(raw), context.document.line(path), getattr(parsed, "because", None)
    return _LOADERS.get(subject, _metric)(namer, path, raw, parsed, shared, (text, line, because))


def _subject(context: Context, path: Path, raw: Any) -> str | None:
    """Return what an expectation is about."""
    if not isinstance(raw, dict):
        context.add(path, f"{shown(raw)} is not an expectation; {_EXAMPLE}")
        return None
    found: list[str] = [key for key in raw if key in _MODELS]
    if len(found) == 1:
        return found[0]
    if found:
        context.add(path, f"{' and '.join(found)} are subjects of two expectations; write each on a line of its own")
        return None
    for key in raw:
        near = nearest(key, SUBJECTS)
        if near is not None:
            context.add((*path, key), f"unknown key; did you mean {show_value(near)}?")
            return None
    context.add(path, f"nothing says what is expected; write one of {listing(SUBJECTS)}")
    return None


Common = tuple[str, int | None, str | None]


def _metric(
    namer: Namer, path: Path, raw: dict[str, Any], parsed: Any, shared: dict[str, Any], common: Common
) -> Expectation | None:
    metric = next(key for key in raw if key in METRICS)
    selector = _selector(namer, (*path, metric), getattr(parsed, metric), raw[metric], shared)
    bound = load_bound(namer.context, path, parsed, METRICS[metric])
    if not _has_metric(namer, (*path, metric), metric):
        return None
    if selector is None or bound is None:
        return None
    return MetricExpectation(*common, metric, selector, bound)


def _ratio(
    namer: Namer, path: Path, raw: dict[str, Any], parsed: Any, shared: dict[str, Any], common: Common
) -> Expectation | None:
    pair = [
        _selector(namer, (*path, "ratio", index), one, raw["ratio"][index], shared)
        for index, one in enumerate(parsed.ratio)
    ]
    bound = load_bound(namer.context, path, parsed, NUMBER)
    if not _has_metric(namer, (*path, "of"), parsed.of):
        return None
    if pair[0] is None or pair[1] is None or bound is None:
        return None
    return RatioExpectation(*common, parsed.of, pair[0], pair[1], bound)


def _order(
    namer: Namer, path: Path, raw: dict[str, Any], parsed: Any, shared: dict[str, Any], common: Common
) -> Expectation | None:
    selectors = [
        namer.selector((*path, "order", index), one, EMPTY, (), shared) for index, one in enumerate(parsed.order)
    ]
    if any(selector is None for selector in selectors) or not _has_metric(namer, (*path, "of"), parsed.of):
        return None
    return OrderExpectation(*common, parsed.of, tuple(s for s in selectors if s is not None))


def _selector(namer: Namer, path: Path, parsed: Any, raw: Mapping[str, Any], shared: dict[str, Any]) -> Selector | None:
    return namer.selector(path, parsed.algorithm, raw, ("algorithm",), shared)


def _has_metric(namer: Namer, path: Path, metric: str) -> bool:
    """Whether the runs of the scenario have a metric: those of a level need a cluster with that level."""
    if metric in PERCENTILES and namer.table.seeds is None:
        namer.context.add(path, f"{metric} is over seeds, and the scenario has none; write seeds: 100")
        return False
    links = METRIC_LINKS.get(metric)
    if links is None or namer.cluster is None or len(levels_of(namer.cluster)) > 1:
        return True
    namer.context.add(path, f"a {noun(namer.cluster)} has no {links}; write bytes_sent_max")
    return False


_Loader = Callable[[Namer, Path, dict[str, Any], Any, dict[str, Any], Common], Expectation | None]
_LOADERS: Mapping[str, _Loader] = {"crossover": load_crossover, "ratio": _ratio, "order": _order}


__all__ = ["SUBJECTS", "load_expectations"]
