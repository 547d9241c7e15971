"""The pictures of a scored run: every group's rewards side by side, and all rewards in a histogram.

A group in which everybody got the same teaches nothing, whatever the scheme: such groups are grey. Colours
run from pale (the lowest reward of the run) to strong (the highest).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from steelyard.report.figures import Altair, Chart, Figure, Records, layouts
from steelyard.report.scored import GroupRewards, Histogram, ScoredRun, histogram_of
from steelyard.report.words import number, one_line

LEVELS = 6
NONE = "no reward"


def groups(alt: Altair, scored: ScoredRun) -> Iterator[Figure]:
    """One column per group: its rewards from the lowest to the highest, groups sorted by their mean."""
    lines = sorted(scored.by_group, key=lambda one: (one.mean is not None, one.mean or 0.0))
    values = [value for line in lines for value in line.values if value is not None]
    if not values:
        return
    low, high = min(values), max(values)
    data: dict[str, Records] = {
        "cells": [cell for place, line in enumerate(lines) for cell in _cells(place, line, low, high)],
        "spans": _spans(lines, low, high),
    }
    levels = _levels(low, high)
    present = {cell["level"] for cell in data["cells"]}
    shown = [(label, colour) for label, colour in levels.items() if label in present]
    wide, narrow = layouts(lambda narrow: _draw_groups(alt, len(lines), shown, narrow=narrow), height=260)
    chosen = (
        "" if len(lines) == scored.groups else f" {len(lines)} of the {scored.groups:,} groups are shown."
    )
    silent = (
        " Gaps are rollouts without a reward." if len(values) < sum(len(one.values) for one in lines) else ""
    )
    says = (
        "Each column is a group, all completions of one prompt, filled with its rewards; the groups with the "
        "lowest mean stand on the left. Grey columns got the same reward throughout: they teach nothing."
        f"{chosen}{silent}"
    )
    heads = ["group", "rollouts", "with a reward", "mean", "rewards"]
    rows = [
        [
            one_line(line.id, 80),
            f"{line.size:,}",
            f"{sum(value is not None for value in line.values):,}",
            "" if line.mean is None else f"{line.mean:.3g}",
            ", ".join(f"{count} x {number(value)}" for value, count in sorted(_counted(line).items())[:12]),
        ]
        for line in lines
    ]
    yield Figure("groups", "Rewards by group", says, says, data, wide, narrow, heads, rows, full=True)


def _counted(line: GroupRewards) -> Counter[float]:
    return Counter(value for value in line.values if value is not None)


def _levels(low: float, high: float) -> dict[str, str]:
    """From the words of a legend to colours: for the ends of the scale, for what lies in between, for none."""
    if low == high:
        return {number(low): "var(--level-3)", NONE: "var(--none)"}
    edges = [low + (high - low) * step / (LEVELS - 2) for step in range(LEVELS - 1)]
    inner = {
        f"{number(a)} to {number(b)}": f"var(--level-{place})"
        for place, (a, b) in enumerate(pairwise(edges), 1)
    }
    return {
        number(low): "var(--level-0)",
        **inner,
        number(high): f"var(--level-{LEVELS - 1})",
        NONE: "var(--none)",
    }


def _level(value: float, low: float, high: float) -> str:
    words = list(_levels(low, high))
    if value == low:
        return words[0]
    if value == high:
        return words[-2]
    return words[1 + min(LEVELS - 3, int((value - low) / (high - low) * (LEVELS - 2)))]


def _cells(place: int, line: GroupRewards, low: float, high: float) -> Records:
    """Runs of equal rewards of one group, from the lowest up: they are as many as there are different ones."""
    at, cells = 0.0, []
    each = 1 / max(1, len(line.values))
    counts = sorted(_counted(line).items())
    for value, count in counts:
        cells.append(
            {
                "x": place,
                "x2": place + 1,
                "y": round(at, 5),
                "y2": round(at + count * each, 5),
                "level": _level(value, low, high),
                "flat": line.zero_variance,
                "group": line.id,
                "told": f"{count} of {line.size} got {number(value)}",
            }
        )
        at += count * each
    return cells


def _spans(lines: Sequence[GroupRewards], low: float, high: float) -> Records:
    """Where the groups stand from which nothing is learnt, with a word on why."""
    spans = []
    for word, mean in (("all wrong", low), ("all right", high)):
        places = [place for place, line in enumerate(lines) if line.zero_variance and line.mean == mean]
        if places and low < high:
            spans.append(
                {
                    "x": places[0],
                    "x2": places[-1] + 1,
                    "label": f"{word}: {len(places)}",
                    "first": mean == low,
                }
            )
    return spans


def _draw_groups(alt: Altair, count: int, shown: Sequence[tuple[str, str]], *, narrow: bool) -> Chart:
    x = alt.X("x:Q", title="groups, from the lowest mean reward to the highest", axis=alt.Axis(labels=False))
    x.scale = alt.Scale(domain=[0, count], nice=False)
    up = alt.Y(
        "y:Q",
        title="share of the group",
        scale=alt.Scale(domain=[0, 1]),
        axis=alt.Axis(format="%", values=[0, 0.5, 1], grid=False, titleY=-36),
    )
    gap = 1 if count <= 200 and not narrow else 0
    cells = (
        alt.Chart(alt.NamedData("cells"))
        .mark_rect(strokeWidth=gap, stroke="var(--paper)")
        .encode(
            x=x,
            x2="x2:Q",
            y=up,
            y2="y2:Q",
            color=alt.condition(
                "datum.flat",
                alt.value("var(--flat)"),
                alt.Color(
                    "level:N",
                    scale=alt.Scale(
                        domain=[label for label, _ in shown], range=[colour for _, colour in shown]
                    ),
                    legend=alt.Legend(columns=3 if narrow else len(shown), symbolType="square", offset=52),
                ),
            ),
            tooltip=[alt.Tooltip("group:N", title="group"), alt.Tooltip("told:N", title="rewards")],
        )
    )
    spans = alt.Chart(alt.NamedData("spans"))
    line = spans.mark_rule(color="var(--soft)", strokeWidth=1.2).encode(x="x:Q", x2="x2:Q", y=alt.value(-6))
    # the left one reads to the right and the right one to the left, so that neither leaves the picture
    first = spans.transform_filter("datum.first").encode(x="x:Q", y=alt.value(-11), text="label:N")
    last = spans.transform_filter("!datum.first").encode(x="x2:Q", y=alt.value(-11), text="label:N")
    return alt.layer(
        cells,
        line,
        first.mark_text(align="left", baseline="bottom", color="var(--soft)"),
        last.mark_text(align="right", baseline="bottom", color="var(--soft)"),
    )


def histogram(alt: Altair, scored: ScoredRun) -> Iterator[Figure]:
    found = scored.histogram
    if found is None:
        found = histogram_of(
            [value for line in scored.by_group for value in line.values if value is not None]
        )
    if not sum(found.counts):
        return
    total = sum(found.counts)
    data: dict[str, Records] = {
        "bars": [
            {"x": low, "x2": high, "count": count, "told": f"{count:,} ({count / total:.1%})"}
            for low, high, count in zip(found.edges, found.edges[1:], found.counts, strict=False)
        ],
        "mean": [] if scored.mean is None else [{"x": scored.mean, "label": f"mean {scored.mean:.3g}"}],
    }
    right = scored.mean is not None and scored.mean > (found.edges[0] + found.edges[-1]) / 2
    wide, narrow = layouts(lambda _: _draw_histogram(alt, found, right=right), height=240)
    says = f"How often each reward was given, over {total:,} rollouts that have one."
    heads = ["from", "to", "rollouts"]
    rows = [
        [f"{low:.4g}", f"{high:.4g}", f"{count:,}"]
        for low, high, count in zip(found.edges, found.edges[1:], found.counts, strict=False)
    ]
    yield Figure("histogram", "How rewards are spread", says, says, data, wide, narrow, heads, rows)


def _ticks(alt: Altair, found: Histogram) -> Chart:
    """Where there are a few bars, each stands for a reward, which is written below it."""
    if len(found.counts) > 10:
        return alt.Axis()
    return alt.Axis(values=[round((a + b) / 2, 6) for a, b in pairwise(found.edges)], format="~g")


def _draw_histogram(alt: Altair, found: Histogram, *, right: bool) -> Chart:
    base = alt.Chart(alt.NamedData("bars"))
    bars = base.mark_rect(color="var(--busy)", stroke="var(--paper)", strokeWidth=2).encode(
        x=alt.X("x:Q", title="reward", scale=alt.Scale(domain=[found.edges[0], found.edges[-1]], nice=False)),
        x2="x2:Q",
        y=alt.Y("count:Q", title="rollouts", scale=alt.Scale(domainMin=0)),
        y2=alt.datum(0),
        tooltip=[alt.Tooltip("told:N", title="rollouts")],
    )
    mean = alt.Chart(alt.NamedData("mean"))
    rule = mean.mark_rule(color="var(--ink)", strokeDash=[5, 4], strokeWidth=1.5).encode(x="x:Q")
    text = mean.mark_text(
        align="right" if right else "left", dx=-7 if right else 7, baseline="bottom", dy=-4
    ).encode(x="x:Q", y=alt.value(0), text="label:N")
    return alt.layer(bars, rule, text)
