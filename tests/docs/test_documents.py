"""Documents are executed: what they show runs, what they link to exists, and so do docstrings' examples.

In Markdown, top to bottom, one folder per document with a copy of `examples/` in it:

- a ```python block with `>>>` is a doctest; any other is saved as a file (under the name in its first line,
  `# rewards.py`, if it has one) and run, as a reader would;
- in a ```console block each `$ ` line that calls `steelyard` runs (a `\\` at its end continues it).

A comment in the line before the block says what else to expect: `<!-- exit: 2 -->` another exit status,
`<!-- output -->` that the output is as shown, where `...` stands for anything. What not every machine has is
named, too (`<!-- needs: bubblewrap -->`, as in `tests/conftest.py`): such blocks run in a test and a folder
of their own, so that the others of their document run everywhere.
"""

import doctest
import importlib
import os
import pkgutil
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import steelyard
from steelyard.rewards import apart

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
MODULES = sorted(
    name
    for name in {"steelyard"}.union(m.name for m in pkgutil.walk_packages(steelyard.__path__, "steelyard."))
    if not name.endswith(".__main__")  # importing it would run it
)
TRAINERS = [
    pytest.param(name, marks=pytest.mark.needs("trl")) if name.startswith("steelyard.integrations") else name
    for name in MODULES
]
LENIENT = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))


class Block(NamedTuple):
    """A fenced block: its language, its text, where it starts, and what the comment before it expects."""

    language: str
    text: str
    line: int
    exit: int
    compared: bool
    needs: str


class Command(NamedTuple):
    """One command of a console block and the output shown beneath it."""

    command: str
    shown: str


FENCE = re.compile(
    r"(?:^<!-- (?P<expects>.*?) -->\n)?^```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def blocks(text):
    for found in FENCE.finditer(text):
        expects = found["expects"] or ""
        status = re.search(r"exit: (\d+)", expects)
        needed = re.search(r"needs: (\w+)", expects)
        yield Block(
            language=found["language"],
            text=found["text"],
            line=text.count("\n", 0, found.start("text")) + 1,
            exit=int(status[1]) if status else 0,
            compared="output" in expects,
            needs=needed[1] if needed else "",
        )


def commands(console):
    """Split a console block into the commands that call steelyard, with the output shown for each."""
    for part in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
        command, shown = re.fullmatch(r"((?:[^\n]*\\\n)*[^\n]*)\n?(.*)", part, re.DOTALL).groups()
        if re.search(r"(^|[|;&] *)steelyard\b", command):
            yield Command(command, shown)


def run_command(command, folder):
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": tools, "COLUMNS": "100", "NO_COLOR": "1"}
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def run_block(block, folder):
    """Return what went wrong, or nothing."""
    if block.language == "python" and ">>>" in block.text:
        test = doctest.DocTestParser().get_doctest(block.text, {}, "block", None, 0)
        said = []
        failed = doctest.DocTestRunner(optionflags=LENIENT).run(test, out=said.append).failed
        return "".join(said) if failed else ""
    if block.language == "python":
        named = re.match(r"# (\w+\.py)\n", block.text)
        script = folder / (named[1] if named else f"line_{block.line}.py")
        script.write_text(block.text)
        steps = [Command(f"python {script.name}", "")]
    elif block.language == "console":
        steps = list(commands(block.text))
    else:
        return ""
    for command, shown in steps:
        done = run_command(command, folder)
        if done.returncode != block.exit:
            return f"$ {command}\n{done.stdout}\nexit status {done.returncode}, not {block.exit}"
        if block.compared and not doctest.OutputChecker().check_output(shown, done.stdout, LENIENT):
            return f"$ {command}\n{done.stdout}\nis not what the document shows:\n{shown}"
    return ""


def run_document(document, folder, needs=""):
    """Run the blocks of a document that need this, top to bottom; return what went wrong, or nothing."""
    shutil.copytree(ROOT / "examples", folder / "examples")
    for block in blocks(document.read_text()):
        if block.needs == needs and (wrong := run_block(block, folder)):
            return f"{document}:{block.line}\n{wrong}"
    return ""


@each_document
def test_every_example_in_a_document_runs(document, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wrong = run_document(document, tmp_path)
    assert not wrong, wrong


@pytest.mark.parametrize(
    ("document", "needs"),
    [
        pytest.param(
            document, needs, marks=pytest.mark.needs(needs), id=f"{document.relative_to(ROOT)}-{needs}"
        )
        for document in DOCUMENTS
        for needs in sorted({block.needs for block in blocks(document.read_text())} - {""})
    ],
)
def test_every_example_runs_where_what_it_needs_is_present(document, needs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wrong = run_document(document, tmp_path, needs)
    assert not wrong, wrong


@each_document
def test_every_relative_link_leads_to_a_file_of_this_repository(document):
    prose = FENCE.sub("", document.read_text())
    links = re.findall(r"\]\((?!\w+:|#)([^)#\s]+)", prose)
    lost = [link for link in links if not leads_inside(document.parent / link)]
    assert not lost, f"{document.relative_to(ROOT)} links to {lost}"


def leads_inside(target):
    return target.exists() and target.resolve().is_relative_to(ROOT)


@pytest.mark.parametrize("name", TRAINERS)
def test_every_example_in_a_docstring_runs(name):
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner(optionflags=LENIENT)
    said = []
    for test in doctest.DocTestFinder(exclude_empty=True).find(module, name):
        runner.run(test, out=said.append)
    apart.close()  # an example may have needed its process
    assert not runner.failures, "".join(said)


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ("```python\nassert 1 == 1\n```\n", ""),
        ("```python\nassert 1 == 2\n```\n", "AssertionError"),
        ("```python\n>>> 1 + 1\n2\n```\n", ""),
        ("```python\n>>> 1 + 1\n3\n```\n", "Expected"),
        ("```console\n$ steelyard --no-such-option\n```\n", "not 0"),
        ("<!-- exit: 2 -->\n```console\n$ steelyard --no-such-option\n```\n", ""),
        ("```console\n$ steelyard --help\nold\n```\n", ""),
        ("<!-- output -->\n```console\n$ steelyard \\\n    --help\n...Usage: steelyard...\n```\n", ""),
        ("<!-- output -->\n```console\n$ steelyard --help\nold\n```\n", "is not what the document shows"),
        ("```console\n$ rm -rf examples\n$ echo x | steelyard --no-such-option\n```\n", "not 0"),
    ],
)
def test_the_reader_of_documents_finds_what_is_wrong(document, complaint, tmp_path):
    (block,) = blocks(document)
    wrong = run_block(block, tmp_path)
    assert complaint in wrong
    assert bool(wrong) == bool(complaint)


def test_a_block_that_needs_something_runs_with_its_like_alone(tmp_path):
    document = tmp_path / "document.md"
    plain, behind = "```python\n# plain.py\n```\n", "```python\n# behind.py\nraise SystemExit(3)\n```\n"
    document.write_text(f"{plain}<!-- needs: bubblewrap -->\n{behind}")
    assert not run_document(document, tmp_path / "everywhere")
    assert "exit status 3" in run_document(document, tmp_path / "there", "bubblewrap")
    assert [left.parent.name for left in tmp_path.glob("*/plain.py")] == ["everywhere"]
