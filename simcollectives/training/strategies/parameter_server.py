"""Parameter servers: after the backward pass workers send gradients to servers and receive parameters from them.

The traffic is that of the collective algorithm ``parameter_server``: 2 N M / (k B) for N workers, M bytes and k
dedicated servers, until a worker's own port binds; with a server on every worker, reduce-scatter and all-gather.

Reference: Li et al., OSDI 2014. Assumes synchronous training, gradients and parameters of one dtype, and servers that
update in no time; workers then have no optimizer of their own.
"""

from typing import Any

from simcollectives.algorithms import find_algorithm
from simcollectives.training.passes import GRADIENTS, PARAMETERS, backward, forward
from simcollectives.training.pricing import WORLD
from simcollectives.training.program import COMPUTE, Builder, Call, Program
from simcollectives.training.setup import Training
from simcollectives.training.strategies.types import Options, Strategy


def write_program(training: Training, _options: Options) -> Program:
    """Write the step of one worker."""
    builder = Builder()
    builder.stand(PARAMETERS, training.parameter_bytes)
    for micro_batch in range(training.accumulation):
        builder.micro_batch = micro_batch
        builder.phase = "forward"
        forward(builder, training)
        builder.phase = "backward"
        backward(builder, training, lambda _parameter, _done: None, first=micro_batch == 0)
    builder.phase = "optimizer"
    elements = training.model.elements
    call = Call("all_reduce", WORLD, training.world_size, elements, training.precision.gradients)
    freed = sum(training.gradient_bytes(parameter) for parameter in training.model.parameters)
    builder.collective("push and pull", call, after=[builder.last[COMPUTE]], frees=[(GRADIENTS, freed)])
    return builder.program()


def choices(options: Options) -> dict[str, tuple[str, dict[str, Any]]]:
    """The servers are the algorithm of the all-reduce."""
    return {"all_reduce": ("parameter_server", dict(options))}


STRATEGY = Strategy(
    name="parameter_server",
    summary="workers push gradients to servers and pull parameters from them, after the backward pass",
    reference="Li et al. 2014, OSDI",
    program=write_program,
    options=find_algorithm("all_reduce", "parameter_server").options,
    choices=choices,
)
