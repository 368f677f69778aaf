"""What one micro-batch asks of a model: how much of it, and which way of computing it."""

from dataclasses import dataclass
from typing import Literal, get_args

from simcollectives.errors import InputError, Problem, show_value
from simcollectives.training.model import Model

Recomputation = Literal["none", "selective", "operators", "full"]
AttentionKernel = Literal["eager", "flash"]
AttentionFlops = Literal["full", "causal"]

MOST_SAMPLES, MOST_TOKENS = 1 << 24, 1 << 30


@dataclass(frozen=True)
class Workload:
    """``samples`` sequences of ``sequence`` tokens, and how they are computed. An image is a sequence of one.

    ``recomputation`` in the backward: ``selective`` of the attention between the projections; ``operators`` of all but
    the outputs of attention and of every second matrix product of a block (torchtitan's selective checkpointing by
    operators); ``full`` of whole blocks, of which only the input is kept. The ``attention_kernel`` either keeps the
    weights of the attention for the backward (``eager``) or rebuilds them there (``flash``). ``attention_flops`` of
    causal attention count every pair of tokens (``full``, as PaLM's convention does), or half of them (``causal``, what
    a causal kernel computes).

    Raises:
        InputError: a number is not whole and positive, or a choice is unknown; all problems at once.
    """

    samples: int
    sequence: int
    recomputation: Recomputation = "none"
    attention_kernel: AttentionKernel = "flash"
    attention_flops: AttentionFlops = "full"

    def __post_init__(self) -> None:
        problems = []
        for name, most in (("samples", MOST_SAMPLES), ("sequence", MOST_TOKENS)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
                rule = f"{show_value(value)} is not a whole number from 1 to {most}; write for instance 1024"
                problems.append(Problem(name, rule))
        for name, choices in _CHOICES:
            if getattr(self, name) not in choices:
                problems.append(Problem(name, f"{show_value(getattr(self, name))} is not one of {', '.join(choices)}"))
        if problems:
            raise InputError(problems)

    @property
    def tokens(self) -> int:
        """Tokens of all sequences."""
        return self.samples * self.sequence


_CHOICES = (
    ("recomputation", get_args(Recomputation)),
    ("attention_kernel", get_args(AttentionKernel)),
    ("attention_flops", get_args(AttentionFlops)),
)


def check_fits(model: Model, workload: Workload) -> None:
    """Refuse what a model has no use or no room for.

    Raises:
        InputError: the sequence is longer than the learned positions, or images are given one; attention is to be
            recomputed where there is none; all problems at once.
    """
    problems = []
    longest = model.longest_sequence
    if longest is not None and workload.sequence > longest:
        rule = f"{workload.sequence} tokens; {model.name} has learned positions for {longest}; give at most as many"
        problems.append(Problem("sequence", rule))
    if not model.has_sequence and workload.sequence != 1:
        rule = f"{workload.sequence} tokens; {model.name} takes images, each of which counts as one; leave it out"
        problems.append(Problem("sequence", rule))
    if workload.recomputation == "selective" and not model.has_attention:
        rule = f"selective: {model.name} has no attention to recompute; write none or full"
        problems.append(Problem("recomputation", rule))
    if problems:
        raise InputError(problems)
