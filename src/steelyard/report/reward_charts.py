"""The pictures of a scored run: every group's rewards side by side, and all rewards in a histogram.

A group in which everybody got the same teaches nothing, whatever the scheme: such groups are grey. Colours
run from pale (the lowest reward of the run) to strong (the highest).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from steelyard.report.figures import Altair, Chart, Figure, Records, layouts
from steelyard.report.scored import GroupRewards, Histogram, ScoredRun, histogram_of
from steelyard.report.units import number
from steelyard.report.words import one_line

LEVELS = 6
_SHORT = "format(datum.value, '.3~g')"


def groups(alt: Altair, scored: ScoredRun) -> Iterator[Figure]:
    """One column per group: its rewards from the lowest to the highest, groups sorted by their mean."""
    lines = sorted(scored.by_group, key=lambda one: (one.mean is not None, one.mean or 0.0))
    values = [value for line in lines for value in line.values if value is not None]
    if not values:
        return
    levels = _Levels(values)
    data: dict[str, Records] = {
        "cells": [cell for place, line in enumerate(lines) for cell in _cells(place, line, levels)],
        "spans": _spans(lines, levels, scored),
    }
    shown = list(dict(zip(levels.words, levels.colours(), strict=True)).items())
    wide, narrow = layouts(
        data, lambda narrow: _draw_groups(alt, len(lines), shown, narrow=narrow), height=260
    )
    chosen = (
        ""
        if len(lines) == scored.groups
        else f" {len(lines):,} of the {scored.groups:,} groups are shown; the numbers above them count all."
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


class _Levels:
    """Which colour a reward has, and the words for it: each its own, or of very many, ranges of them."""

    def __init__(self, values: Sequence[float]) -> None:
        different = sorted(set(values))
        self._few = different if len(different) <= LEVELS else None
        self._edges = np.linspace(different[0], different[-1], LEVELS - 1)  # of what lies between the ends
        self.low, self.high = different[0], different[-1]
        if self._few:
            self.words = [number(value) for value in self._few]
        else:
            inner = [f"{number(a)} to {number(b)}" for a, b in pairwise(self._edges)]
            self.words = [number(self.low), *inner, number(self.high)]

    def colours(self) -> list[str]:
        """One for each word, over the whole of the scale."""
        last = max(1, len(self.words) - 1)
        return [f"var(--level-{round((LEVELS - 1) * place / last)})" for place in range(len(self.words))]

    def word(self, value: float) -> str:
        """The word for a reward."""
        if self._few:
            return self.words[self._few.index(value)]
        if value in {self.low, self.high}:
            return self.words[0 if value == self.low else -1]
        return self.words[int(np.searchsorted(self._edges, value, side="right").clip(1, LEVELS - 2))]


def _cells(place: int, line: GroupRewards, levels: _Levels) -> Records:
    """The rewards of one group from the lowest up; equal ones, or those of one range, are one cell."""
    runs: dict[str, int] = {}
    for value, count in sorted(_counted(line).items()):
        runs[levels.word(value)] = runs.get(levels.word(value), 0) + count
    at, cells = 0, []
    for word, count in runs.items():
        cells.append(
            {
                "x": place,
                "x2": place + 1,
                "y": round(at / len(line.values), 5),
                "y2": round((at + count) / len(line.values), 5),
                "level": word,
                "flat": line.zero_variance,
                "group": one_line(line.id, 80),
                "told": f"{count} of {line.size} got {word}",
            }
        )
        at += count
    return cells


def _spans(lines: Sequence[GroupRewards], levels: _Levels, scored: ScoredRun) -> Records:
    """Where the groups stand from which nothing is learnt, with a word on why, and how many the run has."""
    spans = []
    low, high = levels.low, levels.high
    for word, value, count in (("all wrong", low, scored.all_wrong), ("all right", high, scored.all_right)):
        places = [
            at for at, line in enumerate(lines) if line.zero_variance and set(_counted(line)) == {value}
        ]
        if places and count and low < high:
            label = f"{word}: {count:,}"
            spans.append({"x": places[0], "x2": places[-1] + 1, "label": label, "first": value == low})
    return spans


def _draw_groups(alt: Altair, count: int, shown: Sequence[tuple[str, str]], *, narrow: bool) -> Chart:
    x = alt.X("x:Q", title="groups, by their mean reward", axis=alt.Axis(labels=False)).scale(
        domain=[0, count], nice=False
    )
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
            x2=alt.X2("x2"),
            y=up,
            y2=alt.Y2("y2"),
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
    line = spans.mark_rule(color="var(--soft)", strokeWidth=1.2).encode(
        x=alt.X("x:Q"), x2=alt.X2("x2"), y=alt.value(-6)
    )
    # the left one reads to the right and the right one to the left, so that neither leaves the picture
    first = spans.transform_filter("datum.first").encode(
        x=alt.X("x:Q"), y=alt.value(-11), text=alt.Text("label:N")
    )
    last = spans.transform_filter("!datum.first").encode(
        x=alt.X("x2:Q"), y=alt.value(-11), text=alt.Text("label:N")
    )
    return alt.layer(
        cells,
        line,
        first.mark_text(align="left", baseline="bottom", color="var(--soft)"),
        last.mark_text(align="right", baseline="bottom", color="var(--soft)"),
    )


def histogram(alt: Altair, scored: ScoredRun) -> Iterator[Figure]:
    """How often each reward was given, with the mean."""
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
            for low, high, count in zip(found.edges[:-1], found.edges[1:], found.counts, strict=True)
        ],
        "mean": [] if scored.mean is None else [{"x": scored.mean, "label": f"mean {scored.mean:.3g}"}],
    }
    right = scored.mean is not None and scored.mean > (found.edges[0] + found.edges[-1]) / 2
    wide, narrow = layouts(data, lambda _: _draw_histogram(alt, found, right=right), height=240)
    says = f"How often each reward was given, over {total:,} rollouts that have one."
    heads = ["from", "to", "rollouts"]
    rows = [
        [f"{low:.4g}", f"{high:.4g}", f"{count:,}"]
        for low, high, count in zip(found.edges[:-1], found.edges[1:], found.counts, strict=True)
    ]
    yield Figure("histogram", "How rewards are spread", says, says, data, wide, narrow, heads, rows)


def _ticks(alt: Altair, found: Histogram) -> Chart:
    """Where there are a few bars, each stands for a reward, which is written below it."""
    if len(found.counts) > 10:
        return alt.Axis()
    return alt.Axis(values=[round((a + b) / 2, 6) for a, b in pairwise(found.edges)], labelExpr=_SHORT)


def _draw_histogram(alt: Altair, found: Histogram, *, right: bool) -> Chart:
    base = alt.Chart(alt.NamedData("bars"))
    bars = base.mark_rect(color="var(--busy)", stroke="var(--paper)", strokeWidth=2).encode(
        x=alt.X(
            "x:Q",
            title="reward",
            scale=alt.Scale(domain=[found.edges[0], found.edges[-1]], nice=False),
            axis=_ticks(alt, found),
        ),
        x2=alt.X2("x2"),
        y=alt.Y("count:Q", title="rollouts", scale=alt.Scale(domainMin=0)),
        y2=alt.datum(0),
        tooltip=[alt.Tooltip("told:N", title="rollouts")],
    )
    mean = alt.Chart(alt.NamedData("mean"))
    rule = mean.mark_rule(color="var(--ink)", strokeDash=[5, 4], strokeWidth=1.5).encode(x=alt.X("x:Q"))
    text = mean.mark_text(
        align="right" if right else "left", dx=-7 if right else 7, baseline="bottom", dy=-4
    ).encode(x=alt.X("x:Q"), y=alt.value(0), text=alt.Text("label:N"))
    return alt.layer(bars, rule, text)
