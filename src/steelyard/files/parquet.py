"""Parquet: rows as lines of JSON on the way in, columns of fixed types on the way out.

A row that is read becomes one line of JSON and goes the way of every other line: the same faults, the
same groups, the same record. JSON has fewer words than Parquet, so

- NaN and the infinities become null, as null does;
- dates, times, durations and decimals become text, exactly (a zoned time is told in UTC), and a
  number of 32 bits the shortest one that is read back as it;
- a field that is null inside a struct is left out: Parquet gives every struct the fields of all
  (`tool_calls` to each message, every path to each `files`), and has no word for absent. A column that
  is null, and a null in a list, stay null;
- a map is an object where its keys are text, else a list of pairs;
- bytes become `{"base64": ...}`, which nothing takes for text.

What is written has the same columns and types whatever the rows hold. pyarrow (the extra `parquet`)
does the reading and the writing, and is imported by the first file that is Parquet. Not read: Parquet
through a pipe or inside gzip (its index is its end), encrypted files, folders of parts.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypeAlias

import orjson

from steelyard.errors import RefusedError, describe, printable
from steelyard.rollout import canonical_json

MAGIC = b"PAR1"
Columns: TypeAlias = "Mapping[str, type | Columns]"
"""The columns of a table by name: `int`, `float`, `bool` or `str`, or the fields of a struct."""

_ROWS = 1_024  # turned into JSON, or into columns, at once
_READ_BYTES = 32 << 20  # of rows at once, as their own index says, where rows are large
_GROUP_ROWS, _GROUP_BYTES = 1 << 17, 64 << 20  # a row group of what is written


def arrow(where: str) -> tuple[Any, Any]:
    """Import pyarrow and its Parquet, or refuse with what to install.

    Parameters
    ----------
    where
        The file for which they are needed.
    """
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise RefusedError(
            f"Parquet is read and written by pyarrow, which cannot be imported ({error})",
            where=where,
            remedy="pip install 'steelyard[parquet]'",
        ) from error


# Reading


def parquet_lines(path: Path) -> Iterator[bytes]:
    """Every row of a Parquet file as a line of JSON; a few rows are held at once.

    Raises
    ------
    RefusedError
        If pyarrow is not installed, the file is not whole, two columns have one name, or a value has
        no JSON; rows read before are then worth nothing.
    """
    pa, pq = arrow(str(path))
    try:
        # without pre_buffer, and with a buffer, columns are streamed: a row group may be the whole file
        streamed = {"pre_buffer": False, "buffer_size": 1 << 20}
        with pq.ParquetFile(str(path), **streamed, page_checksum_verification=True) as table:
            _refuse_doubled(table.schema_arrow.names, path)
            done = 0
            for batch in table.iter_batches(batch_size=_batch_rows(table.metadata), use_threads=False):
                yield from _lines(pa, batch, path, done)
                done += batch.num_rows
    except (pa.ArrowException, OSError, ValueError) as error:
        raise RefusedError(
            f"not a whole Parquet file ({describe(error)})",
            where=str(path),
            remedy="its writer was cut, or the copy was: write or copy it again",
        ) from error


def _refuse_doubled(names: Sequence[str], path: Path) -> None:
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise RefusedError(
            f"more than one column is called {doubled[0]!r}",
            where=str(path),
            remedy="give each column a name of its own",
        )


def _batch_rows(metadata: Any) -> int:  # noqa: ANN401 - pyarrow has no types
    size: int = sum(metadata.row_group(at).total_byte_size for at in range(metadata.num_row_groups))
    rows: int = metadata.num_rows
    return max(1, min(_ROWS, _READ_BYTES * rows // max(size, 1)))


def _lines(pa: Any, batch: Any, path: Path, done: int) -> Iterator[bytes]:  # noqa: ANN401
    names = batch.schema.names
    columns = []
    for name, column in zip(names, batch.columns, strict=True):
        try:
            columns.append(_values(pa, column))
        except (pa.ArrowException, ValueError) as error:
            raise RefusedError(
                f"column {name!r}: the value ({column.type}) has no JSON ({describe(error)})",
                where=f"{path}:{done + _first_bad(pa, column) + 1}",
                remedy="write the column as UTF-8 text or as numbers, or leave it out",
            ) from error
    for row in zip(*columns, strict=True):
        yield orjson.dumps(
            dict(zip(names, row, strict=True)), default=_no_json, option=orjson.OPT_APPEND_NEWLINE
        )


def _first_bad(pa: Any, column: Any) -> int:  # noqa: ANN401
    for row in range(len(column)):
        try:
            _values(pa, column.slice(row, 1))
        except (pa.ArrowException, ValueError):
            return row
    return 0


def _no_json(value: object) -> object:
    return {"base64": b64encode(value).decode()} if isinstance(value, bytes) else str(value)


def _values(pa: Any, column: Any) -> list[Any]:  # noqa: ANN401
    kind = column.type
    for target in (_json_type(pa, kind, last=False), _json_type(pa, kind, last=True)):
        if target != column.type:
            column = column.cast(target)
    mend = _mending(pa, column.type)
    values: list[Any] = column.to_pylist()
    return values if mend is None else [mend(value) for value in values]


def _json_type(pa: Any, kind: Any, *, last: bool) -> Any:  # noqa: ANN401, PLR0911
    """Arrow's type for what JSON can say, reached in two casts: a narrow float by way of text."""
    types = pa.types

    def inner(field: Any) -> Any:  # noqa: ANN401
        return field.with_type(_json_type(pa, field.type, last=last))

    if types.is_struct(kind):
        return pa.struct([inner(kind.field(at)) for at in range(kind.num_fields)])
    if types.is_map(kind):
        return pa.map_(_json_type(pa, kind.key_type, last=last), inner(kind.item_field))
    if types.is_fixed_size_list(kind):
        return pa.list_(inner(kind.value_field), kind.list_size)
    if types.is_list(kind):
        return pa.list_(inner(kind.value_field))
    if types.is_large_list(kind):
        return pa.large_list(inner(kind.value_field))
    if types.is_dictionary(kind):  # also the quicker way to its values
        return _json_type(pa, kind.value_type, last=last)
    if types.is_float16(kind) or types.is_float32(kind):
        return pa.float64() if last else pa.string()
    if types.is_timestamp(kind) and kind.tz is not None and not last:
        return pa.timestamp(kind.unit, "UTC")
    return pa.string() if types.is_temporal(kind) or types.is_decimal(kind) else kind


def _mending(pa: Any, kind: Any) -> Callable[[Any], Any] | None:  # noqa: ANN401
    """What leaves the null fields of structs out and makes objects of maps; `None` if there are none."""
    types = pa.types
    if types.is_struct(kind):
        fields = {field.name: _mending(pa, field.type) for field in kind}
        return lambda value: None if value is None else _object(value, fields)
    if types.is_map(kind):
        item = _mending(pa, kind.item_type)
        named = types.is_string(kind.key_type) or types.is_large_string(kind.key_type)
        return lambda value: None if value is None else _map(value, item, named=named)
    if not (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)):
        return None
    inner = _mending(pa, kind.value_type)
    if inner is None:
        return None
    return lambda value: None if value is None else [inner(one) for one in value]


def _object(value: Mapping[str, Any], fields: Mapping[str, Callable[[Any], Any] | None]) -> dict[str, Any]:
    return {
        name: one if (mend := fields[name]) is None else mend(one)
        for name, one in value.items()
        if one is not None
    }


def _map(pairs: Sequence[tuple[Any, Any]], item: Callable[[Any], Any] | None, *, named: bool) -> object:
    mended = pairs if item is None else [(key, item(value)) for key, value in pairs]
    return dict(mended) if named else mended


# Writing


def write_parquet(file: IO[bytes], rows: Iterable[Mapping[str, Any]], columns: Columns) -> None:
    """Write rows as Parquet, a row group at a time.

    Parameters
    ----------
    file
        Open for writing, and left open.
    rows
        Every row has every column. In a `str` column, what is no text stands as its JSON text.
    columns
        The columns and their types.
    """
    pa, pq = arrow(getattr(file, "name", "Parquet"))
    schema = pa.schema(_fields(pa, columns))
    rows, some, size = iter(rows), [], 0
    with pq.ParquetWriter(file, schema, write_page_checksum=True) as writer:
        while batch := list(islice(rows, _ROWS)):
            arrays = [_array(pa, [row[kind.name] for row in batch], kind.type) for kind in schema]
            some.append(pa.record_batch(arrays, schema=schema))
            size += some[-1].nbytes
            if len(some) * _ROWS >= _GROUP_ROWS or size >= _GROUP_BYTES:
                writer.write_table(pa.Table.from_batches(some))
                some, size = [], 0
        if some:
            writer.write_table(pa.Table.from_batches(some))


def _fields(pa: Any, columns: Columns) -> list[Any]:  # noqa: ANN401
    plain = {int: pa.int64(), float: pa.float64(), bool: pa.bool_(), str: pa.string()}
    return [
        pa.field(name, plain[kind] if isinstance(kind, type) else pa.struct(_fields(pa, kind)))
        for name, kind in columns.items()
    ]


def _array(pa: Any, values: list[Any], kind: Any) -> Any:  # noqa: ANN401
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError):
        return pa.array([_fit(pa, value, kind) for value in values], kind)


def _fit(pa: Any, value: Any, kind: Any) -> Any:  # noqa: ANN401
    """Make a value fit: a long integer rounded, other things as text, a lone surrogate spelled out."""
    if pa.types.is_floating(kind) and value is not None:
        return float(value)
    if pa.types.is_struct(kind) and value is not None:
        return {field.name: _fit(pa, value.get(field.name), field.type) for field in kind}
    if not pa.types.is_string(kind) or value is None:
        return value
    return printable(value if isinstance(value, str) else canonical_json(value).decode())
