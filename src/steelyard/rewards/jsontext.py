r"""JSON in a completion: where it stands, and reading it strictly.

Where. In this order:

1. the whole completion, if it is one JSON value: nothing in it is markup then;
2. all that follows the thinking (`answers`), if it is one;
3. all that the `<answer>` tag holds, if there is a tag (two different ones are none committed); in it, or
   without one in what follows the thinking,
4. the closed fence marked `json`, or else the unmarked one that begins with a bracket; several with
   different content are `hedged`;
5. without such a fence, what stands from the first `{` or `[` to the last `}` or `]`: prose around the value
   must do without brackets. Two values are two documents and `hedged`, even if they are equal.

What is found is read or not; no smaller piece of it is tried, for a piece of broken JSON is no answer.

Reading. RFC 8259 as `orjson` reads it (no NaN, comment, trailing comma, single quote, lone surrogate, raw
control character; numbers within a double's range), and of what it lets pass: no key twice, at most
`DEEPEST` levels, at most `LONGEST` characters. Integers are exact. Time and memory grow with the length
of the text and with nothing else.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import orjson

from steelyard.outcome import Scored
from steelyard.rewards.answers import committed_tag, strip_thinking

LONGEST: Final = 1_000_000
"""Characters of a value: some 250,000 tokens; reading more could take hundreds of MB."""
DEEPEST: Final = 254
"""Levels of a value: what `orjson` writes and any validator follows without an end to its stack."""
MOST_LONG_INTEGERS: Final = 256
"""Integers of 19 digits or more in a value: jsonschema-rs compares those pair by pair in `uniqueItems`."""

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})([^\n]*)", re.MULTILINE)
_LONG_INTEGER = re.compile("[0-9]{19}").search
_BEGINNINGS = ("{", "[", '"', "-", *"0123456789", "true", "false", "null", "NaN", "Infinity")
_AROUND = "\ufeff \t\r\n"  # a byte order mark is no part of a text, and JSON's white space
_NOTHING = Scored(0.0, "no_answer", "the answer is no JSON: write one JSON value")
_TOO_LONG = f"longer than {LONGEST:,} characters"


class UnreadableError(ValueError):
    """A text is no JSON value; `code` says whether it is `malformed`, or `hedged`: several values."""

    def __init__(self, reason: str, code: str = "malformed") -> None:
        super().__init__(reason)
        self.code = code


class Committed(NamedTuple):
    """The JSON value that a completion commits to, and the text that states it."""

    value: Any
    text: str


def read_json(text: str) -> Any:  # noqa: ANN401 - JSON is anything
    """Read a text that is one JSON value, strictly.

    Parameters
    ----------
    text
        The value, with nothing but JSON's white space around it.

    Raises
    ------
    UnreadableError
        If it is not one; the message says what is wrong first.

    Examples
    --------
    >>> read_json('{"population": 12345678901234567890123}')
    {'population': 12345678901234567890123}
    >>> read_json('{"age": 3, "age": 4}')
    Traceback (most recent call last):
    ...
    steelyard.rewards.jsontext.UnreadableError: the key 'age' stands twice
    """
    if len(text) > LONGEST:
        raise UnreadableError(_TOO_LONG)
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        more = error.msg.startswith("unexpected content after") and _first_bracket(text, error.pos) >= 0
        reason = "several JSON values: write one" if more else f"{error.msg} at character {error.pos}"
        raise UnreadableError(reason, "hedged" if more else "malformed") from None
    try:
        written = orjson.dumps(value)
    except TypeError:
        raise UnreadableError(f"nested deeper than {DEEPEST} levels") from None
    # orjson keeps the last of equal keys and makes a double of a long integer. A key that it dropped takes
    # its quotation marks along, so their number tells, unless one was written as \u0022.
    if text.count('"') != written.count(b'"') or "\\u0022" in text or _LONG_INTEGER(text):
        return _read_exactly(text)
    return value


def _read_exactly(text: str) -> Any:  # noqa: ANN401 - JSON is anything
    """Read what `orjson` took for JSON, three times as slowly."""
    long = 0

    def integer(digits: str) -> int:
        nonlocal long
        long += len(digits) > 18
        return int(digits)

    value = json.loads(text, object_pairs_hook=_once, parse_int=integer)
    if long > MOST_LONG_INTEGERS:
        raise UnreadableError(f"more than {MOST_LONG_INTEGERS} integers of 19 digits or more")
    return value


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    read = dict(pairs)
    if len(read) != len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise UnreadableError(f"the key {twice[:30]!r} stands twice")
    return read


def committed_json(completion: str, *, strict: bool = False) -> Committed | Scored:
    r"""Return the JSON value that a completion commits to, or the verdict that there is none.

    Parameters
    ----------
    completion
        The text.
    strict
        Whether the value must be all of it, or all that follows the thinking: no tag, fence or prose.

    Examples
    --------
    >>> committed_json('<think>{}?</think>Here it is:\n```json\n{"age": 3}\n```').value
    {'age': 3}
    >>> committed_json('{"age": 3} or {"age": 4}').code
    'hedged'
    """
    said = _read(completion)
    rest = strip_thinking(completion) if "<" in completion else completion
    if rest != completion and not isinstance(said, Committed):
        said = _read(rest)
    if strict or isinstance(said, Committed):
        return said
    text = _answered(rest)
    if isinstance(text, Scored):
        return text
    if text != rest:
        said = _read(text)
    place = None if isinstance(said, Committed) else _place(text)
    if place is None or place == text:
        return said
    return place if isinstance(place, Scored) else _read(place)


def _read(text: str) -> Committed | Scored:
    if not text.lstrip(" \t\r\n").startswith(_BEGINNINGS):
        return _NOTHING
    try:
        return Committed(read_json(text), text)
    except UnreadableError as error:
        return Scored(0.0, error.code, str(error)[:80])


def _answered(text: str) -> str | Scored:
    """Return what the `<answer>` tag holds, or the whole text without one."""
    if len(text) > LONGEST:
        return Scored(0.0, "malformed", _TOO_LONG)
    said = committed_tag(text) if "<" in text and "<answer>" in text.lower() else text
    return said if isinstance(said, Scored) else said.strip(_AROUND)


def _place(text: str) -> str | Scored | None:
    """Find what states the value in a text that is more than it; `None` if nothing does."""
    fenced = _fenced(text) if "```" in text or "~~~" in text else []
    if fenced:
        several = len(set(fenced)) > 1
        return Scored(0.0, "hedged", "different fenced values: write one") if several else fenced[0]
    start = _first_bracket(text, 0)
    end = max(text.rfind("}"), text.rfind("]"))
    return None if start < 0 else text[start : end + 1 if end > start else None]


def _fenced(text: str) -> list[str]:
    """Return what the closed fences marked `json` hold, or else the unmarked ones that hold JSON."""
    marked: list[str] = []
    plain: list[str] = []
    opened, word, start = "", "", 0
    for fence in _FENCE.finditer(text):
        info = fence[2].strip().lower()
        if not opened:
            if "`" not in info:  # code within a line of prose
                opened, word, start = fence[1], info.partition(" ")[0], fence.end()
        elif not info and fence[1].startswith(opened):
            held = text[start : fence.start()].strip()
            if word == "json":
                marked.append(held)
            elif not word and held.startswith(("{", "[")):
                plain.append(held)
            opened = ""
    return marked or plain


def _first_bracket(text: str, at: int) -> int:
    """Return where the first opening bracket stands, -1 if there is none."""
    places = [place for place in (text.find("{", at), text.find("[", at)) if place >= 0]
    return min(places, default=-1)
