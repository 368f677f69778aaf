"""Plain data parallelism: after the backward pass, one all-reduce of all gradients; then the optimizer.

Nothing overlaps: step = compute + all-reduce. With several micro-batches gradients are added up locally and reduced
once. Assumes that gradients of one dtype form one message, and that copies into it take no time.
"""

from collections import Counter

from simcollectives.training.passes import backward, forward, optimizer_step, stand_replicated
from simcollectives.training.pricing import WORLD
from simcollectives.training.program import COMPUTE, Builder, Call, Program
from simcollectives.training.setup import Training
from simcollectives.training.strategies.types import Options, Strategy


def write_program(training: Training, _options: Options) -> Program:
    """Write the step of one rank."""
    builder = Builder()
    stand_replicated(builder, training)
    for micro_batch in range(training.accumulation):
        builder.micro_batch = micro_batch
        builder.phase = "forward"
        forward(builder, training)
        builder.phase = "backward"
        backward(builder, training, lambda _parameter, _done: None, first=micro_batch == 0)
    elements: Counter[str] = Counter()
    for parameter in training.model.parameters:
        elements[training.gradient_dtype(parameter)] += parameter.elements
    done = [
        builder.collective(
            "all gradients" if len(elements) == 1 else f"all {dtype} gradients",
            Call("all_reduce", WORLD, training.world_size, count, dtype),
            after=[builder.last[COMPUTE]],
        )
        for dtype, count in elements.items()
    ]
    optimizer_step(builder, training, done)
    return builder.program()


STRATEGY = Strategy(
    name="all_reduce_once",
    summary="data parallelism with one all-reduce of all gradients after the backward pass",
    reference="Sergeev and Del Balso 2018, arXiv:1802.05799",
    program=write_program,
)
