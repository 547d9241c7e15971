r"""The reward `math`: boxed and LaTeX answers against the column `answer`; 1.0 or 0.0.

1. Strip the thinking; take **one** committed answer, of the first of these kinds that is present:
   the closed `<answer>` tag (two different ones are none committed; a box inside it is what it says);
   the last box, with those before it that are joined by `,`, "and", "or"; what follows the last `####`;
   what follows the last "the answer is" or "Answer:", a formula in dollars, or the rest of the sentence;
   a completion of one line that is, or ends in, one formula. The last of its kind counts; kinds below the
   first are not read, so naming more answers buys nothing.
2. Exact rationals first (`numbers`), as in `answer`: `18.0` is 18, `50\%` is 50 and 0.5, units that both
   sides name must share a word. A letter glued to a number is a letter, not a unit: `4m` is not 4.
3. Words by casefold, and a gold of one capital letter by that option; never symbolically.
4. Then `symbolic.equal` on the two texts: forms, values, at last math-verify. It is an argument, so that
   it may run where a hostile answer can be ended.

Codes: `wrong`, `no_answer`, `hedged` (several answers where the gold is one), `malformed` (refused for its
size, or for what its value would cost). Golds may be numbers, text, `$...$`, bare LaTeX, a box, or a
solution that ends in a box or in `####`; `math_fault` refuses what no answer could equal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

from steelyard.errors import RefusedError
from steelyard.outcome import How, Scored, Takes
from steelyard.rewards.answers import (
    MARKER,
    Key,
    committed_tag,
    gold_fault,
    gold_text,
    same,
    shown,
    strip_thinking,
    words,
)
from steelyard.rewards.apart import ROOM, equal_apart
from steelyard.rewards.base import TextReward
from steelyard.rewards.latex import boxes, form, normal, too_large, worded
from steelyard.rewards.numbers import MALFORMED, Reading, read_number
from steelyard.rewards.symbolic import equal as symbolically_equal
from steelyard.rewards.symbolic import warm

Equal: TypeAlias = Callable[[str, str], bool | Scored]
"""Compares what was said with the gold; or gives the verdict, where the comparison was refused or cut."""

WINDOW: Final = 20_000
"""Characters from the end in which a statement is looked for; tags, boxes and markers count anywhere."""
ONE_LINE: Final = 300
"""Characters of a completion that is nothing but its answer."""

_FULL = Scored(1.0)
_NONE = Scored(0.0, "no_answer", r"no answer is committed to: write \boxed{...}")
_EMPTY = Scored(0.0, "no_answer", "what is committed to is empty")

_STATEMENT = re.compile(
    r"\b(?:answers?[*_]{0,3}\s{0,3}(?:\b(?:is|are|would be|must be)\b|:|=)|final answer[*_]{0,3}\s{0,3}\n)"
    r"[\s:*_]{0,8}(?=\S)",
    re.IGNORECASE,
)
_SUPPOSED = re.compile(
    r"\b(?:if|whether|unless|suppose|assume|wrong|incorrect)\b[^.\n]{0,24}\Z", re.IGNORECASE
)
_FORMULA = re.compile(r"\$\$?([^$]+)\$\$?|\\\(((?:[^\\]|\\[^)])+)\\\)|\\\[((?:[^\\]|\\[^\]])+)\\\]")
_JOINED = re.compile(r"\s{0,3}(?:,|,?\s(?:and|or)\b)\s{0,3}")
_SENTENCE_END = re.compile(r"[.!?](?=\s+[A-Z(*]|\s*\Z)|\n")
_HEADING = re.compile(r"[\W\d_]*[^\W\d_]{3}")  # `#### Step 2: ...`, with text below
_LEAD = re.compile(r"(?:the|so|thus|hence|therefore)\b[^=.\n]{0,80}\b(?:is|are)\s+(?=\S)", re.IGNORECASE)


_HARMLESS = re.compile(  # what may stand in or around one number
    r"\\[dtc]?frac(?![A-Za-z])|\\(?:text|mathrm|mbox)\s*(?=\{)|(?:\\cdot|\\times|[*x])\s*10\s*\^|\\[$%!,; ]"
    r"|\^\{?\\circ\}?|(?<=[}a-z])\^\{?[23]\}?\s*\Z|\\(?:left|right)(?![A-Za-z])"
)
_MORE_THAN_A_NUMBER = re.compile(  # relations, brackets, powers; a letter at either side of a number; 2e-1
    r"[\\=<>|!_()\[\]:^≈±√π∞]|\b\d[\d.,]*[A-Za-z](?![A-Za-z])|(?<![\d.])\d+[eE][-+]?\d"
    r"|(?<![A-Za-z])[A-Za-z]\s*[\d{]"
)
_BOX = re.compile(r"\\(?:boxed|fbox)\b")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_INTEGER = re.compile(r"-?\d{1,18}", re.ASCII)


class Gold(NamedTuple):
    """A gold, prepared once.

    Parameters
    ----------
    text
        The answer in it.
    key
        As the answer policy compares it: its number, or its words if it is words and no mathematics.
    """

    text: str
    key: Key


def judge_math(completion: str, columns: Mapping[str, Any], *, equal: Equal = equal_apart) -> Scored:
    r"""Judge the committed answer: 1.0 or 0.0.

    Parameters
    ----------
    completion
        The text.
    columns
        The gold, in `answer`.
    equal
        Compares two answers as mathematics, where numbers and words have not decided: in a process of
        its own, which is ended at a limit.

    Raises
    ------
    RefusedError
        If the gold is one that `math_fault` names.

    Examples
    --------
    >>> judge_math(r"So $x = \boxed{\frac{\sqrt{8}}{2}}$.", {"answer": r"$\sqrt{2}$"}).value
    1.0
    >>> judge_math(r"It is \boxed{5} or \boxed{6}.", {"answer": 5}).code
    'hedged'
    """
    try:
        gold = _gold(columns["answer"])
    except (KeyError, TypeError):
        gold = None
    if gold is None:
        raise RefusedError(
            math_fault(columns) or "column 'answer' holds no gold",
            where="column 'answer'",
            remedy="run the reward's `lint` over the rows first",
        )
    said = committed(completion)
    return said if isinstance(said, Scored) else _judged(said.strip(), gold, equal)


def _judged(said: str, gold: Gold, equal: Equal) -> Scored:
    """Compare by text, by number, by words, at last as mathematics."""
    if said == gold.text and said:
        return _FULL
    if reason := too_large(said):
        return Scored(0.0, "malformed", f"the answer is {reason}")
    reading = _reading(said)
    decided = gold.key.words or (reading.value is not None and gold.key.reading.value is not None)
    verdict = same(said, reading, gold.key) or (not decided and equal(said, gold.text))
    if isinstance(verdict, Scored):
        return verdict
    return _FULL if verdict else _wrong(said, gold)


def _wrong(said: str, gold: Gold) -> Scored:
    """Say that an answer is wrong, or that it is several where the gold is one."""
    if not said:
        return _EMPTY
    parts, wanted = form(normal(said)), form(normal(gold.text))
    if parts.kind == "list" and len(parts.parts) > 1 and wanted.kind == "leaf":
        return Scored(0.0, "hedged", f"several answers in {said[:40]!r}"[:80])
    return Scored(0.0, "wrong", f"committed {said[:30]!r}, key {gold.key.shown}"[:80])


# --- the committed answer


def committed(completion: str) -> str | Scored:
    r"""Return the answer that a completion commits to, or the verdict that there is none.

    Examples
    --------
    >>> committed(r"First \boxed{1}, no: \boxed{2} and $\boxed{3}$.")
    '2, 3'
    >>> committed("<think>4?</think>The answer is $\\frac{1}{2}$, not 4.")
    '\\frac{1}{2}'
    """
    text = strip_thinking(completion) if "<" in completion else completion
    for kind in (_in_tag, _in_boxes, _after_marker, _stated, _alone):
        said = kind(text)
        if said is not None:
            return said
    return _NONE


def _in_tag(text: str) -> str | Scored | None:
    if "nswer>" not in text and "NSWER>" not in text:
        return None
    said = committed_tag(text)
    if isinstance(said, Scored):
        return said if said.code == "hedged" else None
    return _in_boxes(said) or said.rpartition(MARKER)[2]


def _in_boxes(text: str) -> str | None:
    return ", ".join(boxes(text)) or None


def _after_marker(text: str) -> str | None:
    """Return what the last marker's line says, unless it heads a section."""
    _, marker, after = text.rpartition(MARKER)
    said, _, more = after.strip().partition("\n")
    return said if marker and not (more and _HEADING.match(said)) else None


def _alone(text: str) -> str | None:
    line = text.strip()
    whole = line and len(line) <= ONE_LINE and "\n" not in line and not _BOX.search(line)
    return _unled(line) if whole else None


def _stated(text: str) -> str | None:
    """Return what the last statement states: formulas, or the rest of its sentence."""
    text, after = text[-WINDOW:], None
    for found in _STATEMENT.finditer(text):
        if not _SUPPOSED.search(text[max(0, found.start() - 40) : found.start()]):
            after = text[found.end() :]
    if after is None:
        return None
    said: list[str] = []
    at = 0
    while formula := _FORMULA.match(after, at):
        said.append(next(filter(None, formula.groups())))
        joined = _JOINED.match(after, formula.end())
        if not joined:
            break
        at = joined.end()
    if said:
        return ", ".join(said)
    end = _SENTENCE_END.search(after)
    return _unled(after[: end.start()] if end else after)


def _unled(text: str) -> str:
    """Drop "The largest n is" before a value."""
    lead = _LEAD.match(text)
    return text[lead.end() :] if lead else text


@lru_cache(maxsize=4_096)
def _reading(said: str) -> Reading:
    """Read an answer that is one number and nothing more; anything else is not read here."""
    left = _HARMLESS.sub(" ", said.replace("$", ""))
    return MALFORMED if _MORE_THAN_A_NUMBER.search(left) else read_number(said, alone=True)


# --- golds


@lru_cache(maxsize=4_096, typed=True)  # typed: 1, 1.0, True and "1" are four golds
def _gold(gold: object) -> Gold | None:
    if _fault(gold):
        return None
    text = _answer_in(gold_text(gold) or "")
    if isinstance(gold, float):
        text = format(Decimal(text), "f")  # 1e-07 is no power of the number e
    spelled = words(text) if worded(normal(text)) else ""
    return Gold(text, Key(text, _reading(text), spelled, repr(text[:30])))


def _answer_in(text: str) -> str:
    return (", ".join(boxes(text)) if "box" in text else text).strip()


def math_fault(columns: Mapping[str, Any]) -> str | None:
    """Say what is wrong with a gold, or `None`: one that is absent, unreadable, unbalanced, or too large."""
    gold = columns.get("answer")
    if isinstance(gold, str) and _INTEGER.fullmatch(gold):
        return None
    return gold_fault(columns) or _fault(gold)


def _fault(gold: object) -> str | None:
    text = gold_text(gold)
    if text is None:
        return "column 'answer' holds no gold"
    answer = _answer_in(text)
    why = ""
    if not answer.strip("$ ."):
        why = "has a box that is empty or not closed" if "box" in text else "states nothing"
    elif reason := too_large(answer):
        why = f"is {reason}, which no answer is compared with"
    elif _unbalanced(answer):
        why = "has braces that do not match"
    elif "box" in text and len(_BOX.findall(text)) > len(boxes(text)):
        why = "has several boxes that are not joined"
    return f"column 'answer' {why} ({shown(gold)}): write one answer" if why else None


def _unbalanced(text: str) -> bool:
    depth = 0
    for brace in _BRACE.findall(text):
        depth += (brace == "{") - (brace == "}")
        if depth < 0:
            return True
    return depth > 0


def math() -> TextReward:
    r"""Make the reward `math`: the committed answer against the column `answer`; 1.0 or 0.0.

    The gold is a number, text, or LaTeX: bare, in dollars, in a box, or at the end of a solution. Which
    answer is committed to: the `<answer>` tag, else the last box, else what follows the last `####`, else
    what follows "the answer is". Compared are exact rationals, then words, then expressions by form and
    value; sums, products, integrals and limits by math-verify. It runs in worker processes with limits.

    Examples
    --------
    >>> math().write("2"), math().lint({"answer": "{1"})
    ('\\boxed{2}', "column 'answer' has braces that do not match ('{1'): write one answer")
    """
    return TextReward(
        "math",
        "math/1",
        judge_math,
        columns=("answer",),
        fault=math_fault,
        how=How.WORKER,
        takes=Takes.ROLLOUT,
        write=r"\boxed{{{}}}".format,
        room=ROOM,
        inside=judge_here,
        warm=warm,
    )


def judge_here(completion: str, columns: Mapping[str, Any]) -> Scored:
    """Judge in this process, as the runtime's workers do: they are ended if a comparison does not end."""
    return judge_math(completion, columns, equal=symbolically_equal)
