"""`python -m steelyard.integrations.trl`: what the installed trainer does with rows that could not be judged.

Exit status: 0 if it trains right with our reward function and mixin, 1 if not, 2 if there is no TRL to ask.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib.util import find_spec


def main() -> int:
    """Run the probe and print what it saw."""
    if find_spec("trl") is None:
        sys.stderr.write("TRL is not installed\n  next: pip install 'steelyard[trl]'\n")
        return 2
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from rich.console import Console  # noqa: PLC0415 - after what TRL reads when it is imported

    from steelyard.integrations.trl import probe  # noqa: PLC0415

    console = Console(highlight=False)
    with console.status("training a model of 2,000 parameters, six times"):
        import trl  # noqa: F401, PLC0415

        gc.collect()
        gc.freeze()  # a trainer collects garbage when it starts, and would look through all of torch for it
        seen = probe.probe()
    probe.print_probe(console, seen)
    console.print("A function that raises ends the run; one that returns 0 for its own failure is believed.")
    console.print("Next: docs/trl.md, and steelyard.integrations.trl.lint(trainer) for a trainer of yours.")
    return 0 if seen.right else 1


if __name__ == "__main__":
    sys.exit(main())
