r"""The reward `choice`: one letter of a multiple-choice question.

Policy 1, for letters. After the thinking, the first of these kinds that is present decides, and of
its kind the *last* one counts:

1. the `<answer>` tag (two different ones are none committed);
2. the last `\boxed{C}`, unless a statement follows it; a box that holds no letter (`\boxed{42}`) is a
   step of the reasoning where something below commits;
3. a statement: `the answer is (C)`, `Answer: C`, `#### C`; a statement that there is none ("the answer
   is not listed", "Answer: None of the above") takes back the letters before it, the box included;
4. after the last such withdrawal, a choice in other words: `the closest option is (C)`, `option C is
   correct`, `I choose C`, `option C` at the end of a sentence;
5. the completion, or its last line, is nothing but the letter: `**C**`, `(C)`, `C) because ...`;
6. the last sentence ends in the only parenthesised letter that it holds: `..., so it is steam (C).`

A statement commits to the **first** letter after it: `The answer is (B) or (C)` is B, also where the
key is C, as the public benchmarks read it. Naming more letters buys nothing, so it is no hedge that
pays. Denied and supposed ones ("if the answer is (B)", "the wrong answer is (B)") are no statements. A
tag or a box with two letters is `hedged`. A letter in running prose ("A person ...", "Vitamin C") is
none, and neither is a lower-case one, unless it stands in a tag, box or parentheses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from steelyard.errors import RefusedError
from steelyard.outcome import Scored
from steelyard.rewards.answers import LONGEST, committed_tag, gold_fault, gold_text, shown, strip_thinking
from steelyard.rewards.base import TextReward
from steelyard.rewards.notation import WRAPPERS, fold, last_box, untypeset

WINDOW = 65_536
"""Characters from the end in which a statement is looked for; a tag counts wherever it stands."""

_FULL = Scored(1.0)
_NONE = Scored(0.0, "no_answer", "no letter is committed to: write `The answer is (X)`")
_MANY_BOXES = Scored(0.0, "hedged", "several boxes make one answer: commit to one letter")
_WITHDRAWN = Scored(0.0, "no_answer", "the last statement names no option")

_GOLD = re.compile(r"\(?([A-Za-z])[).:]{0,2}(?:\s.*)?", re.ASCII | re.DOTALL)
_BARE = re.compile(r"(?:option|choice|answer)?:?\s*[(\[]?([A-Za-z])[)\]]?[.:]?", re.ASCII | re.IGNORECASE)
_LED = re.compile(
    r"(?:option|choice)?\s*(?:[(\[]([A-Za-z])[)\]]|([A-Z])(?:[).:]|(?=\s(?:because|since)\b)))[.:]?(?=\s)",
    re.ASCII,
)
_OTHER = re.compile(
    r"(?:\b(?:or|and)\b|[,/&])\s*(?:option\s+)?(?:\(([A-Za-z])\)|([A-Z])\b(?![a-z'’-]))", re.ASCII
)

# A letter in prose is wrapped, or a capital that no sentence goes on from: A and I are words, (i) and
# (v) are numerals.
_LETTER = r"""(?:[(\[]\s?(?P<wrapped>(?-i:[A-Za-hj-uwyz]))\s?[)\]]
  |[(\[]\s?(?P<opened>(?-i:[A-HJ-Z]))(?=\s?(?:[:,/&–—]|[.]\s|\Z)|\s+(?:and|or)\b|\s-\s)
  |(?P<capital>(?-i:[A-Z]))(?=[*_`"'$}]{0,3}(?:[.,:;)!?\]]|\s*(?:\n|\Z|[(=—–]|-\s)
    |\s+(?:and|or|because|since|as|for|which|due|given)\b))
  |(?P<before>(?-i:[B-HJ-Z]))(?=\s(?-i:[A-Z0-9$\\])))"""
_LETTER = re.sub(r"\n\s*", "", _LETTER)
_EMPHASIS = r"[\s*_`\"'${]{0,8}"
_OPTION = r"(?:(?:option|choice|letter|statement)\b\s{0,4})?"
_STATEMENT = re.compile(
    r"(?<!exact )(?<!precise )(?<!computed )(?<!calculated )"
    rf"(?:\b(?:answers?\b(?:\s+(?:choice|option))?|ans\b\.?){_EMPHASIS}"
    r"(?:\b(?:is|are|would be|should be|must be|will be)\b|:|=|[-–—](?=\s))|####|\bans\.)[\s:*_`\"'${]{0,8}"
    r"(?:indeed |therefore |thus |clearly |most likely |probably |the )?"
    rf"(?:{_OPTION}{_EMPHASIS}{_LETTER}"
    r"|\(?(?P<none>none\b|cannot\b|can't\b|impossible\b|unknown\b|undetermined\b|there (?:is|seems)\b"
    r"|(?:still |probably )?not (?:listed|given|provided|among|available|present|included|in the|one of"
    r"|any of)))"
    r"|\banswer (?:cannot|can't|could not) be (?P<unknown>determined|found|given)",
    re.IGNORECASE,
)
_CHOSEN = re.compile(
    rf"\b(?:(?:closest|best|correct|right|nearest|likely|accurate|appropriate|only)\b[^.\n():]{{0,80}}(?:\bis\b|:)|"
    rf"choose|select|pick|chose|go with|going with)\s*:?{_EMPHASIS}{_OPTION}{_EMPHASIS}{_LETTER}"
    r"|(?:[(\[](?P<named>(?-i:[A-Z]))[)\]]"
    r"|(?:^|(?<=[,.:;]\s)|(?<=so\s)|(?<=hus\s)|(?<=ence\s)|(?<=fore\s))(?P<plain>(?-i:[A-HJ-Z])))[*_`]{0,3}"
    r" is (?:the answer|(?:the )?(?:only |most )?(?:correct|right|best|closest|appropriate)"
    r" (?:answer|option|choice|one))\b"
    rf"|\b(?:option|choice)\s*{_EMPHASIS}[(\[]?(?P<option>(?-i:[A-Z]))[)\]]?{_EMPHASIS}(?=[.]?\s*(?:\n|\Z)"
    r"|[*_`]{0,3} is (?:the )?(?:only |most )?(?:correct|right|best|closest|true|accurate))",
    re.IGNORECASE | re.MULTILINE,
)
_SUPPOSED = re.compile(
    r"(?:\b(?:incorrect|wrong|if|whether|unless|suppose|supposing|assume|assuming)|(?:n't|not|never|cannot)"
    r" (?:think|say|believe|mean|conclude|claim))(?: that)?(?: the| an?)?(?: correct| right| final)?\s?\Z",
    re.IGNORECASE,
)
_NOT = re.compile(r"(?:\b(?:not|never|neither|nor)|n't)\s+(?:\w{1,12}\s+){0,2}\Z", re.IGNORECASE)
_DENIES = re.compile(r"\b(?:not|never|neither|nor|incorrect|wrong|false|except)\b|n't\b", re.IGNORECASE)
_CLOSING = re.compile(r"(?<=\s)\(([A-Z])\)[.!*\s]{0,8}\Z")
_LISTED = re.compile(r"^\s{0,4}[*_]{0,2}[(]?[A-Z][).:]", re.ASCII | re.MULTILINE)  # the options, gone through
_WRAPPED = re.compile(r"\(([A-Z])\)")


def committed_letter(completion: str) -> str | Scored:
    """Return the upper-case letter that a completion commits to, or the verdict that there is none.

    Examples
    --------
    >>> committed_letter("Maybe (A). No: the answer is (C).")
    'C'
    >>> committed_letter("A person who is vitamin C deficient.").code
    'no_answer'
    """
    text = strip_thinking(completion)
    if "<answer>" in text.lower():
        said = committed_tag(text)
        return said if isinstance(said, Scored) else _held(said, "tag")
    text = fold(text[-WINDOW:])[-WINDOW:]
    if (box := last_box(text)) is None:
        return _in_words(text)
    later, withdrawn = _stated(_plain(text[box.end :]))
    if later or withdrawn:
        return _in_words(text[box.end :])
    boxed = _MANY_BOXES if box.joined else _held(box.content, "box")
    if isinstance(boxed, str) or boxed.code == "hedged":
        return boxed
    said = _in_words(text)
    return said if isinstance(said, str) else boxed


def _in_words(text: str) -> str | Scored:
    """Read what a text without tag and box commits to, kinds 3 to 6."""
    text = _plain(text)
    stated, since = _stated(text)
    if stated:
        return stated
    chosen = _last_chosen(text, since) or ("" if since else _standing(text))
    return chosen or (_WITHDRAWN if since else _NONE)


def _plain(text: str) -> str:
    return WRAPPERS.sub("", text) if "\\" in text else text


def _held(said: str, where: str) -> str | Scored:
    """Read the one letter that a tag or a box holds, in its first `LONGEST` characters."""
    said = " ".join(untypeset(fold(said[:LONGEST])).split())
    found = _BARE.fullmatch(said) or _LED.match(said)
    stated, _ = ("", 0) if found else _stated(said)
    if not found and not stated:
        several = re.fullmatch(r"(?:\(?[A-Z]\)?\W*(?:\b(?:and|or)\b)?\W*){2,}", said[:200])
        code, why = ("hedged", "several letters") if several else ("malformed", "no option's letter")
        return Scored(0.0, code, f"{why} in the {where}: {said[:30]!r}")
    other = _OTHER.search(said, found.end() if found else 0)
    letter = stated or (found[found.lastindex or 1] if found else "")
    if other and (other[1] or other[2]).upper() != letter.upper():
        return Scored(0.0, "hedged", f"several letters in the {where}: {said[:30]!r}")
    return letter.upper()


def _stated(text: str) -> tuple[str, int]:
    """Return the last statement's letter, and where the last withdrawal ends (0: there is none)."""
    letter, withdrawn = "", 0
    for found in _STATEMENT.finditer(text):
        if _SUPPOSED.search(text[max(0, found.start() - 40) : found.start()]):
            continue
        if found["none"] or found["unknown"]:
            letter, withdrawn = "", found.end()
        else:
            letter = _letter(found) or letter
    return letter, withdrawn


def _last_chosen(text: str, since: int) -> str:
    letter = ""
    for found in _CHOSEN.finditer(text, since):
        denied = _NOT.search(text[max(0, found.start() - 40) : found.start()])
        variable = text[found.end() : found.end() + 3].lstrip()[:1] == "="  # "is given by: A = ..."
        if not denied and not variable:
            letter = _letter(found) or letter
    return letter


def _letter(found: re.Match[str]) -> str:
    return (found[found.lastgroup] or "").upper() if found.lastgroup else ""


def _standing(text: str) -> str:
    """Return the letter that stands alone, or that closes the last sentence."""
    whole = text.strip()
    listed = len(_LISTED.findall(whole))
    for line in (whole[-400:].rpartition("\n")[2], whole[:400].partition("\n")[0]):
        alone = _BARE.fullmatch(untypeset(fold(line)).strip())
        itself = listed == 1 and alone is not None and alone[0].startswith("(")
        if alone and alone[1].isupper() and (line == whole or not listed or itself):
            return alone[1]
    opening = " ".join(untypeset(fold(whole[:200])).split())
    led = _LED.match(opening) if listed <= 1 else None
    letter = (led[1] or led[2]) if led else ""
    short = len(whole) <= 200 or set(_WRAPPED.findall(whole)) == {letter}
    if led and letter.isupper() and short and not _OTHER.search(opening, led.end()):
        return letter
    sentence = re.split(r"[.!?]\s(?=\s*\S)|\n", whole[-400:])[-1]
    closing = _CLOSING.search(sentence)
    sole = closing and set(_WRAPPED.findall(sentence)) == {closing[1]} and not _DENIES.search(sentence)
    return closing[1] if closing and sole else ""


@lru_cache(maxsize=4_096, typed=True)
def _gold(gold: object) -> str | None:
    text = gold_text(gold)
    found = _GOLD.fullmatch(" ".join(untypeset(fold(text)).split())) if text else None
    if found is None or (found[1].islower() and len(found[0]) > 3):
        return None
    return found[1].upper() if len(found[0]) == 1 or found[0][1:2] != " " else None


def choice_fault(columns: Mapping[str, Any]) -> str | None:
    """Say what is wrong with a gold that must be an option's letter."""
    if fault := gold_fault(columns):
        return fault
    gold = columns["answer"]
    if _gold(gold) is None:
        return f"column 'answer' is no option's letter ({shown(gold)}): write one letter, such as C or (C)"
    return None


def judge_choice(completion: str, columns: Mapping[str, Any]) -> Scored:
    """Judge the letter that a completion commits to: 1.0 or 0.0.

    Examples
    --------
    >>> judge_choice("So the answer is (C).", {"answer": "C"}).value
    1.0
    """
    gold = columns.get("answer")
    key = _gold(gold) if isinstance(gold, str) else None
    if key is None:
        raise RefusedError(
            choice_fault(columns) or "no gold",
            where="column 'answer'",
            remedy="run the reward's `lint` over the rows first",
        )
    said = committed_letter(completion)
    if isinstance(said, Scored):
        return said
    return _FULL if said == key else Scored(0.0, "wrong", f"committed {said!r}, key {key!r}")


def choice() -> TextReward:
    """Make the reward `choice`: the committed letter against the column `answer`; 1.0 or 0.0."""
    return TextReward(
        "choice",
        "choice/1",
        judge_choice,
        columns=("answer",),
        fault=choice_fault,
        write="The answer is ({}).".format,
    )
