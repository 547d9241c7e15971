"""The command line: words over the library.

Exit codes: 0 scored; 3 scored, but more could not be judged than the stated share; 2 refused, or
stopped with a message that ends with the next step; 130 interrupted.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run `steelyard`."""
    from steelyard.cli.app import app
    from steelyard.errors import SteelyardError

    try:
        app()
    except SteelyardError as error:
        sys.stderr.write(f"steelyard: {error}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.stderr.write("steelyard: interrupted; the same command goes on where it stopped\n")
        sys.exit(130)
    except BrokenPipeError:  # `steelyard show ... | head`
        sys.stderr.close()
        sys.exit(0)
