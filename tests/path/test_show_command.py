"""`steelyard show` on recipes and on what agents leave behind: what a total is made of, and what was done."""

import json

import pytest
from as_a_user import read, steelyard, write

from steelyard.ledger import Ledger

SHAPED = """
[[part]]
reward = "answer"
weight = 2

[[part]]
reward = "format"
weight = 0.5
only_if = "answer >= 1"

[[part]]
reward = "overlong"
settings = { unit = "words", max_length = 12, buffer = 8 }

[[shape]]
kind = "length_penalty"
settings = { unit = "words", target = 4, limit = 8, least = 0.5 }
"""
PLAIN = SHAPED.partition("[[shape]]")[0]
ROWS = [
    {"id": name, "prompt": "2 + 2?", "completion": said, "answer": "4", "group": "g"}
    for name, said in (
        ("short", "<reasoning>easy</reasoning><answer>4</answer>"),
        ("long", f"<reasoning>{'so ' * 5}</reasoning><answer>4</answer>"),
        ("wrong", "<answer>5</answer>"),
    )
]


@pytest.fixture
def scored(tmp_path):
    """Score rows by a recipe; `show` what came of it."""

    def run(recipe):
        (tmp_path / "recipe.toml").write_text(recipe)
        write(tmp_path / "rows.jsonl", ROWS)
        done = steelyard(
            "score", "rows.jsonl", "--recipe", "recipe.toml", "--out", "o.jsonl", "-q", cwd=tmp_path
        )
        assert done.code == 0, done.err
        return {row["id"]: row for row in read(tmp_path / "o.jsonl")}

    return run


def total(folder, name, ledger="o.jsonl"):
    told = steelyard("show", ledger, "--row", name, cwd=folder)
    assert told.code == 0, told.err
    return next((line for line in told.out.splitlines() if line.startswith("total ")), "")


def test_a_row_says_what_its_total_is_made_of(scored, tmp_path):
    rows = scored(PLAIN)
    assert total(tmp_path, "short") == "total 2.5 = 2*1 + 0.5*1 + 1*0"
    assert total(tmp_path, "long") == "total 2.25 = 2*1 + 0.5*1 + 1*-0.25"
    assert total(tmp_path, "wrong") == "total 0 = 2*0 + 1*0"  # the format's gate was closed
    assert [row["value"] for row in rows.values()] == [2.5, 2.25, 0.0]


def test_a_total_after_a_shape_is_the_scored_files_and_its_sum_stands_beside_it(scored, tmp_path):
    rows = scored(SHAPED)
    assert rows["long"]["value"] == pytest.approx(2.25 * 0.75)
    told = total(tmp_path, "long")
    assert told.startswith("total 1.688 = (2*1 + 0.5*1 + 1*-0.25 = 2.25), then ")


def test_shapes_that_the_run_wrote_down_are_named_with_what_they_said(scored, tmp_path):
    scored(SHAPED)
    with Ledger(tmp_path / "o.jsonl.ledger") as record:
        said = json.dumps(["length_penalty/1:4:8:0.5:words"])
        record._db.execute("UPDATE runs SET spec = json_set(spec, '$.shapes', json(?))", (said,))
    told = total(tmp_path, "long")
    assert told.startswith("total 1.688 = (2*1 + 0.5*1 + 1*-0.25 = 2.25), then length_penalty")
    (tmp_path / "o.jsonl").unlink()
    told = total(tmp_path, "long", "o.jsonl.ledger")
    assert told.startswith("total (only the scored file has it) = (2*1")


def test_without_its_scored_file_a_shaped_total_is_not_made_up(scored, tmp_path):
    scored(SHAPED)
    (tmp_path / "o.jsonl").unlink()
    told = total(tmp_path, "long", "o.jsonl.ledger")
    assert "1.688" not in told
    assert "2*1 + 0.5*1 + 1*-0.25" in told
    group = steelyard("show", "o.jsonl.ledger", "--group", "g", cwd=tmp_path).out
    assert " sum " in group
    assert " total " not in group


@pytest.mark.parametrize("what", ["of other parts", "of another advantage", "broken"])
def test_a_scored_file_that_is_not_of_this_run_is_not_believed(scored, tmp_path, what):
    rows = list(scored(SHAPED).values())
    for row in rows:
        row["value"] = 77.0
        if what == "of other parts":
            row["parts"]["answer"]["value"] = 0.5
        else:
            row["advantage"] += 0.5
    write(tmp_path / "o.jsonl", ["{torn"] * 3 if what == "broken" else rows)
    told = total(tmp_path, "long", "o.jsonl.ledger")
    assert "77" not in told
    assert "2*1 + 0.5*1 + 1*-0.25" in told


def test_a_compressed_scored_file_is_read_too(tmp_path):
    (tmp_path / "recipe.toml").write_text(SHAPED)
    write(tmp_path / "rows.jsonl", ROWS)
    words = ("--recipe", "recipe.toml", "--out", "z.jsonl.gz", "-q")
    assert steelyard("score", "rows.jsonl", *words, cwd=tmp_path).code == 0
    assert total(tmp_path, "long", "z.jsonl.gz").startswith("total 1.688")


def test_a_group_has_a_line_for_each_rollout_with_its_total_and_its_parts(scored, tmp_path):
    scored(SHAPED)
    told = steelyard("show", "o.jsonl", "--group", "g", cwd=tmp_path).out.splitlines()
    head = next(line for line in told if line.startswith("row "))
    assert head.split()[:6] == ["row", "verdict", "total", "answer", "format", "overlong"]
    table = [line.split() for line in told[told.index(head) + 1 :]]
    assert [line[:4] for line in table] == [
        ["short", "scored", "2.5", "1"], ["long", "scored", "1.688", "1"], ["wrong", "scored", "0", "0"],
    ]  # fmt: skip
    assert table[2][4] == "-"


def test_a_group_under_one_reward_has_no_column_for_it_beside_the_total(tmp_path):
    write(tmp_path / "rows.jsonl", ROWS)
    steelyard("score", "rows.jsonl", "-r", "answer", "--out", "o.jsonl", "-q", cwd=tmp_path)
    told = steelyard("show", "o.jsonl", "--group", "g", cwd=tmp_path).out
    head = next(line for line in told.splitlines() if line.startswith("row "))
    assert head.split()[:4] == ["row", "verdict", "total", "advantage"]
    assert total(tmp_path, "short") == "total 1"


def test_a_total_that_is_missing_names_the_part_that_is_unscored(tmp_path):
    bad = {**ROWS[0], "id": "bad", "group": "h", "answer": None}
    write(tmp_path / "rows.jsonl", [*ROWS, bad])
    words = ("-r", "answer,format", "--out", "o.jsonl", "-q", "--bad-rows", "skip")
    assert steelyard("score", "rows.jsonl", *words, cwd=tmp_path).code == 0
    assert total(tmp_path, "bad") == "total missing: answer is unscored"
    assert "unscored" in steelyard("show", "o.jsonl", "--group", "h", cwd=tmp_path).out


def test_a_run_of_ones_own_that_wrote_no_weights_down_shows_its_parts(scored, tmp_path):
    scored(PLAIN)
    with Ledger(tmp_path / "o.jsonl.ledger") as record:
        record._db.execute("UPDATE runs SET spec = json_remove(spec, '$.weights', '$.shapes')")
    (tmp_path / "o.jsonl").unlink()
    told = steelyard("show", "o.jsonl.ledger", "--row", "long", cwd=tmp_path).out
    assert "answer: scored 1" in told
    assert "total" not in told
    assert steelyard("show", "o.jsonl.ledger", "--group", "g", cwd=tmp_path).code == 0


CALLED = [
    {"role": "assistant", "content": None, "tool_calls": [
        {"type": "function", "function": {"name": "cancel", "arguments": json.dumps({"order": 7})}},
        {"name": "tell", "arguments": {"whom": "Ann"}},
    ]},
    {"role": "tool", "content": "ok"},
    {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
]  # fmt: skip


def test_a_row_shows_tool_calls_files_and_the_end_state(tmp_path):
    row = {
        "id": "a",
        "prompt": "Cancel.",
        "completion": CALLED,
        "files": {"out/a.txt": "one\ntwo\nthree\nfour\n", "b.bin": ""},
        "state": {"orders": {"7": "cancelled"}, "log": "x" * 9_000},
        "expected_state": {"orders": {"7": "cancelled"}},
    }
    write(tmp_path / "rows.jsonl", [row])
    done = steelyard("score", "rows.jsonl", "-r", "state", "--out", "o.jsonl", "-q", cwd=tmp_path)
    assert done.code == 0, done.err
    told = steelyard("show", "o.jsonl", "--row", "a", cwd=tmp_path).out
    for words in (
        'assistant calls cancel {"order": 7}',
        'assistant calls tell {"whom":"Ann"}',
        "tool: ok",
        "Done.",
        "out/a.txt (19 characters)",
        "    three",
        "b.bin (0 characters)",
        'orders: {"7":"cancelled"}',
    ):
        assert words in told
    assert "None" not in told
    assert "four" not in told
    assert len(told) < 4_000


def test_the_summary_tells_lines_that_were_skipped_from_groups_whose_columns_are_bad(tmp_path):
    rows = [
        *ROWS,
        "{torn",
        {"prompt": "?", "completion": 3, "answer": "4"},
        {"prompt": "?", "answer": "4"},
        {"prompt": "no gold", "completion": "x"},
        {"prompt": "bad gold", "completion": "x", "answer": [1]},
        {"prompt": "bad gold, too", "completion": "x", "answer": {}},
    ]
    write(tmp_path / "rows.jsonl", rows)
    words = ("-r", "answer", "--out", "o.jsonl", "--bad-rows", "skip")
    told = [line.rstrip() for line in steelyard("score", "rows.jsonl", *words, cwd=tmp_path).out.splitlines()]
    skipped = next(line for line in told if line.startswith("skipped"))
    assert skipped.split()[1] == "3"
    assert skipped.split("no rollouts: ")[1].split(", ") == [
        "1 broken JSON", "1 wrong type", "1 missing column",
    ]  # fmt: skip
    bad = next(line for line in told if "bad columns, so unscored" in line)
    assert "3 groups" in bad
    assert bad.split("unscored: ")[1].split(", ") == ["1 missing column", "2 bad column"]


def test_the_summary_has_no_words_where_all_is_well(tmp_path):
    write(tmp_path / "rows.jsonl", ROWS[:2])
    told = steelyard("score", "rows.jsonl", "-r", "answer", "--out", "o.jsonl", cwd=tmp_path).out
    assert "scored   2 (100.0%)  -" in told
    assert "groups: 1 group of 2;" in told
