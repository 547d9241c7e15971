r"""The answer policy, and the rewards `answer` and `gsm8k`.

1. Strip the thinking; take one committed answer. `gsm8k`: what follows the last `####`. `answer`: the
   `<answer>` tag; two different ones are none committed (`hedged`), equal ones are one.
2. Compare exact rationals first (`numbers`): `18.0` is 18, `19.5` is not 19, `50%` is 50 and also
   `0.5` or `1/2`, for that is its value, but never another integer: `500%` is not 5. Units that both
   sides name must share a word: "18 cents" is not "18 dollars".
3. Then words, by casefold after NFKC, with whitespace folded and quotes, markdown, `\boxed`, `\text`,
   `The answer is` and a trailing period dropped. Never symbolically: "Paris" is not "pairs". A number
   never equals words.
4. A gold of one capital letter is also met by that option with its text: `B) because ...`.

Thinking is `<think>`, `<thinking>` and `<reasoning>`. One that is not closed was cut: everything after
it is thinking. A close without an open was opened by the prompt: everything before it is thinking.
Nothing here evaluates, guesses or searches for the key in the text. LaTeX beyond a number is the
business of `maths`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

from steelyard.errors import RefusedError
from steelyard.outcome import Scored
from steelyard.rewards.base import TextReward
from steelyard.rewards.notation import fold, last_box, untypeset
from steelyard.rewards.numbers import Reading, last_number, read_number

MARKER = "####"
_GOLDS = 4_096  # prepared golds that are kept: a group's rows mostly stand together, and each takes half a kB
LONGEST = 10_000
"""Characters that an answer may have beyond its key; folding more would cost more than judging."""

_THINKING = re.compile(r"<(/?)(think|thinking|reasoning)>", re.ASCII | re.IGNORECASE)
_PERHAPS_THINKING = re.compile(r"</?[tTrR][hHeE]").search  # cheaper, for texts without any
_TAG = re.compile(r"<(/?)answer>", re.ASCII | re.IGNORECASE)
_PLAIN = re.compile(r"[ \t]*(-?[1-9][0-9]{0,17}|0)(?:\.0{0,9})?[ \t\r]*(?:\n|\Z)", re.ASCII)
_OPTION = re.compile(r"(?:(?:[Oo]ption|[Cc]hoice)\s+)?\(?([A-Z])(?:\)[.:]?|[.:]|\Z)(?:\s|\Z)", re.ASCII)
_OTHER_OPTION = re.compile(r"(?:\b(?:or|and)\b|[,/&])\s*\(?[A-Z]\b(?![a-z'])", re.ASCII)
_NEXT_OPTION = re.compile(r"\(?[A-Z](?:\)|\Z)", re.ASCII)
_ANSWER_IS = re.compile(
    r"(?:(?:so|thus|therefore|hence),? )?(?:(?:the|my) )?(?:(?:final|correct) )?answer(?: is:?|:) (?=\S)"
)
_HEADING = re.compile(r"[ \t*_]*[^\W\d_][^\n]*\n\s*\S")
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")

_FULL = Scored(1.0)
_FULL_WITH_FORMAT = Scored(1.2)
_NO_MARKER = Scored(0.0, "no_answer", f"no {MARKER} in the answer: write {MARKER} and the number")
_NO_NUMBER = Scored(0.0, "no_answer", "no number in the answer")
_MANY_BOXES = Scored(0.0, "hedged", "several boxes make one answer: commit to one number")
_NO_LAST = Scored(0.0, "malformed", "the last number is part of something else")
_NOTHING_AFTER = Scored(0.0, "no_answer", f"nothing after the last {MARKER}")
_NO_TAG = Scored(0.0, "no_answer", "no closed <answer> tag after the thinking")
_EMPTY_TAG = Scored(0.0, "no_answer", "the <answer> tag is empty")


class Key(NamedTuple):
    """A gold, prepared once.

    Parameters
    ----------
    text
        What states it: after the last `####`, if there is one.
    reading
        Its number, if it is one.
    words
        Its words, folded; empty where only numbers count.
    shown
        What messages show of it.
    whole
        Its number in plain digits, if it is an integer.
    """

    text: str
    reading: Reading
    words: str
    shown: str
    whole: str = ""


def strip_thinking(text: str) -> str:
    """Return what a completion says once its thinking is done.

    Examples
    --------
    >>> strip_thinking("<think>4? 5?</think>It is 5."), strip_thinking("so 5</think>It is 5.")
    ('It is 5.', 'It is 5.')
    """
    kept: list[str] = []
    inside, at = "", 0
    for tag in _THINKING.finditer(text):
        name = tag[2].lower()
        if not tag[1] and not inside:
            kept.append(text[at : tag.start()])
            inside = name
        elif tag[1] and inside in ("", name):
            if not inside:
                kept.clear()
            inside, at = "", tag.end()
    if not inside:
        kept.append(text[at:])
    return "\n".join(filter(None, kept))


def gold_text(gold: object) -> str | None:
    """Return the text of a gold that can be one: str, int, finite float; `None` for anything else."""
    if isinstance(gold, str):
        return gold.rpartition(MARKER)[2].strip() or None
    if isinstance(gold, bool) or not isinstance(gold, int | float):
        return None
    try:
        text = repr(float(gold)) if isinstance(gold, float) else str(int(gold))
    except ValueError:  # more digits than Python prints: no answer has them
        return None
    return text if text[-1].isdigit() else None


def gold_fault(columns: Mapping[str, Any], column: str = "answer") -> str | None:
    """Say what is wrong with a gold, whatever reads it (policy 5)."""
    gold = columns.get(column)
    if gold is None:
        return f"column {column!r} is missing or null: give every row its gold as text or a number"
    if isinstance(gold, str) and not gold.strip():
        return f"column {column!r} is empty ({shown(gold)}): give the row its gold, or drop it"
    if gold_text(gold) is None:
        kind = (
            "ends in the marker"
            if isinstance(gold, str)
            else f"is no text, int or finite float but {type(gold).__name__}"
        )
        return f"column {column!r} {kind} ({shown(gold)}): write one answer as text or a number"
    return None


def shown(value: object, width: int = 40) -> str:
    """A value as a message shows it: its repr, shortened."""
    try:
        text = repr(value[: 2 * width] if isinstance(value, str) else value)
    except ValueError:
        text = f"an int of {value.bit_length()} bits" if isinstance(value, int) else type(value).__name__
    return text if len(text) <= width else f"{text[: width - 3]}..."


def words(text: str) -> str:
    r"""Fold a text so that equal wording compares equal (policy 3).

    Examples
    --------
    >>> words(r"**\text{New  York}.**") == words("new york")
    True
    """
    text = untypeset(fold(_CONTROLS.sub(" ", text)))
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    joined = " ".join(folded.split())
    return joined.strip(" '\"`").removesuffix(".").strip(" '\"`") or joined


@lru_cache(maxsize=_GOLDS, typed=True)  # typed: 1, 1.0, True and "1" are four golds
def text_key(gold: str | float) -> Key:
    """Prepare a gold that may be words."""
    text = gold_text(gold)
    if text is None:
        raise _refused({"answer": gold}, gold_fault)
    return Key(text, read_number(text, alone=True), words(text), repr(text[:30]))


@lru_cache(maxsize=_GOLDS, typed=True)
def number_key(gold: str | float) -> Key | None:
    """Prepare a gold that must be a number; `None` if it is none."""
    text = gold_text(gold)
    if text is None:
        return None
    plain = _PLAIN.fullmatch(text)
    if plain:  # nearly every gold, and the full reading costs far more
        return Key(text, Reading(Fraction(int(plain[1])), None), "", repr(text[:30]), plain[1])
    reading = read_number(text)
    if reading.value is None:
        return None
    whole = str(reading.value) if reading.value.denominator == 1 else ""
    return Key(text, reading, "", repr(text[:30]), whole)


def _refused(columns: Mapping[str, Any], fault: Callable[[Mapping[str, Any]], str | None]) -> RefusedError:
    """A gold that no rule can use: `fault` says so before a run, a direct call hears it here."""
    reason = fault(columns) or "column 'answer' holds no gold"
    return RefusedError(reason, where="column 'answer'", remedy="run the reward's `lint` over the rows first")


def same(said: str, reading: Reading, key: Key) -> bool:
    """Policy 2 to 4: whether what was said is the key."""
    if reading.value is not None and key.reading.value is not None:
        units, wanted = reading.unit, key.reading.unit
        if reading.value != key.reading.value:
            share = _as_share(reading)
            return share is not None and share == _as_share(key.reading)
        return not units or not wanted or not units.isdisjoint(wanted)
    if len(said) > LONGEST + 4 * len(key.text):
        return False
    folded = words(said)
    if folded == key.words or ((led := _ANSWER_IS.match(folded)) and folded[led.end() :] == key.words):
        return key.words != ""
    return len(key.text) == 1 and _option(said) == key.text


def _as_share(reading: Reading) -> Fraction | None:
    """Return a percentage, or a number that is no integer, as a share of one; a bare integer is none."""
    if reading.value is None:
        return None
    if reading.unit == {"percent"}:
        return reading.value / 100
    return reading.value if reading.value.denominator != 1 and not reading.unit else None


def _option(said: str) -> str | None:
    said = " ".join(untypeset(fold(said)).split())
    option = _OPTION.match(said)
    if option is None:
        return None
    if _OTHER_OPTION.search(said, option.end()) or _NEXT_OPTION.match(said, option.end()):
        return None
    return option[1]


def _wrong(said: str, key: Key, value: float = 0.0) -> Scored:
    return Scored(value, "wrong", f"committed {said.strip()[:30]!r}, key {key.shown}"[:80])


def _unread(code: str | None, said: str) -> Scored:
    why = "several answers" if code == "hedged" else "no single number"
    return Scored(0.0, code, f"{why} in {said.strip()[:40]!r}"[:80])


def judge_gsm8k(completion: str, columns: Mapping[str, Any], *, flexible: bool = False) -> Scored:
    r"""Judge the number after the last `####` (policy 1 and 2).

    Strict: right 1.2 (1.0, and 0.2 for the format), wrong 0.2, nothing readable 0.0. The bonus needs a
    number that can be read: the marker alone earns nothing. Flexible: right 1.0, wrong 0.0, and
    without any marker, or where the last one heads a section (`#### Checking it`), the last box counts,
    or else the last number.

    Examples
    --------
    >>> judge_gsm8k("3 * 6 = 18\n#### $18.00", {"answer": "18"}).value
    1.2
    """
    try:
        key = number_key(columns["answer"])
    except (KeyError, TypeError):
        key = None
    if key is None:
        raise _refused(columns, gsm8k_fault)
    text = strip_thinking(completion) if _PERHAPS_THINKING(completion) else completion
    at = text.rfind(MARKER)
    if at < 0:
        return _last(text, key) if flexible else _NO_MARKER
    # Plain integers, nearly all answers, need no more than this; the rest is read in full.
    plain = _PLAIN.match(text, at + 4)
    if plain:
        if plain[1] == key.whole:
            return _FULL if flexible else _FULL_WITH_FORMAT
        reason = f"committed '{plain[1]}', key {key.shown}"
        return Scored(0.0 if flexible else 0.2, "wrong", reason)
    return _after_marker(text, at, key, flexible=flexible)


def _closed(text: str, at: int) -> str:
    """Return what stands between two markers of one line, `#### 18 ####`: the last one closes it."""
    _, opened, said = text[text.rfind("\n", 0, at) + 1 : at].rpartition(MARKER)
    return said if opened else ""


def _after_marker(text: str, at: int, key: Key, *, flexible: bool) -> Scored:
    said = text[at + 4 :].strip() or _closed(text, at)
    reading = read_number(said)
    if reading.value is None:
        if flexible and _HEADING.match(said):
            return _last(text, key)
        return _NOTHING_AFTER if reading.code == "no_answer" else _unread(reading.code, said)
    if same(said, reading, key):
        return _FULL if flexible else _FULL_WITH_FORMAT
    return _wrong(said, key, 0.0 if flexible else 0.2)


def _last(text: str, key: Key) -> Scored:
    box = last_box(text)
    reading = read_number(box.content, alone=True) if box else last_number(text)
    if box and box.joined:
        return _MANY_BOXES
    if reading.value is None:
        return (
            _NO_NUMBER
            if reading.code == "no_answer"
            else Scored(0.0, reading.code, "the last number cannot be read")
        )
    return _FULL if same("", reading, key) else _wrong(str(reading.value), key)


def _flexible(completion: str, columns: Mapping[str, Any]) -> Scored:
    return judge_gsm8k(completion, columns, flexible=True)


def _no_number(text: str) -> str:
    return f"column 'answer' is no single number ({shown(text)}): write the number alone, or after {MARKER}"


def gsm8k_fault(columns: Mapping[str, Any]) -> str | None:
    """Say what is wrong with a gold that must be a number."""
    gold = columns.get("answer")
    if isinstance(gold, str | int | float) and number_key(gold) is not None:
        return None
    return gold_fault(columns) or _no_number(gold_text(gold) or "")


def committed_tag(completion: str) -> str | Scored:
    """Return the content of the one `<answer>` tag after the thinking, or the verdict without one."""
    text = strip_thinking(completion)
    said: list[str] = []
    start, closed = -1, True
    for tag in _TAG.finditer(text):
        if start >= 0:
            said.append(text[start : tag.start()])
        start, closed = (-1, True) if tag[1] else (tag.end(), False)
    if not closed:
        said.append(text[start:])
    spelled = set(filter(None, map(str.strip, said)))
    if len(spelled) > 1 and (len(spelled) > 64 or len(set(map(_canonical, spelled))) > 1):
        return Scored(0.0, "hedged", f"{len(spelled)} different <answer> tags: commit to one")
    if not said or not closed:
        return _NO_TAG
    return next((one for one in said if one.strip()), "") or _EMPTY_TAG


def _canonical(said: str) -> object:
    if len(said) > LONGEST:
        return said
    reading = read_number(said, alone=True)
    return (reading.value, reading.unit) if reading.value is not None else words(said)


def answer_fault(columns: Mapping[str, Any]) -> str | None:
    """Say what is wrong with a gold that may be words: one of which nothing is left when it is folded."""
    if fault := gold_fault(columns):
        return fault
    key = text_key(columns["answer"])
    if key.words or key.reading.value is not None:
        return None
    return f"column 'answer' holds neither a number nor a word ({key.shown}): nothing could equal it"


def judge_answer(completion: str, columns: Mapping[str, Any]) -> Scored:
    """Judge the `<answer>` tag: 1.0 or 0.0 (policy 1 to 4).

    Examples
    --------
    >>> judge_answer("<reasoning>capital</reasoning><answer>Paris.</answer>", {"answer": "Paris"}).value
    1.0
    """
    try:
        key = text_key(columns["answer"])
    except (KeyError, TypeError):
        raise _refused(columns, gold_fault) from None
    said = committed_tag(completion)
    if isinstance(said, Scored):
        return said
    reading = read_number(said, alone=True)
    if same(said, reading, key):
        return _FULL
    if reading.code == "hedged" and key.reading.value is not None:
        return _unread("hedged", said)
    return _wrong(said, key)


def answer() -> TextReward:
    """Make the reward `answer`: the `<answer>` tag against the column `answer`; 1.0 or 0.0."""
    return TextReward(
        "answer",
        "answer/1",
        judge_answer,
        columns=("answer",),
        fault=answer_fault,
        write="<answer>{}</answer>".format,
    )


def gsm8k(*, flexible: bool = False) -> TextReward:
    """Make the reward `gsm8k`: the number after the last `####` against the column `answer`.

    Parameters
    ----------
    flexible
        Where there is no marker, take the last box, or else the last number; and pay no bonus for the format.
    """
    rule: Callable[[str, Mapping[str, Any]], Scored] = _flexible if flexible else judge_gsm8k
    suffix = ":flexible" if flexible else ""
    return TextReward(
        f"gsm8k{suffix}",
        f"gsm8k/1{suffix}",
        rule,
        columns=("answer",),
        fault=gsm8k_fault,
        write=f"{MARKER} {{}}".format,
    )
