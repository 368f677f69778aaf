"""Who this process is: one rank of several that torchrun started, or the one that starts local ranks itself."""

from collections.abc import Mapping
from dataclasses import dataclass

from simcollectives.errors import InputError, Problem, listing, show_value

_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
_LAUNCHERS = {
    "srun": "SLURM_STEP_NUM_TASKS",
    "mpirun of Open MPI": "OMPI_COMM_WORLD_SIZE",
    "mpiexec of MPICH": "PMI_SIZE",
}
_REMEDY = (
    "start one torchrun a node: torchrun --nnodes NODES --nproc-per-node GPUS --rdzv-backend c10d "
    "--rdzv-endpoint FIRST_NODE:29500 -m simcollectives.cli probe .."
)


@dataclass(frozen=True)
class Placement:
    """One rank among all; ``local_rank`` counts those of its node. ``init_method`` is where they meet."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    init_method: str = "env://"


def placement_of(environment: Mapping[str, str]) -> Placement | None:
    """The rank that torchrun made of this process; None where nobody started several.

    Raises:
        InputError: the variables of torchrun are incomplete or contradict themselves, or another launcher started
            several processes.
    """
    if "RANK" not in environment and "WORLD_SIZE" not in environment:
        for launcher, variable in _LAUNCHERS.items():
            if environment.get(variable, "1").isdigit() and int(environment.get(variable, "1")) > 1:
                rule = f"{launcher} started {environment[variable]} processes, which know of no meeting point"
                raise InputError([Problem(variable, f"{rule}; {_REMEDY}")])
        return None
    missing = [name for name in _TORCHRUN if not environment.get(name)]
    if missing:
        rule = f"not set, though {'RANK' if 'RANK' in environment else 'WORLD_SIZE'} is"
        raise InputError([Problem(listing(missing), f"{rule}; {_REMEDY}, or unset RANK and WORLD_SIZE")])
    numbers = {name: environment[name] for name in _TORCHRUN if name != "MASTER_ADDR"}
    numbers["LOCAL_WORLD_SIZE"] = environment.get("LOCAL_WORLD_SIZE") or "1"
    problems = [
        Problem(name, f"{show_value(text)} is no whole number; let torchrun set it")
        for name, text in numbers.items()
        if not (text.isascii() and text.isdigit() and len(text) < 8)
    ]
    if problems:
        raise InputError(problems)
    rank, world_size, local_rank, port, local_world_size = map(int, numbers.values())
    if rank >= world_size:
        problems.append(Problem("RANK", f"{rank} is not below WORLD_SIZE, {world_size}; let torchrun set both"))
    if not 0 < port < 2**16:
        problems.append(Problem("MASTER_PORT", f"{port} is no port from 1 to 65535; let torchrun set it"))
    if local_world_size == 0:
        problems.append(Problem("LOCAL_WORLD_SIZE", "0 ranks on a node are none; let torchrun set it"))
    if problems:
        raise InputError(problems)
    return Placement(rank, world_size, local_rank, local_world_size)
