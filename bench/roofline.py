"""The decode roofline beside the table of the design, and tokens per second by card.

    python bench/roofline.py

The first table is arithmetic against arithmetic: it shows that the convention is the same (all weights once,
bf16, 128 sequences, 185 GB/s), and says nothing of what an engine reaches. The second is an upper bound by
card at a context of 2,048 tokens, whether or not the model fits: `steelyard fit` says that.
"""

from __future__ import annotations

import time

from rich.console import Console
from rich.table import Table

from steelyard.memory.cards import CARDS, card
from steelyard.memory.catalogue import shape_of
from steelyard.memory.roofline import decode
from steelyard.memory.shapes import ModelShape

# shared/design/memory.md: tokens/s at 128 sequences by context, and the cache's share of traffic at 4,096
DESIGN = {"0.6B": (2719, 386, 98), "4B": (1338, 277, 91), "8B": (909, 253, 83)}
CONTEXTS = (512, 4096)
SEQUENCES = 128
SIZES = ("0.6B", "4B", "8B", "32B")  # of Qwen3


def shape(size: str) -> ModelShape:
    return shape_of(f"Qwen3-{size}")


def beside_the_design(console: Console) -> None:
    table = Table(title=f"{SEQUENCES} sequences at 185 GB/s, tokens/s at most")
    for title in ("model", "context", "design", "ours", "ratio", "cache", "design's"):
        table.add_column(title, justify="right")
    for size, (*speeds, share) in DESIGN.items():
        for context, told in zip(CONTEXTS, speeds, strict=True):
            at = decode(shape(size), card("DGX Spark"), batch=SEQUENCES, context=context)
            design_share = f"{share} %" if context == max(CONTEXTS) else ""
            table.add_row(
                size,
                f"{context:,}",
                f"{told:,}",
                f"{at.tokens_per_s:,.0f}",
                f"{at.tokens_per_s / told:.4f}",
                f"{100 * at.cache_share:.0f} %",
                design_share,
            )
    console.print(table)


def by_card(console: Console) -> None:
    table = Table(title="tokens/s at most, context 2,048: one stream / 128 streams")
    table.add_column("card")
    table.add_column("sustained GB/s", justify="right")
    for size in SIZES:
        table.add_column(size, justify="right")
    began, count = time.perf_counter(), 0
    for where in CARDS.values():
        cells = []
        for size in SIZES:
            one, many = (decode(shape(size), where, batch=n, context=2048) for n in (1, SEQUENCES))
            bound = "*" if many.bound == "compute" else ""
            cells.append(f"{one.tokens_per_s:,.0f} / {many.tokens_per_s:,.0f}{bound}")
            count += 2
        table.add_row(where.name, f"{where.sustained / 1e9:,.0f}", *cells)
    took = time.perf_counter() - began
    console.print(table)
    console.print(f"* bound by operations. {1e6 * took / count:.0f} us each, shapes built anew")


if __name__ == "__main__":
    out = Console(width=110)
    beside_the_design(out)
    by_card(out)
