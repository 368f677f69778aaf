"""Loading a file with ``numerics:``: everything that is wrong with it is found before anything is trained."""

import itertools
from typing import Any

from simcollectives.algorithms import find_algorithm
from simcollectives.cluster import Cluster
from simcollectives.errors import InputError, show_value, suggestion
from simcollectives.scenario.build import build_cluster
from simcollectives.scenario.context import Context
from simcollectives.scenario.load_cluster import load_cluster
from simcollectives.scenario.load_collective import checked_options
from simcollectives.scenario.load_expect import Language, load_expectations
from simcollectives.scenario.numerics.naming import Recorded, StepTable, VariantNamer
from simcollectives.scenario.numerics.schema import NO_MISTAKE, VARIANT_MODELS, NumericsModel, VariantModel
from simcollectives.scenario.numerics.types import NumericsScenario, NumericsSettings
from simcollectives.scenario.places import Path, place_text
from simcollectives.scenario.schema_values import Reference
from simcollectives.scenario.types import EMPTY, AlgorithmEntry
from simcollectives.training.numerics import STRATEGIES, Network, NumericsPlan, problems_of
from simcollectives.training.strategies.table import resolve_strategy_options

PATH: Path = ("numerics",)
VARIANT_LANGUAGE = Language(
    VARIANT_MODELS,
    "write {difference_from_one_device: {variant: correct}, at_most: 1e-14} or {bit_identical: {}, equals: true}",
)
_KEYS = {"bucket_bytes": "bucket", "network.batch_norm": "batch_norm"}
_LEFT_OUT = "left_out_parameter"


def load_numerics_scenario(context: Context, data: dict[str, Any]) -> NumericsScenario | None:
    """Return the scenario, or None after noting every problem."""
    texts = {key: context.text(data, key) for key in ("title", "description")}
    cluster = load_cluster(context, data["cluster"]) if "cluster" in data else None
    built = None if cluster is None else context.take(("cluster",), lambda: build_cluster(cluster, EMPTY))
    settings, valid = _load_numerics(context, data["numerics"], built)
    namer = None
    if settings is not None:
        fits = Recorded(settings.record) if valid else None
        namer = VariantNamer(context, StepTable(cluster), (), fits, settings=settings)
    expectations = load_expectations(context, data["expect"], namer, VARIANT_LANGUAGE) if "expect" in data else ()
    if settings is None or cluster is None or texts["title"] is None:
        return None
    return NumericsScenario(
        file=context.document.source,
        title=texts["title"],
        description=texts["description"],
        cluster=cluster,
        numerics=settings,
        expectations=expectations,
    )


def _load_numerics(context: Context, value: Any, cluster: Cluster | None) -> tuple[NumericsSettings | None, bool]:
    """Return the settings, as far as they are known, and whether they are valid."""
    before = len(context.problems)
    section = context.validate(PATH, value, NumericsModel)
    if section is None:
        return None, False
    record = tuple(section.record or [section.steps])
    if any(b <= a for a, b in itertools.pairwise(record)):
        rule = f"write each step once, in increasing order: {sorted(set(record))}"
        context.add((*PATH, "record"), f"{list(record)} are not in order; {rule}")
    variants = section.variants or {section.strategy.name: VariantModel()}
    named: Path = PATH if section.variants is None else (*PATH, "variants")
    entries = []
    for name in variants:
        path = PATH if section.variants is None else (*named, name)
        entries.append(AlgorithmEntry(name, {}, name, place_text(path), context.document.line(path)))
    well_formed = len(context.problems) == before
    if not well_formed:
        return NumericsSettings(tuple(entries), {}, record), False
    plans = {}
    for name, variant in variants.items():
        path = PATH if section.variants is None else (*named, name)
        plan = _plan(context, path, section, variant, cluster)
        if plan is not None:
            plans[name] = plan
            _check(context, path, section, variant, plan, record, cluster)
    _check_left_out(context, named, section, variants)
    valid = cluster is not None and len(context.problems) == before
    return NumericsSettings(tuple(entries), plans, record), valid


def _where(path: Path, section: VariantModel, variant: VariantModel, key: str) -> Path:
    """Return where a key of a variant is written: in it, in the section, or nowhere."""
    if key in variant.model_fields_set:
        return (*path, key)
    return (*PATH, key) if key in section.model_fields_set else path


def _plan(
    context: Context, path: Path, section: NumericsModel, variant: VariantModel, cluster: Cluster | None
) -> NumericsPlan | None:
    def written(key: str) -> Any:
        return getattr(variant if key in variant.model_fields_set else section, key)

    reference: Reference = written("algorithm") or Reference("ring")
    where = _where(path, section, variant, "algorithm")
    if context.take(where, lambda: find_algorithm("all_reduce", reference.name)) is None:
        return None
    options = checked_options(context, (*where, reference.name), "all_reduce", reference)
    if options is None:
        return None
    strategy: Reference = written("strategy")
    if not _is_strategy(context, _where(path, section, variant, "strategy"), strategy):
        return None
    bucket = written("bucket")
    names = ("optimizer", "learning_rate", "samples", "accumulation", "gradient_dtype", "left_out", "seed")
    return NumericsPlan(
        **{name: written(name) for name in names},
        strategy=strategy.name,
        strategy_options=dict(strategy.options),
        steps=section.steps,
        world_size=1 if cluster is None else cluster.world_size,
        algorithm=reference.name,
        options=dict(options),
        shards=None if written("shards") is None else tuple(written("shards")),
        bucket_bytes=int(bucket) if bucket is not None and bucket == int(bucket) else bucket,
        network=Network(batch_norm=written("batch_norm")),
        mistake=None if written("mistake") == NO_MISTAKE else written("mistake"),
    )


def _is_strategy(context: Context, where: Path, strategy: Reference) -> bool:
    """Whether there is such a strategy with such options; note why not."""
    if strategy.name not in STRATEGIES:
        remedy = suggestion(strategy.name, list(STRATEGIES), "there are")
        context.add(where, f"{show_value(strategy.name)} is not a strategy; {remedy}")
        return False
    try:
        resolve_strategy_options(STRATEGIES[strategy.name], strategy.options)
    except InputError as error:
        for problem in error.problems:
            context.add((*where, strategy.name, problem.place), problem.message)
        return False
    return True


def _check(
    context: Context,
    path: Path,
    section: NumericsModel,
    variant: VariantModel,
    plan: NumericsPlan,
    record: tuple[int, ...],
    cluster: Cluster | None,
) -> None:
    """Note what is wrong with a variant, where it is written."""
    if cluster is None:
        return
    for problem in problems_of(plan, record, cluster):
        key = _KEYS.get(problem.place, problem.place)
        if key == "world_size":
            context.add(("cluster",), f"number of ranks: {problem.message}")
            continue
        known = key if key in NumericsModel.model_fields else "algorithm"
        context.add(_where(path, section, variant, known), problem.message)


def _check_left_out(context: Context, named: Path, section: NumericsModel, variants: dict[str, VariantModel]) -> None:
    """Note the names of left out parameters that nothing uses."""
    rule = "no mistake leaves it out; write mistake: left_out_parameter beside it, or leave the key out"
    used = False
    for name, variant in variants.items():
        mistake = variant.mistake if "mistake" in variant.model_fields_set else section.mistake
        used |= mistake == _LEFT_OUT
        if "left_out" in variant.model_fields_set and mistake != _LEFT_OUT:
            context.add((*named, name, "left_out"), f"{variant.left_out}: {rule}")
    if "left_out" in section.model_fields_set and not used:
        context.add((*PATH, "left_out"), f"{section.left_out}: {rule}")
