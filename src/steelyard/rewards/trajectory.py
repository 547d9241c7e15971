"""Rewards for agents' rollouts: the end `state`, the `files` they left, the `turns` they took.

`state` and `files` judge what the environment confirmed (`Rollout.state`, `Rollout.files`), never what the
completion says of it, and read nothing from disk. Both pay what holds at the end, whoever brought it
about: an expectation that already held at the start pays for doing nothing, so expect only what must
change. A rollout for which the environment confirmed nothing gets the floor, `no_answer`.

Values are equal as JSON has them, types included (`jsonvalues`): 1 is 1.0, but neither `true` nor `"1"`. An
expectation may be given as JSON text. In Parquet it should be: there objects of one column get each
other's keys, as nulls, and a null is an expectation, too.

`turns` measures effort, not success. Doing nothing takes the fewest turns: gate it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from typing import Any, Literal

from steelyard.errors import RefusedError
from steelyard.outcome import Scored
from steelyard.rewards.answers import shown
from steelyard.rewards.base import RolloutReward
from steelyard.rewards.jsontext import UnreadableError, read_json
from steelyard.rewards.jsonvalues import brief, json_fault, pointed, unequal
from steelyard.rewards.lengths import tool_calls
from steelyard.rollout import Rollout, final_text

Match = Literal["subset", "exact", "pointers"]
Counted = Literal["turns", "calls"]

_FULL = Scored(1.0)
_NO_STATE = Scored(0.0, "no_answer", "the environment confirmed no end state")
_NO_FILES = Scored(0.0, "no_answer", "the environment confirmed no files")
_NOT_FILES = Scored(0.0, "malformed", "the files are no mapping of paths to text")
_NOTHING_DONE = Scored(0.0, "no_answer", "nothing was done in the episode")

_POINTER = re.compile(r"(?:/(?:[^~/]|~[01])*)*")
_OPENS = frozenset("{[")


# What is expected


def _expected(columns: Mapping[str, Any], column: str) -> Any:  # noqa: ANN401 - JSON is anything
    """Return an expectation; text that holds an object or a list is read as one."""
    value = columns.get(column)
    if isinstance(value, str) and value.lstrip()[:1] in _OPENS:
        try:
            return read_json(value)
        except UnreadableError:
            return value
    return value


def _refused(fault: Callable[[Mapping[str, Any]], str | None], rollout: Rollout, column: str) -> RefusedError:
    return RefusedError(
        fault(rollout.columns) or "no expectation",
        where=f"column {column!r}",
        remedy="run the reward's `lint` over the rows first",
    )


# state


def state_fault(columns: Mapping[str, Any], *, match: Match) -> str | None:
    """Say what is wrong with an expected state."""
    expected = _expected(columns, "expected_state")
    if expected is None:
        return "column 'expected_state' is missing or null: give every row the end state to be reached"
    unread = isinstance(expected, str) and expected.lstrip()[:1] in _OPENS
    if fault := f"{shown(expected)} is not the JSON it begins as" if unread else json_fault(expected):
        return f"column 'expected_state': {fault}: give it as JSON"
    if match != "exact" and expected == {}:
        return "column 'expected_state' is {}, which every state meets: name what must hold"
    if match == "pointers":
        if not isinstance(expected, dict):
            return f"column 'expected_state' ({shown(expected)}) must map JSON pointers to values"
        wrong = next((pointer for pointer in expected if not _POINTER.fullmatch(pointer)), None)
        if wrong is not None:
            return (
                f"column 'expected_state': {shown(wrong)} is no JSON pointer: write it as in /orders/0/status"
            )
    return None


def judge_state(rollout: Rollout, *, match: Match = "subset") -> Scored:
    """Judge an end state against the column `expected_state`: 1.0 or 0.0.

    Examples
    --------
    >>> row = Rollout("a", "", "Done.", {"expected_state": {"paid": True}}, (0, 0), 0, "here")
    >>> judge_state(row._replace(state={"paid": True, "at": "noon"})).value
    1.0
    """
    expected = _expected(rollout.columns, "expected_state")
    if expected is None or (match == "pointers" and not isinstance(expected, dict)):
        raise _refused(partial(state_fault, match=match), rollout, "expected_state")
    if rollout.state is None:
        return _NO_STATE
    if match != "pointers":
        fault = unequal(expected, rollout.state, subset=match == "subset")
        return _FULL if fault is None else Scored(0.0, "wrong", fault)
    for pointer, value in expected.items():
        fault = unequal(value, pointed(rollout.state, pointer), subset=True)
        if fault is not None:
            return Scored(0.0, "wrong", f"{shown(pointer)}, {fault}")
    return _FULL


def state(match: Match = "subset") -> RolloutReward:
    """Make the reward `state`: the end state that the environment confirms, against `expected_state`.

    Parameters
    ----------
    match
        `subset`: every key that is expected is there with an equal value, objects inside objects
        likewise; lists and what stands in them are equal as a whole. `exact`: nothing else is there
        either. `pointers`: the expectation maps JSON pointers (RFC 6901) to what is expected there,
        as a subset: `{"/orders/0/status": "paid"}`.

    Raises
    ------
    RefusedError
        If there is no such way to match.

    Examples
    --------
    >>> from steelyard import Context, Rollout
    >>> columns = {"expected_state": {"/orders/0/status": "paid"}}
    >>> end = {"orders": [{"id": 7, "status": "open"}]}
    >>> row = Rollout("a", "", "Done.", columns, (0, 0), 0, "here", state=end)
    >>> state("pointers")([row], Context())[0].reason
    "'/orders/0/status', as a whole: 'open', expected 'paid'"
    """
    if match not in ("subset", "exact", "pointers"):
        raise RefusedError(
            f"there is no match {match!r}", where="state(...)", remedy="one of subset, exact, pointers"
        )
    return RolloutReward(
        "state",
        f"state/1:{match}",
        partial(judge_state, match=match),
        columns=("expected_state",),
        fault=partial(state_fault, match=match),
        fields=("state",),
    )


# files


def _inside(path: str) -> str | None:
    """Return a path in its plainest form; `None` if it names nothing inside the workspace."""
    steps = [step for step in path.split("/") if step not in {"", "."}]
    return None if path.startswith("/") or ".." in steps or not steps else "/".join(steps)


def _by_path(files: Mapping[object, Any]) -> dict[str, Any]:
    """Return the files by their plainest paths; one that stands there twice, and differs, has no text."""
    found: dict[str, Any] = {}
    for path, text in files.items():
        plain = _inside(path) if isinstance(path, str) else None
        if plain is not None:
            found[plain] = text if found.get(plain, text) == text else None
    return found


def _as_text(wanted: str, text: str) -> str | None:
    same = wanted.removesuffix("\n") == text.removesuffix("\n")
    return None if same else f"{len(text)} characters that are not the {len(wanted)} expected"


def _contains(wanted: str | list[str], text: str) -> str | None:
    needles = [wanted] if isinstance(wanted, str) else wanted
    missing = next((needle for needle in needles if needle not in text), None)
    return None if missing is None else f"it does not contain {shown(missing)}"


def _as_json(wanted: object, text: str) -> str | None:
    try:
        return unequal(wanted, read_json(text))
    except UnreadableError as error:
        return f"it is not JSON: {error}"


def _as_digest(wanted: str, text: str) -> str | None:
    found = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return None if found == wanted.lower() else f"its SHA-256 is {found[:12]}..."


def _lines_of(text: str) -> list[str]:
    return [line.rstrip() for line in text.removesuffix("\n").split("\n")] if text else []


def _as_lines(wanted: list[str], text: str) -> str | None:
    lines = _lines_of(text)
    if len(lines) != len(wanted):
        return f"{len(lines)} lines, expected {len(wanted)}"
    pairs = enumerate(zip(wanted, lines, strict=True), start=1)
    return next(
        (
            f"line {at}: {shown(line)}, expected {shown(one)}"
            for at, (one, line) in pairs
            if one.rstrip() != line
        ),
        None,
    )


_CHECKS: Mapping[str, Callable[[Any, str], str | None]] = {
    "contains": _contains,
    "json": _as_json,
    "sha256": _as_digest,
    "lines": _as_lines,
}
_SHA256 = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)


def _unmet(wanted: Any, path: str, found: Mapping[str, Any]) -> str | None:  # noqa: ANN401 - JSON is anything
    """Say why an expectation of one file is not met."""
    if wanted is None:
        return f"{path!r} is still there" if path in found else None
    if path not in found:
        return f"{path!r} is not there"
    text = found[path]
    if not isinstance(text, str):
        return f"{path!r} is no single text"
    kind, value = next(iter(wanted.items())) if isinstance(wanted, dict) else ("", wanted)
    fault = _CHECKS[kind](value, text) if kind else _as_text(value, text)
    return None if fault is None else f"{path!r}: {fault}"


def files_fault(columns: Mapping[str, Any]) -> str | None:
    """Say what is wrong with expected files."""
    expected = _expected(columns, "expected_files")
    if expected is None:
        return "column 'expected_files' is missing or null: give every row the files to be left behind"
    if not isinstance(expected, dict) or not expected:
        return (
            f"column 'expected_files' ({brief(expected)}) must map at least one path to what the file holds"
        )
    seen: set[str] = set()
    for path, wanted in expected.items():
        plain = _inside(path) if isinstance(path, str) else None
        if plain is None or plain in seen:
            return (
                f"column 'expected_files': {shown(path)} must be a path inside the workspace, named once: "
                "write it relative, without .."
            )
        seen.add(plain)
        if fault := _wanted_fault(wanted):
            return f"column 'expected_files': {shown(path)}: {fault}"
    return None


def _wanted_fault(wanted: object) -> str | None:
    if wanted is None or isinstance(wanted, str):
        return None
    if not isinstance(wanted, dict) or len(wanted) != 1 or not _CHECKS.keys() & wanted.keys():
        return f"{brief(wanted)} is none of text, null, and an object of one key: {', '.join(_CHECKS)}"
    kind, value = next(iter(wanted.items()))
    return json_fault(value) if kind == "json" else _text_fault(kind, value)


def _text_fault(kind: str, value: object) -> str | None:
    if kind == "sha256":
        hexes = isinstance(value, str) and _SHA256.fullmatch(value)
        return None if hexes else f"{brief(value)} is no SHA-256: write its 64 hexadecimal digits"
    texts = [value] if kind == "contains" and isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        return f"{kind} takes a list of texts, not {brief(value)}"
    if kind == "contains" and not all(texts or [""]):
        return "every file contains the empty text: name what must stand there"
    return None


def judge_files(rollout: Rollout, *, share: bool = False) -> Scored:
    r"""Judge the files that were left behind against the column `expected_files`.

    Examples
    --------
    >>> columns = {"expected_files": {"out/a.txt": "4", "tmp.txt": None}}
    >>> row = Rollout("a", "", "Done.", columns, (0, 0), 0, "here")
    >>> judge_files(row._replace(files={"./out/a.txt": "4\n"})).value
    1.0
    """
    expected = _expected(rollout.columns, "expected_files")
    if not isinstance(expected, dict):
        raise _refused(files_fault, rollout, "expected_files")
    left: object = rollout.files
    if left is None:
        return _NO_FILES
    if not isinstance(left, Mapping):
        return _NOT_FILES
    found = _by_path(left)
    faults = {path: _unmet(wanted, _inside(path) or "", found) for path, wanted in expected.items()}
    unmet = [fault for fault in faults.values() if fault is not None]
    if not unmet:
        return _FULL
    wanted_there = [path for path, wanted in expected.items() if wanted is not None]
    kept = all(fault is None or expected[path] is not None for path, fault in faults.items())
    met = sum(faults[path] is None for path in wanted_there)
    value = met / len(wanted_there) if share and kept else 0.0
    return Scored(value, "wrong", f"{len(unmet)} of {len(expected)} are not as expected; {unmet[0]}")


def files(*, share: bool = False) -> RolloutReward:
    """Make the reward `files`: what an agent left behind, against the column `expected_files`.

    The column maps paths to what the file must be: text (the whole file; one newline at its end may be
    there or not), `null` (no such file), or an object of one key:

    | key | the file |
    |---|---|
    | `contains` | holds the text, or each of a list of texts |
    | `lines` | has exactly these lines; white space at their ends and the kind of newline do not count |
    | `json` | is strict JSON, equal to the value as a whole |
    | `sha256` | has this digest, every byte of its UTF-8 counted |

    Paths are relative: `./a`, `a//b` and `a/./b` are what they seem. One that is absolute or goes through
    `..` matches nothing, and so does a file that stands there twice with different texts. A file that
    lists every candidate `contains` each of them: where a list could pass, expect `lines` or `json`.

    Parameters
    ----------
    share
        Whether the share of files that are as expected is paid; else it is all or nothing. What must
        not be there adds no share, since doing nothing might do: it takes the whole where it is there.

    Examples
    --------
    >>> from steelyard import Context, Rollout
    >>> columns = {"expected_files": {"a.txt": "4", "b.json": {"json": {"n": 4}}}}
    >>> row = Rollout("a", "", "Done.", columns, (0, 0), 0, "here", files={"b.json": '{"n": 4.0}'})
    >>> files(share=True)([row], Context())[0].value, files()([row], Context())[0].reason
    (0.5, "1 of 2 are not as expected; 'a.txt' is not there")
    """
    return RolloutReward(
        "files",
        f"files/1:{'share' if share else 'all'}",
        partial(judge_files, share=share),
        columns=("expected_files",),
        fault=files_fault,
        fields=("files",),
    )


# turns


def judge_turns(rollout: Rollout, *, best: int, limit: int, count: Counted = "turns") -> Scored:
    """Judge how few turns, or tool calls, an episode took: 1.0 at `best`, 0.0 at `limit`."""
    said = rollout.completion
    turns = [{"role": "assistant", "content": said}] if isinstance(said, str) else said
    turns = [message for message in turns if message.get("role") == "assistant"]
    calls = sum(len(tool_calls(message)) for message in turns)
    spoke = any(final_text([message]).strip() for message in turns)
    if not calls and (count == "calls" or not spoke):
        return _NOTHING_DONE
    took = calls if count == "calls" else len(turns)
    if took <= best:
        return _FULL
    value = max(0.0, (limit - took) / (limit - best))
    return Scored(value, "overlong", f"{took} {count}, best {best}, limit {limit}")


def turns(best: int, limit: int, *, count: Counted = "turns") -> RolloutReward:
    """Make the reward `turns`: how few turns an episode took.

    It knows nothing of success, and giving up at once takes the fewest turns: stand it behind a gate on
    the part that judges the outcome, `Part(turns(5, 20), weight=0.2, only_if=...)`. An episode in which
    nothing was done earns nothing all the same: without a word and a tool call for `turns`, without a
    tool call for `calls`.

    Parameters
    ----------
    best
        Up to here full marks.
    limit
        From here on 0; between the two it falls in a straight line.
    count
        The assistant's `turns`, or its tool `calls`, of which one turn may make many.

    Raises
    ------
    RefusedError
        If the numbers are not `1 <= best < limit`, or there is nothing of that name to count.

    Examples
    --------
    >>> from steelyard import Context, Rollout
    >>> episode = [{"role": "assistant", "content": "go on"}, {"role": "tool", "content": "ok"}] * 3
    >>> turns(1, 5)([Rollout("a", "", episode, {}, (0, 0), 0, "here")], Context())[0].value
    0.5
    """
    where = "turns(...)"
    if not (type(best) is type(limit) is int and 1 <= best < limit):
        raise RefusedError(
            f"best and limit must be integers with 1 <= best < limit, got {shown(best)} and {shown(limit)}",
            where=where,
            remedy="for example turns(best=5, limit=20)",
        )
    if count not in ("turns", "calls"):
        raise RefusedError(f"there are no {count!r} to count", where=where, remedy="one of turns, calls")
    return RolloutReward(
        "turns", f"turns/1:{best}:{limit}:{count}", partial(judge_turns, best=best, limit=limit, count=count)
    )
