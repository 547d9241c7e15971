"""What pricing itself costs: seconds and memory by the size of a run, read from a ledger and priced.

    python bench/price.py [STEPS BATCH]...

Each size runs in a process of its own; its ledger is made here, with attempts whose clocks are planted.
Growth is linear where microseconds per call stay the same.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
SIZES = ((40, 128), (1_000, 128), (1_000, 512), (10_000, 512))


def price(path: Path) -> None:
    """Price a ledger, and print what that took."""
    started = time.perf_counter()
    from steelyard.cli.record import opened
    from steelyard.ledger.observed import observed
    from steelyard.pricing.price import price_observed

    imported = time.perf_counter()
    with opened(path) as ledger:
        found = observed(ledger, ledger.runs()[-1])
    read = time.perf_counter()
    price_observed(found, busy_s=24.51)
    done = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{imported - started} {read - imported} {done - read} {peak}")


def main(sizes: list[tuple[int, int]]) -> None:
    from planted_ledger import fill

    print(f"{'steps':>7} {'batch':>6} {'calls':>10} {'import s':>9} {'read s':>7} {'price s':>8} {'all s':>6}"
          f" {'peak MB':>8} {'us a call':>10}")  # fmt: skip
    for steps, batch in sizes:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "run.ledger")
            fill(path, steps=steps, batch=batch)
            told = subprocess.run(
                [sys.executable, __file__, "--price", str(path)], check=True, capture_output=True, text=True
            ).stdout
        imported, read, priced, peak = map(float, told.split())
        print(
            f"{steps:7,} {batch:6,} {steps * batch:10,} {imported:9.2f} {read:7.2f} {priced:8.2f} "
            f"{imported + read + priced:6.2f} {peak:8,.0f} {(read + priced) / steps / batch * 1e6:10.2f}"
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--price"]:
        price(Path(sys.argv[2]))
    else:
        given = [int(word) for word in sys.argv[1:]]
        main(list(zip(given[::2], given[1::2], strict=True)) or list(SIZES))
