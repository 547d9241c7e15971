"""The reward `reasoning-gym`: the scorers of reasoning-gym, for rows as its datasets make them.

A row is one of reasoning-gym's entries: `answer`, its gold, and `metadata`, whose `source_dataset` names
the scorer. What is scored is the `<answer>` tag after the thinking. The package (the extra
`reasoning-gym`) is imported where it judges, in a worker process, and never here.

Its scorers have traps, and each was read for them, in the version that `AUDITED` names:

- Some run what the completion says, loop as long as it says, or give full marks for a trick. `REFUSED`
  lists them with the reason; their rows are bad. A dataset that nobody has read is refused, too.
- Many give marks for less than the answer: 0.01 for anything at all, 0.05 to 0.3 for the form, a share for
  an answer among other words, which is a hedge. A policy that is stuck learns those. So only full marks
  count here, and the raw score stands in the reason; `graded` pays it raw, for whoever wants that.
- A scorer is made with its dataset's default settings, and some compare by those (`time_intervals`,
  `decimal_arithmetic`, the layout of `arc_agi`): rows made with others may be scored differently.
- A scorer that fails on a text has said nothing about it: the floor, `malformed`. The text did it, for
  the row is sound and the same text fails again.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import lru_cache, partial
from importlib.metadata import PackageNotFoundError, version
from types import MappingProxyType
from typing import Any, Final

from steelyard.errors import RefusedError, describe
from steelyard.outcome import How, Room, Scored, Takes
from steelyard.rewards.answers import LONGEST, committed_tag, shown, strip_thinking
from steelyard.rewards.base import TextReward

AUDITED: Final = "0.1.25"
"""The version of reasoning-gym whose scorers were read."""

ROOM: Final = Room(cpu_s=5.0, memory_bytes=1 << 30)
"""Some scorers load a word list or a set of boards when they are first asked."""

_PYTHON: Final = "runs what the completion says as Python, and this reward has no boundary to run it in"
_ROWS_PYTHON: Final = "runs what the row says as Python, and this reward has no boundary to run it in"
_LOOPS: Final = "takes as long, or as much memory, as a number in the answer says"
_NO_GOLD: Final = "its rows have no answer: it is null"

REFUSED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "binary_matrix": _PYTHON,
        "countdown": _PYTHON,
        "intermediate_integration": _PYTHON,
        "n_queens": _PYTHON,
        "polynomial_multiplication": _PYTHON,
        "puzzle24": _PYTHON,
        "simple_integration": _PYTHON,
        "spiral_matrix": _PYTHON,
        "string_insertion": _PYTHON,
        "bitwise_arithmetic": _ROWS_PYTHON,
        "number_sorting": _ROWS_PYTHON,
        "coin_flip": _LOOPS,
        "rubiks_cube": _LOOPS,
        "rush_hour": _LOOPS,
        "complex_arithmetic": "gives full marks for 'nan'",
        "game_of_life_halting": "gives full marks for any text",
        "propositional_logic": "gives full marks for a premise that is repeated",
        "boxnet": _NO_GOLD,
        "graph_color": _NO_GOLD,
        "composite": "is a mixture: its rows name the dataset that they are from",
    }
)
"""Datasets whose rows are bad, and why."""

_READ = """
ab acre advanced_geometry aiw arc_1d arc_agi base_conversion basic_arithmetic bf binary_alternation
caesar_cipher calendar_arithmetic chain_sum circuit_logic codeio color_cube_rotation count_bits
count_primes course_schedule cryptarithm decimal_arithmetic decimal_chain_sum dice emoji_mystery
family_relationships figlet_font fraction_simplification futoshiki game_of_life gcd group_anagrams
gsm_symbolic isomorphic_strings jugs kakurasu knight_swap knights_knaves largest_island lcm leg_counting
letter_counting letter_jumble list_functions mahjong_puzzle manipulate_matrix maze mini_sudoku modulo_grid
needle_haystack number_filtering number_format number_sequence palindrome_generation
palindrome_partitioning path_star polynomial_equations pool_matrix power_function prime_factorization
products quantum_lock ransom_note rearc rectangle_count rotate_matrix rotten_oranges self_reference
sentence_reordering shortest_path simple_equations simple_geometry sokoban spell_backward
string_manipulation string_splitting string_synthesis sudoku survo syllogism time_intervals
tower_of_hanoi tsumego word_ladder word_sequence_reversal word_sorting zebra_puzzles
"""

DATASETS: Final = frozenset(_READ.split())
"""Datasets whose scorers were read and are run."""

_BOARDS: Final = ("arc_agi", "rearc")  # they compare with tuples, which JSON and Parquet turn into lists
_FULL: Final = Scored(1.0)
_EMPTY: Final = Scored(0.0, "no_answer", "nothing is said after the thinking")


def gym_fault(columns: Mapping[str, Any], *, unaudited: bool = False) -> str | None:
    """Say what is wrong with a row of reasoning-gym.

    Examples
    --------
    >>> gym_fault({"answer": "1 + 2 * 3", "metadata": {"source_dataset": "countdown"}})[:67]
    'the scorer of countdown runs what the completion says as Python, an'
    """
    metadata = columns.get("metadata")
    name = metadata.get("source_dataset") if isinstance(metadata, Mapping) else None
    if not isinstance(name, str):
        return (
            f"column 'metadata' is no object with a 'source_dataset' ({shown(metadata)}): "
            "write the entry's metadata as reasoning-gym made it"
        )
    if name in REFUSED:
        return f"the scorer of {name} {REFUSED[name]}: leave its rows out"
    if name not in DATASETS and not unaudited:
        near = get_close_matches(name, DATASETS, n=1)
        return (
            f"reasoning-gym {AUDITED} has no dataset {name!r}{f' but {near[0]!r}' if near else ''}: "
            "correct the name, or read the new scorer and set unaudited"
        )
    answer = columns.get("answer")
    if isinstance(answer, str) and answer.strip():
        return None
    return f"column 'answer' is no text, or empty ({shown(answer)}): write the entry's, or leave the row out"


def judge_gym(
    completion: str,
    columns: Mapping[str, Any],
    *,
    graded: bool = False,
    whole: bool = False,
    unaudited: bool = False,
) -> Scored:
    """Judge by the scorer of the row's dataset: 1.0 for full marks, else 0.0 and the raw score as the reason.

    Parameters
    ----------
    completion
        The text.
    columns
        `answer` and `metadata` of reasoning-gym's entry.
    graded
        Pay the raw score, between 0 and 1.
    whole
        Where there is no `<answer>` tag, the answer is all that stands behind the thinking.
    unaudited
        Also ask scorers that nobody has read, but never those that are `REFUSED`.

    Raises
    ------
    RefusedError
        If the columns are bad: the reward's `lint` says so before a run.

    Examples
    --------
    >>> row = {"answer": "6", "metadata": {"source_dataset": "chain_sum"}}
    >>> judge_gym("<answer>It is 6</answer>", row)
    Scored(value=0.0, code='wrong', reason='chain_sum: raw score 0.143', integrity=None)
    """
    fault = gym_fault(columns, unaudited=unaudited)
    if fault is not None:
        raise RefusedError(
            fault,
            where="columns 'answer' and 'metadata'",
            remedy="run the reward's `lint` over the rows first",
        )
    said = _committed(completion, whole=whole)
    if isinstance(said, Scored):
        return said
    answer, metadata = columns["answer"], columns["metadata"]
    name = metadata["source_dataset"]
    if len(said) > LONGEST + 4 * len(answer):
        return Scored(0.0, "malformed", f"an answer of {len(said):,} characters")
    raw = _raw(_scorer(name), said, _entry(name, answer, metadata))
    if isinstance(raw, str):
        return Scored(0.0, "malformed", f"{name}: {raw}")
    if raw >= 1.0:
        return _FULL
    return Scored(raw if graded else 0.0, "wrong", f"{name}: raw score {raw:.3g}")


def _committed(completion: str, *, whole: bool) -> str | Scored:
    text = strip_thinking(completion)
    if whole and "answer>" not in text.lower():
        return text.strip() or _EMPTY
    said = committed_tag(text)
    return said.strip() if isinstance(said, str) else said


def _entry(name: str, answer: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The entry as its dataset made it; a copy, for some scorers write into it."""
    own: dict[str, Any] = copy.deepcopy(dict(metadata))
    if name in _BOARDS:
        own["output"] = tuple(map(tuple, own["output"]))
    return {"answer": answer, "metadata": own}


def _raw(scorer: Callable[[str, dict[str, Any]], float], said: str, entry: dict[str, Any]) -> float | str:
    """What the scorer says, or why that is nothing."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            raw = float(scorer(said, entry))
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - scorers fail on texts in many ways
        return f"its scorer fails on the answer ({describe(error)[:80]})"
    if math.isnan(raw) or not 0 <= raw <= 1 + 1e-9:
        return f"its scorer said {raw}, which is no mark"
    return raw


@lru_cache
def _scorer(name: str) -> Callable[[str, dict[str, Any]], float]:
    import reasoning_gym  # noqa: PLC0415 - a second, and matplotlib with it

    scorer: Callable[[str, dict[str, Any]], float] = reasoning_gym.get_score_answer_fn(name)
    return scorer


def warm() -> None:
    """Import the package: once in a process, before anything is judged."""
    _scorer("chain_sum")


def gym(*, graded: bool = False, whole: bool = False, unaudited: bool = False) -> TextReward:
    """Make the reward `reasoning-gym`: the scorer of the row's dataset against `answer` and `metadata`.

    Parameters
    ----------
    graded
        Pay the raw score, between 0 and 1, instead of 1.0 for full marks and 0.0 otherwise. It can be
        farmed: see the module.
    whole
        Where there is no `<answer>` tag, the answer is all that stands behind the thinking.
    unaudited
        Also take another version of the package, and datasets that nobody has read.

    Raises
    ------
    RefusedError
        If the package is not installed, or in a version that was not read.

    Examples
    --------
    >>> gym(graded=True).name
    'reasoning-gym:graded'
    """
    try:
        installed = version("reasoning-gym")
    except PackageNotFoundError:
        raise RefusedError(
            "the package reasoning-gym is not installed",
            where="reward 'reasoning-gym'",
            remedy="pip install 'steelyard[reasoning-gym]'",
        ) from None
    if installed != AUDITED and not unaudited:
        raise RefusedError(
            f"the scorers of reasoning-gym {AUDITED} were read for traps, and {installed} is installed",
            where="reward 'reasoning-gym'",
            remedy=f"pip install reasoning-gym=={AUDITED}, or set unaudited",
        )
    settings = [word for word, on in (("graded", graded), ("whole", whole), ("unaudited", unaudited)) if on]
    return TextReward(
        ":".join(["reasoning-gym", *settings]),
        ":".join(["reasoning-gym/1", *settings, installed]),
        partial(judge_gym, graded=graded, whole=whole, unaudited=unaudited),
        columns=("answer", "metadata"),
        fault=partial(gym_fault, unaudited=unaudited),
        how=How.WORKER,
        takes=Takes.ROLLOUT,
        write="<answer>{}</answer>".format,
        room=ROOM,
        warm=warm,
    )
