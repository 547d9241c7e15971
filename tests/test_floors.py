"""The floors hold (docs/design/001-the-house.md): one only looks down, and every room can be overseen."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted((ROOT / "src").rglob("*.py"))


def test_no_module_imports_what_stands_above_it():
    lint_imports = Path(sys.executable).with_name("lint-imports")
    run = subprocess.run([lint_imports, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_a_module_has_at_most_500_lines_and_a_function_60(module):
    source = module.read_text()
    assert len(source.splitlines()) <= 500
    functions = (
        n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    long = {f.name: lines for f in functions if (lines := (f.end_lineno or 0) - f.lineno + 1) > 60}
    assert not long, f"functions over 60 lines, docstring included: {long}"
