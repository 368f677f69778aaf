"""What to say of a scenario's cost before it is run: in a line, and as advice where it takes long or much memory."""

import os
from pathlib import Path

from simcollectives.engines.estimate import cheaper, cost_text, rough_time
from simcollectives.scenario.evaluation import Evaluator
from simcollectives.scenario.keys import point_text
from simcollectives.scenario.numbers import at
from simcollectives.scenario.planning import Plan, PlannedRun
from simcollectives.scenario.training.planning import StepPlan
from simcollectives.units import format_bytes

SAID_SECONDS = 10.0
"""What takes longer is said before the run."""

LONG_SECONDS = 180.0
MOST_OF_MEMORY = 0.5
"""From here on there is advice."""

_NAMED_RUNS = 3
_NAMED_SHARE = 0.1


def free_memory_bytes() -> int | None:
    """Return the memory that programs can still have (on Linux), or all there is; None where neither is known."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def cost_line(plan: Plan | StepPlan, free_bytes: int | None) -> str | None:
    """Return what a plan costs, where it takes more than ten seconds or calls for advice.

    Like "12,000,000 messages, about 2 min, 300 MB"; the memory is beside what the program holds anyhow. Of training
    steps like "1,200 training steps, about 2 min".
    """
    if isinstance(plan, StepPlan):
        cost = f"{plan.steps:,} training step{'s' if plan.steps > 1 else ''}, about {rough_time(plan.seconds)}"
        return cost if plan.seconds > SAID_SECONDS else None
    if plan.seconds <= SAID_SECONDS and not _fills(plan.memory_bytes, free_bytes):
        return None
    return cost_text(plan.messages, plan.seconds, plan.memory_bytes)


def advice(plan: Plan | StepPlan, free_bytes: int | None) -> list[str]:
    """Return what to know and to do about a plan of more than a few minutes, or more than half of the free memory."""
    found: list[str] = []
    if isinstance(plan, StepPlan):
        return found
    if plan.seconds > LONG_SECONDS:
        runs = sorted(plan.runs, key=lambda run: run.seconds, reverse=True)[:_NAMED_RUNS]
        named = [run for run in runs if run.seconds > _NAMED_SHARE * plan.seconds] or runs[:1]
        found += [f"{_run_text(run)} takes {_duration(run)}; {_remedy(plan, run)}" for run in named]
    if _fills(plan.memory_bytes, free_bytes):
        largest = max(plan.runs, key=lambda run: run.memory_bytes)
        size, free = (format_bytes(number, 2, family="decimal") for number in (plan.memory_bytes, free_bytes or 0))
        found.append(f"{_run_text(largest)} holds about {size}, and {free} are free; {_smaller(plan, largest)}")
    return found


def _fills(memory_bytes: int, free_bytes: int | None) -> bool:
    return free_bytes is not None and memory_bytes > MOST_OF_MEMORY * free_bytes


def _run_text(run: PlannedRun) -> str:
    what = f"the timeline of {run.entry.label}" if run.timeline else run.entry.label
    return f"{what} at {point_text(run.point)}" if run.point else what


def _duration(run: PlannedRun) -> str:
    about = f"about {rough_time(run.seconds)}"
    return f"{about} ({run.times} runs of {rough_time(run.estimate.seconds)})" if run.times > 1 else about


def _remedy(plan: Plan, run: PlannedRun) -> str:
    if run.verify_seconds > run.seconds / 2:
        return "most of it is executing it on arrays: write verify: never, or take a smaller message"
    scenario = plan.scenario
    job = Evaluator(scenario).job(run.entry, run.point)
    other = cheaper(job, run.estimate, run.timeline, at(scenario.time, run.point), scenario.skipping)
    if other is None:
        return f"no cheaper engine is exact there: {_smaller(plan, run)}"
    about = f"about {rough_time(run.times * other.seconds)}"
    if other.engine == run.estimate.engine:
        return f"without skipping: false {about}, to the same time"
    write = "auto" if other.engine == "vectorized" else other.engine
    leave = "" if scenario.skipping else ", and leave skipping: false out"
    return f"{other.engine} is exact there, too, in {about}: write engine: {write}{leave}"


def _smaller(plan: Plan, run: PlannedRun) -> str:
    ways = ["fewer seeds"] if run.times > 1 else []
    ways += ["fewer points"] if plan.scenario.sweeps and not run.timeline else []
    return f"take {' or '.join([*ways, 'fewer devices'])}"
