"""verifiers 0.4 and prime-rl: `traces.jsonl`, one episode per line, null fields left out.

An episode has `id`, `env`, `task`, `group`, `run`, `ok`, `is_timeout`, `errors` and `traces`; each trace has
`rewards` by name ({score, weight}, or null where scoring did not run), `ok`, `is_timeout`, `stop_condition`
and `timing` with start and end of each stage. prime-rl puts such files into
`rollouts/step_{n}/{train|eval}/{all|effective}/`, or into `traces/stream/`.

- A rollout is a trace whose agent is trained; an episode without traces is one that was not scored.
- A group is the episode's `group`, else its task; for each agent of its own, since only equals are compared.
- A step is the folder `step_{n}`, else the episode's `run.work.step`, else there is none.
- The total is the sum of score times weight of the rewards that are there, as the vendor's own `reward`: so a
  timeout of scoring, which leaves `ok` true and every reward null, is a 0. A trace that failed before scoring
  has no total.
- A deadline of the agent is the policy's own; every other one is a failure of what surrounds it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from steelyard.errors import RefusedError
from steelyard.files.foreign import table
from steelyard.files.foreign.lines import ValueFaultError, number, records, seen
from steelyard.files.foreign.read import Faults, Options, Read, beneath
from steelyard.files.foreign.results import span

FIELDS = frozenset({"traces", "task"})
KINDS = ("all", "effective")
_STEP = re.compile(r"step_(\d+)")


def find_traces(path: Path, split: str) -> list[Path]:
    """Files of a run, each episode once: of `all` and `effective`, which repeats some, the first there is."""
    if path.is_file():
        return [path]
    for root in (path, path / "rollouts", path / "run_default" / "rollouts"):
        found = beneath(
            root,
            "traces.jsonl",
            *(
                f"{below}{kind}/traces.jsonl"
                for below in (f"step_*/{split}/", f"{split}/", "")
                for kind in ("all", "effective")
            ),
        )
        if found:
            return found
    return beneath(path, "traces/stream/*.jsonl", "stream/*.jsonl")


def read_traces(path: Path, options: Options) -> Read:
    """Read a file, or those of a run's folder.

    Raises
    ------
    RefusedError
        If a folder has none; at the first line that cannot be read, unless such lines are skipped.
    """
    files = find_traces(path, options.split)
    if not files:
        raise RefusedError(
            f"no traces.jsonl of the split {options.split!r} in this folder",
            where=str(path),
            remedy="name the run's folder, or the file; --split is train or eval",
        )
    faults = Faults(options.skip)
    gathered = table.Gathered()
    seen_ids: set[int] = set()
    unknown = again = 0
    for file, line, record in records(files, faults):
        try:
            work = _work(record)
            identity = hash(record.get("id") or (file, line))
            if identity in seen_ids:
                again += 1
                continue
            seen_ids.add(identity)
            if work.get("type") not in (None, options.split) and not path.is_file():
                continue
            unknown += _add_episode(gathered, record, _step(file, work))
        except ValueFaultError as error:
            faults.bad(f"{file}:{line}", str(error), "check what wrote it")
    about = _about(path, gathered, options, files)
    if unknown:
        about.lacks.append(f"{unknown:,} traces ended well and have no reward: their tasks define none.")
    if again:
        about.says.append(f"{again:,} episodes stand in the files more than once and are counted once.")
    columns = gathered.columns()
    timed = int(np.isfinite(columns.service_s).sum())
    if timed < len(gathered):
        about.lacks.append(f"{len(gathered) - timed:,} of {len(gathered):,} rollouts have no scoring time.")
    return table.read(columns, about, faults)


def _about(path: Path, gathered: table.Gathered, options: Options, files: list[Path]) -> table.About:
    subset = {file.parent.name for file in files} & {"all", "effective"}
    stepped = None not in gathered.labels
    about = table.About(
        source=f"verifiers traces {path.name}",
        labels=list(gathered.labels)
        if stepped
        else ["run" if one is None else one for one in gathered.labels],
        part="scoring",
        causes=list(gathered.causes),
        stepped=stepped,
        limit_s=options.limit_s,
        says=[
            "A group is the episode's group, else its task.",
            "Service times are timing.scoring: all rewards of a rollout together.",
            "The total is the sum of score times weight of the rewards that are there.",
        ],
        lacks=["Rewards across traces, computed when an episode ends, are in no clock."],
    )
    if subset == {"effective"}:
        about.lacks.append("Only the rollouts that were trained on are in these files.")
    if stepped:
        about.lacks.append(
            "Rollouts are generated ahead of their step: what a step waited for rewards is not in the file."
        )
    return about


def _work(record: dict[str, Any]) -> dict[str, Any]:
    absent = FIELDS - record.keys()
    if absent:
        raise ValueFaultError(f"no {min(absent)!r} in this episode; it has {', '.join(sorted(record)[:20])}")
    if not isinstance(record["traces"], list):
        raise ValueFaultError(f"'traces' must be a list, this is {seen(record['traces'])}")
    return _inner(_inner(record, "run"), "work")


def _step(file: Path, work: dict[str, Any]) -> Hashable:
    """The step by the folder, else by the episode; `None` if neither says it."""
    step = _of_folder(file.parent)
    step = work.get("step") if step is None else step
    return step if type(step) is int else None


@lru_cache(maxsize=64)
def _of_folder(folder: Path) -> int | None:
    return next((int(found[1]) for part in folder.parts[::-1] if (found := _STEP.fullmatch(part))), None)


def _add_episode(gathered: table.Gathered, record: dict[str, Any], step: Hashable) -> int:
    """Append its trained traces; how many of them have nothing to be judged by."""
    task = _inner(record, "task")
    group = _inner(record, "group").get("id") or task.get("key") or task.get("hash") or record.get("id")
    if not isinstance(group, int | str):
        raise ValueFaultError(f"no group, task key, task hash or id names the group; this is {seen(group)}")
    if not record["traces"]:
        gathered.add(step=step, group=group, value=table.NAN, error=bool(record.get("errors")))
    nothing = 0
    for trace in record["traces"]:
        if not isinstance(trace, dict):
            raise ValueFaultError(f"a trace must be an object, this is {seen(trace)}")
        agent = _inner(trace, "agent")
        if agent.get("trainable", True):
            name = agent.get("name", "agent")
            nothing += _add_trace(gathered, trace, step, group if name == "agent" else (group, str(name)))
    return nothing


def _add_trace(gathered: table.Gathered, trace: dict[str, Any], step: Hashable, group: Hashable) -> bool:
    ok, stop = bool(trace.get("ok")), str(trace.get("stop_condition") or "")
    timeout = bool(trace.get("is_timeout")) and stop != "agent_timeout"
    parts, total = _rewards(trace)
    silent = math.isnan(total)
    value = 0.0 if silent and ok and timeout else total
    began, ended = span(_inner(trace, "timing"), "scoring")
    cut = timeout and stop == "scoring_timeout"
    task = _inner(_inner(trace, "task"), "data")
    config = _inner(_inner(trace, "agent"), "config")
    limit = number(_inner(config, "timeout"), "scoring")
    gathered.add(
        step=step,
        group=group,
        value=value,
        service_s=ended - began,
        limit_s=number(_inner(task, "timeout"), "scoring") if math.isnan(limit) else limit,
        began_s=began,
        generated=span(_inner(trace, "timing"), "agent"),
        timeout=timeout,
        error=bool(trace.get("errors")) and not ok,
        cause=stop if cut else "",
        parts=parts,
    )
    return silent and ok and not timeout


def _rewards(trace: dict[str, Any]) -> tuple[dict[str, float], float]:
    """Each reward, weighted, and their sum; `nan` where scoring did not run."""
    parts = {}
    for name, reward in _inner(trace, "rewards").items():
        if reward is None:
            parts[name] = table.NAN
        elif isinstance(reward, dict):
            weight = number(reward, "weight")
            parts[name] = number(reward, "score") * (1.0 if math.isnan(weight) else weight)
        else:
            raise ValueFaultError(f"the reward {name!r} must be an object or null, this is {seen(reward)}")
    there = [part for part in parts.values() if not math.isnan(part)]
    return parts, sum(there) if there else table.NAN


def _inner(record: dict[str, Any], name: str) -> dict[str, Any]:
    """An object in an object; empty where it was left out for being null."""
    found = record.get(name)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ValueFaultError(f"{name!r} must be an object or absent, this is {seen(found)}")
    return found
