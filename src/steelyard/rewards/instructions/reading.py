"""How the published checkers cut a text into words and sentences.

What users train against is their reading, odd as it is in places, so it is reproduced, not mended.
"""

from __future__ import annotations

import re
import string
import unicodedata
from typing import Final

EDGES: Final = string.punctuation + " "
"""What is stripped from a word's ends."""

_NO_PUNCTUATION: Final = str.maketrans("", "", string.punctuation)
_WORD: Final = re.compile(r"\w+")

# Private-use characters stand where the published code writes `<prd>` and `<stop>`: a completion that
# spells those out ends no sentence here.
_DOT, _STOP = "\ue000", "\ue001"
_MARKS: Final = str.maketrans("", "", _DOT + _STOP)
_STARTER = (
    r"((?:Mr|Mrs|Ms|Dr|Prof|Capt|Cpt|Lt|Wherever)|(?:He|She|It|They|Their|Our|We|But|However|That|This)\s)"
)
_DOTS: Final = re.compile(r"\.{2,}")
_BEFORE: Final = (  # dots that end no sentence, first half: dots in a row are read next
    (re.compile(r"(Mr|St|Mrs|Ms|Dr)\."), rf"\1{_DOT}"),
    (re.compile(r"\.(com|net|org|io|gov|edu|me)"), rf"{_DOT}\1"),
    (re.compile(r"([0-9])\.([0-9])"), rf"\1{_DOT}\2"),
)
_AFTER: Final = (
    (re.compile(r"Ph\.D\."), f"Ph{_DOT}D{_DOT}"),
    (re.compile(r"\s([A-Za-z])\. "), rf" \1{_DOT} "),
    (re.compile(rf"([A-Z]\.[A-Z]\.(?:[A-Z]\.)?) {_STARTER}"), rf"\1{_STOP} \2"),
    (re.compile(r"([A-Za-z])\.([A-Za-z])\.([A-Za-z])\."), rf"\1{_DOT}\2{_DOT}\3{_DOT}"),
    (re.compile(r"([A-Za-z])\.([A-Za-z])\."), rf"\1{_DOT}\2{_DOT}"),
    (re.compile(rf" (Inc|Ltd|Jr|Sr|Co)\. {_STARTER}"), rf" \1{_STOP} \2"),
    (re.compile(r" (Inc|Ltd|Jr|Sr|Co)\."), rf" \1{_DOT}"),
    (re.compile(r" ([A-Za-z])\."), rf" \1{_DOT}"),
    (re.compile(r"\.”"), "”."),  # a closing quote stands inside its sentence
    (re.compile(r'\."'), '".'),
    (re.compile(r'!"'), '"!'),
    (re.compile(r'\?"'), '"?'),
    (re.compile(r"([.!?])"), rf"\1{_STOP}"),
)


def bare(text: str) -> str:
    """A text without its ASCII punctuation."""
    return text.translate(_NO_PUNCTUATION)


def count_words(text: str) -> int:
    """How many runs of letters, digits and underscores there are."""
    return sum(1 for _ in _WORD.finditer(text))


def sentences(text: str) -> list[str]:
    """Split a text at `.`, `?` and `!` by the rules of the published checkers, which know a few exceptions.

    Examples
    --------
    >>> sentences('Mr. Fox paid $1.50... He said "Fine!" and left.')
    ['Mr. Fox paid $1.50...', 'He said "Fine"!', 'and left.']
    """
    text = f" {text.translate(_MARKS)}  ".replace("\n", " ")
    for pattern, put in _BEFORE:
        text = pattern.sub(put, text)
    text = _DOTS.sub(lambda dots: _DOT * len(dots[0]) + _STOP, text)
    for pattern, put in _AFTER:
        text = pattern.sub(put, text)
    found = [one.strip() for one in text.replace(_DOT, ".").split(_STOP)]
    return found if found[-1] else found[:-1]


def ascii_only(text: str) -> str:
    """A text with its accents dropped, and with them whatever is not ASCII.

    Character by character: on a long run of accents, normalising the whole takes quadratic time.
    """
    if text.isascii():
        return text
    return "".join(map(_ascii, text))


def _ascii(character: str) -> str:
    return unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
