"""`steelyard` as a user runs it: in this process where that is the same, in one of its own where not."""

import contextlib
import gzip
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from steelyard.cli import main
from steelyard.ledger import Ledger


class Done(NamedTuple):
    """What a command left on its streams, and its exit code."""

    code: int
    out: str
    err: str


def steelyard(*words, stdin=b"", cwd=None):
    """Run the command in this process."""
    out, err = io.StringIO(), io.StringIO()
    streams = sys.stdin, sys.argv, os.environ.get("COLUMNS")
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin))
    sys.argv = ["steelyard", *map(str, words)]
    os.environ["COLUMNS"] = "200"
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            contextlib.chdir(cwd or Path.cwd()),
            pytest.raises(SystemExit) as exited,
        ):
            main()
    finally:
        sys.stdin, sys.argv = streams[:2]
        os.environ.pop("COLUMNS")
        if streams[2] is not None:
            os.environ["COLUMNS"] = streams[2]
    return Done(exited.value.code or 0, out.getvalue(), err.getvalue())


def in_a_process(*words, stdin=b"", **settings):
    """Run the command in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "steelyard", *map(str, words)],
        input=stdin,
        capture_output=True,
        check=False,
        env=os.environ | {"COLUMNS": "200"},
        timeout=60,
        **settings,
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def write(path, rows, *, end="\n"):
    """Write rows as JSON Lines; `.gz` is compressed, text stands as it is."""
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    text = "".join(line + end for line in lines).encode("utf-8", "surrogatepass")
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def read(path):
    """The rows of a scored file."""
    raw = path.read_bytes()
    text = gzip.decompress(raw) if path.suffix == ".gz" else raw
    return [json.loads(line) for line in text.splitlines()]


def rollout(said, gold="2", prompt="1 + 1?", **more):
    """A row whose completion gsm8k judges."""
    return {"prompt": prompt, "completion": said, "answer": gold, **more}


def score(rows, folder, *words, reward="gsm8k"):
    """Score rows, and read what came of it."""
    file = rows if isinstance(rows, Path) else write(folder / "rollouts.jsonl", rows)
    out = folder / "scored.jsonl"
    done = steelyard("score", file, "--reward", reward, "--out", out, *words, cwd=folder)
    assert done.code == 0, done.err
    return read(out)


def timeless(rows):
    """Rows without what differs from run to run."""
    return [{name: value for name, value in row.items() if name != "clocks"} for row in rows]


def faults(ledger):
    """What `verify` finds."""
    with Ledger(ledger, write=False) as record:
        return record.verify()


def names(folder):
    """What lies in a folder."""
    return sorted(path.name for path in folder.iterdir())
