"""What `steelyard fit` knows by name: cards and models."""

from __future__ import annotations

from typing import Any

from steelyard.cli.words import console, plain


def cards() -> list[dict[str, Any]]:
    """Every card: its name, memory, bandwidth on paper and sustained, operations, and where that is from."""
    from steelyard.memory.cards import CARDS

    return [
        {
            "name": card.name,
            "bytes": card.bytes,
            "bandwidth": card.bandwidth,
            "sustained": card.sustained,
            "flops": card.flops,
            "unified": card.unified,
            "source": card.source,
        }
        for card in CARDS.values()
    ]


def models() -> list[dict[str, Any]]:
    """Every model and size class: name, family, parameters, those that one token meets, context."""
    from steelyard.memory.catalogue import names, shape_of, size_classes

    return [
        {
            "name": name,
            "family": shape.family,
            "parameters": shape.parameters,
            "active": shape.active,
            "positions": shape.positions,
        }
        for name, shape in ((name, shape_of(name)) for name in (*names(), *size_classes()))
    ]


def print_cards(found: list[dict[str, Any]]) -> None:
    """Print them as a table."""
    from steelyard.memory.values import GIB

    _print(
        ("card", "GiB", "GB/s", "sustained", "TFLOP/s"),
        [
            (
                one["name"],
                f"{one['bytes'] / GIB:.1f}",
                f"{one['bandwidth'] / 1e9:,.0f}",
                f"{one['sustained'] / 1e9:,.0f}",
                "" if one["flops"] is None else f"{one['flops'] / 1e12:,.0f}",
            )
            for one in found
        ],
    )
    console().print("\nGiB are what a program can have; --cards --json says where each number is from.")


def print_models(found: list[dict[str, Any]]) -> None:
    """Print them as a table."""
    _print(
        ("model", "parameters", "active", "context"),
        [
            (
                one["name"],
                f"{one['parameters']:,}",
                f"{one['active']:,}" if one["active"] != one["parameters"] else "",
                "" if one["positions"] is None else f"{one['positions']:,}",
            )
            for one in found
        ],
    )


def _print(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, header_style="dim")
    for place, head in enumerate(heads):
        table.add_column(head, justify="right" if place else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(plain, row))
    console().print(table)
