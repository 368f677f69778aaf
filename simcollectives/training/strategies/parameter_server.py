"""Parameter servers: after the backward pass workers send gradients to servers and receive parameters from them.

The traffic is that of the collective algorithm ``parameter_server``: 2 N M / (k B) for N workers, M bytes and k
dedicated servers, until a worker's own port binds; with a server on every worker, reduce-scatter and all-gather.

Reference: Li et al., OSDI 2014. Assumes synchronous training, and servers that update in no time and send parameters
in the dtype of the gradients. Optimizer states stand on the servers: with one on every worker, each has its share.
"""

from typing import Any

from simcollectives.algorithms import find_algorithm
from simcollectives.algorithms.parameter_server import CO_LOCATED
from simcollectives.engines.job import DTYPES
from simcollectives.training.passes import GRADIENTS, OPTIMIZER, stand_model
from simcollectives.training.program import Builder, Program
from simcollectives.training.setup import Training
from simcollectives.training.strategies.all_reduce_once import compute_gradients, reduce_gradients
from simcollectives.training.strategies.types import Options, Strategy


def write_program(training: Training, options: Options) -> Program:
    """Write the step of one worker."""
    builder = Builder()
    stand_model(builder, training)
    if options["servers"] == CO_LOCATED:
        share = -(-training.model.elements // training.world_size)
        builder.stand(OPTIMIZER, training.optimizer.held_bytes * share)
    compute_gradients(builder, training)
    builder.phase = "optimizer"
    done = reduce_gradients(builder, training, "push and pull")
    builder.compute("new parameters", 0.0, after=done, frees=[(GRADIENTS, training.all_gradient_bytes)])
    return builder.program()


def warnings(training: Training, _options: Options) -> tuple[str, ...]:
    """Tell of parameters that have another width than gradients."""
    parameters, gradients = training.precision.parameters, training.precision.gradients
    if DTYPES[parameters] == DTYPES[gradients]:
        return ()
    return (
        f"parameter_server sends parameters as {gradients}, like gradients, although they are held as {parameters}",
    )


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
    warnings=warnings,
)
