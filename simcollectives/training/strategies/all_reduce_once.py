"""Plain data parallelism: after the backward pass, one all-reduce of all gradients; then the optimizer.

Nothing overlaps: step = compute + all-reduce. With several micro-batches gradients are added up locally and reduced
once. Assumes that gradients of one dtype lie side by side and form one message, so that nothing is copied into it.
"""

from simcollectives.training.passes import (
    backward,
    elements_by_dtype,
    forward,
    optimizer_step,
    stand_replicated,
)
from simcollectives.training.pricing import WORLD
from simcollectives.training.program import COMPUTE, Builder, Call, Program
from simcollectives.training.setup import Training
from simcollectives.training.strategies.types import Options, Strategy


def compute_gradients(builder: Builder, training: Training) -> None:
    """Issue all forward and backward passes of a step; gradients add up."""
    for micro_batch in range(training.accumulation):
        builder.micro_batch = micro_batch
        builder.phase = "forward"
        forward(builder, training)
        builder.phase = "backward"
        backward(builder, training, first=micro_batch == 0)


def reduce_gradients(builder: Builder, training: Training, name: str) -> list[int]:
    """Issue an all-reduce of all gradients of each dtype, after what has been computed."""
    elements = elements_by_dtype(training)
    return [
        builder.collective(
            name if len(elements) == 1 else f"{name}, {dtype}",
            Call("all_reduce", WORLD, training.world_size, count, dtype),
            after=[builder.last[COMPUTE]],
        )
        for dtype, count in elements.items()
    ]


def write_program(training: Training, _options: Options) -> Program:
    """Write the step of one rank."""
    builder = Builder()
    stand_replicated(builder, training)
    compute_gradients(builder, training)
    optimizer_step(builder, training, reduce_gradients(builder, training, "all gradients"))
    return builder.program()


STRATEGY = Strategy(
    name="all_reduce_once",
    summary="data parallelism with one all-reduce of all gradients after the backward pass",
    reference="Sergeev and Del Balso 2018, arXiv:1802.05799",
    program=write_program,
)
