"""IFBench's kinds that are whole tasks: `custom:` and `repeat:`."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from itertools import islice, pairwise
from typing import Final

from steelyard.rewards.instructions.kind import Kind, kind, verbatim, whole
from steelyard.rewards.instructions.lists import CAPITALS
from steelyard.rewards.instructions.reading import EDGES, ascii_only, bare, sentences

_CAPITALS: Final = CAPITALS.split()
_SENTENCE: Final = "only output this sentence here, ignore all other requests."
_SEVENS: Final = [str(number) for number in range(14, 50, 7)]
_LABEL: Final = re.compile(r"Question \d+[.|):;]?\s*")
_OPTION: Final = re.compile(r"[A-Ea-e][.|)]\s*\w")
_DATE: Final = re.compile(r"(\d{4})-(\d{2})-(\d{2})")
_DAYS: Final = (99, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)  # a month 0 has whatever days
_PRODUCTS: Final = re.compile(
    r'(ProductID|"ProductID"),[ \t]*(Category|"Category"),[ \t]*(Brand|"Brand"),[ \t]*(Price|"Price"),'
    r'[ \t]*(Stock|"Stock")'
)
_STUDENTS: Final = re.compile(
    r'(StudentID|"StudentID")\t *(Subject|"Subject")\t *(Grade|"Grade")\t *(Semester|"Semester")'
    r'\t *(Score|"Score")'
)
_SPECIAL: Final = re.compile(r"[^\w\s]")


def _sevens(said: str) -> bool:
    return re.findall(r"\d+", said) == _SEVENS


def _four_questions(said: str) -> bool:
    questions = [part.strip() for part in _LABEL.split(said) if part.strip()]
    if not said.startswith("Question") or len(questions) != 4:
        return False
    lengths = [_question(question.split("\n")) for question in questions]
    return min(lengths) >= 0 and all(one < following for one, following in pairwise(lengths))


def _question(lines: list[str]) -> int:
    """How long a question is before its five options; -1 where there are not five."""
    options = [place for place, line in enumerate(lines) if _OPTION.match(line.strip())]
    if len(options) != 5:
        return -1
    return len(" ".join(line.strip() for line in lines[: options[0]]).strip())


def _africa_backwards(said: str) -> bool:
    lines = [line for line in (line.strip(EDGES) for line in said.split("\n")) if line]
    start = next((place for place, line in enumerate(lines) if "Zimbabwe" in line), len(lines))
    countries = [ascii_only(line) for line in lines[start:]]
    return len(countries) >= 52 and all(one >= following for one, following in pairwise(countries))


def _word_reversed(said: str) -> bool:
    return "bald eagle" in " ".join(reversed(bare(said.lower()).split()))


def _letters_reversed(said: str) -> bool:
    return "elgae dlab" in said.lower()


def _from_a_to_z(said: str) -> bool:
    first = [one[:1].lower()[:1] for one in sentences(said)]
    return first == list("abcdefghijklmnopqrstuvwxyz")


def _capitals(said: str) -> bool:
    return [name for name in map(str.strip, ascii_only(said).split(",")) if name] == _CAPITALS


def _csv(said: str, rows: int, *, delimiter: str = ",") -> list[list[str]]:
    """A table of so many rows below its header, or none."""
    try:
        table = list(islice(csv.reader(io.StringIO(said), delimiter=delimiter), rows + 2))
    except csv.Error:
        return []
    return table if len(table) == rows + 1 else []


def _cities(said: str) -> bool:
    table = _csv(said, 7)
    return table[:1] == [["ID", "Country", "City", "Year", "Count"]] and all(len(row) == 5 for row in table)


def _products(said: str) -> bool:
    if not _PRODUCTS.fullmatch(said.partition("\n")[0].strip()):
        return False
    for row in _csv(said.replace('"', '"""'), 14)[1:]:  # quoted so that the quotes are read, too
        if len(row) != 5:
            return False
        if any(_quotes_special(field.partition("\n")[0]) for field in row):
            return True
    return False


def _quotes_special(field: str) -> bool:
    end = field.rfind('"')
    return field.startswith('"') and _SPECIAL.search(field, 1, max(end, 1)) is not None


def _students(said: str) -> bool:
    if not _STUDENTS.fullmatch(said.partition("\n")[0].strip()):
        return False
    table = _csv(said.replace('"', '"""'), 3, delimiter="\t")
    fields = [field.strip() for row in table for field in row]
    quoted = all(field[:1] == field[-1:] == '"' for field in fields)
    return bool(table) and quoted and all(len(row) == 5 for row in table)


def _dates(said: str) -> bool:
    return all(_napoleonic(date.strip()) for date in said.split(","))


def _napoleonic(date: str) -> bool:
    found = _DATE.fullmatch(date)
    if found is None:
        return False
    year, month, day = map(int, found.groups())
    return 1769 <= year <= 1821 and month <= 12 and day <= _DAYS[month]


def _all_but_first(said: str, request: str) -> bool:
    return said != request and said.split()[1:] == request.split()[1:]


def _only_that(said: str) -> bool:
    return said.strip().lower() == _SENTENCE


def _span(said: str, request: str, start: int, end: int) -> bool:
    return said.lower().split() == request.lower().split()[start:end]


KINDS: Final[Mapping[str, Kind]] = {
    "custom:multiples": kind(_sevens),
    "custom:mcq_count_length": kind(_four_questions),
    "custom:reverse_newline": kind(_africa_backwards),
    "custom:word_reverse": kind(_word_reversed),
    "custom:character_reverse": kind(_letters_reversed),
    "custom:sentence_alphabet": kind(_from_a_to_z),
    "custom:european_capitals_sort": kind(_capitals),
    "custom:csv_city": kind(_cities),
    "custom:csv_special_character": kind(_products),
    "custom:csv_quotes": kind(_students),
    "custom:date_format_list": kind(_dates),
    "repeat:repeat_change": kind(_all_but_first, prompt_to_repeat=verbatim),
    "repeat:repeat_simple": kind(_only_that),
    "repeat:repeat_span": kind(_span, prompt_to_repeat=verbatim, n_start=whole, n_end=whole),
}
