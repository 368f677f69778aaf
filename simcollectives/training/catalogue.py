"""Named models: one YAML file each in ``models/``, with its config and where that comes from."""

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from simcollectives.errors import InputError, show_value, suggestion
from simcollectives.training.families import FAMILIES, build_model
from simcollectives.training.model import Model


@dataclass(frozen=True)
class NamedModel:
    """A model that scenarios can name, and the source of its sizes."""

    model: Model
    architecture: str
    source: str

    @property
    def name(self) -> str:
        """The name that scenarios use."""
        return self.model.name


@cache
def model_names() -> tuple[str, ...]:
    """Names of the models that are shipped."""
    folder = resources.files("simcollectives.training") / "models"
    return tuple(sorted(f.name.removesuffix(".yaml") for f in folder.iterdir() if f.name.endswith(".yaml")))


def list_models() -> tuple[NamedModel, ...]:
    """Return every shipped model, family by family, the smallest first."""
    found = [describe_model(name) for name in model_names()]
    return tuple(sorted(found, key=lambda named: (named.model.family, named.model.elements)))


def load_model(name: str) -> Model:
    """Return a named model.

    Raises:
        InputError: there is no such model; the message names the nearest and all known ones.
    """
    return describe_model(name).model


def describe_model(name: str) -> NamedModel:
    """Return a named model with its source.

    Raises:
        InputError: there is no such model; the message names the nearest and all known ones.
    """
    if name not in model_names():
        raise InputError(f"{show_value(name)} is not a known model; {suggestion(name, model_names(), whole=True)}")
    return _read(name)


@cache
def _read(name: str) -> NamedModel:
    from ruamel.yaml import YAML

    text = (resources.files("simcollectives.training") / "models" / f"{name}.yaml").read_text(encoding="utf-8")
    data: dict[str, Any] = YAML(typ="safe", pure=True).load(text)
    built = build_model(FAMILIES[data["family"]], data["config"], name, data["architecture"])
    return NamedModel(built.model, built.architecture, data["source"])
