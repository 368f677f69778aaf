"""Collecting everything that is wrong with a scenario, each problem with its place, line, rule and remedy."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from simcollectives.errors import InputError, Problem, UnitError, counted, nearest, show_value, suggestion
from simcollectives.scenario.keys import METRICS
from simcollectives.scenario.numerics.keys import NUMERICS_METRICS
from simcollectives.scenario.places import Path, place_text, printable, shown
from simcollectives.scenario.training.keys import TRAINING_METRICS
from simcollectives.scenario.yaml_text import Document

MAX_OF_A_KIND = 10
MAX_PROBLEMS = 100

Result = TypeVar("Result")
ModelType = TypeVar("ModelType", bound=BaseModel)

EXAMPLES: Mapping[str, str] = {
    "title": "title: Ring against tree on 8 GPUs",
    "cluster": "cluster: {devices: 8, link: {alpha: 5 us, bandwidth: 450 GB/s}}",
    "collective": "collective: {name: all_reduce, algorithms: [ring, tree]}",
    "name": "name: all_reduce",
    "training": "training: {model: llama-3-8b, strategy: ddp, sequence: 4096, mfu: 45%}",
    "numerics": "numerics: {algorithm: ring, steps: 200}",
    "record": "record: [1, 10, 50, 200]",
    "shards": "shards: [100, 60, 60, 36]",
    "variants": "variants: {correct: {}, no all-reduce: {mistake: no_all_reduce}}",
    "model": "model: llama-3-8b",
    "layers": "layers: 24",
    "parameters": "parameters: 1.3e9",
    "strategies": "strategies: [ddp, all_reduce_once]",
    "device": "device: {peak: {bfloat16: 989 TFLOP/s}, memory: 80 GB, memory_bandwidth: 3350 GB/s}",
    "peak": "peak: {bfloat16: 989 TFLOP/s}",
    "layer_seconds": "layer_seconds: {block: {forward: 5 ms, backward: 10 ms}}",
    "collectives": "collectives: {all_reduce: hierarchical}",
    "algorithms": "algorithms: [ring, tree]",
    "devices": "devices: 8",
    "nodes": "nodes: 4",
    "gpus_per_node": "gpus_per_node: 8",
    "machine": "machine: dgx-h100",
    "levels": "levels: [{name: nvlink, size: 8, alpha: 5 us, bandwidth: 450 GB/s}]",
    "torus": "torus: [4, 4]",
    "mesh": "mesh: [4, 4]",
    "slow": "slow: [{rank: 3, bandwidth: 50%}]",
    "pcie_switch": "pcie_switch: {gpus: 2, bandwidth: 63 GB/s}",
    "leaf": "leaf: {nodes: 2, oversubscription: 4}",
    "skew": "skew: {random: 20 us}",
    "jitter": "jitter: {alpha: {lognormal: 20%}}",
    "time": "time: {loggp: {overhead: 1.5 us, gap: 1 us}}",
    "seeds": "seeds: 100",
    "gpus": "gpus: 2",
    "oversubscription": "oversubscription: 4",
    "size": "size: 8",
    "link": "link: {alpha: 5 us, bandwidth: 450 GB/s}",
    "alpha": "alpha: 5 us",
    "bandwidth": "bandwidth: 450 GB/s",
    "intra": "intra: {alpha: 5 us, bandwidth: 450 GB/s}",
    "inter": "inter: {alpha: 10 us, bandwidth: 50 GB/s}",
    "slow.link": "link: [0, 1]",
    **{f"expect.{metric}": f"{metric}: {{algorithm: ring, message: 4 KiB}}" for metric in METRICS},
    "nccl": "nccl: true",
    "protocols": "protocols: [LL, Simple]",
    "graph": "graph: {sharp: true}",
    "expect.nccl_choice": "nccl_choice: {message: 1 MiB}",
    "expect.nccl_seconds": "nccl_seconds: {message: 1 MiB}",
    "expect.equals": "equals: ring/LL128",
    "ratio": "ratio: [{algorithm: tree}, {algorithm: ring}]",
    "crossover": "crossover: [ring, tree]",
    "order": "order: [tree, ring]",
    "between": "between: [low, high]",
    "algorithm": "algorithm: ring",
    "along": "along: message",
    "file": "file: mine.csv",
    "set": "set: h100_1n8_aws_p5_allreduce_auto",
}


_OF_TRAINING: Mapping[str, str] = {
    **{f"expect.{metric}": f"{metric}: {{strategy: ddp}}" for metric in TRAINING_METRICS},
    "ratio": "ratio: [{strategy: ddp}, {strategy: all_reduce_once}]",
    "crossover": "crossover: [ddp, all_reduce_once]",
    "order": "order: [ddp, all_reduce_once]",
}
_OF_NUMERICS: Mapping[str, str] = {
    **{f"expect.{metric}": f"{metric}: {{variant: correct}}" for metric in NUMERICS_METRICS},
    "ratio": "ratio: [{variant: no all-reduce}, {variant: correct}]",
    "order": "order: [correct, no all-reduce]",
}


@dataclass
class Context:
    """The document being loaded and the problems found so far."""

    document: Document
    problems: list[Problem] = field(default_factory=list)
    unusable: set[Path] = field(default_factory=set)

    def add(self, path: Path, message: str, *, unusable: bool = False) -> None:
        """Note a problem, unless what stands there is known to be wrong already.

        After too many problems it raises them, as `finish` does. With ``unusable``, later problems at or below the path
        are consequences and are left out.
        """
        if self.is_unusable(path):
            return
        self.problems.append(Problem(place_text(path), printable(message), self.document.line(path)))
        if len(self.problems) > MAX_PROBLEMS:
            self.finish()
        if unusable:
            self.unusable.add(path)

    def is_unusable(self, path: Path) -> bool:
        """Whether the value of a path, or what it stands in, is already reported as wrong."""
        known = self.unusable | self.document.unusable if self.document.unusable else self.unusable
        return any(path[:end] in known for end in range(len(path) + 1)) if known else False

    def add_missing(self, key: str) -> None:
        """Note that a key is missing at the top."""
        self.add((), f"the key {key} is missing; write {EXAMPLES.get(key, key + ': ...')}")

    def add_error(self, path: Path, error: InputError) -> None:
        """Note the problems of another error at a path."""
        for problem in error.problems:
            self.add(path, problem.message)

    def add_file_error(self, path: Path, file: str | None, error: InputError) -> None:
        """Note at a path the first problems of a file (None: of what is shipped), each with its place there."""
        source = "" if file is None else f"{show_value(file)[1:-1]}: "
        for problem in error.problems[:MAX_OF_A_KIND]:
            self.add(path, f"{source}{problem}")

    def limited(self, path: Path, problems: Iterable[str | None], is_worn: Callable[[], bool]) -> bool:
        """Note at most ten different problems of one kind, and how many more there are; return whether there are any.

        Where ``is_worn()`` says so, the rest is not looked at.
        """
        found: dict[str, None] = {}
        ended = False
        for problem in problems:
            if problem is not None:
                found[problem] = None
            if len(found) > MAX_OF_A_KIND and is_worn():
                ended = True
                break
        for message in list(found)[:MAX_OF_A_KIND]:
            self.add(path, message)
        if len(found) > MAX_OF_A_KIND:
            count = f"at least {len(found) - MAX_OF_A_KIND}" if ended else f"{len(found) - MAX_OF_A_KIND}"
            self.add(path, f"{count} more points with the like problem")
        return bool(found)

    def take(self, path: Path, read: Callable[[], Result]) -> Result | None:
        """Return what ``read`` returns; where it raises InputError, note its problems and return None."""
        try:
            return read()
        except InputError as error:
            self.add_error(path, error)
        return None

    def quantity(self, path: Path, value: object, parse: Callable[[object], Result]) -> Result | None:
        """Return a parsed quantity, or note what is wrong with it and return None."""
        try:
            return parse(value)
        except UnitError as error:
            self.add(path, error.problems[0].message)
        return None

    def validate(self, path: Path, value: object, model: type[ModelType]) -> ModelType | None:
        """Return the value as a model, after noting every problem.

        Keys with a problem are left out of the model; it is None where it cannot do without them.
        """
        try:
            return model.model_validate(value)
        except ValidationError as error:
            self._add_details(path, error, model)
            wrong = {detail["loc"][0] for detail in error.errors() if detail["loc"]}
        rest = {key: one for key, one in value.items() if key not in wrong} if isinstance(value, dict) else value
        try:
            return model.model_validate(rest)
        except ValidationError:
            return None

    def validate_type(self, path: Path, value: object, annotation: Any) -> Any:
        """Return the value as a type that is no model, or note every problem and return None."""
        try:
            return TypeAdapter(annotation).validate_python(value, strict=True)
        except ValidationError as error:
            self._add_details(path, error, None)
        return None

    def text(self, data: Mapping[str, Any], key: str) -> str | None:
        """Return the text of a key at the top, None where there is none; a problem where it is empty or no text."""
        if key not in data or self.is_unusable((key,)):
            return None
        text = self.validate_type((key,), data[key], str)
        if text is not None and not text.strip():
            self.add((key,), f"the text is empty; write {EXAMPLES.get(key, 'one, or leave the key out')}")
        return None if text is None else str(text)

    def finish(self) -> None:
        """Raise all problems, in the order of their lines.

        Raises:
            InputError: there are problems.
        """
        found = sorted({*self.document.problems, *self.problems}, key=_in_order)
        if len(found) > MAX_PROBLEMS:
            found = [*found[:MAX_PROBLEMS], Problem("", f"more than {MAX_PROBLEMS} problems; mend these first")]
        if found:
            raise InputError(found, self.document.source)

    def _add_details(self, path: Path, error: ValidationError, model: type[BaseModel] | None) -> None:
        details = error.errors(include_url=False)
        meant = set()
        for detail in details:
            if detail["type"] == "extra_forbidden":
                known = _known_keys(model, detail["loc"])
                near = nearest(detail["loc"][-1], known)
                meant.add((*detail["loc"][:-1], near))
                self.add((*path, *detail["loc"]), unknown_key(str(detail["loc"][-1]), known), unusable=True)
        for detail in details:
            if detail["type"] == "missing" and detail["loc"] in meant:
                continue  # the misspelt key is reported
            if detail["type"] != "extra_forbidden":
                self._add_detail((*path, *detail["loc"]), detail)

    def _add_detail(self, path: Path, detail: ErrorDetails) -> None:
        path = path[:-1] if path[-1:] == ("[key]",) else path  # the key itself is wrong
        if detail["type"] == "missing":
            key = str(path[-1])
            self.add(path[:-1], f"the key {key} is missing; write {self._example(path)}")
            self.unusable.add(path)
        else:
            self.add(path, explain(detail, self._example(path)), unusable=True)

    def _example(self, path: Path) -> str:
        """Return how what stands at a path may be written: the key with a value, or an item of its list."""
        keys = [part for part in path if isinstance(part, str)]
        key, parent = keys[-1], keys[-2] if len(keys) > 1 else ""
        of = {"training": _OF_TRAINING, "numerics": _OF_NUMERICS}
        known = {**EXAMPLES, **next((of[word] for word in of if word in self.document.data), {})}
        example = known.get(f"{parent}.{key}", known.get(key, f"{key}: ..."))
        if isinstance(path[-1], str) or "[" not in example:
            return example
        items = example.partition("[")[2].rpartition("]")[0]
        first, separator, _ = items.partition("}, " if "{" in items else ", ")
        return first + "}" if separator == "}, " else first


def _in_order(problem: Problem) -> tuple[int, list[str | int], list[str | int]]:
    """Sort problems by line, then by place and message, where 2 comes before 10."""
    return problem.line or 0, _by_numbers(problem.place), _by_numbers(problem.message)


def _by_numbers(text: str) -> list[str | int]:
    """A text in parts, of which every second is a number."""
    parts: list[str | int] = list(re.split(r"([0-9]{1,18})", text))
    parts[1::2] = [int(number) for number in parts[1::2]]
    return parts


def unknown_key(key: str, known: list[str]) -> str:
    """Return what is wrong with a key that nothing knows, and the remedy."""
    before, colon, _ = key.partition(":")
    if colon and before in known:
        return f'unknown key; write a space after the colon: "{before}: ..."'
    return f"unknown key; {suggestion(key, known, 'known keys')}"


def explain(detail: ErrorDetails, example: str) -> str:
    """Return one validation error in this project's words, with an example of what may stand there."""
    kind, given = detail["type"], shown(detail["input"])
    context = detail.get("ctx", {})
    if kind == "scenario":
        return str(context["message"])
    if kind == "string_type":
        return f"{given} is not text; put it in quotes"
    if kind == "bool_type":
        return f"{given} is not true or false; write one of the two, without quotes"
    if kind == "list_type":
        return f"{given} is not a list; write {example if '[' in example else example + ' [a, b]'}"
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return f"{given} is not a mapping; write {example}"
    if kind == "literal_error":
        known = [word.strip("'") for word in str(context["expected"]).replace(" or ", ", ").split(", ")]
        return f"{given} is unknown; {suggestion(detail['input'], known)}"
    if kind in ("too_short", "too_long"):
        rule = f"at least {context['min_length']}" if kind == "too_short" else f"at most {context['max_length']}"
        return f"{counted(context['actual_length'], 'entry', 'entries')}; write {rule}"
    if kind == "string_pattern_mismatch":
        return f"{given} is not a name; write small letters, digits and _, such as nvlink"
    if kind == "string_too_short":
        return f"the text is empty; write {example}"
    return f"{given}: {detail['msg'][:1].lower()}{detail['msg'][1:]}"


def _known_keys(model: type[BaseModel] | None, location: tuple[int | str, ...]) -> list[str]:
    """Return the keys of the model that holds the last entry of a location."""
    named = False
    for part in location[:-1]:
        if isinstance(part, int) or model is None or named:
            named = False
            continue
        field_ = next((f for name, f in model.model_fields.items() if (f.alias or name) == part), None)
        forms = [] if field_ is None else [form for form in field_.metadata if isinstance(form, tuple)]
        if forms and part == location[-2]:
            return [key for form in forms[0] for key in form.model_fields]
        model = None if field_ is None else _model_in(field_.annotation)
        named = field_ is not None and _is_mapping(field_.annotation)
    return [] if model is None else [f.alias or name for name, f in model.model_fields.items()]


def _is_mapping(annotation: Any) -> bool:
    """Whether a field holds models by names that are the file's own."""
    return get_origin(annotation) is dict or any(map(_is_mapping, get_args(annotation)))


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model within Optional[...] or list[...]."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inside = (_model_in(argument) for argument in getattr(annotation, "__args__", ()))
    return next((model for model in inside if model is not None), None)


__all__ = ["EXAMPLES", "Context", "unknown_key"]
