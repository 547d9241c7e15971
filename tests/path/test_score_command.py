"""`steelyard score`, `show` and `rewards` on files that are as they should be."""

import gzip
import json
import math
import os
import signal
import subprocess
import sys
import time
from functools import partial

import pytest
from as_a_user import faults, in_a_process, names, read, rollout, score, steelyard, timeless, write
from typer.testing import CliRunner

from steelyard import __version__
from steelyard.cli.app import app
from steelyard.ledger import Ledger

RIGHT, WRONG, UNREADABLE = "so #### 2", "so #### 3", "so two"
KEYS = [
    "id", "group", "index", "verdict", "value", "code", "reason", "parts", "advantage", "integrity", "clocks",
]  # fmt: skip
FOUR = [rollout(said) for said in (RIGHT, WRONG, UNREADABLE, RIGHT)]
TWO_GROUPS = [rollout(said, prompt=prompt, id=f"{prompt}{n}") for prompt in "ab" for n, said in enumerate((RIGHT, WRONG, WRONG, UNREADABLE))]  # fmt: skip  # noqa: E501


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    """Two groups that have been scored, for `show`."""
    folder = tmp_path_factory.mktemp("scored")
    rows = [{**row, "group": row["prompt"] * 2} for row in TWO_GROUPS]
    score(rows, folder, reward="gsm8k,format")
    return folder / "scored.jsonl.ledger"


# --- the output row


def test_a_scored_row_has_the_contracts_keys_in_its_order(tmp_path):
    for row in score(FOUR, tmp_path):
        assert list(row) == KEYS
        assert list(row["parts"]) == ["gsm8k"]
        assert list(row["parts"]["gsm8k"]) == ["verdict", "value", "code", "reason"]


def test_rows_say_value_code_reason_and_advantage_of_each_rollout(tmp_path):
    rows = score(FOUR, tmp_path)
    assert [row["verdict"] for row in rows] == ["scored"] * 4
    assert [row["value"] for row in rows] == [1.2, 0.2, 0.0, 1.2]
    assert [row["code"] for row in rows] == [None, "wrong", "no_answer", None]
    assert [row["reason"] is None for row in rows] == [True, False, False, True]
    assert sum(row["advantage"] for row in rows) == pytest.approx(0, abs=1e-9)
    assert rows[0]["advantage"] == rows[3]["advantage"] > 0 > rows[1]["advantage"] > rows[2]["advantage"]
    assert [row["parts"]["gsm8k"]["value"] for row in rows] == [1.2, 0.2, 0.0, 1.2]
    assert {row["integrity"] for row in rows} == {None}


def test_an_unscored_row_has_null_for_a_value_and_no_advantage(tmp_path):
    rows = score(
        [rollout(RIGHT), rollout(WRONG), rollout(RIGHT, gold=None, prompt="?")],
        tmp_path,
        "--bad-rows",
        "skip",
    )
    assert rows[2]["verdict"] == rows[2]["parts"]["gsm8k"]["verdict"] == "unscored"
    assert rows[2]["value"] is rows[2]["code"] is rows[2]["parts"]["gsm8k"]["value"] is None
    assert "answer" in rows[2]["reason"]
    assert rows[2]["advantage"] == 0.0
    assert b"NaN" not in (tmp_path / "scored.jsonl").read_bytes()


def test_clocks_are_null_where_one_call_judged_a_chunk_and_measured_where_each_row_had_its_own(tmp_path):
    (tmp_path / "mine.py").write_text("def length(completion):\n    return len(completion)\n")
    assert {row["clocks"] for row in score(FOUR, tmp_path)} == {None}
    rows = score(FOUR, tmp_path, "--new-run", "--workers", 1, reward="mine.py:length")
    for row in rows:
        clocks = row["clocks"]
        assert list(clocks) == [
            "queued_s", "service_s", "spawn_s", "wall_s", "reap_s", "cpu_s", "run_delay_s", "blocked_s",
            "censored",
        ]  # fmt: skip
        assert clocks["service_s"] >= 0
        assert clocks["cpu_s"] is None or clocks["service_s"] > 0.001  # reading that clock takes longer
        assert clocks["spawn_s"] is None
        assert clocks["censored"] is False


def test_rows_come_out_in_the_order_in_which_they_came_in(tmp_path):
    rows = [rollout(f"#### {n}", prompt=f"p{n * 7 % 5}", id=f"r{n * 13 % 40:02}") for n in range(40)]
    assert [row["id"] for row in score(rows, tmp_path)] == [row["id"] for row in rows]


def test_an_id_is_the_line_number_unless_the_row_has_one_and_keeps_its_type(tmp_path):
    rows = [rollout(RIGHT), rollout(RIGHT, id="x"), "", rollout(RIGHT, id=70), rollout(RIGHT, id=None)]
    assert [row["id"] for row in score(rows, tmp_path)] == [1, "x", 70, 5]


def test_the_number_one_and_the_text_one_are_two_ids(tmp_path):
    assert [r["id"] for r in score([rollout(RIGHT, id=1), rollout(RIGHT, id="1")], tmp_path)] == [1, "1"]


# --- groups


def test_without_a_group_column_a_group_is_called_after_its_first_row(tmp_path):
    rows = score(
        [rollout(RIGHT, id="a"), rollout(RIGHT, prompt="?", id="b"), rollout(WRONG, id="c")], tmp_path
    )
    assert [(row["group"], row["index"]) for row in rows] == [("a", 0), ("b", 0), ("a", 1)]


def test_rows_group_by_prompt_and_every_column_that_the_recipe_reads(tmp_path):
    rows = [rollout(RIGHT), rollout(RIGHT, gold="3"), rollout(WRONG), rollout(WRONG, gold="3")]
    assert [row["group"] for row in score(rows, tmp_path)] == [1, 2, 1, 2]


def test_a_column_that_the_recipe_does_not_read_does_not_part_a_group(tmp_path):
    rows = [rollout(RIGHT, seed=1, x=math.nan), rollout(WRONG, seed=2, x=None)]
    assert [row["group"] for row in score(rows, tmp_path)] == [1, 1]


def test_one_and_one_point_nought_and_the_text_are_different_golds(tmp_path):
    rows = [
        rollout(RIGHT, gold=2),
        rollout(RIGHT, gold=2.0),
        rollout(RIGHT, gold="2"),
        rollout(RIGHT, gold=2),
    ]
    assert [row["group"] for row in score(rows, tmp_path)] == [1, 2, 3, 1]


def test_groups_need_not_stand_together_and_are_each_normalised_alone(tmp_path):
    together = score(TWO_GROUPS, tmp_path)
    apart = score(
        [row for pair in zip(TWO_GROUPS[:4], TWO_GROUPS[4:], strict=True) for row in pair],
        tmp_path,
        "--new-run",
    )
    key = {row["id"]: (row["value"], row["advantage"], row["index"]) for row in together}
    assert {row["id"]: (row["value"], row["advantage"], row["index"]) for row in apart} == key


def test_a_group_column_names_the_groups_whatever_the_prompts_are(tmp_path):
    rows = [rollout(RIGHT, prompt=f"p{n}", group=g) for n, g in enumerate(["g", 7, "g", "7", 7])]
    assert [(row["group"], row["index"]) for row in score(rows, tmp_path)] == [
        ("g", 0), (7, 0), ("g", 1), ("7", 0), (7, 1),
    ]  # fmt: skip


def test_groups_of_unequal_sizes_are_scored_and_the_summary_says_so(tmp_path):
    rows = [rollout(RIGHT), rollout(WRONG), rollout(RIGHT, prompt="?")]
    done = steelyard("score", write(tmp_path / "r.jsonl", rows), "--reward", "gsm8k", "--out", tmp_path / "o")
    assert done.code == 0
    assert "1 group of 2, 1 group of 1" in done.out
    assert "unequal sizes" in done.out


# --- what may stand in a file


def test_a_completion_may_be_a_conversation_whose_last_assistant_message_is_judged(tmp_path):
    talk = [{"role": "assistant", "content": "#### 9"}, {"role": "tool", "content": "ok"}, {"role": "assistant", "content": [{"type": "text", "text": RIGHT}]}]  # fmt: skip  # noqa: E501
    prompt = [{"role": "user", "content": "1 + 1?"}]
    rows = score(
        [rollout(talk, prompt=prompt), rollout([{"role": "user", "content": RIGHT}], prompt=prompt)], tmp_path
    )
    assert [(row["value"], row["group"]) for row in rows] == [(1.2, 1), (0.0, 1)]


@pytest.mark.parametrize(
    ("gold", "said"),
    [
        (2, "#### 2"),
        (2.5, "#### 5/2"),
        (0.1, "#### 0.1"),
        (10**30 + 1, f"#### {10**30 + 1}"),
        (-(2**63) - 1, f"#### {-(2**63) - 1}"),
        (2**64 - 1, f"#### {2**64 - 1}"),
        ("1,080", "#### $1080"),
    ],
)
def test_a_gold_may_be_text_or_a_number_of_any_size(gold, said, tmp_path):
    right, near = score([rollout(said, gold), rollout(said + "1", gold)], tmp_path)
    assert (right["value"], near["value"]) == (1.2, 0.2)


def test_a_lone_surrogate_in_a_completion_is_judged_shown_and_kept(tmp_path):
    rows = [rollout(f"\ud800 {RIGHT}", id="x"), rollout("\udfff", id="y")]
    assert [row["value"] for row in score(rows, tmp_path)] == [1.2, 0.0]
    assert faults(tmp_path / "scored.jsonl.ledger") == []
    shown = in_a_process("show", tmp_path / "scored.jsonl", "--row", "y")
    assert shown.code == 0
    assert "\\udfff" in shown.out


@pytest.mark.parametrize(
    "column",
    [
        "id",
        "group",
    ],
)
def test_a_name_that_no_file_can_hold_is_kept_or_refused_and_never_a_traceback(column, tmp_path):
    done = in_a_process(
        "score",
        "-",
        "--reward",
        "gsm8k",
        "--out",
        tmp_path / "o",
        stdin=json.dumps(rollout(WRONG, **{column: "\ud800"})).encode(),
    )
    if done.code == 0:
        assert read(tmp_path / "o")[0][column] == "\ud800"
    else:
        assert done.code == 2
        assert f"standard input:1: wrong type: column '{column}'" in done.err


@pytest.mark.parametrize("name", ["ünï", "a\x00b", "[bold]x[/]", "", " ", "'; DROP"])
@pytest.mark.parametrize("column", ["id", "group"])
def test_an_id_may_be_any_text(column, name, tmp_path):
    raw = json.dumps(rollout(WRONG, **{column: name})).encode()
    done = steelyard("score", "-", "--reward", "gsm8k", "--out", tmp_path / "o", stdin=raw)
    assert done.code == 0, done.err
    assert read(tmp_path / "o")[0][column] == name


@pytest.mark.parametrize(
    "raw",
    [
        b"\xef\xbb\xbf%a\n%b\n",
        b"%a\r\n%b\r\n",
        b"\n\n%a\n   \n\t\n%b\n\n",
        b"%a\n%b",
        b"  %a  \n %b\t\n",
        b"\xef\xbb\xbf\r\n%a\r\n%b",
    ],
    ids=["BOM", "CRLF", "blank lines", "no last newline", "spaces", "all of it"],
)
def test_the_dress_of_a_file_changes_nothing(raw, tmp_path):
    a, b = (json.dumps(rollout(said, id=said)).encode() for said in (RIGHT, WRONG))
    (tmp_path / "dressed.jsonl").write_bytes(raw.replace(b"%a", a).replace(b"%b", b))
    rows = score(tmp_path / "dressed.jsonl", tmp_path)
    assert [(row["id"], row["value"], row["group"]) for row in rows] == [
        (RIGHT, 1.2, RIGHT),
        (WRONG, 0.2, RIGHT),
    ]
    assert faults(tmp_path / "scored.jsonl.ledger") == []


def test_text_beyond_ascii_passes_as_it_is(tmp_path):
    line = json.dumps(rollout("答えは #### 2", prompt="数字？", id="行一", group="群"), ensure_ascii=False)
    row = score([line], tmp_path)[0]
    assert (row["id"], row["group"], row["value"]) == ("行一", "群", 1.2)
    assert "行一".encode() in (tmp_path / "scored.jsonl").read_bytes()


def test_unread_columns_may_hold_what_strict_json_has_no_word_for(tmp_path):
    odd = (
        '{"prompt":"p","completion":"#### 2","answer":2,"a":NaN,"b":-Infinity,"e":"\\udc00",'
        f'"c":{10**40},"d":[{2**70}]}}'
    )
    assert score([odd, odd.replace("NaN", "1")], tmp_path)[0]["value"] == 1.2
    assert faults(tmp_path / "scored.jsonl.ledger") == []


def test_columns_are_mapped_to_the_files_own_words(tmp_path):
    rows = [{"question": "1 + 1?", "response": said, "gold": 2, "uid": f"u{n}", "answer": "never read"} for n, said in enumerate((RIGHT, WRONG))]  # fmt: skip  # noqa: E501
    words = [
        w
        for pair in ("prompt=question", "completion=response", "answer=gold", "id=uid")
        for w in ("--column", pair)
    ]
    scored = score(rows, tmp_path, *words)
    assert [(row["id"], row["group"], row["value"]) for row in scored] == [
        ("u0", "u0", 1.2),
        ("u1", "u0", 0.2),
    ]
    assert faults(tmp_path / "scored.jsonl.ledger") == []
    shown = steelyard("show", tmp_path / "scored.jsonl", "--row", "u1")
    assert WRONG in shown.out


def test_two_columns_may_change_places(tmp_path):
    rows = score(
        [rollout(RIGHT, gold="3", spare="2")],
        tmp_path,
        "--column",
        "answer=spare",
        "--column",
        "spare=answer",
    )
    assert rows[0]["value"] == 1.2


@pytest.mark.parametrize(
    "words", [["answer"], ["=x"], ["answer="], ["answer=a", "answer=b"], ["prompt=text", "completion=text"]]
)
def test_a_column_mapping_that_means_nothing_is_refused(words, tmp_path):
    file = write(tmp_path / "r.jsonl", FOUR)
    done = steelyard(
        "score",
        file,
        "--reward",
        "gsm8k",
        "--out",
        tmp_path / "o",
        *(x for w in words for x in ("--column", w)),
    )
    assert done.code == 2
    assert "--column" in done.err
    assert "next:" in done.err
    assert names(tmp_path) == ["r.jsonl"]


# --- where rows come from and go to


def test_compressed_files_are_read_and_written(tmp_path):
    plain = score(FOUR, tmp_path)
    file = write(tmp_path / "r.jsonl.gz", FOUR)
    done = steelyard("score", file, "--reward", "gsm8k", "--out", tmp_path / "o.jsonl.gz")
    assert done.code == 0, done.err
    assert gzip.decompress((tmp_path / "o.jsonl.gz").read_bytes()) == (tmp_path / "scored.jsonl").read_bytes()
    assert read(tmp_path / "o.jsonl.gz") == plain


def test_equal_rows_make_equal_compressed_files(tmp_path):
    file = write(tmp_path / "r.jsonl", FOUR)
    for name in ("a.gz", "b.gz"):
        assert steelyard("score", file, "--reward", "gsm8k", "--out", tmp_path / name).code == 0
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


def test_standard_input_and_a_pipe_are_read(tmp_path):
    plain = score(FOUR, tmp_path)
    raw = (tmp_path / "rollouts.jsonl").read_bytes()
    done = in_a_process("score", "-", "--reward", "gsm8k", "--out", tmp_path / "o.jsonl", stdin=raw)
    assert done.code == 0, done.err
    assert read(tmp_path / "o.jsonl") == plain
    os.mkfifo(tmp_path / "fifo")
    with subprocess.Popen(["cp", "rollouts.jsonl", "fifo"], cwd=tmp_path):
        done = steelyard("score", tmp_path / "fifo", "--reward", "gsm8k", "--out", tmp_path / "p.jsonl")
    assert done.code == 0, done.err
    assert read(tmp_path / "p.jsonl") == plain


def test_the_ledger_keeps_no_second_copy_of_standard_input(tmp_path):
    raw = b"".join(json.dumps(row).encode() + b"\n" for row in FOUR)
    steelyard("score", "-", "--reward", "gsm8k", "--out", tmp_path / "o", stdin=raw)
    with Ledger(tmp_path / "o.ledger", write=False) as record:
        assert list(record.spooled()) == []


def test_the_ledger_stands_beside_the_scored_file_or_where_it_is_told_to(tmp_path):
    file = write(tmp_path / "r.jsonl", FOUR)
    assert steelyard("score", file, "--reward", "gsm8k", "--out", tmp_path / "o").code == 0
    assert (tmp_path / "o.ledger").exists()
    there = tmp_path / "elsewhere.db"
    assert steelyard("score", file, "--reward", "gsm8k", "--out", tmp_path / "p", "--ledger", there).code == 0
    assert there.exists()
    assert not (tmp_path / "p.ledger").exists()


def test_a_scored_file_behind_a_link_is_replaced_and_the_link_stays(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "o").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "real" / "o")
    file = write(tmp_path / "r.jsonl", FOUR)
    assert steelyard("score", file, "--reward", "gsm8k", "--out", tmp_path / "link").code == 0
    assert (tmp_path / "link").is_symlink()
    assert len(read(tmp_path / "real" / "o")) == 4


def test_a_run_leaves_the_scored_file_the_ledger_and_its_lock_and_nothing_else(tmp_path):
    score(FOUR, tmp_path)
    assert names(tmp_path) == [
        "rollouts.jsonl",
        "scored.jsonl",
        "scored.jsonl.ledger",
        "scored.jsonl.ledger.lock",
    ]


# --- rewards and schemes


def test_several_rewards_add_up_and_are_told_apart(tmp_path):
    good = "<reasoning>x</reasoning><answer>2</answer>"
    rows = [rollout(f"{good}#### 2"), rollout(good), rollout(RIGHT)]
    scored = score(rows, tmp_path, reward="gsm8k,format")
    assert [list(row["parts"]) for row in scored] == [["gsm8k", "format"]] * 3
    for row in scored:
        assert row["value"] == sum(part["value"] for part in row["parts"].values())
    again = score(rows, tmp_path, "--new-run", "--reward", "format")
    assert timeless(again) == timeless(scored)


def test_a_variant_of_a_reward_is_named_after_a_colon(tmp_path):
    assert score([rollout("it is 2")], tmp_path, reward="gsm8k:flexible")[0]["value"] == 1.0


def test_a_users_function_judges_and_what_it_prints_stays_out_of_standard_output(tmp_path):
    (tmp_path / "mine.py").write_text(
        "def last(completion, answer):\n    print('hi')\n    return completion[-1] == answer\n"
    )
    write(tmp_path / "r.jsonl", FOUR)
    done = in_a_process(
        "score", "r.jsonl", "--reward", "mine.py:last", "--out", "o", "--workers", "1", "-q", cwd=tmp_path
    )
    assert (done.code, done.out) == (0, "")
    assert [row["value"] for row in read(tmp_path / "o")] == [1.0, 0.0, 0.0, 1.0]


def test_an_async_function_judges_with_clocks_of_its_own(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import asyncio\nasync def late(completion):\n    await asyncio.sleep(0.02)\n    return 0.5\n"
    )
    rows = score(FOUR, tmp_path, "--concurrency", 4, reward="mine.py:late")
    assert [row["value"] for row in rows] == [0.5] * 4
    assert all(row["clocks"]["service_s"] >= 0.02 for row in rows)


def test_a_users_function_that_reads_the_id_or_the_group_is_refused_for_they_are_no_columns(tmp_path):
    (tmp_path / "mine.py").write_text("async def f(completion, id, group):\n    return 1.0\n")
    file = write(tmp_path / "rollouts.jsonl", [rollout(RIGHT, id=4, group=30)])
    words = ["--reward", f"{tmp_path}/mine.py:f", "--out", tmp_path / "scored.jsonl"]
    done = steelyard("score", file, *words)
    assert done.code == 2
    assert "no column" in done.err


# 1.2, 0, 0, 1.2: the mean is 0.6, and so is the population std


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        ("grpo", 0.6 / (math.sqrt(0.48) + 1e-4)),
        ("grpo_population", 0.6 / (0.6 + 1e-8)),
        ("dr_grpo", 0.6),
        ("rloo", 0.8),
        ("batch", 0.6 / (math.sqrt(8 * 0.36 / 7) + 1e-4)),
        ("gdpo", math.sqrt(7 / 8)),
    ],
)
def test_every_advantage_scheme_is_at_hand(scheme, expected, tmp_path):
    rows = [rollout(said, prompt=p) for p in "ab" for said in (RIGHT, UNREADABLE, UNREADABLE, RIGHT)]
    values = [row["advantage"] for row in score(rows, tmp_path, "--advantage", scheme)]
    assert values == pytest.approx(
        [sign * expected for sign in (1, -1, -1, 1)] * 2, rel=2e-3 if scheme == "gdpo" else 1e-9
    )


def test_gdpo_counts_each_reward_apart(tmp_path):
    good = "<reasoning>x</reasoning><answer>2</answer>"
    rows = [rollout(RIGHT), rollout(good), rollout("x"), rollout("y")]
    plain = [row["advantage"] for row in score(rows, tmp_path, reward="gsm8k,format")]
    apart = [row["advantage"] for row in score(rows, tmp_path, "--advantage", "gdpo", reward="gsm8k,format")]
    assert apart != pytest.approx(plain)
    assert apart[0] == pytest.approx(apart[1], rel=1e-3)  # each is as rare as the other, whatever it is worth
    assert plain[0] > plain[1]


def test_another_scheme_on_the_same_ledger_judges_nothing_again(tmp_path):
    log = tmp_path / "log"
    (tmp_path / "mine.py").write_text(
        f"async def f(completion):\n    with open({str(log)!r}, 'a') as log:\n        log.write('x')\n"
        "    return len(completion)\n"
    )
    first = score(TWO_GROUPS, tmp_path, reward="mine.py:f")
    for scheme in ("rloo", "batch", "grpo"):
        rows = score(TWO_GROUPS, tmp_path, "--advantage", scheme, reward="mine.py:f")
        assert [row["value"] for row in rows] == [row["value"] for row in first]
    assert log.read_text() == "x" * len(TWO_GROUPS)
    assert rows == first
    assert faults(tmp_path / "scored.jsonl.ledger") == []


def test_an_unknown_scheme_and_an_unknown_option_are_refused_by_name(tmp_path):
    file = write(tmp_path / "r.jsonl", FOUR)
    for words, named in (
        (["--advantage", "ppo"], "ppo"),
        (["--bad-rows", "eat"], "eat"),
        (["--bogus"], "--bogus"),
    ):
        done = steelyard("score", file, "--reward", "gsm8k", "--out", tmp_path / "o", *words)
        assert done.code == 2
        assert named in done.err
    assert names(tmp_path) == ["r.jsonl"]


# --- again, and afresh


def test_the_same_command_again_judges_nothing_and_writes_the_same(tmp_path):
    first = score(FOUR, tmp_path)
    raw = (tmp_path / "scored.jsonl").read_bytes()
    assert score(tmp_path / "rollouts.jsonl", tmp_path) == first
    assert (tmp_path / "scored.jsonl").read_bytes() == raw
    with Ledger(tmp_path / "scored.jsonl.ledger", write=False) as record:
        (run,) = record.runs()
        assert len(list(record.attempts(run))) == 1


def test_the_same_bytes_under_another_name_are_the_same_run(tmp_path):
    first = score(FOUR, tmp_path)
    (tmp_path / "rollouts.jsonl").rename(tmp_path / "renamed.jsonl")
    assert score(tmp_path / "renamed.jsonl", tmp_path) == first


def test_a_new_run_begins_afresh_beside_the_old_one(tmp_path):
    score(FOUR, tmp_path)
    score(FOUR[:2], tmp_path, "--new-run")
    assert len(read(tmp_path / "scored.jsonl")) == 2
    shown = steelyard("show", tmp_path / "scored.jsonl.ledger")
    assert "4 of 4" in shown.out
    assert "2 of 2" in shown.out
    assert faults(tmp_path / "scored.jsonl.ledger") == []


# --- what it says


def test_quiet_says_nothing_at_all(tmp_path):
    file = write(tmp_path / "r.jsonl", FOUR)
    done = in_a_process("score", file, "--reward", "gsm8k", "--out", tmp_path / "o", "--quiet")
    assert done == (0, "", "")


def test_the_summary_counts_verdicts_and_why_groups_and_times(tmp_path):
    bad = [rollout(RIGHT, gold="many", prompt="?"), "torn"]
    file = write(tmp_path / "r.jsonl", [*FOUR, *bad])
    done = in_a_process("score", file, "--reward", "gsm8k", "--out", tmp_path / "o", "--bad-rows", "skip")
    assert done.code == 0
    for words in (
        "5 rollouts in 2 groups, mean reward 0.65",
        "4 (80.0%)",
        "1 no_answer",
        "1 wrong",
        "unscored",
        "1 (20.0%)",
        "column 'answer'",
        "skipped",
        "1 broken JSON",
        "1 bad column",
        "groups: 1 group of 4, 1 group of 1 (unequal sizes",
        "1 with too few votes",
        "rewards by group",
        "median",
        "p99",
        "gsm8k",
        "unscored by completion length",
        f"record: {tmp_path / 'o.ledger'}",
        "next: steelyard show",
    ):
        assert words in done.out
    assert done.err == ""


def test_too_many_unscored_exit_with_three_and_the_scored_file_is_written_all_the_same(tmp_path):
    rows = [rollout(RIGHT), rollout(WRONG), rollout(RIGHT, gold=None, prompt="?")]
    file = write(tmp_path / "r.jsonl", rows)
    words = ("score", file, "--reward", "gsm8k", "--out", tmp_path / "o", "--bad-rows", "skip")
    assert steelyard(*words).code == 0  # three rows are too few to act upon
    done = steelyard(*words, "--max-unscored", "0.3", "-q")
    assert done.code == 3
    assert "1 of 3 rollouts are unscored (at most 30.0%)" in done.err
    assert f"next: steelyard show {tmp_path / 'o.ledger'} --why" in done.err
    assert len(read(tmp_path / "o")) == 3
    assert steelyard(*words, "--max-unscored", "0.34").code == 0


def test_five_per_cent_unscored_are_too_many_from_256_rollouts_on(tmp_path):
    rows = [rollout(RIGHT, prompt=f"p{n // 4}", gold=None if n >= 243 - 3 else 2) for n in range(256)]
    file = write(tmp_path / "r.jsonl", rows)
    done = steelyard("score", file, "--reward", "gsm8k", "--out", tmp_path / "o", "--bad-rows", "skip")
    assert done.code == 3
    done = steelyard(
        "score",
        file,
        "--reward",
        "gsm8k",
        "--out",
        tmp_path / "o",
        "--bad-rows",
        "skip",
        "--max-unscored",
        "0.1",
    )
    assert done.code == 0


def test_rewards_lists_every_reward_with_its_columns_and_how_to_bring_your_own():
    said = CliRunner().invoke(app, ["rewards"]).stdout
    for words in ("format", "answer", "gsm8k", "choice", "gsm8k:flexible", "file.py:function"):
        assert words in " ".join(said.split())


def test_help_names_every_option_and_version_says_the_version():
    said = CliRunner().invoke(app, ["score", "--help"], env={"COLUMNS": "200"}).output
    for option in (
        "--reward", "--out", "--ledger", "--advantage", "--column", "--bad-rows", "--timeout",
        "--max-unscored",
        "--new-run", "--quiet",
    ):  # fmt: skip
        assert option in said
    assert in_a_process("--version").out == f"steelyard {__version__}\n"


# --- show


def test_show_lists_the_runs(scored):
    for named in (scored, scored.with_suffix("")):
        done = steelyard("show", named)
        assert done.code == 0
        assert "rollouts.jsonl" in done.out
        assert "gsm8k, format" in done.out
        assert "8 of 8" in done.out


def test_show_group_prints_each_row_with_value_advantage_and_reason(scored):
    for name in ("bb", "b0", "b3"):  # by its name, or by a row
        done = steelyard("show", scored, "--group", name)
        assert done.code == 0
        for row in ("b0", "b1", "b2", "b3"):
            assert f"\n{row} " in done.out
        assert "a0" not in done.out
        assert "advantage (grpo)" in done.out
        assert "no_answer" in done.out


def test_a_group_named_like_a_line_is_the_group_not_the_line(tmp_path):
    score([rollout(f"#### 4{n}", group=n // 2) for n in range(6)], tmp_path)
    done = steelyard("show", tmp_path / "scored.jsonl", "--group", "2")
    table = done.out.split("verdict")[1]
    assert [line.split()[0] for line in table.splitlines()[1:]] == ["5", "6"]


def test_show_row_prints_texts_columns_verdicts_attempts_and_clocks(scored):
    done = steelyard("show", scored, "--row", "a1")
    assert done.code == 0
    for words in (
        WRONG,
        "answer: '2'",
        "gsm8k: scored 0.2 wrong",
        "try 1 on 8 rollouts at once: finished",
        "service",
    ):
        assert words in done.out


def test_show_why_lists_what_could_not_be_judged(scored, tmp_path):
    assert "every rollout was judged" in steelyard("show", scored, "--why").out
    score([rollout(RIGHT), rollout(RIGHT, gold=None, prompt="?", id="bad")], tmp_path, "--bad-rows", "skip")
    said = steelyard("show", tmp_path / "scored.jsonl", "--why").out
    for words in ("bad", "gsm8k", "data", "column 'answer' is missing"):
        assert words in said


def test_show_verify_says_whether_the_record_is_sound(scored):
    done = steelyard("show", scored, "--verify")
    assert (done.code, done.out.strip()) == (0, "the record is sound")


def test_show_refuses_what_is_not_there(scored, tmp_path):
    for words, said in (
        ((tmp_path / "none",), "no such ledger"),
        ((scored, "--row", "zz"), "'zz'"),
        ((scored, "--group", "zz"), "ids are such as a0"),
    ):
        done = steelyard("show", *words)
        assert done.code == 2
        assert said in done.err
        assert "next:" in done.err
    assert names(tmp_path) == []


def test_show_shortens_what_is_long_and_escapes_what_looks_like_markup(tmp_path):
    score([rollout("[red]x[/] " + "y" * 20_000, id="long", **{"[b]": "z" * 9_000})], tmp_path)
    done = steelyard("show", tmp_path / "scored.jsonl", "--row", "long")
    assert "[red]x[/]" in done.out
    assert "[b]" in done.out
    assert len(done.out) < 6_000


def test_show_can_be_read_by_head(scored):
    show = f"{sys.executable} -m steelyard show {scored} --row a1 | head -c 1"
    done = subprocess.run(["bash", "-c", show], capture_output=True, text=True, check=False)
    assert (len(done.stdout), done.stderr) == (1, "")


WAITS = """
import pathlib, threading
here = pathlib.Path(__file__).parent

def f(completion):
    (here / "begun").touch()
    while not (here / "go").exists():
        threading.Event().wait(0.02)
    return float(len(completion))
"""


def test_an_interrupted_run_says_how_it_goes_on_and_does(tmp_path):
    (tmp_path / "mine.py").write_text(WAITS)
    write(tmp_path / "r.jsonl", FOUR * 8)
    words = ["score", "r.jsonl", "--reward", "mine.py:f", "--out", "o", "--workers", "1", "--quiet"]
    command = [sys.executable, "-m", "steelyard", *words]
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # whoever runs this behind & ignores it
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=tmp_path, stderr=pipe, text=True, preexec_fn=heard) as process:  # noqa: PLW1509
        while not (tmp_path / "begun").exists() and process.poll() is None:
            time.sleep(0.02)  # until the reward runs, whenever that is
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert said == "steelyard: interrupted; the same command goes on where it stopped\n"
    assert not (tmp_path / "o").exists()
    assert faults(tmp_path / "o.ledger") == []
    (tmp_path / "go").touch()
    assert in_a_process(*words, cwd=tmp_path).code == 0
    assert [row["value"] for row in read(tmp_path / "o")] == [
        float(len(row["completion"])) for row in FOUR * 8
    ]
    with Ledger(tmp_path / "o.ledger", write=False) as record:
        assert len(record.runs()) == 1  # gone on with, not begun again


def test_fields_that_are_kept_stand_at_the_end_of_each_row(tmp_path):
    rows = score([rollout(RIGHT, uid="u1", step=3), rollout(RIGHT, step=3)], tmp_path, "--keep", "uid,step")
    assert [list(row)[-2:] for row in rows] == [["uid", "step"]] * 2
    assert [(row["uid"], row["step"]) for row in rows] == [("u1", 3), (None, 3)]


def test_a_part_that_fails_behind_another_parts_code_is_counted_all_the_same(tmp_path):
    (tmp_path / "mine.py").write_text(
        "async def f(completion):\n"
        "    if completion.endswith('7'):\n        raise KeyError('x')\n    return 1.0\n"
    )
    rows = [rollout(f"#### {n % 10}", prompt=f"p{n // 8}") for n in range(512)]
    file = write(tmp_path / "rollouts.jsonl", rows)
    words = ["--reward", f"gsm8k,{tmp_path}/mine.py:f", "--out", tmp_path / "scored.jsonl"]
    done = steelyard("score", file, *words)
    assert done.code == 3
    assert "failed twice on 51 of 512" in done.err
    assert "doubt: a reward failed twice on 51 of 512" in done.out
    assert "reward_error" in steelyard("show", tmp_path / "scored.jsonl", "--why").out


@pytest.mark.parametrize("timeout", ["inf", "nan", "0", "-1"])
def test_a_timeout_is_a_positive_finite_number(timeout, tmp_path):
    file = write(tmp_path / "rollouts.jsonl", [rollout(RIGHT)])
    words = ["--reward", "gsm8k", "--out", tmp_path / "o.jsonl", "--timeout", timeout]
    assert steelyard("score", file, *words).code == 2


def test_texts_are_shown_as_they_are_and_act_on_no_terminal(tmp_path):
    score([rollout("\x1b[31m:x: [bold]#### 5 :fire:", id="r")], tmp_path)
    told = steelyard("show", tmp_path / "scored.jsonl", "--row", "r").out
    assert "\\x1b[31m:x: [bold]#### 5 :fire:" in told
    assert "\x1b" not in told
