"""Rollouts in Parquet are judged as the same ones in JSON Lines, and scored rows are the same as either."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from steelyard.errors import RefusedError, RunStoppedError
from steelyard.ledger import Ledger
from steelyard.outcome import Part
from steelyard.rewards import Recipe, find
from steelyard.scoring import Options, score_file

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

GSM8K = Recipe((Part(find("gsm8k")),))
DRIVER = Path(__file__).parent.parent / "path" / "killed_at.py"


def as_parquet(path, rows, **settings):
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows)
    pq.write_table(table, path, **settings)
    return path


def as_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def scored(file, out, recipe=GSM8K, **options):
    """Score a file, and read what came of it."""
    score_file(file, recipe, out, options=Options(**options))
    return rows_of(out)


def rows_of(path):
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    return [json.loads(line) for line in path.read_text().splitlines()]


def timeless(rows):
    return [{name: value for name, value in row.items() if name != "clocks"} for row in rows]


def rollouts(number, groups=6):
    """Rollouts whose groups are scattered over the file, some of them conversations' sort of thing."""
    return [
        {
            "id": f"r{n}",
            "prompt": [{"role": "user", "content": f"question {n % groups}"}],
            "completion": [
                {"role": "assistant", "content": None, "tool_calls": [{"name": "add"}]},
                {"role": "tool", "content": "7", "tool_calls": None},
                {"role": "assistant", "content": f"#### {n % 5}" if n % 7 else "?", "tool_calls": None},
            ],
            "answer": str(n % groups % 5),
            "step": 3,
            "weight": n / 3,
        }
        for n in range(number)
    ]


def refused(file, out, recipe=GSM8K, **options):
    """See that a file is refused and that nothing is left behind."""
    before = sorted(path.name for path in out.parent.iterdir())
    with pytest.raises(RefusedError) as error:
        score_file(file, recipe, out, options=Options(**options))
    assert sorted(path.name for path in out.parent.iterdir()) == before
    return str(error.value)


# --- in


def test_the_same_rollouts_are_judged_alike_in_either_format(tmp_path):
    rows = rollouts(100)
    expected = scored(as_lines(tmp_path / "r.jsonl", rows), tmp_path / "a.jsonl", keep=("step", "weight"))
    file = as_parquet(tmp_path / "r.parquet", rows, row_group_size=9)
    found = scored(file, tmp_path / "b.jsonl", keep=("step", "weight"))
    assert timeless(found) == timeless(expected)
    assert len({row["value"] for row in found}) == 3
    assert [row["id"] for row in found] == [f"r{n}" for n in range(100)]


def test_a_file_that_begins_as_parquet_is_parquet_whatever_its_name(tmp_path):
    for name in ("r.jsonl", "r", "r.gz"):
        assert len(scored(as_parquet(tmp_path / name, rollouts(12)), tmp_path / f"{name}.out")) == 12


def test_a_file_called_parquet_that_is_none_is_refused(tmp_path):
    file = as_lines(tmp_path / "r.parquet", rollouts(3))
    said = refused(file, tmp_path / "o.jsonl")
    assert f"{file}: it is called Parquet, but begins with b'{{\"id'" in said
    file.write_bytes(b"")
    assert "begins with b''" in refused(file, tmp_path / "o.jsonl")
    file.unlink()
    assert "there is no such file" in refused(file, tmp_path / "o.jsonl")


def test_parquet_through_a_pipe_is_called_by_its_name(tmp_path, monkeypatch):
    raw = as_parquet(tmp_path / "r.parquet", rollouts(3)).read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))
    said = refused("-", tmp_path / "o.jsonl")
    assert "this is Parquet, not JSON Lines (name the file itself as FILE)" in said


def test_a_torn_file_is_refused_before_anything_is_judged(tmp_path):
    file = as_parquet(tmp_path / "r.parquet", rollouts(200))
    file.write_bytes(file.read_bytes()[:-30])
    assert "not a whole Parquet file" in refused(file, tmp_path / "o.jsonl")


def test_faults_name_file_row_column_and_value_as_in_json_lines(tmp_path):
    rows = rollouts(20, groups=20)
    rows[16]["answer"] = "many"
    rows[18]["completion"] = None
    said = []
    for file in (as_lines(tmp_path / "r.jsonl", rows), as_parquet(tmp_path / "r.parquet", rows)):
        said.append(refused(file, tmp_path / "o.jsonl").replace(file.name, "FILE"))
        left = scored(file, tmp_path / "o.jsonl", skip_bad_rows=True)
        assert [row["id"] for row in left if row["verdict"] == "unscored"] == ["r16"]
        assert len(left) == 19
        for path in tmp_path.glob("o.jsonl*"):
            path.unlink()
    assert "FILE:17: bad column: column 'answer'" in said[1]
    assert "'many'" in said[1]
    assert "FILE:19: wrong type: column 'completion': None" in said[1]
    assert said[1].replace(str(tmp_path), "") == said[0].replace(str(tmp_path), "")


def test_a_column_of_bytes_stands_in_nobodys_way_unless_it_is_read(tmp_path):
    image = pa.array([{"bytes": b"\x89PNG", "path": None}] * 6)
    table = pa.Table.from_pylist(rollouts(6)).append_column("image", image)
    file = as_parquet(tmp_path / "r.parquet", table)
    kept = scored(file, tmp_path / "o.jsonl", keep=("image",))
    assert kept[0]["image"] == {"bytes": {"base64": "iVBORw=="}}
    table = table.set_column(table.column_names.index("answer"), "answer", pa.array([b"72"] * 6))
    said = refused(as_parquet(tmp_path / "b.parquet", table), tmp_path / "p.jsonl")
    assert "b.parquet:1: bad column: column 'answer'" in said
    assert "{'base64': 'NzI='}" in said


def test_completions_that_trl_wrote_are_read(tmp_path):
    """`completions_00007.parquet`: no id, no group, a float column per reward with NaN for None."""
    table = pa.table({
        "step": [7] * 8,
        "prompt": [[{"role": "user", "content": f"q{n // 4}"}] for n in range(8)],
        "completion": [[{"role": "assistant", "content": f"#### {n}"}] for n in range(8)],
        "my_reward": pa.array([0.5, float("nan")] * 4),
        "answer": [str(n // 4 * 5) for n in range(8)],
        "advantage": pa.array([0.25] * 8, pa.float32()),
    })  # fmt: skip
    file = as_parquet(tmp_path / "completions_00007.parquet", table)
    found = scored(file, tmp_path / "o.jsonl", keep=("step", "my_reward"))
    assert [row["group"] for row in found] == [1] * 4 + [5] * 4
    assert [row["value"] for row in found] == [1.2, 0.2, 0.2, 0.2, 0.2, 1.2, 0.2, 0.2]
    assert [row["my_reward"] for row in found] == [0.5, None] * 4
    assert found[0]["advantage"] > 0 > found[1]["advantage"]


VERL = [
    {
        "data_source": "openai/gsm8k",
        "prompt": [{"role": "user", "content": f"q{n // 2}"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": f"{n // 2}"},
        "extra_info": {"index": n // 2, "split": "train"},
        "response": f"#### {n % 2}",
    }
    for n in range(4)
]
PATHS = {"completion": "response", "answer": "reward_model.ground_truth", "group": "extra_info.index"}


@pytest.mark.parametrize("write", [as_parquet, as_lines])
def test_a_column_can_be_a_field_inside_others_as_in_verls_files(write, tmp_path):
    file = write(tmp_path / ("r.parquet" if write is as_parquet else "r.jsonl"), VERL)
    found = scored(file, tmp_path / "o.jsonl", columns=PATHS, keep=("extra_info.split", "data_source"))
    assert [row["value"] for row in found] == [1.2, 0.2, 0.2, 1.2]
    assert [row["group"] for row in found] == [0, 0, 1, 1]
    assert [row["extra_info.split"] for row in found] == ["train"] * 4
    with Ledger(tmp_path / "o.jsonl.ledger", write=False) as ledger:
        assert ledger.verify() == []
        (run,) = ledger.runs()
        again = [one.rollout(run) for one in ledger.entered(run)]
    assert [rollout.columns["answer"] for rollout in again] == ["0", "0", "1", "1"]
    assert again[0].columns["reward_model"] == {"style": "rule", "ground_truth": "0"}


def test_a_field_whose_own_name_has_a_dot_wins_over_the_path(tmp_path):
    rows = [
        {"prompt": "p", "completion": "#### 2", "a.b": "2", "a": {"b": "3"}},
        {"prompt": "q", "completion": "#### 2", "a": {"b": "3"}},
    ]
    found = scored(as_lines(tmp_path / "r.jsonl", rows), tmp_path / "o.jsonl", columns={"answer": "a.b"})
    assert [row["value"] for row in found] == [1.2, 0.2]


def test_a_path_that_leads_nowhere_is_refused(tmp_path):
    file = as_parquet(tmp_path / "r.parquet", VERL)
    said = refused(file, tmp_path / "o.jsonl", columns={**PATHS, "answer": "reward_model.gold"})
    assert "'reward_model.gold' is in no row; there are ability" in said
    rows = [*VERL, {**VERL[0], "extra_info": {"index": 7}, "reward_model": "none"}]
    said = refused(as_lines(tmp_path / "r.jsonl", rows), tmp_path / "o.jsonl", columns=PATHS)
    assert "r.jsonl:5: missing column: column 'reward_model.ground_truth': missing" in said


def test_an_id_inside_others_names_its_row_and_is_unique(tmp_path):
    rows = [{"prompt": "p", "completion": "#### 1", "answer": "1", "info": {"uid": n % 3}} for n in range(4)]
    file = as_lines(tmp_path / "r.jsonl", rows)
    said = refused(file, tmp_path / "o.jsonl", columns={"id": "info.uid"})
    assert "r.jsonl:4: duplicate id: column 'info.uid': 0" in said
    found = scored(file, tmp_path / "o.jsonl", columns={"id": "info.uid"}, skip_bad_rows=True)
    assert [row["id"] for row in found] == [0, 1, 2]


# --- out


def test_scored_rows_are_the_same_in_either_format(tmp_path):
    rows = rollouts(60)
    rows[13]["answer"] = rows[19]["answer"] = "many"  # two groups of bad columns
    file = as_lines(tmp_path / "r.jsonl", rows)
    keep = ("step", "weight", "answer", "completion")
    lines = scored(file, tmp_path / "o.jsonl", keep=keep, skip_bad_rows=True)
    table = scored(file, tmp_path / "o.parquet", keep=keep, skip_bad_rows=True)
    for row in table:
        row["completion"] = json.loads(row["completion"])  # a kept list stands as JSON text
    assert table == lines
    assert {row["verdict"] for row in table} == {"scored", "unscored"}


def test_the_columns_have_types_that_do_not_depend_on_the_rows(tmp_path):
    words, numbers = rollouts(12), [{**row, "id": n} for n, row in enumerate(rollouts(12))]
    schemas = []
    for name, rows in (("words", words), ("numbers", numbers), ("mixed", [*words[:6], *numbers[6:]])):
        out = tmp_path / f"{name}.parquet"
        scored(as_lines(tmp_path / f"{name}.jsonl", rows), out)
        schemas.append(pq.read_schema(out))
    said = pa.struct(
        [("verdict", pa.string()), ("value", pa.float64()), ("code", pa.string()), ("reason", pa.string())]
    )
    assert schemas[0].field("parts").type == pa.struct([("gsm8k", said)])
    assert [schema.field("id").type for schema in schemas] == [pa.string(), pa.int64(), pa.string()]
    assert [schema.field("group").type for schema in schemas] == [pa.string(), pa.int64(), pa.string()]
    rest = [[field for field in schema if field.name not in {"id", "group"}] for schema in schemas]
    assert rest[0] == rest[1] == rest[2]
    assert schemas[0].names == [
        "id", "group", "index", "verdict", "value", "code", "reason", "parts", "advantage", "integrity",
        "clocks",
    ]  # fmt: skip
    assert [row["id"] for row in rows_of(tmp_path / "mixed.parquet")][5:7] == ["r5", "6"]


def test_kept_fields_have_the_type_that_all_their_values_have(tmp_path):
    kept = [
        {"n": 1, "x": 1, "b": True, "s": "a", "m": 1, "o": {"a": 1}, "none": None, "long": 2**70},
        {"n": None, "x": 0.5, "b": None, "s": "b", "m": "1", "o": None, "none": None, "long": 1},
    ]
    rows = [{**row, **more} for row, more in zip(rollouts(2), kept, strict=True)]
    out = tmp_path / "o.parquet"
    found = scored(as_lines(tmp_path / "r.jsonl", rows), out, keep=tuple(kept[0]))
    types = pq.read_schema(out)
    assert [str(types.field(name).type) for name in kept[0]] == [
        "int64", "double", "bool", "string", "string", "string", "string", "string",
    ]  # fmt: skip
    assert [{name: row[name] for name in kept[0]} for row in found] == [
        {**kept[0], "x": 1.0, "m": "1", "o": '{"a":1}', "long": str(2**70)},
        {**kept[1], "long": "1"},
    ]


def test_equal_rows_make_equal_files(tmp_path):
    file = as_parquet(tmp_path / "r.parquet", rollouts(50))
    for name in ("a.parquet", "b.parquet"):
        scored(file, tmp_path / name)
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_a_scored_file_can_be_scored_again(tmp_path):
    file = as_parquet(tmp_path / "r.parquet", rollouts(24))
    first = scored(file, tmp_path / "a.parquet", keep=("prompt", "completion", "answer"))
    again = scored(
        as_lines(
            tmp_path / "t.jsonl", [{**row, "completion": json.loads(row["completion"])} for row in first]
        ),
        tmp_path / "b.parquet",
    )
    assert [row["value"] for row in again] == [row["value"] for row in first]
    assert [row["group"] for row in again] == [row["group"] for row in first]


def test_show_finds_the_record_beside_a_scored_table(tmp_path):
    scored(as_parquet(tmp_path / "r.parquet", rollouts(12)), tmp_path / "o.parquet")
    shown = subprocess.run(
        [sys.executable, "-m", "steelyard", "show", tmp_path / "o.parquet", "--row", "r3"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "question 3" in shown.stdout


def test_without_pyarrow_nothing_is_begun(tmp_path, monkeypatch):
    table, lines = (
        as_parquet(tmp_path / "r.parquet", rollouts(3)),
        as_lines(tmp_path / "r.jsonl", rollouts(3)),
    )
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for file, out in ((table, "o.jsonl"), (lines, "o.parquet")):
        said = refused(file, tmp_path / out)
        assert "Parquet is read and written by pyarrow" in said
        assert "next: pip install 'steelyard[parquet]'" in said


# --- whole or not at all


def test_a_table_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    file, out = as_parquet(tmp_path / "r.parquet", rollouts(30)), tmp_path / "o.parquet"
    out.write_bytes(b"before")
    with monkeypatch.context() as patched:
        patched.setattr("steelyard.scoring.rows._OwnClocks.of", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            scored(file, out)
    assert out.read_bytes() == b"before"
    assert not (tmp_path / "o.parquet.partial").exists()
    assert len(scored(file, out)) == 30


def test_a_full_disk_stops_the_run_and_it_goes_on_when_there_is_room(tmp_path, tmpfs):
    disk = tmpfs(64 << 10)
    rows = [{**row, "noise": f"{n * 7919:x}" * 40} for n, row in enumerate(rollouts(3000))]
    file, record = as_lines(tmp_path / "r.jsonl", rows), tmp_path / "record"
    words = {"ledger": record, "options": Options(keep=("noise",))}
    with pytest.raises(RunStoppedError, match="No space left on device"):
        score_file(file, GSM8K, disk / "o.parquet", **words)
    assert list(disk.iterdir()) == []
    score_file(file, GSM8K, tmp_path / "o.parquet", **words)
    assert len(rows_of(tmp_path / "o.parquet")) == 3000
    with Ledger(record, write=False) as ledger:
        assert len(ledger.runs()) == 1


# --- killed


POSIX = pytest.mark.skipif(sys.platform == "win32", reason="fork and SIGKILL are POSIX's")
KILLED = """
import os, signal, sys
from pathlib import Path
from steelyard.cli import main
from steelyard.files import parquet

if sys.argv.pop(1) == "before the rename":
    Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
else:
    made = parquet._array
    left = iter(range(40))
    def array(*given):
        if next(left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)
        return made(*given)
    parquet._array, parquet._ROWS, parquet._GROUP_ROWS = array, 16, 32
main()
"""


@POSIX
@pytest.mark.parametrize("point", ["before the rename", "in the middle of the rows"])
def test_a_run_killed_while_its_table_is_written_goes_on(point, tmp_path):
    file, out = as_parquet(tmp_path / "r.parquet", rollouts(96)), tmp_path / "o.parquet"
    words = ["score", file, "--reward", "gsm8k", "--out", out, "--quiet"]
    killed = subprocess.run([sys.executable, "-c", KILLED, point, *words], check=False)
    assert killed.returncode == -9
    assert not out.exists()
    assert (tmp_path / "o.parquet.partial").exists()
    found = scored(file, out)
    assert found == scored(file, tmp_path / "whole.parquet")
    assert sorted(path.name for path in tmp_path.glob("o.*")) == [
        "o.parquet", "o.parquet.ledger", "o.parquet.ledger.lock",
    ]  # fmt: skip
    with Ledger(tmp_path / "o.parquet.ledger", write=False) as ledger:
        assert len(ledger.runs()) == 1
        assert ledger.verify() == []


@POSIX
def test_a_run_over_a_table_that_was_killed_anywhere_goes_on_and_judges_nothing_twice(tmp_path):
    as_parquet(tmp_path / "r.parquet", rollouts(96), row_group_size=10)
    points = [
        "spool: before COMMIT", "enter: after COMMIT", "in judging", "leave: before COMMIT",
        "leave: after COMMIT", "writing rows",
    ]  # fmt: skip
    words = ["score", "r.parquet", "--reward", "gsm8k", "--quiet", "--out", "o.jsonl"]
    asked = {"words": words, "stdin": "", "out": "o.jsonl", "points": points, "seed": "a table"}
    done = subprocess.run(
        [sys.executable, DRIVER], input=json.dumps(asked), cwd=tmp_path, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    told = [one for one in map(json.loads, done.stdout.splitlines()) if "code" in one]
    assert [one["code"] for one in told] == [-9] * len(points) + [0]
    assert all(one["again"] == [] and one["faults"] == [] for one in told)
    assert any(one.get("known") for one in told)
    expected = scored(tmp_path / "r.parquet", tmp_path / "whole.jsonl")
    assert timeless(rows_of(tmp_path / "o.jsonl")) == timeless(expected)
