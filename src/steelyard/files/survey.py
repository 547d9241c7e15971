"""Look at a whole file before anything is judged: its faults, its groups, its digest.

One pass, and a few bytes a row are kept: where the line stands, and which group it belongs to. Rows
group by the `group` column, or else by prompt, training step (a column `step`, if there is one) and
every column that the recipe reads.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b, sha256
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

from steelyard.files.source import LineSource
from steelyard.rollout import (
    Group,
    canonical_json,
    final_text,
    follow,
    from_record,
    parse_json,
    paths_among,
)

_SHOWN = 20  # faults kept with their place; the rest is counted
_TOLD = 10_000  # lines between two words about how far it is
_ARRAY = "for one JSON array: jq -c '.[]' FILE"
_UNEQUAL = "unequal columns in a group"
_SHARED = "rows of one group share the columns that the recipe reads"
_UTF8_BOM = b"\xef\xbb\xbf"


class Fault(NamedTuple):
    """One thing that is wrong with one row."""

    kind: str
    line: int
    column: str
    value: str
    remedy: str

    def __str__(self) -> str:
        place = f"column {self.column!r}: " if self.column else ""
        return f"{place}{self.value} ({self.remedy})" if self.remedy else f"{place}{self.value}"


class Asked(Protocol):
    """What a survey needs to know of a recipe."""

    @property
    def needed(self) -> Sequence[str]:
        """Columns without which a row cannot be judged."""

    @property
    def read(self) -> Sequence[str]:
        """Columns that any part reads."""

    @property
    def counts(self) -> bool:
        """Whether it reads what differs within a group: how long a completion is, by the row's own count."""

    def lint(self, columns: Mapping[str, Any]) -> tuple[str, str] | None:
        """(column, what is wrong with it), or `None`."""


@dataclass(slots=True)
class Survey:
    """What one pass over a file found.

    Parameters
    ----------
    name
        The word for the file in messages.
    names
        Our column names to the file's, where they differ.
    digest
        SHA-256 of every byte, in hex.
    places, lines
        Where each rollout's line stands, and its number from 1.
    lengths
        Characters of the text that is judged.
    members, starts
        Rollouts' ordinals, group after group; group `g` owns `members[starts[g]:starts[g + 1]]`.
    group_ids
        The id of each group: its column's value, or its first row's id.
    faults, fault_counts
        The first faults with their places, and the number of each kind.
    fields
        Every field that any row has, and every path in use that leads to a value.
    id_types
        Of the rollouts' ids: `int`, `str` or both.
    skipped
        Lines that are no rollout.
    """

    name: str
    names: Mapping[str, str]
    digest: str = ""
    places: array[int] = field(default_factory=lambda: array("Q"))
    lines: array[int] = field(default_factory=lambda: array("I"))
    members: array[int] = field(default_factory=lambda: array("I"))
    starts: array[int] = field(default_factory=lambda: array("I", [0]))
    lengths: array[int] = field(default_factory=lambda: array("I"))
    group_ids: list[str | int] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    fault_counts: Counter[str] = field(default_factory=Counter)
    fields: set[str] = field(default_factory=set)
    id_types: set[type] = field(default_factory=set)
    skipped: int = 0

    @property
    def rollouts(self) -> int:
        """How many rows are rollouts."""
        return len(self.places)

    def sizes(self) -> Counter[int]:
        """How many groups there are of each size."""
        return Counter(b - a for a, b in pairwise(self.starts))

    def note(self, fault: Fault) -> None:
        """Keep a fault, or only count it if many are known already."""
        self.fault_counts[fault.kind] += 1
        if len(self.faults) < _SHOWN:
            self.faults.append(fault)


def survey(
    source: LineSource,
    asked: Asked,
    names: Mapping[str, str],
    progress: Callable[[int], None] = lambda _lines: None,
    *,
    keep: Sequence[str] = (),
) -> Survey:
    """Read a file whole: all its faults, its groups and its digest.

    Parameters
    ----------
    source
        The lines.
    asked
        The columns that the recipe needs, and its lint.
    names
        Our column names to the file's, where they differ.
    progress
        Told how many lines were read, now and then.
    keep
        Fields that are wanted beside those: paths among them are followed too.
    """
    paths = paths_among((*names.values(), *keep))
    found = _Surveyor(source, asked, names, paths, frozenset()).run(progress)
    doubled = found.doubled()
    if doubled:
        faults = _duplicates(source, doubled, found.field("id"), found.report.lines)
        drop = frozenset(fault.line for fault in faults)
        found = _Surveyor(source, asked, names, paths, drop).run(progress)
        for fault in faults:
            found.report.note(fault)
        found.report.skipped += len(faults)
    return found.report


def groups(source: LineSource, report: Survey) -> Iterator[Group]:
    """Read the groups of a surveyed file, each complete, in the order of their first rows."""
    names, name = report.names, report.name
    members, starts, places, lines = report.members, report.starts, report.places, report.lines
    start = starts[0]
    for ordinal, group_id in enumerate(report.group_ids):
        end = starts[ordinal + 1]
        rollouts = []
        for index in range(end - start):
            row = members[start + index]
            raw = source.at(places[row]).rstrip(b"\r\n").removeprefix(_UTF8_BOM)
            line = lines[row]
            rollouts.append(
                from_record(
                    parse_json(raw),
                    names,
                    key=(ordinal, index),
                    ordinal=row,
                    line=line,
                    where=f"{name}:{line}",
                    raw=raw,
                )
            )
        start = end
        yield Group(group_id, ordinal, rollouts)


class _Surveyor:
    """The pass itself: state that would otherwise be a dozen local variables."""

    def __init__(
        self,
        source: LineSource,
        asked: Asked,
        names: Mapping[str, str],
        paths: Sequence[str],
        drop: frozenset[int],
    ) -> None:
        self.report = Survey(source.name, names)
        self._source = source
        self._asked = asked
        self._names = names
        self._paths = paths
        self._drop = drop
        self._id, self._group, self._prompt, self._completion, self._step = map(
            self.field, ("id", "group", "prompt", "completion", "step")
        )
        self._read = [self.field(column) for column in asked.read]
        self._needed = [(column, self.field(column)) for column in asked.needed]
        self._group_of = array("I")
        self._ordinals: dict[object, int] = {}
        self._columns_of: list[bytes] = []  # of each group with a `group` column: digest of what is read
        self._id_hashes = [array("q") for _ in range(16)]  # sorted bucket by bucket: 16 small sorts
        self._last: tuple[Any, ...] = ()
        self._last_types: list[type] = []
        self._last_is_text = False
        self._shape: tuple[str, ...] = ()
        self._last_group = -1
        self._unequal: list[tuple[int, int, dict[str, Any]]] = []  # of faults that are shown
        self._noted = 0  # the line whose columns were looked at last

    def field(self, name: str) -> str:
        """The file's word for a column."""
        return self._names.get(name, name)

    def run(self, progress: Callable[[int], None]) -> _Surveyor:
        """Read every line."""
        hasher = sha256()  # the quicker where the processor has SHA instructions: bench/choices.py
        for number, (place, line) in enumerate(self._source.lines(), start=1):
            hasher.update(line)
            if number not in self._drop:
                self._line(number, place, line)
            if number % _TOLD == 0:
                progress(number)
        self.report.digest = hasher.hexdigest()
        self._tell_unequal()
        self._gather()
        return self

    def _line(self, number: int, place: int, line: bytes) -> None:
        if number == 1:
            line = line.removeprefix(_UTF8_BOM)
        try:
            record = parse_json(line)
        except ValueError as error:
            if line.strip():
                self._bad_line(number, line, error)
            return
        report = self.report
        if type(record) is not dict:
            remedy = _ARRAY if type(record) is list else "a row is an object: {...}"
            self._skip(Fault("not an object", number, "", _short(record), remedy))
            return
        follow(record, self._paths)
        shape = tuple(record)
        if shape != self._shape:
            report.fields.update(shape)
            self._shape = shape
        get: Callable[[str], Any] = record.get
        name, group, prompt, completion = (
            get(self._id),
            get(self._group),
            get(self._prompt),
            get(self._completion),
        )
        plain = type(completion) is type(prompt) is str
        usual = name is None or (type(name) is str and name.isascii())
        if not plain or not usual or not (group is None or type(group) is str):
            fault = self._row_fault(number, record)
            if fault is not None:
                self._skip(fault)
                return
        name = number if name is None else name
        seen = (group, prompt, get(self._step), *[get(c) for c in self._read])
        ordinal = self._group_ordinal(number, record, name, seen)
        if ordinal is None:
            report.skipped += 1
            return
        if self._asked.counts and number != self._noted:
            self._note_columns(number, record)
        report.places.append(place)
        report.lines.append(number)
        report.id_types.add(type(name))
        report.lengths.append(len(completion) if plain else len(final_text(completion)))
        self._group_of.append(ordinal)
        hashed = hash(name)
        self._id_hashes[hashed & 15].append(hashed)

    def _skip(self, fault: Fault) -> None:
        self.report.note(fault)
        self.report.skipped += 1

    def _bad_line(self, number: int, line: bytes, error: ValueError) -> None:
        kind = "broken JSON"
        why, remedy = f"not JSON ({error}): {_short(line)}", "mend or remove the line"
        if number == 1 and line.startswith((b"\x1f\x8b", b"PAR1")):
            gz = line.startswith(b"\x1f")
            why = f"this is {'gzip' if gz else 'Parquet'}, not JSON Lines"
            remedy = (
                "pipe it through zcat, or let its name end in .gz" if gz else "name the file itself as FILE"
            )
        elif isinstance(error, UnicodeDecodeError):
            why, remedy = f"not UTF-8 ({error.reason} at byte {error.start})", "write the file as UTF-8"
        elif number == 1 and line.lstrip().startswith(b"["):
            why, remedy = f"not one JSON value: {_short(line)}", _ARRAY
        elif not line.endswith(b"\n"):  # only the last line can lack its end
            kind, remedy = "torn last line", "its writer was cut: complete or remove the line"
        self._skip(Fault(kind, number, "", why, remedy))

    def _row_fault(self, number: int, record: dict[str, Any]) -> Fault | None:
        """Say why a row is no rollout."""
        completion = record.get(self._completion)
        if type(completion) is not str and not _is_conversation(completion):
            return _text_fault(number, self._completion, record)
        prompt = record.get(self._prompt)
        grouped = prompt is None and record.get(self._group) is not None
        if type(prompt) is not str and not grouped and not _is_conversation(prompt):
            return _text_fault(number, self._prompt, record)
        for column in (self._id, self._group):
            name = record.get(column)
            if name is not None and type(name) is not str and not (type(name) is int and abs(name) < 2**63):
                return Fault("wrong type", number, column, _short(name), "a string or a 64-bit integer")
        name = record.get(self._id)
        if type(name) is str and not _has_utf8(name):
            return Fault("wrong type", number, self._id, _short(name), "text that UTF-8 can hold")
        return None

    def _group_ordinal(
        self, number: int, record: dict[str, Any], name: str | int, seen: tuple[Any, ...]
    ) -> int | None:
        """Find the row's group, or make it; a row whose columns are bad is noted, once a group.

        `seen` is the row's group, its prompt, its step, and the columns that the recipe reads.
        """
        # rows of a group mostly stand together; 1, 1.0 and True are equal in Python, and three answers
        if seen == self._last and (self._last_is_text or list(map(type, seen)) == self._last_types):
            return self._last_group
        given = seen[0]
        digest = blake2b(canonical_json(seen[1:] if given is None else seen[3:]), digest_size=16).digest()
        key: object = digest if given is None else (type(given), given)
        ordinal = self._ordinals.get(key)
        if ordinal is None:
            ordinal = len(self._ordinals)
            self._ordinals[key] = ordinal
            self.report.group_ids.append(name if given is None else given)
            self._columns_of.append(b"" if given is None else digest)
            self._note_columns(number, record)
        elif given is not None and self._columns_of[ordinal] != digest:
            if len(self.report.faults) < _SHOWN:
                self._unequal.append((len(self.report.faults), ordinal, record))
            self.report.note(Fault(_UNEQUAL, number, "", f"differs in group {given!r}", _SHARED))
            return None
        # inside a list or an object they would pass for one another: no shortcut there
        self._last = () if any(isinstance(value, list | dict) for value in seen) else seen
        self._last_types, self._last_group = list(map(type, seen)), ordinal
        self._last_is_text = all(value is None or type(value) is str for value in seen)
        return ordinal

    def _tell_unequal(self) -> None:
        """Say which column differs from that of a group's first row; lines can be found again by now."""
        report = self.report
        for place, ordinal, record in self._unequal:
            first = self._group_of.index(ordinal)
            other = parse_json(self._source.at(report.places[first]).removeprefix(_UTF8_BOM))
            follow(other, self._paths)
            column = next(
                one for one in self._read if canonical_json(record.get(one)) != canonical_json(other.get(one))
            )
            report.faults[place] = report.faults[place]._replace(
                column=column,
                value=f"{_short(record.get(column))} differs from {_short(other.get(column))} in line "
                f"{report.lines[first]}, the first row of group {report.group_ids[ordinal]!r}",
            )

    def _note_columns(self, number: int, record: dict[str, Any]) -> None:
        self._noted = number
        for column, its_field in self._needed:
            if record.get(its_field) is None:
                value = "null" if its_field in record else "missing"
                self.report.note(
                    Fault("missing column", number, its_field, value, f"every row needs {column!r}")
                )
                return
        columns = {**record, **{name: record.get(its_field) for name, its_field in self._names.items()}}
        wrong = self._asked.lint(columns)
        if wrong is not None:
            column, why = wrong
            # the rule names the column by our word, the message by the file's
            why = why.removeprefix(f"column {column!r} ")
            self.report.note(Fault("bad column", number, self.field(column), why, ""))

    def _gather(self) -> None:
        """Sort rows by group: count, then place (both linear)."""
        report = self.report
        sizes = array("I", bytes(4 * (len(self._ordinals) + 1)))
        for group in self._group_of:
            sizes[group + 1] += 1
        for group in range(1, len(sizes)):
            sizes[group] += sizes[group - 1]
        report.starts = array("I", sizes)
        report.members = array("I", bytes(4 * len(self._group_of)))
        for row, group in enumerate(self._group_of):
            report.members[sizes[group]] = row
            sizes[group] += 1

    def doubled(self) -> set[int]:
        """Hashes of ids that may stand in more than one row."""
        found: set[int] = set()
        for bucket in self._id_hashes:
            hashes = sorted(bucket)
            found.update(a for a, b in pairwise(hashes) if a == b)
        return found


def _duplicates(source: LineSource, doubled: set[int], id_field: str, accepted: Sequence[int]) -> list[Fault]:
    """Every rollout whose id an earlier rollout has; `accepted` are the lines that are rollouts."""
    first: dict[tuple[type, object], int] = {}
    faults = []
    rollouts = iter(accepted)
    due = next(rollouts, None)
    for number, (_, line) in enumerate(source.lines(), start=1):
        if number != due:
            continue
        due = next(rollouts, None)
        record = parse_json(line.removeprefix(_UTF8_BOM))
        follow(record, paths_among((id_field,)))
        name = record.get(id_field)
        name = number if name is None else name
        if hash(name) not in doubled:
            continue
        earlier = first.setdefault((type(name), name), number)
        if earlier != number:
            remedy = f"the id stands in line {earlier} already: ids name rollouts, make them different"
            faults.append(Fault("duplicate id", number, id_field, _short(name), remedy))
    return faults


def _text_fault(number: int, column: str, record: dict[str, Any]) -> Fault:
    if column not in record:
        there = ", ".join(sorted(record)[:12])
        remedy = f"the row has {there}; --column {column}=FIELD says which field it is"
        return Fault("missing column", number, column, "missing", remedy)
    value = record[column]
    several = column != "prompt" and isinstance(value, list) and value and isinstance(value[0], str | list)
    remedy = "a row for each completion: this one holds several" if several else "text, or a list of messages"
    return Fault("wrong type", number, column, _short(value), remedy)


def _is_conversation(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(m, dict) and isinstance(m.get("role"), str) for m in value
    )


def _has_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate, which SQLite cannot hold
        return False
    return True


def _short(value: object) -> str:
    text = value.decode("utf-8", "replace").strip() if isinstance(value, bytes) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
