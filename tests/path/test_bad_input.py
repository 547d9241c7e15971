"""Whatever is wrong is said with its place and the next step; nothing is judged, lost or left behind."""

import contextlib
import gzip
import json
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

import pytest
from as_a_user import Done, faults, in_a_process, names, read, rollout, score, steelyard, timeless, write

from steelyard.ledger import Ledger

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="signals, limits and users are POSIX's")
GOOD = [rollout(said) for said in ("#### 2", "#### 3", "?")]


def refused(folder, *words, reward="gsm8k", file="rollouts.jsonl", out="scored.jsonl", says=()):
    """Run the command in a folder; see that it is refused with these words and leaves nothing there."""
    before = names(folder)
    done = steelyard("score", file, "--reward", reward, "--out", out, *words, cwd=folder)
    assert done.code == 2, done
    assert done.out == ""
    assert done.err.startswith("steelyard: ")
    assert "Traceback" not in done.err
    assert "\n  next: " in done.err
    for word in says:
        assert word in done.err
    assert names(folder) == before
    return done.err


# --- the file


def test_a_missing_file_is_refused_with_the_names_of_its_neighbours(tmp_path):
    write(tmp_path / "rollout.jsonl", GOOD)
    refused(tmp_path, says=["rollouts.jsonl: there is no such file", "rollout.jsonl"])
    refused(tmp_path, file="no/where.jsonl", says=["the folder no does not exist"])
    refused(tmp_path, file="no/where.jsonl.gz", says=["there is no such file"])


def test_a_folder_is_refused(tmp_path):
    (tmp_path / "rollouts.jsonl").mkdir()
    refused(tmp_path, says=["rollouts.jsonl: this is a folder", "name a file"])


@pytest.mark.parametrize("raw", [b"", b"\n", b" \r\n\t\n", b"\xef\xbb\xbf\n"])
def test_a_file_without_a_row_is_refused(raw, tmp_path):
    (tmp_path / "rollouts.jsonl").write_bytes(raw)
    refused(tmp_path, says=["there is no row in it"])


def test_empty_and_closed_standard_input_are_refused(tmp_path):
    refused(tmp_path, file="-", says=["standard input", "there is no row in it"])
    closed = f"{sys.executable} -m steelyard score - --reward gsm8k --out o <&-"
    done = subprocess.run(["bash", "-c", closed], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "standard input is closed" in done.stderr
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("line", "kind", "says"),
    [
        ('{"prompt": "p",', "broken JSON", '{"prompt": "p",'),
        ('{"prompt": "p", "completion": "c", "answer": 1} x', "broken JSON", "not JSON"),
        ("#### 2", "broken JSON", "#### 2"),
        ("[1, 2]", "not an object", "[1, 2]"),
        ('"text"', "not an object", "'text'"),
        ("null", "not an object", "None"),
        ("7", "not an object", "7"),
        ("{}", "missing column", "column 'completion': missing"),
        ('{"prompt": "p", "answer": 1}', "missing column", "the row has answer, prompt"),
        ('{"completion": "c", "answer": 1}', "missing column", "column 'prompt': missing"),
        ('{"prompt": "p", "completion": null, "answer": 1}', "wrong type", "column 'completion': None"),
        ('{"prompt": "p", "completion": 7, "answer": 1}', "wrong type", "column 'completion': 7"),
        ('{"prompt": "p", "completion": ["c"], "answer": 1}', "wrong type", "column 'completion': ['c']"),
        ('{"prompt": "p", "completion": [{"content": "c"}], "answer": 1}', "wrong type", "list of messages"),
        ('{"prompt": 7, "completion": "c", "answer": 1}', "wrong type", "column 'prompt': 7"),
        ('{"prompt": "p", "completion": "c", "answer": 1, "id": 1.5}', "wrong type", "column 'id': 1.5"),
        ('{"prompt": "p", "completion": "c", "answer": 1, "id": true}', "wrong type", "column 'id': True"),
        ('{"prompt": "p", "completion": "c", "answer": 1, "id": 9223372036854775808}', "wrong type", "'id'"),
        ('{"prompt": "p", "completion": "c", "answer": 1, "group": ["g"]}', "wrong type", "'group': ['g']"),
        ('{"prompt": "p", "completion": "c", "answer": null}', "missing column", "column 'answer': null"),
        ('{"prompt": "p", "completion": "c"}', "missing column", "column 'answer': missing"),
        ('{"prompt": "p", "completion": "c", "answer": ["1"]}', "bad column", "column 'answer'"),
        ('{"prompt": "p", "completion": "c", "answer": true}', "bad column", "True"),
        ('{"prompt": "p", "completion": "c", "answer": {"a": 1}}', "bad column", "{'a': 1}"),
        ('{"prompt": "p", "completion": "c", "answer": NaN}', "bad column", "nan"),
        ('{"prompt": "p", "completion": "c", "answer": "many"}', "bad column", "many"),
        ('{"prompt": "p", "completion": "c", "answer": ""}', "bad column", "column 'answer'"),
        ('{"prompt": "p", "completion": ' + "[" * 100_000 + "]" * 100_000 + "}", "broken JSON", "too deeply"),
    ],
)  # fmt: skip
def test_a_bad_row_is_named_with_file_line_column_value_and_next_step(line, kind, says, tmp_path):
    write(tmp_path / "rollouts.jsonl", [*GOOD, line, *GOOD])
    err = refused(tmp_path, says=["1 bad row", "nothing was judged", "--bad-rows skip", says])
    assert f"rollouts.jsonl:4: {kind}: " in err


def test_a_line_that_is_not_utf8_is_named_with_the_byte(tmp_path):
    good = json.dumps(rollout("#### 2")).encode()
    (tmp_path / "rollouts.jsonl").write_bytes(good + b"\n" + good.replace(b"#### 2", b"\xe9 2") + b"\n")
    refused(
        tmp_path, says=["rollouts.jsonl:2: broken JSON", "not UTF-8", "at byte", "write the file as UTF-8"]
    )


def test_a_file_in_utf16_is_refused(tmp_path):
    (tmp_path / "rollouts.jsonl").write_text(json.dumps(rollout("#### 2")) + "\n", encoding="utf-16")
    refused(tmp_path, says=["rollouts.jsonl:1"])


def test_the_torn_last_line_of_a_writer_that_was_cut_is_called_so(tmp_path):
    file = write(tmp_path / "rollouts.jsonl", GOOD)
    file.write_bytes(file.read_bytes()[:-9])
    refused(tmp_path, says=["1 torn last line", "rollouts.jsonl:3: torn last line", "its writer was cut"])
    file.write_bytes(file.read_bytes() + b"\n")
    refused(tmp_path, says=["1 broken JSON", "rollouts.jsonl:3: broken JSON"])


@pytest.mark.parametrize("indent", [None, 2])
def test_a_json_array_is_refused_with_the_command_that_makes_lines_of_it(indent, tmp_path):
    (tmp_path / "rollouts.jsonl").write_text(json.dumps(GOOD, indent=indent))
    refused(tmp_path, says=["rollouts.jsonl:1"] + (["jq -c '.[]'"] if indent else []))


@pytest.mark.parametrize("damage", ["torn", "not gzip", "garbage"])
def test_a_damaged_gzip_file_is_refused_before_anything_is_judged(damage, tmp_path):
    raw = gzip.compress(b"".join(json.dumps(rollout(f"#### {n}")).encode() + b"\n" for n in range(3000)))
    raw = {"torn": raw[:-20], "not gzip": b"{}\n", "garbage": raw[:200] + b"xxxxxxxx" + raw[208:]}[damage]
    (tmp_path / "rollouts.jsonl.gz").write_bytes(raw)
    refused(
        tmp_path, file="rollouts.jsonl.gz", says=["rollouts.jsonl.gz: not a whole gzip file", "gzip --test"]
    )


def test_a_column_that_no_row_has_is_refused_with_those_there_are(tmp_path):
    write(tmp_path / "rollouts.jsonl", [{"prompt": "p", "completion": "c", "gold": 1}] * 3)
    refused(
        tmp_path, says=["rollouts.jsonl: the column 'answer' is in no row", "gold", "--column answer=FIELD"]
    )
    refused(tmp_path, "--column", "answer=golden", says=["'golden' is in no row"])
    refused(
        tmp_path,
        "--column",
        "completion=said",
        says=["the columns 'said', 'answer' are in no row", "--column completion=FIELD"],
    )


def test_a_name_for_a_field_that_no_row_has_is_refused(tmp_path):
    write(tmp_path / "rollouts.jsonl", GOOD)
    refused(tmp_path, "--column", "spare=odd", says=["no row has a field 'odd'", "--column spare=odd"])
    refused(tmp_path, "--keep", "odd", says=["the field 'odd' is in no row", "--keep"])
    refused(tmp_path, "--keep", "id", says=["the field 'id' is a column of the scored rows"])


def test_a_column_that_some_rows_lack_is_named_row_by_row(tmp_path):
    rows = [rollout("a"), rollout("b", prompt="?"), rollout("c")]
    del rows[1]["answer"]
    write(tmp_path / "rollouts.jsonl", rows)
    refused(tmp_path, says=["rollouts.jsonl:2: missing column: column 'answer': missing", "1 missing column"])


def test_rows_of_one_group_with_different_golds_are_bad(tmp_path):
    rows = [rollout("a", group="g"), rollout("b", group="g", gold="3"), rollout("c", group="g")]
    write(tmp_path / "rollouts.jsonl", rows)
    refused(
        tmp_path,
        says=[
            "rollouts.jsonl:2: unequal columns in a group",
            "'answer': '3' differs from '2' in line 1, the first row of group 'g'",
        ],
    )


def test_a_duplicate_id_is_named_with_the_line_where_it_stands_first(tmp_path):
    write(tmp_path / "rollouts.jsonl", [rollout("a", id="x"), rollout("b", id="y"), rollout("c", id="x")])
    refused(
        tmp_path,
        says=["1 duplicate id", "rollouts.jsonl:3: duplicate id: column 'id': 'x'", "line 1 already"],
    )


def test_an_id_that_is_another_rows_line_number_is_a_duplicate(tmp_path):
    write(tmp_path / "rollouts.jsonl", [rollout("a", id=2), rollout("b")])
    refused(tmp_path, says=["rollouts.jsonl:2: duplicate id", "line 1 already"])


def test_of_many_bad_rows_all_are_counted_by_kind_and_the_first_twenty_shown(tmp_path):
    write(tmp_path / "rollouts.jsonl", ["{"] * 30 + [rollout(7)] * 5 + GOOD)
    err = refused(tmp_path, says=["35 bad rows (30 broken JSON, 5 wrong type)", "and 15 more"])
    assert err.count("rollouts.jsonl:") == 1 + 20


def test_a_file_with_no_good_row_is_refused_also_when_bad_rows_are_skipped(tmp_path):
    write(tmp_path / "rollouts.jsonl", ["{", "[]"])
    refused(tmp_path, "--bad-rows", "skip", says=["no other row is left"])


def test_bad_rows_on_standard_input_are_named_by_line(tmp_path):
    done = steelyard("score", "-", "--reward", "gsm8k", "--out", "o", stdin=b'\n{"a"\n', cwd=tmp_path)
    assert done.code == 2
    assert "standard input:2: broken JSON" in done.err
    assert names(tmp_path) == []


# --- skipping bad rows


def test_skipping_leaves_out_what_is_no_rollout_and_says_so(tmp_path):
    rows = [rollout("#### 2"), "{", "[]", rollout(7), rollout("#### 3")]
    file = write(tmp_path / "r.jsonl", rows)
    done = steelyard("score", file, "--reward", "gsm8k", "--out", tmp_path / "o", "--bad-rows", "skip")
    assert done.code == 0
    assert [(row["id"], row["index"]) for row in read(tmp_path / "o")] == [(1, 0), (5, 1)]
    assert "skipped" in done.out
    assert "1 broken JSON, 1 not an object, 1 wrong type" in done.out


def test_skipping_leaves_out_duplicates_and_rows_whose_columns_differ_from_their_groups(tmp_path):
    rows = [
        rollout("#### 2", id="a", group="g"),
        rollout("#### 3", id="a", group="g"),
        rollout("#### 2", id="b", group="g", gold="3"),
        rollout("#### 3", id="c", group="g"),
    ]
    file = write(tmp_path / "r.jsonl", rows)
    done = steelyard("score", file, "--reward", "gsm8k", "--out", tmp_path / "o", "--bad-rows", "skip")
    assert [(row["id"], row["value"]) for row in read(tmp_path / "o")] == [("a", 1.2), ("c", 0.2)]
    skipped = next(line for line in done.out.splitlines() if line.startswith("skipped"))
    assert skipped.split()[1] == "2"


@pytest.mark.parametrize("gold", [None, "many", [2], True])
def test_skipping_leaves_rollouts_with_bad_columns_unscored_and_their_whole_group_with_them(gold, tmp_path):
    rows = [
        rollout("#### 2", group="bad", gold=gold), rollout("#### 2", group="good"),
        rollout("#### 3", group="bad", gold=gold),
        rollout("#### 3", group="good"),
    ]  # fmt: skip
    scored = score(rows, tmp_path, "--bad-rows", "skip")
    assert [row["verdict"] for row in scored] == ["unscored", "scored", "unscored", "scored"]
    for row in (scored[0], scored[2]):
        assert row["advantage"] == 0
        assert row["reason"].startswith("data: rollouts.jsonl:1: ")
        assert "answer" in row["reason"]
    assert scored[1]["advantage"] == 0  # two votes are too few for a standard deviation
    assert faults(tmp_path / "scored.jsonl.ledger") == []


# --- rewards


def test_an_unknown_reward_is_refused_with_the_nearest_name(tmp_path):
    write(tmp_path / "rollouts.jsonl", GOOD)
    refused(tmp_path, reward="gsm9k", says=["there is no reward 'gsm9k'", "did you mean 'gsm8k'"])
    refused(tmp_path, reward="gsm8k:fast", says=["no variant 'fast'", "gsm8k:flexible"])
    refused(tmp_path, reward="gsm8k,gsm8k", says=["named 2 times"])
    refused(tmp_path, reward=",", says=["--reward"])


@pytest.mark.parametrize(
    ("text", "target", "says"),
    [
        (None, "mine.py:f", ["there is no such file"]),
        ("x = 1\n", "mine.py:f", ["there is no 'f'"]),
        ("def g(completion): return 1\n", "mine.py:f", ["there is no 'f'", "g"]),
        ("f = 3\n", "mine.py:f", ["int, not a function"]),
        (
            "import nonsense_that_is_not_there\n",
            "mine.py:f",
            ["cannot be imported", "nonsense_that_is_not_there"],
        ),
        ("raise OSError('boom')\n", "mine.py:f", ["cannot be imported", "OSError: boom"]),
        ("import sys; sys.exit(3)\n", "mine.py:f", ["cannot be imported", "SystemExit: 3"]),
        ("def f(:\n", "mine.py:f", ["cannot be imported", "SyntaxError"]),
        ("def f(*everything): return 1\n", "mine.py:f", ["everything"]),
        ("def f(completion, colour): return 1\n", "mine.py:f", ["the column 'colour' is in no row"]),
        (None, "no_such_module_anywhere:f", ["cannot be imported"]),
    ],
)
def test_a_function_that_cannot_be_had_is_refused(text, target, says, tmp_path):
    write(tmp_path / "rollouts.jsonl", GOOD)
    if text is not None:
        (tmp_path / "mine.py").write_text(text)
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    try:
        refused(tmp_path, reward=target, says=says)
    finally:
        sys.dont_write_bytecode = before


KINDS = {
    "raise ValueError('boom')": "ValueError: boom",
    "return float('nan')": "returned nan",
    "return float('inf')": "returned inf",
    "return -float('inf')": "returned -inf",
    "return None": "returned None",
    "return '1.0'": "returned '1.0'",
    "return [1.0]": "returned [1.0]",
    "return 10**400": "",
    "import sys; sys.exit(0)": "SystemExit",
}


@pytest.mark.parametrize(
    ("how", "body"),
    [
        *(("async def", body) for body in KINDS if "exit" not in body),
        *(("def", body) for body in [*KINDS][::4]),
    ],
)
def test_a_reward_that_never_judges_stops_the_run_with_the_row_and_what_it_did(body, how, tmp_path):
    (tmp_path / "mine.py").write_text(f"{how} f(completion):\n    {body}\n")
    file = write(tmp_path / "r.jsonl", GOOD)
    words = ("score", file, "--reward", f"{tmp_path}/mine.py:f", "--out", tmp_path / "o", "--workers", 1)
    done = steelyard(*words)
    assert done.code == 2
    assert "reward 'f': it judged no rollout at all" in done.err
    assert "r.jsonl:" in done.err
    assert KINDS[body] in done.err
    assert "next: mend the reward" in done.err
    assert not (tmp_path / "o").exists()
    assert faults(tmp_path / "o.ledger") == []


def test_a_reward_whose_first_attempts_all_fail_alike_is_not_asked_for_every_row(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from pathlib import Path\nasync def f(completion):\n"
        "    with Path(__file__).with_name('log').open('a') as log:\n        log.write('x')\n"
        "    raise KeyError('gold')\n"
    )
    file = write(tmp_path / "r.jsonl", [rollout(str(n)) for n in range(600)])
    done = steelyard("score", file, "--reward", f"{tmp_path}/mine.py:f", "--out", tmp_path / "o")
    assert done.code == 2
    assert "first 32 attempts all failed alike" in done.err
    assert "KeyError: 'gold'" in done.err
    assert 32 <= len((tmp_path / "log").read_text()) < 200


@pytest.mark.parametrize("how", ["def", "async def"])
def test_a_reward_that_fails_on_some_rows_costs_those_rows_their_floor_and_no_other_row_anything(
    how, tmp_path
):
    (tmp_path / "mine.py").write_text(
        f"{how} f(completion):\n"
        "    if completion == 'raise': raise ValueError('boom')\n"
        "    return {'nan': float('nan'), 'none': None, 'text': 'x', 'true': True}.get(completion, 0.5)\n"
    )
    rows = [rollout(said) for said in ("raise", "a", "nan", "b", "none", "text", "true")]
    scored = score(rows, tmp_path, "--workers", 1, reward=f"{tmp_path}/mine.py:f")
    assert [row["value"] for row in scored] == [0.0, 0.5, 0.0, 0.5, 0.0, 0.0, 1.0]
    assert [row["code"] for row in scored] == [
        "reward_error",
        None,
        "reward_error",
        None,
        "reward_error",
        "reward_error",
        None,
    ]
    assert "boom" in scored[0]["reason"]
    assert "nan" in scored[2]["reason"]
    with Ledger(tmp_path / "scored.jsonl.ledger", write=False) as record:
        (run,) = record.runs()
        assert [a.ordinal for a in record.attempts(run, ordinal=0)] == [0, 1]  # asked twice, no more


def test_a_reward_that_raises_what_no_text_may_hold_is_judged_all_the_same(tmp_path):
    (tmp_path / "mine.py").write_text(
        "async def f(completion):\n    if 'x' in completion: raise ValueError('\\ud800')\n    return 1.0\n"
    )
    scored = score([rollout("x"), rollout("b")], tmp_path, reward=f"{tmp_path}/mine.py:f")
    assert [row["code"] for row in scored] == ["reward_error", None]


# --- where it is to go


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("r.jsonl", ["--out", "r.jsonl"]),
        ("r.jsonl", ["--out", "o", "--ledger", "r.jsonl"]),
        ("r.jsonl", ["--out", "o", "--ledger", "o"]),
        ("r.jsonl", ["--out", "o", "--ledger", "./x/../o"]),
        ("link", ["--out", "r.jsonl"]),
        ("o.partial", ["--out", "o"]),
        ("o.ledger.lock", ["--out", "o"]),
        ("o.ledger", ["--out", "o"]),
    ],
)
def test_one_file_in_two_places_of_a_command_is_refused_and_stays_as_it_is(file, words, tmp_path):
    (tmp_path / "x").mkdir()
    raw = write(tmp_path / "r.jsonl", GOOD).read_bytes()
    if file == "link":
        (tmp_path / "link").symlink_to("r.jsonl")
    elif file != "r.jsonl":
        write(tmp_path / file, GOOD)
    before = names(tmp_path)
    done = steelyard("score", file, "--reward", "gsm8k", *words, cwd=tmp_path)
    assert done.code == 2
    assert "are the same file" in done.err
    assert (tmp_path / file).read_bytes() == raw
    assert names(tmp_path) == before


def test_a_place_that_cannot_hold_the_scored_file_is_refused(tmp_path):
    write(tmp_path / "rollouts.jsonl", GOOD)
    (tmp_path / "folder").mkdir()
    refused(tmp_path, out="folder", says=["folder: this is a folder", "--out"])
    refused(tmp_path, out="no/o", says=["no/o: nothing can be written there", "--out PATH"])
    refused(tmp_path, out="rollouts.jsonl/o", says=["nothing can be written there"])


@pytest.mark.parametrize(
    "words", [["--out", ""], ["--out", "."], ["--out", "/"], ["--out", "o", "--ledger", ""]]
)
def test_a_place_without_a_name_is_refused(words, tmp_path):
    write(tmp_path / "rollouts.jsonl", GOOD)
    refused(tmp_path, *words, says=["names no file", words[-2]])
    assert steelyard("show", "").code == 2


def test_a_folder_in_the_ledgers_place_is_refused(tmp_path):
    write(tmp_path / "rollouts.jsonl", GOOD)
    (tmp_path / "folder").mkdir()
    refused(tmp_path, "--ledger", "folder", says=["folder", "--ledger"])


def test_a_device_is_never_replaced_by_a_file(tmp_path):
    write(tmp_path / "rollouts.jsonl", GOOD)
    os.mkfifo(tmp_path / "fifo")
    refused(tmp_path, out="fifo", says=["fifo: this is no file", "--out"])
    refused(tmp_path, "--ledger", "l", out="/dev/null", says=["/dev/null: this is no file"])


# The user may not even read the interpreter's files: a first run as root imports what is needed.
AS_NOBODY = """
import contextlib, io, os, sys, tempfile, urllib.parse
from steelyard.cli import main
words, folder = sys.argv[1:], tempfile.mkdtemp()
for warm in (
    ["rewards"], ["score", "none", "--reward", "gsm8k", "--out", folder + "/o"], ["show", "none"],
):
    sys.argv = ["steelyard", *warm]
    with contextlib.suppress(SystemExit), contextlib.redirect_stderr(io.StringIO()):
        with contextlib.redirect_stdout(io.StringIO()):
            main()
os.rmdir(folder)
os.setgroups([]); os.setgid(65534); os.setuid(65534)
sys.argv = ["steelyard", *words]
main()
"""


def as_nobody(*words):
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, *map(str, words)],
        cwd="/", capture_output=True, text=True, check=False, env=os.environ | {"COLUMNS": "200"},
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return Done(done.returncode, done.stdout, done.stderr)


@POSIX
@pytest.mark.needs("root")
@pytest.mark.parametrize(
    "what",
    [
        "out", "ledger", "file",
        "old ledger",
    ],
)  # fmt: skip
def test_what_may_not_be_written_or_read_is_refused(what, tmp_path_factory):
    # under /tmp itself: pytest's own folders are closed to others, as the user's home may be
    folder = tmp_path_factory.getbasetemp().parent.parent / f"steelyard-{os.getpid()}"
    closed, opened = folder / "closed", folder / "opened"
    closed.mkdir(parents=True)
    opened.mkdir()
    opened.chmod(0o777)
    try:
        file = write(closed / "r.jsonl", GOOD)
        out, ledger = opened / "o", opened / "l"
        if what == "out":
            out = closed / "o"
        elif what == "ledger":
            ledger = closed / "l"
        elif what == "file":
            file.chmod(0o600)
        else:
            ledger = closed / "l"
            done = steelyard("score", file, "--reward", "gsm8k", "--out", closed / "o", "--ledger", ledger)
            assert done.code == 0
        before = names(closed)
        done = as_nobody("score", file, "--reward", "gsm8k", "--out", out, "--ledger", ledger)
        assert done.code == 2, done
        named = {
            "out": "nothing can be written there",
            "file": "cannot be read",
            "ledger": "ledger cannot be",
        }
        assert named[what.split()[-1]] in done.err
        assert "next:" in done.err
        assert names(closed) == before
        assert names(opened) == []
        if what == "old ledger":
            for words, said in (([], "3 of 3"), (["--verify"], "sound"), (["--row", "1"], "#### 2")):
                done = as_nobody("show", ledger, *words)
                assert (done.code, said in done.out) == (0, True), done
    finally:
        shutil.rmtree(folder)


MEDDLING = """
import asyncio
async def f(completion):
    if completion == "go":
        with open("r.jsonl", "MODE") as file:
            file.write('{"prompt": "p", "completion": "new"}\\n' * 9_000)
    await asyncio.sleep(0)
    return 1.0
"""


@pytest.mark.parametrize("mode", ["a", "w", "r+"], ids=["appended to", "emptied", "written over"])
def test_a_file_that_is_written_to_while_it_is_judged_stops_the_run(mode, tmp_path):
    write(tmp_path / "r.jsonl", [rollout("go"), *(rollout(f"c{n}", prompt=f"p{n}") for n in range(9_000))])
    (tmp_path / "mine.py").write_text(MEDDLING.replace("MODE", mode))
    done = steelyard("score", "r.jsonl", "--reward", "mine.py:f", "--out", "o", cwd=tmp_path)
    assert done.code == 2
    assert "r.jsonl: the file was written to while it was judged" in done.err
    assert "next: wait for its writer" in done.err
    assert not (tmp_path / "o").exists()
    with Ledger(tmp_path / "o.ledger", write=False) as record:
        assert record.verify() == []
        assert not any(b"new" in entered.content for entered in record.entered(record.runs()[0]))


# --- the ledger


def scored_ledger(folder):
    score(GOOD, folder)
    return folder / "scored.jsonl.ledger"


def test_a_ledger_of_a_newer_version_is_refused_and_stays_as_it_is(tmp_path):
    ledger = scored_ledger(tmp_path)
    with contextlib.closing(sqlite3.connect(ledger)) as db, db:
        db.execute("INSERT INTO migrations VALUES ('002_the_future', 1)")
    raw = ledger.read_bytes()
    refused(tmp_path, says=["newer steelyard", "'002_the_future'", "pip install --upgrade", "--ledger"])
    assert ledger.read_bytes() == raw
    done = steelyard("show", ledger)
    assert done.code == 2
    assert "newer steelyard" in done.err


@pytest.mark.parametrize("change", ["rows", "reward", "timeout", "columns"])
def test_a_ledger_of_another_run_is_refused_with_what_differs(change, tmp_path):
    ledger = scored_ledger(tmp_path)
    scored = read(tmp_path / "scored.jsonl")
    words, reward, says = [], "gsm8k", change
    if change == "rows":
        write(tmp_path / "rollouts.jsonl", GOOD[:2])
        says = "input"
    elif change == "reward":
        reward, says = "answer", "parts"
    elif change == "timeout":
        words = ["--timeout", "3"]
    else:
        words = ["--column", "prompt=prompt"]
    refused(
        tmp_path, *words, reward=reward, says=["the ledger holds another run", says, "--new-run", "--ledger"]
    )
    assert read(tmp_path / "scored.jsonl") == scored
    assert faults(ledger) == []


def test_a_ledger_of_another_run_keeps_nothing_of_refused_standard_input(tmp_path):
    ledger = scored_ledger(tmp_path)
    raw = json.dumps(rollout("secret")).encode()
    done = steelyard("score", "-", "--reward", "gsm8k", "--out", "scored.jsonl", stdin=raw, cwd=tmp_path)
    assert done.code == 2
    with Ledger(ledger, write=False) as record:
        assert list(record.spooled()) == []
        assert len(record.runs()) == 1


@pytest.mark.parametrize("kind", ["text", "sqlite", "empty sqlite", "gzip"])
def test_a_file_that_is_no_ledger_is_refused_and_stays_as_it_is(kind, tmp_path):
    write(tmp_path / "rollouts.jsonl", GOOD)
    other = tmp_path / "other"
    if kind == "text":
        other.write_text("notes\n" * 300)
    elif kind == "gzip":
        other.write_bytes(gzip.compress(b"x" * 1000))
    else:
        with contextlib.closing(sqlite3.connect(other)) as db, db:
            db.execute("PRAGMA user_version = 1" if kind == "empty sqlite" else "CREATE TABLE t (x)")
    raw = other.read_bytes()
    refused(tmp_path, "--ledger", "other", says=["other: ", "ledger", "--ledger"])
    assert other.read_bytes() == raw
    done = steelyard("show", other)
    assert done.code == 2
    assert "next:" in done.err
    assert other.read_bytes() == raw


@POSIX
@pytest.mark.parametrize("ending", [False, True], ids=["while it judges", "a command apart"])
def test_a_second_run_on_one_ledger_is_refused_and_the_first_ends_as_if_alone(ending, tmp_path):
    (tmp_path / "mine.py").write_text(
        "import asyncio, os\nasync def f(completion):\n"
        "    while not os.path.exists('go'): await asyncio.sleep(0.01)\n    return len(completion)\n"
    )
    write(tmp_path / "r.jsonl", GOOD)
    words = ["score", "r.jsonl", "--reward", "mine.py:f", "--out", "o"]
    command = [sys.executable, "-m", "steelyard", *words]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as first:
        give_up = time.monotonic() + 20
        while time.monotonic() < give_up:
            with contextlib.suppress(Exception), Ledger(tmp_path / "o.ledger", write=False) as record:
                if list(record.heads(record.runs()[0])):
                    break
            time.sleep(0.02)
        before = names(tmp_path)
        other = ["--out", "p", "--ledger", "o.ledger"] if ending else []
        done = in_a_process(*words, *other, cwd=tmp_path)
        assert done.code == 2
        assert "another run is writing this ledger" in done.err
        assert "--ledger" in done.err
        assert names(tmp_path) == before
        assert steelyard("show", tmp_path / "o.ledger").code == 0  # readers are never locked out
        (tmp_path / "go").touch()
        assert first.wait(20) == 0
    assert [row["value"] for row in read(tmp_path / "o")] == [6, 6, 1]
    assert faults(tmp_path / "o.ledger") == []


def test_a_damaged_ledger_is_no_traceback(tmp_path):
    ledger = scored_ledger(tmp_path)
    raw = bytearray(ledger.read_bytes())
    for place in range(16_384, len(raw), 512):  # behind the first page
        raw[place : place + 200] = b"\xa5" * 200
    ledger.write_bytes(raw)
    for words in (
        ("score", "rollouts.jsonl", "--reward", "gsm8k", "--out", "scored.jsonl"),
        ("show", ledger),
        ("show", ledger, "--row", "1"),
        ("show", ledger, "--why"),
    ):
        done = steelyard(*words, cwd=tmp_path)
        assert done.code == 2
        assert "next:" in done.err
    done = steelyard("show", ledger, "--verify")
    assert done.code in {1, 2}
    assert "damaged" in done.out + done.err


# --- full disks


MANY = [rollout(f"{'x' * 900}#### {n % 5}", prompt=f"p{n // 8}", id=f"r{n}") for n in range(2_200)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The file of many rollouts, and what comes of it on a disk with room."""
    folder = tmp_path_factory.mktemp("undisturbed")
    rows = score(MANY, folder)
    return folder / "rollouts.jsonl", rows, (folder / "scored.jsonl.ledger").stat().st_size


def fills(folder, leave_bytes):
    """Fill a file system but for some bytes."""
    free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
    (folder / "ballast").write_bytes(b"x" * max(0, free - leave_bytes))


@pytest.mark.parametrize("stdin", [False, True], ids=["a file", "standard input"])
@pytest.mark.parametrize("room", [8_000, 80_000, 1_000_000, 2_600_000])
def test_on_a_full_disk_what_was_acknowledged_is_kept_and_the_same_command_goes_on(
    room, stdin, undisturbed, tmpfs, tmp_path
):
    file, expected, _ = undisturbed
    disk = tmpfs(12_000_000)
    fills(disk, room)
    out = disk / "scored.jsonl"
    raw = file.read_bytes() if stdin else b""
    words = ("score", "-" if stdin else file, "--reward", "gsm8k", "--out", out)
    done = steelyard(*words, stdin=raw)
    assert done.code == 2, done
    assert "could not be written" in done.err or "cannot be" in done.err
    assert "space" in done.err.partition("next:")[2]
    beside = {f"scored.jsonl.ledger{suffix}" for suffix in ("", ".lock", "-wal", "-shm")}
    assert set(names(disk)) <= {"ballast", *beside}
    kept = []
    if (disk / "scored.jsonl.ledger").exists():
        with Ledger(disk / "scored.jsonl.ledger", write=False) as record:
            assert record.verify() == []
            kept = [(run.number, list(record.scores(run))) for run in record.runs()]
    (disk / "ballast").unlink()
    done = steelyard(*words, stdin=raw)
    assert done.code == 0, done
    assert timeless(read(out)) == timeless(expected)
    with Ledger(disk / "scored.jsonl.ledger", write=False) as record:
        assert record.verify() == []
        for number, scores in kept:
            assert list(record.scores(record.runs()[number - 1]))[: len(scores)] == scores


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_disk_too_full_for_the_scored_file_costs_no_verdict_and_no_earlier_file(
    suffix, undisturbed, tmpfs, tmp_path
):
    file, expected, _ = undisturbed
    disk = tmpfs(1 << 20)
    out = disk / f"scored.jsonl{suffix}"
    out.write_text("of an earlier run")
    fills(disk, 8_192)
    words = ("score", file, "--reward", "gsm8k", "--out", out, "--ledger", tmp_path / "ledger")
    done = steelyard(*words)
    assert done.code == 2
    assert f"{out}: the scored rows could not be written" in done.err
    assert "every verdict is in the ledger" in done.err
    assert out.read_text() == "of an earlier run"
    assert names(disk) == ["ballast", out.name]
    (disk / "ballast").unlink()
    assert faults(tmp_path / "ledger") == []
    if suffix:
        assert steelyard(*words).code == 0
        assert timeless(read(out)) == timeless(expected)
    else:
        assert steelyard(*words[:-3], tmp_path / "o", *words[-2:]).code == 0
        assert timeless(read(tmp_path / "o")) == timeless(expected)


@POSIX
@pytest.mark.parametrize("limit", [4_096, 100_000, 600_000])
def test_a_limit_on_the_size_of_files_is_a_full_disk(limit, undisturbed, tmp_path):
    file, expected, _ = undisturbed
    out = tmp_path / "scored.jsonl"
    words = ("score", file, "--reward", "gsm8k", "--out", out)
    done = in_a_process(*words, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    assert done.code == 2, done
    assert "Traceback" not in done.err
    assert "next:" in done.err
    assert not out.exists()
    beside = {f"scored.jsonl.ledger{suffix}" for suffix in ("", ".lock", "-wal", "-shm")}
    assert set(names(tmp_path)) <= beside
    assert not (tmp_path / "scored.jsonl.ledger").exists() or faults(tmp_path / "scored.jsonl.ledger") == []
    assert steelyard(*words).code == 0
    assert timeless(read(out)) == timeless(expected)
    assert faults(tmp_path / "scored.jsonl.ledger") == []


@POSIX
def test_a_command_whose_output_has_no_room_says_so(undisturbed):
    file, *_ = undisturbed
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run(
            [sys.executable, "-m", "steelyard", "show", file.parent / "scored.jsonl.ledger"],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "No space left" in done.stderr
    assert signal.getsignal(signal.SIGPIPE) is not signal.SIG_DFL


def test_gzip_under_another_name_is_called_by_its_name(tmp_path):
    (tmp_path / "rollouts.jsonl").write_bytes(b"\x1f\x8b\x08\x00x\n")
    refused(tmp_path, says=["this is gzip, not JSON Lines"])


def test_of_several_columns_the_one_that_differs_in_a_group_is_named(tmp_path):
    row = {"prompt": "?", "completion": "a", "group": 7, "tests": [{"input": "", "output": "1"}]}
    languages = ["cpp", "cpp", "C++17"]
    write(tmp_path / "rollouts.jsonl", [row | {"language": language} for language in languages])
    words = "rollouts.jsonl:3: unequal columns in a group: column 'language': 'C++17' differs from 'cpp'"
    refused(tmp_path, reward="tests", says=[f"{words} in line 1, the first row of group 7"])
