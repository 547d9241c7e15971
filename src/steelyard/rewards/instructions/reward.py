"""The reward `instructions`: whether a completion follows every instruction of its row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from steelyard.errors import RefusedError
from steelyard.outcome import Scored
from steelyard.rewards.answers import shown, strip_thinking
from steelyard.rewards.base import TextReward
from steelyard.rewards.instructions import counts, formats, ifeval, packaged, tasks, words
from steelyard.rewards.instructions.kind import Kind

KINDS: Final[Mapping[str, Kind]] = MappingProxyType(
    {
        **ifeval.KINDS,
        **counts.KINDS,
        **words.KINDS,
        **formats.KINDS,
        **tasks.KINDS,
        **packaged.KINDS,
    }
)
"""Every kind by its id."""

COLUMNS: Final = ("instruction_id_list", "kwargs")

_FULL = Scored(1.0)
_EMPTY = Scored(0.0, "no_answer", "nothing is said after the thinking")


class Asked(NamedTuple):
    """An instruction of a row: its id, and the check with its arguments."""

    id: str
    follows: Callable[[str], bool]


def asked(columns: Mapping[str, Any]) -> list[Asked] | str:
    """Read the instructions of a row, or say what is wrong with them."""
    ids, arguments = (columns.get(name) for name in COLUMNS)
    if not isinstance(ids, list | tuple) or not ids or not all(isinstance(id_, str) for id_ in ids):
        return f"column 'instruction_id_list' is no list of ids ({shown(ids)}): name an instruction or more"
    if not isinstance(arguments, list | tuple) or len(arguments) != len(ids):
        return (
            f"column 'kwargs' is no list of {len(ids)} objects ({shown(arguments)}): "
            "give one for each instruction, {} for one without arguments"
        )
    read: list[Asked] = []
    for id_, given in zip(ids, arguments, strict=True):
        one = _asked(id_, given)
        if isinstance(one, str):
            return one
        read.append(one)
    return read


def _asked(id_: str, given: object) -> Asked | str:
    found = KINDS.get(id_)
    if found is None:
        return f"there is no instruction {id_!r}: {_known(id_)}"
    absent = found.absent()
    if absent is not None:
        return f"instruction {id_!r} cannot be checked here, {absent}; or drop its rows"
    if given is None:
        given = {}
    if not isinstance(given, Mapping):
        return f"the arguments of {id_!r} are no object ({shown(given)}): write {{}} if it has none"
    values = []
    for name, read in found.takes.items():
        try:
            values.append(read(given.get(name)))
        except ValueError as wrong:
            return f"argument {name!r} of {id_!r} {wrong}, got {shown(given.get(name))}"
    return Asked(id_, lambda said: found.check(said, *values))


def _known(id_: str) -> str:
    """The nearest ids, and those of the same family."""
    family = id_.partition(":")[0]
    nearest = get_close_matches(id_, KINDS, n=3)
    those = [one for one in KINDS if one.startswith(f"{family}:")]
    families = sorted({one.partition(":")[0] for one in KINDS})
    near = f"did you mean {' or '.join(map(repr, nearest))}? " if nearest else ""
    return near + (f"{family} has {', '.join(those)}" if those else f"the families are {', '.join(families)}")


def instructions_fault(columns: Mapping[str, Any]) -> str | None:
    """Say what is wrong with the instructions of a row."""
    read = asked(columns)
    return read if isinstance(read, str) else None


def judge_instructions(
    completion: str, columns: Mapping[str, Any], *, share: bool = False, loose: bool = False
) -> Scored:
    """Judge whether a text follows its row's instructions: 1.0 if all of them, else 0.0.

    Parameters
    ----------
    completion
        The text; what follows the thinking is judged.
    columns
        `instruction_id_list`, and `kwargs` with one object for each; nulls inside are dropped.
    share
        Pay the share that is followed instead.
    loose
        An instruction is also followed if a variant of the text does: without its first line, its last
        line, or both, each also without its asterisks.

    Raises
    ------
    RefusedError
        If the columns are bad: the reward's `lint` says so before a run.

    Examples
    --------
    >>> row = {
    ...     "instruction_id_list": ["punctuation:no_comma", "length_constraints:number_words"],
    ...     "kwargs": [{}, {"num_words": 3, "relation": "at least"}],
    ... }
    >>> judge_instructions("Yes of course", row).value
    1.0
    >>> judge_instructions("Yes", row).reason
    'length_constraints:number_words is not followed; 1 of 2 are'
    >>> judge_instructions("", row).code
    'no_answer'
    """
    wanted = asked(columns)
    if isinstance(wanted, str):
        raise RefusedError(
            wanted,
            where="columns 'instruction_id_list' and 'kwargs'",
            remedy="run the reward's `lint` over the rows first",
        )
    said = strip_thinking(completion)
    if said != completion:
        said = said.strip()  # what stands between the thinking and the answer is the template's
    readings = list(filter(_shows, _variants(said) if loose else [said]))
    if not _shows(said):
        return _EMPTY
    failed = [one.id for one in wanted if not any(map(one.follows, readings))]
    if not failed:
        return _FULL
    followed = len(wanted) - len(failed)
    reason = f"{failed[0]} is not followed; {followed} of {len(wanted)} are"
    return Scored(followed / len(wanted) if share else 0.0, "wrong", reason)


def _shows(said: str) -> bool:
    """Whether anything can be seen: an empty text would follow many an instruction."""
    return any(character.isprintable() and not character.isspace() for character in said)


def _variants(said: str) -> list[str]:
    lines = said.split("\n")
    cut = [said, *("\n".join(some).strip() for some in (lines[1:], lines[:-1], lines[1:-1]))]
    return list(dict.fromkeys([*cut, *(one.replace("*", "") for one in cut)]))


def instructions(*, share: bool = False, loose: bool = False) -> TextReward:
    """Make the reward `instructions`: whether a completion follows every instruction of its row.

    Parameters
    ----------
    share
        Pay the share that is followed, instead of 1.0 for all of them and 0.0 otherwise.
    loose
        Also take variants of the text, as IFEval's loose accuracy does; see `judge_instructions`.

    Examples
    --------
    >>> reward = instructions(share=True)
    >>> reward.lint({"instruction_id_list": ["count:number"], "kwargs": [{"N": 3}]})[:67]
    "there is no instruction 'count:number': did you mean 'count:numbers"
    """
    settings = [word for word, on in (("share", share), ("loose", loose)) if on]
    return TextReward(
        ":".join(["instructions", *settings]),
        ":".join(["instructions/1", *settings, packaged.versions()]),
        partial(judge_instructions, share=share, loose=loose),
        columns=COLUMNS,
        fault=instructions_fault,
    )
