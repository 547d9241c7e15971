"""How the commands print: texts as they are, and nothing that a terminal would act on."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

_ACTS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


def console(*, stderr: bool = False) -> Console:
    """Make a console that leaves `:x:` and numbers alone."""
    return Console(stderr=stderr, highlight=False, emoji=False)


def plain(text: str) -> str:
    r"""Make a completion's text safe to print: no markup, and control characters as their escapes.

    Examples
    --------
    >>> print(plain("\x1b[31mred"))
    \x1b[31mred
    """
    return escape(text.translate(_ACTS))
