"""IFEval's own kinds, those that need no package; `packaged` has the other five.

Its checker reads keywords, section names and postscript markers as regular expressions, by which `C++`
fails and `a.b` is found in `axb`; here they are the words that they are. Where it would draw an argument
by lot (none given, a letter that is none), the row is bad, or the character counts as it stands.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from steelyard.rewards.instructions.kind import (
    Kind,
    compared,
    kind,
    letter,
    positive,
    relation,
    text,
    texts,
    whole,
)
from steelyard.rewards.instructions.reading import count_words

# No pattern here can be driven back over what it has read: `\s*` before what is sought is left out or kept
# to its line, where the published pattern crosses lines in quadratic time and counts the same.
_STARRED: Final = re.compile(r"^[^\S\n]*\*[^*].*$", re.MULTILINE)
_DASHED: Final = re.compile(r"^[^\S\n]*-", re.MULTILINE)
_ITALIC: Final = re.compile(r"\*[^\n*]*\*")
_BOLD: Final = re.compile(r"\*\*([^\n*]*)\*\*")
_POSTSCRIPTS: Final = {"P.S.": re.compile(r"p\.\s?s\."), "P.P.S": re.compile(r"p\.\s?p\.\s?s")}
_DIVIDER: Final = re.compile(r"\s?\*\*\*\s?")
_ANSWERS: Final = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
_FENCES: Final = ("```json", "```Json", "```JSON", "```")


@lru_cache(maxsize=1_024)
def _anywhere(word: str) -> re.Pattern[str]:
    return re.compile(re.escape(word), re.IGNORECASE)


@lru_cache(maxsize=1_024)
def _alone(word: str) -> re.Pattern[str]:
    return re.compile(rf"\b{re.escape(word)}\b", re.IGNORECASE)


@lru_cache(maxsize=1_024)
def _numbered(word: str) -> re.Pattern[str]:
    return re.compile(rf"{re.escape(word)}\s?\d+")


def _all_keywords(said: str, keywords: tuple[str, ...]) -> bool:
    return all(_anywhere(word).search(said) for word in keywords)


def _keyword_often(said: str, keyword: str, frequency: int, how: str) -> bool:
    return compared(len(_anywhere(keyword).findall(said)), how, frequency)


def _no_keyword(said: str, forbidden: tuple[str, ...]) -> bool:
    return not any(_alone(word).search(said) for word in forbidden)


def _letter_often(said: str, sought: str, frequency: int, how: str) -> bool:
    return compared(said.lower().count(sought), how, frequency)


def _words(said: str, number: int, how: str) -> bool:
    return compared(count_words(said), how, number)


def _paragraphs(said: str, number: int) -> bool:
    parts = [bool(part.strip()) for part in _DIVIDER.split(said)]
    return all(parts[1:-1]) and sum(parts) == number


def _paragraph_begins(said: str, number: int, nth: int, word: str) -> bool:
    paragraphs = said.split("\n\n")
    count = sum(1 for paragraph in paragraphs if paragraph.strip())
    begins = paragraphs[nth - 1].split(maxsplit=1) if nth <= count else []
    if not begins or count != number:
        return False
    first = re.split(r"[.,?!'\"]", begins[0].lstrip("'").lstrip('"'), maxsplit=1)[0]
    return first.lower() == word.lower()


def _placeholders(said: str, number: int) -> bool:
    count = 0
    for line in said.split("\n"):
        end = 0
        while (start := line.find("[", end)) >= 0 and (end := line.find("]", start) + 1) > 0:
            count += 1
    return count >= number


def _postscript(said: str, marker: str) -> bool:
    said = said.lower()
    known = _POSTSCRIPTS.get(marker)
    return known.search(said) is not None if known else marker.lower() in said


def _bullets(said: str, number: int) -> bool:
    return len(_STARRED.findall(said)) + len(_DASHED.findall(said)) == number


def _constrained(said: str) -> bool:
    return any(answer in said for answer in _ANSWERS)


def _highlights(said: str, number: int) -> bool:
    italic = sum(1 for found in _ITALIC.findall(said) if found.strip("*").strip())
    return italic + sum(1 for found in _BOLD.findall(said) if found.strip()) >= number


def _sections(said: str, name: str, number: int) -> bool:
    return len(_numbered(name).findall(said)) >= number


def _json(said: str) -> bool:
    said = said.strip()
    for fence in _FENCES:
        said = said.removeprefix(fence)
    try:
        json.loads(said.removesuffix("```").strip())
    except (ValueError, RecursionError):  # no JSON, a number of 5,000 digits, 100,000 brackets
        return False
    return True


def _title(said: str) -> bool:
    for line in said.split("\n"):
        start, end = line.find("<<"), line.rfind(">>")
        if 0 <= start < end - 2 and line[start:end].lstrip("<").rstrip(">").strip():
            return True
    return False


def _two_responses(said: str) -> bool:
    parts = [part.strip() for part in said.split("******")]
    given = [part for part in parts if part]
    return all(parts[1:-1]) and len(given) == 2 and given[0] != given[1]


def _repeats_prompt(said: str, prompt: str) -> bool:
    return said.strip().lower().startswith(prompt.lower())


def _ends(said: str, phrase: str) -> bool:
    return said.strip().strip('"').lower().endswith(phrase.lower())


def _quoted(said: str) -> bool:
    said = said.strip()
    return len(said) > 1 and said[0] == said[-1] == '"'


def _no_comma(said: str) -> bool:
    return "," not in said


KINDS: Final[Mapping[str, Kind]] = {
    "keywords:existence": kind(_all_keywords, keywords=texts),
    "keywords:frequency": kind(_keyword_often, keyword=text, frequency=whole, relation=relation),
    "keywords:forbidden_words": kind(_no_keyword, forbidden_words=texts),
    "keywords:letter_frequency": kind(
        _letter_often, letter=letter, let_frequency=whole, let_relation=relation
    ),
    "length_constraints:number_words": kind(_words, num_words=whole, relation=relation),
    "length_constraints:number_paragraphs": kind(_paragraphs, num_paragraphs=whole),
    "length_constraints:nth_paragraph_first_word": kind(
        _paragraph_begins, num_paragraphs=whole, nth_paragraph=positive, first_word=text
    ),
    "detectable_content:number_placeholders": kind(_placeholders, num_placeholders=whole),
    "detectable_content:postscript": kind(_postscript, postscript_marker=text),
    "detectable_format:number_bullet_lists": kind(_bullets, num_bullets=whole),
    "detectable_format:constrained_response": kind(_constrained),
    "detectable_format:number_highlighted_sections": kind(_highlights, num_highlights=whole),
    "detectable_format:multiple_sections": kind(_sections, section_spliter=text, num_sections=whole),
    "detectable_format:json_format": kind(_json),
    "detectable_format:title": kind(_title),
    "combination:two_responses": kind(_two_responses),
    "combination:repeat_prompt": kind(_repeats_prompt, prompt_to_repeat=text),
    "startend:end_checker": kind(_ends, end_phrase=text),
    "startend:quotation": kind(_quoted),
    "punctuation:no_comma": kind(_no_comma),
}
