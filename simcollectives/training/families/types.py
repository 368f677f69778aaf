"""What a family of models is."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from simcollectives.training.families.config import Config
from simcollectives.training.model import Model


@dataclass(frozen=True)
class Family:
    """Models of one architecture: what their configs hold, and how a config becomes a model.

    ``name`` is transformers' ``model_type``. ``architectures`` are the classes that choose the heads, the first one
    where a config names none. ``build`` takes the config, the architecture and the model's name. ``hugging_face``:
    whether a config.json of that name means this family.
    """

    name: str
    summary: str
    config: type[Config]
    architectures: tuple[str, ...]
    build: Callable[[Any, str, str], Model]
    hugging_face: bool = True


@dataclass(frozen=True)
class BuiltModel:
    """A model made from a config.

    ``assumed`` are the fields that the config leaves out, with the defaults of transformers; ``warnings`` say what the
    model leaves out.
    """

    model: Model
    architecture: str
    assumed: tuple[tuple[str, object], ...] = ()
    warnings: tuple[str, ...] = ()
