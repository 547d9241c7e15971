"""IFBench's kinds about words and sentences: `words:` and `sentence:`."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from steelyard.rewards.instructions.kind import Kind, kind, positive, verbatim, whole
from steelyard.rewards.instructions.reading import EDGES, bare, sentences

_CONSONANTS: Final = frozenset("bcdfghjklmnpqrstvwxyz")
_VOWELS: Final = frozenset("aeiou")
_PRIMES: Final = frozenset(
    (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97)
)


def _alphabet(said: str) -> bool:
    words = bare(said).split()
    start = string.ascii_lowercase.find(words[0][0].lower()) if words else -1
    return start >= 0 and all(
        word.lower()[0] == string.ascii_lowercase[(start + place) % 26] for place, word in enumerate(words)
    )


def _three_vowels(said: str) -> bool:
    said = said.strip()
    return "\n" not in said and len(_VOWELS & set(said.lower())) <= 3


def _clusters(said: str) -> bool:
    return all(
        any(first in _CONSONANTS and second in _CONSONANTS for first, second in pairwise(word))
        for word in said.lower().split()
    )


def _palindromes(said: str) -> bool:
    return sum(len(word) >= 5 and word == word[::-1] for word in bare(said).lower().split()) >= 10


def _prime_lengths(said: str) -> bool:
    return all(len(word) in _PRIMES for word in bare(said).split())


def _seldom_repeated(said: str, most: int) -> bool:
    return max(Counter(bare(said.lower()).split()).values(), default=0) <= most


def _last_is_next(said: str) -> bool:
    for one, following in pairwise(sentences(said)):
        last, first = one.rstrip(EDGES).split(), following.lstrip(EDGES).split()
        if not last or not first or last[-1].lower() != first[0].lower():
            return False
    return True


def _first_is_last(said: str) -> bool:
    for line in filter(None, map(str.strip, said.lower().split("\n"))):
        words = line.strip(EDGES).split()
        if not words or words[0] != words[-1]:
            return False
    return True


def _no_alliteration(said: str) -> bool:
    return all(one[0] != following[0] for one, following in pairwise(bare(said.lower()).split()))


def _nth_has(said: str, word: str, nth: int) -> bool:
    found = sentences(said)
    return len(found) >= nth and word.lower() in found[nth - 1].lower()


def _increasing(said: str, step: int) -> bool:
    counts = [len(bare(one).split()) for one in sentences(said)]
    return all(following == one + step for one, following in pairwise(counts))


def _alliterations_grow(said: str) -> bool:
    before = -1
    for one in sentences(said):
        letters = [word[0] for word in (word.lstrip(EDGES) for word in one.lower().split()) if word]
        if (now := _alliterating(letters)) <= before:
            return False
        before = now
    return True


def _alliterating(letters: Sequence[str]) -> int:
    """How many words share their first letter with a neighbour; two runs that touch count twice there."""
    total, running = 0, False
    for one, following in pairwise(letters):
        same = one == following
        total += (1 if running else 2) if same else 0
        running = same
    return total


KINDS: Final[Mapping[str, Kind]] = {
    "words:alphabet": kind(_alphabet),
    "words:vowel": kind(_three_vowels),
    "words:consonants": kind(_clusters),
    "words:palindrome": kind(_palindromes),
    "words:prime_lengths": kind(_prime_lengths),
    "words:repeats": kind(_seldom_repeated, small_n=whole),
    "words:last_first": kind(_last_is_next),
    "words:paragraph_last_first": kind(_first_is_last),
    "words:no_consecutive": kind(_no_alliteration),
    "sentence:keyword": kind(_nth_has, word=verbatim, N=positive),
    "sentence:increment": kind(_increasing, small_n=whole),
    "sentence:alliteration_increment": kind(_alliterations_grow),
}
