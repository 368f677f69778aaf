"""The data engine: moves real NumPy arrays by the schedule and checks the collective's postcondition."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from simcollectives.algorithms.types import Options
from simcollectives.cluster.link import Link
from simcollectives.cluster.types import Cluster
from simcollectives.engines.conditions import IDEAL
from simcollectives.engines.job import DTYPES, Job, check_parts, make_job
from simcollectives.errors import InputError, Problem, ScheduleError, show_value
from simcollectives.schedule.collectives import COLLECTIVES
from simcollectives.schedule.partition import partition
from simcollectives.schedule.types import Round

Array = npt.NDArray[Any]
State = list[dict[int, Array]]
"""[device]: the chunks it holds. Arrays are never changed in place."""

MAX_HELD_BYTES = 8 << 30
_STAND_INS = {"bfloat16": "float32"}
ARRAY_DTYPES = tuple(dtype for dtype in DTYPES if dtype not in _STAND_INS)


def array_dtype(dtype: str) -> np.dtype[Any]:
    """Return what arrays stand for a dtype: NumPy's own, and float32 for bfloat16, which NumPy does not have.

    What is verified is then the schedule and its bytes, and a sum of float32, not the rounding of bfloat16.
    """
    return np.dtype(_STAND_INS.get(dtype, dtype))


def held_bytes(world_size: int, message_bytes: float, dtype: str) -> int:
    """Bytes of memory that executing takes at most: inputs, outputs and what is on its way."""
    return 3 * world_size * int(message_bytes) // DTYPES[dtype] * array_dtype(dtype).itemsize


def play(job: Job, state: State, after_round: Callable[[int, State], None] | None = None) -> None:
    """Move the chunks of ``state`` by the schedule; a round reads before it writes, and adds as ``Schedule`` says.

    Raises:
        ScheduleError: a device sends a chunk that it does not hold.
    """
    streams = [job.schedule.rounds_of(channel) for channel in range(len(job.schedule.channels))]
    for number in range(job.schedule.rounds):
        moves = [
            move
            for stream in streams
            if (round_ := next(stream, None)) is not None
            for move in _reads(job, round_, state, number)
        ]
        arrived: dict[tuple[int, int], list[tuple[int, Array]]] = {}
        for src, device, chunk, data, adds in moves:
            if adds:
                arrived.setdefault((device, chunk), []).append((src, data))
            else:
                state[device][chunk] = data
        for (device, chunk), addends in arrived.items():
            held = state[device].get(chunk)
            if held is not None:
                addends.insert(0, (-1 if job.schedule.own_first else device, held))
            state[device][chunk] = _sum([data for _, data in sorted(addends, key=itemgetter(0))])
        if after_round is not None:
            after_round(number, state)


def _sum(addends: Sequence[Array]) -> Array:
    """Add from left to right, in the arrays' own type."""
    return reduce(lambda total, data: (total + data).astype(data.dtype, copy=False), addends)


def _reads(job: Job, round_: Round, state: State, number: int) -> list[tuple[int, int, int, Array, bool]]:
    moves = []
    columns = (round_.src, round_.dst, round_.first, round_.count, round_.stride, round_.reduce)
    for src, dst, first, count, stride, adds in zip(*(column.tolist() for column in columns), strict=True):
        for chunk in range(first, first + count * stride, stride):
            if chunk not in state[src]:
                raise ScheduleError(f"{job.label}: in round {number} rank {src} sends chunk {chunk}, which it lacks")
            moves.append((src, dst, chunk, state[src][chunk], adds))
    return moves


def _scatter(job: Job, arrays: Sequence[Array]) -> State:
    """Cut each rank's input into the chunks that the collective's precondition gives it."""
    schedule = job.schedule
    sizes = job.layout.chunk_elements()
    before = COLLECTIVES[schedule.collective].before(schedule)
    state: State = [{} for _ in range(schedule.devices)]
    for rank, array in enumerate(arrays):
        chunks = np.flatnonzero(before[rank])
        if len(chunks) == 0:
            continue
        pieces = np.split(array, np.cumsum(sizes[chunks])[:-1])
        state[rank] = dict(zip(chunks.tolist(), pieces, strict=True))
    return state


def _gather(job: Job, state: State, rank: int) -> Array | None:
    """Join the chunks that the postcondition gives a rank, or return None where it gives none."""
    chunks = np.flatnonzero(COLLECTIVES[job.schedule.collective].after(job.schedule)[rank])
    if len(chunks) == 0:
        return None
    missing = [chunk for chunk in chunks.tolist() if chunk not in state[rank]]
    if missing:
        raise ScheduleError(f"{job.label}: rank {rank} ends without chunk {missing[0]}")
    return np.concatenate([state[rank][chunk] for chunk in chunks.tolist()])


def input_elements(job: Job, rank: int) -> int:
    """Elements of a rank's input: its part for an all-gather, the message otherwise."""
    if job.schedule.collective == "all_gather":
        return int(partition(job.layout.elements, job.schedule.world_size)[rank])
    return job.layout.elements


def execute(
    collective: str,
    algorithm: str,
    arrays: Sequence[npt.ArrayLike],
    options: Options | None = None,
    cluster: Cluster | None = None,
) -> list[Array]:
    """Run a collective on arrays, one a rank, by an algorithm's schedule.

    Takes arrays of one dtype: float64, float32, float16, int64, int32, int8 or uint8. All-reduce, broadcast, reduce,
    reduce-scatter and all-to-all take equal sizes; all-gather takes the parts of the whole, by ``numpy.array_split``.
    Returns new arrays: of the inputs' shape for all-reduce, broadcast and reduce (ranks other than the root get their
    input back), flat otherwise. Uneven parts put the longer ones first.

    Raises:
        InputError: the arrays do not fit; see also ``make_job``.
        ScheduleError: the schedule is wrong (a bug).
    """
    inputs = _as_arrays(arrays)
    _check_arrays(inputs, collective)
    if cluster is None:
        cluster = Cluster.flat(len(inputs), Link(0.0, 1.0))
    check_parts(cluster, IDEAL)
    if cluster.world_size != len(inputs):
        raise InputError(f"{len(inputs)} arrays for {cluster.world_size} ranks; give one array a rank")
    total = sum(a.size for a in inputs) if collective == "all_gather" else inputs[0].size
    dtype = str(inputs[0].dtype)
    job = make_job(collective, algorithm, cluster, total * DTYPES[dtype], options, dtype)
    for rank, array in enumerate(inputs):
        if array.size != input_elements(job, rank):
            rule = f"the parts of {total} elements on {len(inputs)} ranks are {input_elements(job, rank)} there"
            raise InputError([Problem("", f"array {rank} has {array.size} elements; {rule}")])
    outputs = _run(job, [array.reshape(-1) for array in inputs])
    same_shape = collective in ("all_reduce", "broadcast", "reduce")
    return [
        array.copy() if output is None else output.reshape(array.shape) if same_shape else output
        for array, output in zip(inputs, outputs, strict=True)
    ]


def _run(job: Job, inputs: Sequence[Array]) -> list[Array | None]:
    state = _scatter(job, inputs)
    play(job, state)
    return [_gather(job, state, rank) for rank in range(job.schedule.world_size)]


def _as_arrays(arrays: object) -> list[Array]:
    if not isinstance(arrays, Iterable) or isinstance(arrays, str):
        raise InputError([Problem("arrays", f"{show_value(arrays)} is not a list of arrays; give one array a rank")])
    return [np.asarray(array) for array in arrays]


def _check_arrays(inputs: Sequence[Array], collective: str) -> None:
    if not inputs:
        raise InputError("no arrays; give one array a rank")
    problems = []
    if str(inputs[0].dtype) not in ARRAY_DTYPES:
        problems.append(Problem("", f"dtype {inputs[0].dtype} is not supported; use one of: {', '.join(ARRAY_DTYPES)}"))
    for rank, array in enumerate(inputs):
        if array.dtype != inputs[0].dtype:
            problems.append(
                Problem("", f"array {rank} has dtype {array.dtype}, array 0 has {inputs[0].dtype}; use one")
            )
        if collective != "all_gather" and array.shape != inputs[0].shape:
            problems.append(
                Problem("", f"array {rank} has shape {array.shape}, array 0 has {inputs[0].shape}; use one")
            )
    if problems:
        raise InputError(problems)


def verify(
    collective: str,
    algorithm: str,
    cluster: Cluster,
    message_bytes: float,
    options: Mapping[str, Any] | None = None,
    dtype: str = "float32",
) -> None:
    """Execute on arrays of seeded random numbers and compare with NumPy's own answer.

    Integers must be exact. Floats may differ from the direct sum by (N - 1) eps sum|x|, and all ranks must hold the
    same bits unless the algorithm is declared otherwise.

    Raises:
        ScheduleError: the result is wrong.
        InputError: the arrays would not fit in memory; see also ``make_job``.
    """
    verify_job(make_job(collective, algorithm, cluster, message_bytes, options, dtype))


def verify_job(job: Job) -> None:
    """As ``verify``, for a job."""
    n = job.schedule.world_size
    if held_bytes(n, job.message_bytes, job.dtype) > MAX_HELD_BYTES:
        raise InputError(
            [Problem("verify", f"{n} ranks of {job.message_bytes} B do not fit in memory; write verify: auto")]
        )
    inputs = random_inputs(job)
    outputs = _run(job, inputs)
    expected = _expected(job, inputs)
    part = np.concatenate([[0], np.cumsum(partition(job.layout.elements, n))])
    for rank, output in enumerate(outputs):
        if output is not None:
            mine = slice(int(part[rank]), int(part[rank + 1])) if expected.by_part else slice(None)
            _compare(job, rank, output, expected, mine)
    held = [output for output in outputs if output is not None]
    alike = job.schedule.collective in ("all_reduce", "all_gather", "broadcast") and job.algorithm.same_bits(
        job.options
    )
    if alike and any(output.tobytes() != held[0].tobytes() for output in held[1:]):
        raise ScheduleError(f"{job.label}: ranks end with different bits")


def random_inputs(job: Job, seed: int = 0) -> list[Array]:
    """Seeded input arrays, one a rank: normal floats, or integers of the whole range of int8."""
    generator = np.random.default_rng(seed)
    sizes = [input_elements(job, rank) for rank in range(job.schedule.world_size)]
    dtype = array_dtype(job.dtype)
    if np.issubdtype(dtype, np.floating):
        return [generator.standard_normal(size).astype(dtype) for size in sizes]
    return [generator.integers(-128, 128, size).astype(dtype) for size in sizes]


@dataclass(frozen=True)
class _Expected:
    """NumPy's own answer: ``value`` [source, element], and how far floats may be off; each rank compares its part."""

    value: Array
    tolerance: Array | None
    by_part: bool


def _expected(job: Job, inputs: Sequence[Array]) -> _Expected:
    collective = COLLECTIVES[job.schedule.collective]
    by_part = collective.name in ("reduce_scatter", "all_to_all")
    if not collective.reduces:
        if collective.name == "all_to_all":
            return _Expected(np.stack(inputs), None, by_part)
        whole = inputs[job.schedule.root] if collective.rooted else np.concatenate(inputs)
        return _Expected(whole[None, :], None, by_part)
    dtype = inputs[0].dtype
    if not np.issubdtype(dtype, np.floating):
        return _Expected(reduce(np.add, inputs)[None, :], None, by_part)
    # A wider type stands for the real numbers; where there is none, the direct sum is as far off as ours.
    wide = np.dtype(np.float64 if dtype.itemsize < 8 else np.longdouble)
    total, size = np.zeros(inputs[0].shape, wide), np.zeros(inputs[0].shape, wide)
    for array in inputs:
        total += array
        size += np.abs(array)
    exactness = 1 if _epsilon(wide) < _epsilon(dtype) else 2
    bound = exactness * max(len(inputs) - 1, 0) * _epsilon(dtype) * size
    return _Expected(total[None, :], bound[None, :], by_part)


def _epsilon(dtype: Any) -> float:
    return float(np.finfo(dtype).eps)


def _compare(job: Job, rank: int, output: Array, expected: _Expected, mine: slice) -> None:
    value = expected.value[:, mine].reshape(-1)
    if output.shape != value.shape:
        raise ScheduleError(f"{job.label}: rank {rank} ends with {output.size} elements instead of {value.size}")
    if expected.tolerance is None:
        wrong = output != value
    else:
        wrong = np.abs(output - value) > expected.tolerance[:, mine].reshape(-1)
    if np.any(wrong):
        where = int(np.argmax(wrong))
        raise ScheduleError(f"{job.label}: rank {rank} ends with a wrong value at element {where}")
