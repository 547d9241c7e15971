"""Rows of Parquet as lines of JSON, and rows written as columns whose types nothing in them changes."""

import io
import json
import sys
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.errors import RefusedError
from steelyard.files import parquet
from steelyard.files.parquet import parquet_lines, write_parquet

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def stored(tmp_path, table, **settings):
    pq.write_table(table, tmp_path / "r.parquet", **settings)
    return tmp_path / "r.parquet"


def rows_of(path):
    return [json.loads(line) for line in parquet_lines(path)]


def column(tmp_path, values, kind=None):
    """One column's values as they are read."""
    array = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values, kind)
    return [row["c"] for row in rows_of(stored(tmp_path, pa.table({"c": array})))]


# --- reading


MOMENT = datetime(2026, 1, 31, 12, 0, 0, 5, UTC)


@pytest.mark.parametrize(
    ("values", "kind", "read"),
    [
        (["a", None, "ü\u2028"], pa.string(), ["a", None, "ü\u2028"]),
        (["a"], pa.large_string(), ["a"]),
        ([True, None], pa.bool_(), [True, None]),
        ([-(2**63), 2**63 - 1], pa.int64(), [-(2**63), 2**63 - 1]),
        ([2**64 - 1], pa.uint64(), [2**64 - 1]),
        ([0.1, 1e300, None], pa.float64(), [0.1, 1e300, None]),
        ([float("nan"), float("inf"), -float("inf")], pa.float64(), [None] * 3),
        ([0.1, 72.0, 1e30, float("nan")], pa.float32(), [0.1, 72.0, 1e30, None]),
        ([[0.1]], pa.list_(pa.float32()), [[0.1]]),
        ([Decimal("1.10"), Decimal("-7.00")], pa.decimal128(38, 2), ["1.10", "-7.00"]),
        ([date(2026, 1, 31)], pa.date32(), ["2026-01-31"]),
        ([time(12, 0, 1)], pa.time32("ms"), ["12:00:01.000"]),
        ([MOMENT], pa.timestamp("us", "Europe/Berlin"), ["2026-01-31 12:00:00.000005Z"]),
        ([MOMENT.replace(tzinfo=None)], pa.timestamp("us"), ["2026-01-31 12:00:00.000005"]),
        ([1_700_000_000_123_456_789], pa.timestamp("ns"), ["2023-11-14 22:13:20.123456789"]),
        ([[1_700_000_000_123_456_789]], pa.list_(pa.timestamp("ns")), [["2023-11-14 22:13:20.123456789"]]),
        ([timedelta(seconds=1)], pa.duration("ns"), ["1000000000"]),
        ([b"\x00\xff", None], pa.binary(), [{"base64": "AP8="}, None]),
        ([b"ab"], pa.binary(2), [{"base64": "YWI="}]),
        ([[b"a"]], pa.list_(pa.large_binary()), [[{"base64": "YQ=="}]]),
        ([[1, None], [], None], pa.list_(pa.int64()), [[1, None], [], None]),
        ([[1, 2]], pa.list_(pa.int32(), 2), [[1, 2]]),
        ([["a"]], pa.large_list(pa.large_string()), [["a"]]),
        ([[("a", 1), ("b", None)], None], pa.map_(pa.string(), pa.int64()), [{"a": 1, "b": None}, None]),
        (
            [[("a", [("b", 1)])]],
            pa.map_(pa.large_string(), pa.map_(pa.string(), pa.int8())),
            [{"a": {"b": 1}}],
        ),
        ([[(1, "x")]], pa.map_(pa.int64(), pa.string()), [[[1, "x"]]]),
        ([None, None], pa.null(), [None, None]),
    ],
    ids=str,
)
def test_every_type_has_its_json(values, kind, read, tmp_path):
    assert column(tmp_path, values, kind) == read


def test_dictionaries_are_read_as_their_values_wherever_they_stand(tmp_path):
    words = pa.array(["a", "b", None, "a"]).dictionary_encode()
    assert column(tmp_path, words) == ["a", "b", None, "a"]
    assert column(tmp_path, pa.ListArray.from_arrays([0, 3, 4], words)) == [["a", "b", None], ["a"]]


def test_a_null_inside_a_struct_is_an_absent_field_and_no_other_null_is(tmp_path):
    told = [
        {"role": "assistant", "content": None, "tool_calls": [{"name": "f", "arguments": None}]},
        {"role": "tool", "content": "4", "tool_calls": None},
    ]
    assert column(tmp_path, [told, None, [None]]) == [
        [{"role": "assistant", "tool_calls": [{"name": "f"}]}, {"role": "tool", "content": "4"}],
        None,
        [None],
    ]
    assert column(tmp_path, [{"a": {"b": None, "c": 1}}, {"a": None}, None]) == [{"a": {"c": 1}}, {}, None]
    nested = pa.map_(pa.string(), pa.struct([("x", pa.int64()), ("y", pa.int64())]))
    told = column(tmp_path, [[("k", {"x": 1, "y": None}), ("l", None)]], nested)
    assert told == [{"k": {"x": 1}, "l": None}]


MESSAGE = pa.struct([("role", pa.string()), ("content", pa.string()), ("name", pa.string())])
SCHEMA = pa.schema([
    ("id", pa.string()), ("step", pa.int64()), ("score", pa.float64()), ("completion", pa.list_(MESSAGE)),
    ("files", pa.struct([("a.py", pa.string()), ("b.py", pa.string())])), ("tags", pa.list_(pa.string())),
])  # fmt: skip
MESSAGES = st.lists(
    st.fixed_dictionaries({"role": st.text()}, optional=dict.fromkeys(("content", "name"), st.text()))
)
ROWS = st.lists(
    st.fixed_dictionaries({
        "id": st.none() | st.text(),
        "step": st.none() | st.integers(-(2**63), 2**63 - 1),
        "score": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "completion": st.none() | MESSAGES,
        "files": st.none() | st.fixed_dictionaries({}, optional=dict.fromkeys(("a.py", "b.py"), st.text())),
        "tags": st.none() | st.lists(st.none() | st.text()),
    }),
    min_size=1,
    max_size=12,
)  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(ROWS, st.integers(1, 5))
def test_rows_come_out_as_they_went_in_whatever_the_row_groups(tmp_path_factory, rows, size):
    path = stored(tmp_path_factory.mktemp("p"), pa.Table.from_pylist(rows, SCHEMA), row_group_size=size)
    assert rows_of(path) == rows


def test_rows_keep_their_order_and_columns_theirs_over_batches_and_row_groups(tmp_path):
    numbers = list(range(5000))
    path = stored(tmp_path, pa.table({"z": numbers, "a": list(map(str, numbers))}), row_group_size=1500)
    assert list(parquet_lines(path)) == [b'{"z":%d,"a":"%d"}\n' % (n, n) for n in numbers]


def test_a_row_group_is_read_without_being_held(tmp_path):
    path = stored(tmp_path, pa.table({"c": [f"{n}" * 600 for n in range(20_000)]}), compression="none")
    before, most = pa.total_allocated_bytes(), 0
    for _ in parquet_lines(path):
        most = max(most, pa.total_allocated_bytes() - before)
    assert 0 < most < path.stat().st_size / 4


def test_large_rows_are_read_a_few_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "_READ_BYTES", 1 << 16)
    path = stored(tmp_path, pa.table({"c": [f"{n:>20000}" for n in range(50)]}), use_dictionary=False)
    with pq.ParquetFile(path) as file:
        assert parquet._batch_rows(file.metadata) == 3
    assert [int(row["c"]) for row in rows_of(path)] == list(range(50))


# --- what cannot be read


def test_a_file_cut_anywhere_is_refused(tmp_path):
    raw = stored(tmp_path, pa.table({"c": [f"row {n}" for n in range(100)]})).read_bytes()
    for end in range(4, len(raw), 37):
        (tmp_path / "cut").write_bytes(raw[:end])
        with pytest.raises(RefusedError, match="not a whole Parquet file") as refused:
            list(parquet_lines(tmp_path / "cut"))
        assert refused.value.where == str(tmp_path / "cut")
        assert "copy it again" in refused.value.remedy


def test_a_file_with_a_spoilt_page_is_refused_where_checksums_tell(tmp_path):
    table = pa.table({"c": [f"row {n * n}" for n in range(3000)]})
    path = stored(tmp_path, table, compression="none", write_page_checksum=True)
    raw = path.read_bytes()
    path.write_bytes(raw[:4000] + b"xx" + raw[4002:])
    with pytest.raises(RefusedError, match="not a whole Parquet file"):
        list(parquet_lines(path))


def test_text_that_is_not_utf_8_is_refused_with_its_row_and_column(tmp_path):
    said = pa.array([b"ok"] * 1500 + [b"\xff"] + [b"ok"] * 20).view(pa.string())
    with pytest.raises(RefusedError, match=r"column 'said'.*utf-8") as refused:
        list(parquet_lines(stored(tmp_path, pa.table({"n": range(1521), "said": said}))))
    assert refused.value.where == f"{tmp_path / 'r.parquet'}:1501"


def test_two_columns_of_one_name_are_refused(tmp_path):
    with pytest.raises(RefusedError, match="more than one column is called 'a'"):
        list(parquet_lines(stored(tmp_path, pa.table([[1], [2], [3]], names=["a", "b", "a"]))))


def test_without_pyarrow_parquet_is_refused_with_what_to_install(tmp_path, monkeypatch):
    path = stored(tmp_path, pa.table({"c": [1]}))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(RefusedError) as refused:
        list(parquet_lines(path))
    assert refused.value.where == str(path)
    assert refused.value.remedy == "pip install 'steelyard[parquet]'"


# --- writing


COLUMNS = {"name": str, "n": int, "x": float, "b": bool, "parts": {"one": {"why": str, "x": float}}}


def written(rows, columns):
    file = io.BytesIO()
    write_parquet(file, rows, columns)
    return pq.read_table(io.BytesIO(file.getvalue()))


def test_columns_have_the_stated_types_whatever_the_rows_hold():
    empty = dict.fromkeys(COLUMNS)
    full = {"name": "a", "n": 1, "x": 0.5, "b": True, "parts": {"one": {"why": "w", "x": 1.0}}}
    schemas = {written(rows, COLUMNS).schema for rows in ([], [empty], [full], [empty, full])}
    assert len(schemas) == 1
    assert written([empty, full], COLUMNS).to_pylist() == [empty, full]


def test_a_text_column_holds_other_things_as_json_and_lone_surrogates_spelled_out():
    values = ["a", None, 7, 0.5, True, {"b": [1]}, "\ud800", 2**80]
    told = written([{"c": value} for value in values], {"c": str})["c"].to_pylist()
    assert told == ["a", None, "7", "0.5", "true", '{"b":[1]}', "\\ud800", str(2**80)]
    inside = written([{"p": {"why": "\udfff"}}, {"p": None}], {"p": {"why": str}})["p"].to_pylist()
    assert inside == [{"why": "\\udfff"}, None]


def test_integers_among_floats_are_floats_rounded_where_they_are_longer():
    assert written([{"c": value} for value in (1, 0.5, None, 2**60 + 1)], {"c": float})["c"].to_pylist() == [
        1.0, 0.5, None, float(2**60),
    ]  # fmt: skip


def test_rows_are_written_in_groups_of_bounded_size_and_in_order(monkeypatch):
    monkeypatch.setattr(parquet, "_GROUP_ROWS", 2048)
    file = io.BytesIO()
    write_parquet(file, ({"n": n} for n in range(5000)), {"n": int})
    assert not file.closed
    with pq.ParquetFile(file) as table:
        sizes = [table.metadata.row_group(at).num_rows for at in range(table.metadata.num_row_groups)]
        assert sizes == [2048, 2048, 904]
        assert table.read()["n"].to_pylist() == list(range(5000))
    monkeypatch.setattr(parquet, "_GROUP_ROWS", 1 << 20)
    monkeypatch.setattr(parquet, "_GROUP_BYTES", 10_000)
    file = io.BytesIO()
    write_parquet(file, ({"n": n} for n in range(5000)), {"n": int})
    with pq.ParquetFile(file) as table:
        assert [table.metadata.row_group(at).num_rows for at in range(3)] == [2048, 2048, 904]
