"""IFBench's kinds that count: `count:` and `ratio:`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from steelyard.rewards.instructions.kind import Kind, kind, percentage, positive, text, verbatim, whole
from steelyard.rewards.instructions.lists import NAMES, PRONOUNS, STOP_WORDS
from steelyard.rewards.instructions.reading import EDGES, bare, count_words, sentences

_CONJUNCTIONS: Final = frozenset(("and", "but", "for", "nor", "or", "so", "yet"))
_PRONOUNS: Final = frozenset(PRONOUNS.split())
_NAMES: Final = NAMES.split()
_STOP_WORDS: Final = frozenset(STOP_WORDS.split())
_DIGITS: Final = re.compile(r"\d+")
_WORD: Final = re.compile(r"\w+")
_JAPANESE: Final = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]")
_TIMES: Final = (1, 2, 3, 5, 7)
_MARKS: Final = frozenset(".,!?;:")


def _between(said: str, least: int, most: int) -> bool:
    return least <= count_words(said) <= most


def _unique_words(said: str, number: int) -> bool:
    return len({word.strip(EDGES) for word in said.lower().split()}) >= number


def _conjunctions(said: str, number: int) -> bool:
    used = {word for word in said.split() if word.strip(EDGES).lower() in _CONJUNCTIONS}
    return len(used) >= number


def _names(said: str, number: int) -> bool:
    return sum(name in said for name in _NAMES) >= number


def _numbers(said: str, number: int) -> bool:
    return len(_DIGITS.findall(bare(said))) == number


def _pronouns(said: str, number: int) -> bool:
    words = bare(said.replace("/", " ").lower()).split()
    return sum(word in _PRONOUNS for word in words) >= number


def _punctuation(said: str) -> bool:
    if not any(mark in said for mark in ("!?", "?!", "‽")):
        return False
    spent = "?!" if "?!" in said else "!?"
    return set(said.replace(spent, "", 1)) >= _MARKS


def _japanese(said: str, every: int) -> bool:
    chosen = (word.strip(EDGES) for word in said.split()[every - 1 :: every])
    return all(_JAPANESE.search(word) for word in chosen if word and not word.isdigit())


def _keywords(said: str, *keywords: str) -> bool:
    said = said.lower()
    return all(said.count(word.lower()) == times for word, times in zip(keywords, _TIMES, strict=True))


def _stop_words(said: str, most: float) -> bool:
    words = _WORD.findall(said)
    return bool(words) and sum(word.lower() in _STOP_WORDS for word in words) / len(words) * 100 <= most


def _overlap(said: str, reference: str, share: float) -> bool:
    ours, theirs = _trigrams(said), _trigrams(reference)
    return bool(ours) and share - 2 <= len(ours & theirs) / len(ours) * 100 <= share + 2


def _trigrams(said: str) -> set[str]:
    return {said[at : at + 3] for at in range(len(said) - 2)}


def _ends(said: str) -> tuple[int, int, int]:
    """How many sentences end in `.`, `?` and `!`."""
    last = [one[-1:] for one in sentences(said)]
    return last.count("."), last.count("?"), last.count("!")


def _two_to_one(said: str) -> bool:
    stated, asked, _ = _ends(said)
    return stated == 2 * asked


def _balanced(said: str) -> bool:
    return len(set(_ends(said))) == 1


def _equally_long(said: str) -> bool:
    lengths = [len(one) for one in sentences(said)]
    return len(lengths) == 3 and len(set(lengths)) == 1


KINDS: Final[Mapping[str, Kind]] = {
    "count:word_count_range": kind(_between, min_words=whole, max_words=whole),
    "count:unique_word_count": kind(_unique_words, N=whole),
    "count:conjunctions": kind(_conjunctions, small_n=whole),
    "count:person_names": kind(_names, N=whole),
    "count:numbers": kind(_numbers, N=whole),
    "count:pronouns": kind(_pronouns, N=whole),
    "count:punctuation": kind(_punctuation),
    "count:words_japanese": kind(_japanese, N=positive),
    "count:keywords_multiple": kind(
        _keywords, keyword1=text, keyword2=text, keyword3=text, keyword4=text, keyword5=text
    ),
    "ratio:stop_words": kind(_stop_words, percentage=percentage),
    "ratio:overlap": kind(_overlap, reference_text=verbatim, percentage=percentage),
    "ratio:sentence_type": kind(_two_to_one),
    "ratio:sentence_balance": kind(_balanced),
    "ratio:sentence_words": kind(_equally_long),
}
