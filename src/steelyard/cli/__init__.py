"""The command line: words over the library.

Exit codes: 0 scored; 3 scored, but more could not be judged than the stated share; 2 refused, or
stopped with a message that ends with the next step; 130 interrupted.
"""

from __future__ import annotations

import io
import sys


def main() -> None:
    """Run `steelyard`."""
    import sqlite3

    from steelyard.cli.app import app
    from steelyard.errors import SteelyardError

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # completions hold what no terminal can show
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except SteelyardError as error:
        sys.stderr.write(f"steelyard: {_shown(str(error))}\n")
        sys.exit(2)
    except sqlite3.Error as error:
        sys.stderr.write(
            f"steelyard: the ledger cannot be read ({error})\n  next: steelyard show LEDGER --verify says "
            "what is damaged; --ledger PATH names another file to begin afresh\n"
        )
        sys.exit(2)
    except OSError as error:
        sys.stderr.write(
            f"steelyard: {error}\n  next: mend what it names (space, permission), and repeat the command\n"
        )
        sys.exit(2)


def _shown(message: str) -> str:
    """Spell out what would move a terminal's cursor: a message quotes names as it found them."""
    return "".join(c if c in "\n\t" or c.isprintable() else ascii(c)[1:-1] for c in message)
