r"""How an answer is written down, and which answers are wrong.

A reward of ours may say how it states an answer (`write`: from an answer to a completion). For users'
functions the forms that are in use are tried, and those forms around one another: `<think>` around a tag, a
template around a marker. The gold is what the row's column holds (`answers.gold_text`); of a list of texts
the first; anything else that JSON can say, as JSON.

Wrong answers of a row are two of different make: the gold of another row, and one that was made up. Either
may happen to be right (`\frac12` and `0.5` may both be golds), hardly both. Two more lie as near as a wrong
answer can: the gold less one, where it is so small that no tolerance in per cent can be meant, and the gold
with a digit or a letter more.
"""

from __future__ import annotations

import dis
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import permutations
from types import CodeType
from typing import Any, Final, NamedTuple

from steelyard.audit.observed import HOLE
from steelyard.outcome import Part, Reward
from steelyard.rewards.answers import MARKER, gold_text, words
from steelyard.rewards.numbers import read_number
from steelyard.rewards.own import FunctionReward
from steelyard.rollout import canonical_json

GOLD_COLUMNS: Final = ("answer", "solution", "ground_truth", "gold", "target", "label", "reference")
"""Where a gold stands, first come first served."""

THOUGHT: Final = "Let me think about it step by step, from what is given to what is asked."

_ANIMALS: Final = ("zebra", "walrus", "ostrich", "badger")  # answers to no question
_MOST_FORMS: Final = 48
_LONGEST: Final = 2_000  # characters of an answer that is listed beside others
_LISTED: Final = 16
_SMALL: Final = 100  # of what is larger, a tolerance of one per cent takes one more or less
_WHOLE: Final = re.compile(r"-?[1-9][0-9]{0,17}", re.ASCII).fullmatch
_WORD: Final = re.compile(r"[^\W\d_]{3,30}").fullmatch


class Gold(NamedTuple):
    """An answer: its text, and the column's value as it stands."""

    text: str
    raw: str

    @property
    def worth(self) -> object:
        """What makes it the same answer as another."""
        if is_letter(self):
            return self.text.strip("() ").upper()
        reading = read_number(self.text, alone=True)
        return reading.value if reading.value is not None else words(self.text)


class Form(NamedTuple):
    """A way to write an answer down.

    Parameters
    ----------
    name
        What it makes of `…`.
    write
        From an answer to a completion.
    raw
        Whether it writes the column's value as it stands.
    """

    name: str
    write: Callable[[str], str]
    raw: bool = False

    def of(self, gold: Gold) -> str:
        """Write an answer down."""
        return self.write(gold.raw if self.raw else gold.text)


def form(template: str) -> Form:
    r"""Make a form of a template.

    Examples
    --------
    >>> form(r"\boxed{{}}").name, form(r"\boxed{{}}").write("42")
    ('\\boxed{…}', '\\boxed{42}')
    """
    name = template.replace("{}", HOLE).replace(THOUGHT, "...")
    return Form(name, lambda text: template.replace("{}", text))


_THINK: Final = f"<think>\n{THOUGHT}\n</think>\n"
PLAIN: Final = form("{}")
_KNOWN: Final = (
    PLAIN,
    *map(
        form,
        (
            "#### {}",
            r"\boxed{{}}",
            "<answer>{}</answer>",
            "The answer is {}.",
            "The answer is ({}).",
            "Answer: {}",
            "```json\n{}\n```",
            _THINK + "<answer>\n{}\n</answer>",
            f"<think>{THOUGHT}</think><answer>{{}}</answer>",
            f"<reasoning>\n{THOUGHT}\n</reasoning>\n<answer>\n{{}}\n</answer>",
            _THINK + r"The answer is \boxed{{}}.",
            _THINK + "<answer>\n\\boxed{{}}\n</answer>",
        ),
    ),
    Form("the column as it stands", str, raw=True),  # last: it may hold more than the answer
)


def gold_of(columns: Mapping[str, Any], column: str) -> Gold | None:
    """Return the gold of a row, if it holds one."""
    found = columns.get(column)
    if found is None or found == "" or isinstance(found, bool):
        return None if not isinstance(found, bool) else Gold(str(found), str(found))
    text = gold_text(found)
    if text is not None:
        return Gold(text, found if isinstance(found, str) else text)
    raw = canonical_json(found).decode("utf-8", "replace")
    first = found[0] if isinstance(found, list) and found and isinstance(found[0], str) else raw
    return Gold(first, raw)


def gold_column(parts: Sequence[Part], fields: Iterable[str]) -> tuple[str | None, dict[str, bool]]:
    """Find the column that holds the gold, and the parts that read it.

    Returns
    -------
    The column, and by part whether it surely reads it.
    """
    there = set(fields)
    for column in GOLD_COLUMNS:
        said = {part.reward.name: _reads(part.reward, column) for part in parts if column in there}
        readers = {name: sure for name, sure in said.items() if sure is not None}
        if readers:
            return column, readers
    return None, {}


def _reads(reward: Reward, column: str) -> bool | None:
    """Whether a reward reads a column: surely, perhaps (`False`), or not at all (`None`).

    Functions for trainers name what they are given, used or not, and take the rest in one parameter; what
    their code loads tells. One whose code cannot be seen reads what it names.
    """
    if not isinstance(reward, FunctionReward):
        return True if column in reward.columns else None
    names = {parameter.name for parameter in reward.arguments.given}
    if column in names:
        return _loads(reward.function, column)
    whole = names & {"rollout", "rollouts"}
    code = _code(reward.function)
    if reward.arguments.more and code is not None:
        whole.add(code.co_varnames[code.co_argcount + code.co_kwonlyargcount])
    if not any(_loads(reward.function, name) for name in whole):
        return None
    return column in _constants(code)


def _loads(function: Callable[..., Any], name: str) -> bool:
    code = _code(function)
    if code is None or name not in code.co_varnames or name in code.co_cellvars:
        return True
    loaded = (one.argval for one in dis.get_instructions(code) if "LOAD" in one.opname)
    return any(name in (said if isinstance(said, tuple) else (said,)) for said in loaded)


def _code(function: Callable[..., Any]) -> CodeType | None:
    function = inspect.unwrap(function)
    return getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)


def _constants(code: CodeType | None) -> set[object]:
    found: set[object] = set()
    for one in () if code is None else code.co_consts:
        found |= _constants(one) if isinstance(one, CodeType) else {one}
    return found


def forms_of(parts: Sequence[Part], readers: Collection[str]) -> list[Form]:
    """Every form that may state a gold so that the recipe pays it; a reward's own word first."""
    writes = [found for part in parts if (found := own_form(part)) is not None]
    known = list(_KNOWN) if any(_needs_known(part, readers) for part in parts) else [PLAIN]
    nested = [_inside(outer, inner) for outer, inner in permutations(writes, 2)]
    nested += [_inside(outer, inner) for outer in writes for inner in known if inner.name != PLAIN.name]
    nested += [_inside(a, _inside(b, c)) for a, b, c in permutations(writes[:4], 3)]
    nested += [_after(first, then) for first, then in permutations(writes, 2)]
    named: dict[str, Form] = {}
    for one in (*writes, *known, *nested):
        named.setdefault(one.name, one)
    return list(named.values())[:_MOST_FORMS]


def own_form(part: Part) -> Form | None:
    """The form in which a reward says that it states an answer."""
    write = getattr(part.reward, "write", None)
    return None if write is None else Form(write(HOLE), write)


def _needs_known(part: Part, readers: Collection[str]) -> bool:
    ours = not isinstance(part.reward, FunctionReward)
    return not ours or (part.reward.name in readers and own_form(part) is None)


def _inside(outer: Form, inner: Form) -> Form:
    return Form(outer.write(inner.name), lambda text: outer.write(inner.write(text)), inner.raw)


def _after(first: Form, then: Form) -> Form:
    """One form below another, both with the answer."""
    return Form(f"{first.name}\n{then.name}", lambda text: f"{first.write(text)}\n{then.write(text)}")


# Wrong answers


def wrong_answers(gold: Gold, others: Sequence[Gold]) -> tuple[Gold, Gold]:
    """Two answers that are not the gold: another row's, where one differs, and one that was made up."""
    worth = gold.worth
    differing = next((other for other in others if other.worth != worth), None)
    made_up = _made_up(gold, 1)
    if differing is None or differing.worth == made_up.worth:
        return differing or made_up, _made_up(gold, 2)
    return differing, made_up


def _made_up(gold: Gold, step: int) -> Gold:
    reading = read_number(gold.text, alone=True)
    if is_letter(gold):
        text = chr(ord("A") + (ord(gold.text.strip("() ").upper()) - ord("A") + step) % 4)
    elif reading.value is not None:
        text = str(int(reading.value) + step * (10 + abs(int(reading.value)) // 2))
    else:
        text = [word for word in _ANIMALS if word != words(gold.text)][step - 1]
    return _in_place_of(gold, text)


def _in_place_of(gold: Gold, text: str) -> Gold:
    """Another answer, at the end of the same solution where the column holds one."""
    solution, marker, _ = gold.raw.rpartition(MARKER)
    return Gold(text, f"{solution}{marker} {text}" if marker else text)


def nearest(gold: Gold) -> Gold | None:
    """Return the gold less one."""
    number = read_number(gold.text, alone=True).value
    if is_letter(gold) or number is None or number.denominator != 1 or abs(number) > _SMALL:
        return None
    return _in_place_of(gold, str(int(number) - 1))


def extended(gold: Gold) -> Gold | None:
    """Return the gold with a digit or a letter more: what merely begins with it."""
    if _WHOLE(gold.text):
        return _in_place_of(gold, f"{gold.text}0")
    if _WORD(gold.text):
        return _in_place_of(gold, gold.text + ("z" if gold.text.endswith("x") else "x"))
    return None


def is_letter(gold: Gold) -> bool:
    """Whether it is the letter of an option."""
    bare = gold.text.strip("() ")
    return len(bare) == 1 and bare.isascii() and bare.isalpha()


def listing(gold: Gold, wrong: tuple[Gold, Gold], others: Sequence[Gold]) -> list[Gold]:
    """Every answer of the file, or every letter: a wrong one first, another last, the gold between."""
    if others and is_letter(gold) and all(map(is_letter, others)):
        others = [Gold(letter, letter) for letter in "ABCDEFGHIJ"]
    found = {other.worth: other for other in others if len(other.text) <= _LONGEST}
    for one in (gold, *wrong):
        found.pop(one.worth, None)
    rest = list(found.values())[: _LISTED - 3]
    middle = len(rest) // 2
    return [wrong[0], *rest[:middle], gold, *rest[middle:], wrong[1]]
