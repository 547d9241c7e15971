"""Measured peaks are kept apart by kind, and a file that is not ours to mend is refused."""

import csv
from dataclasses import replace

import pytest

from steelyard.errors import RefusedError
from steelyard.integrations.allocation.points import COLUMNS, append, rows_of
from steelyard.memory.catalogue import shape_of
from steelyard.memory.plan import Lora, Plan
from steelyard.memory.values import GIB

PLAN = Plan(model=shape_of("Qwen3-0.6B"), task="sft", prompt=0, completion=2048, micro_batch=2, engine=None)


def rows(plan=PLAN, *, allocated=3 * GIB, reserved=4 * GIB):
    return rows_of(plan, device="H200", allocated=allocated, reserved=reserved, source="us", note="")


def read(file):
    with file.open(newline="") as text:
        return list(csv.DictReader(text))


def test_a_step_is_two_rows_one_of_each_kind(tmp_path):
    file = tmp_path / "points.csv"
    append(file, rows())
    append(file, rows())
    found = read(file)
    assert [row["kind"] for row in found] == ["max_memory_allocated", "max_memory_reserved"] * 2
    assert [float(row["peak_gib"]) for row in found[:2]] == [3, 4]
    assert tuple(found[0]) == COLUMNS


def test_a_row_says_what_was_run():
    plan = replace(PLAN, lora=Lora(rank=16), precision="autocast", head="chunked", chunk=512)
    row = rows(plan)[0]
    assert row["model"] == PLAN.model.name
    assert (row["seq"], row["micro_batch"], row["lora_rank"]) == ("2048", "2", "16")
    assert row["dtype"] == "fp32 weights, bf16 autocast"
    assert row["loss_head"] == "chunked over tokens (512)"


def test_a_forward_pass_has_no_optimizer_and_no_loss():
    row = rows(replace(PLAN, task="inference"))[0]
    assert row["optimizer"] == row["loss_head"] == row["checkpointing"] == ""


@pytest.mark.parametrize("kind", ["max_memory_allocated", "max_memory_reserved"])
def test_the_planner_reads_back_what_was_written(kind):
    points = pytest.importorskip("steelyard.memory.points")
    (row,) = (row for row in rows() if row["kind"] == kind)
    point = points.read_point(row, shape_of, place="row")
    assert point.kind == kind
    assert point.measured == {"max_memory_allocated": 3 * GIB, "max_memory_reserved": 4 * GIB}[kind]
    assert point.plan.tokens == PLAN.tokens
    assert point.plan.precision == PLAN.precision


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a,b\n1,2\n", "its columns are a, b"),
        (",".join(COLUMNS) + "\nQwen", "torn"),
        (",".join(COLUMNS) + "\nQwen,sft\n", "row 2 has 2 fields"),
        (",".join(COLUMNS) + '\n"Qwen\n', "no CSV"),
    ],
)
def test_a_torn_or_foreign_file_is_refused_and_stays_as_it_is(tmp_path, text, says):
    file = tmp_path / "points.csv"
    file.write_text(text)
    with pytest.raises(RefusedError, match=says):
        append(file, rows())
    assert file.read_text() == text


def test_a_file_that_is_no_text_is_refused(tmp_path):
    file = tmp_path / "points.csv"
    file.write_bytes(b"\xff\xfe\n")
    with pytest.raises(RefusedError, match="no CSV in UTF-8"):
        append(file, rows())


def test_a_file_nobody_can_write_is_refused_by_name(tmp_path):
    with pytest.raises(RefusedError, match=r"absent.points\.csv: it cannot be appended to"):
        append(tmp_path / "absent" / "points.csv", rows())


def test_the_ends_of_lines_stay_those_of_the_file(tmp_path):
    file = tmp_path / "points.csv"
    file.write_bytes((",".join(COLUMNS) + "\r\n").encode())
    append(file, rows())
    assert file.read_bytes().count(b"\r\n") == file.read_bytes().count(b"\n") == 3


@pytest.mark.needs("data")
def test_the_columns_are_those_of_the_public_measurements(data_dir):
    with (data_dir / "memory" / "points.csv").open(newline="") as text:
        assert (*next(csv.reader(text)), "plan") == COLUMNS
