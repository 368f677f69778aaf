"""Families of models, one file an architecture and one line in a table."""

from collections.abc import Mapping
from typing import Any

from simcollectives.errors import InputError, Problem, show_value, suggestion
from simcollectives.training.families.bert import BERT
from simcollectives.training.families.config import Config, read_fields
from simcollectives.training.families.gpt2 import GPT2
from simcollectives.training.families.llama import LLAMA, MISTRAL, QWEN2
from simcollectives.training.families.mixtral import MIXTRAL
from simcollectives.training.families.resnet import RESNET
from simcollectives.training.families.t5 import T5
from simcollectives.training.families.types import BuiltModel, Family

__all__ = ["FAMILIES", "BuiltModel", "Config", "Family", "build_model"]

FAMILIES: Mapping[str, Family] = {
    family.name: family for family in (BERT, GPT2, LLAMA, MISTRAL, MIXTRAL, QWEN2, RESNET, T5)
}
"""Every family by its name."""


def build_model(
    family: Family,
    config: Mapping[str, Any],
    name: str,
    architecture: str | None = None,
    *,
    place: str = "$",
    whole: bool = True,
) -> BuiltModel:
    """Return the model that a config describes; its keys that decide about no tensor are passed over.

    ``architecture`` chooses the heads, by default those that the family trains with. ``place`` is where the config
    stands in its file; not ``whole``: it is a nested part, which leaves out what equals the default of transformers.

    Raises:
        InputError: fields are missing, wrong or contradictory, or the architecture is unknown; all problems at once.
    """
    problems: list[Problem] = []
    if architecture is not None and architecture not in family.architectures:
        remedy = suggestion(architecture, family.architectures, f"known for {family.name}", whole=True)
        problems.append(Problem(f"{place}.architectures", f"{show_value(architecture)} is not known; {remedy}"))
    reading = read_fields(family.config, config, place, whole=whole)
    problems += reading.problems
    if problems or reading.config is None:
        raise InputError(problems)
    chosen = architecture or family.architectures[0]
    assumed = reading.assumed if architecture else (("architectures", chosen), *reading.assumed)
    model = family.build(reading.config, chosen, name)
    return BuiltModel(model, chosen, assumed, tuple(reading.config.warnings()))
