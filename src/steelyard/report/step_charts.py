"""The pictures of a price that have its steps in a row: where their time goes, and what each waits for.

Orange is waiting, in every picture: strong where a call was cut at the timeout, pale where none was. Blue
is busy. What colour tells is told by place, dash or shape as well. The palette is Okabe and Ito's, toned:
https://jfly.uni-koeln.de/color/.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from steelyard.pricing.values import Price, StepLine
from steelyard.report import words
from steelyard.report.figures import Altair, Chart, Figure, Records, apart, halo, layouts, names
from steelyard.report.units import TimeUnit, said, seconds, time_unit
from steelyard.report.words import one_line

WAITING, HIT = "waiting for rewards", "waiting, a call was cut"
PHASES = {
    "generation": "var(--generation)",
    "training": "var(--training)",
    WAITING: "var(--wait-pale)",
    HIT: "var(--wait)",
}
FINISHED, CUT = "all calls finished", "a call was cut at the timeout"
_HEIGHT = 300


def timeline(alt: Altair, price: Price) -> Iterator[Figure]:
    """One bar per step: what the accelerator did, and how long it stood still."""
    steps = price.by_step
    if len(steps) < 2:  # nothing to compare: its numbers stand in words
        return
    taken = [
        second for step in steps for second in (step.generation_s, step.training_s, step.wait_s) if second
    ]
    unit = time_unit(sum(taken) / len(steps))
    records = _phases(steps, unit)
    present = [phase for phase in PHASES if any(one["phase"] == phase for one in records)]
    known = "generation" in present
    data: dict[str, Records] = {"phases": records}
    if price.busy is not None and known:
        data["busy"] = [{"y": unit.of(price.busy.value), "label": f"busy: {said(price.busy)}"}]
    hit, count = sum(step.cut > 0 for step in steps), len(steps)
    strong = (
        f"strong in the {hit} of these {count} steps in which a call was cut at the timeout"
        if hit
        else f"in none of these {count} steps was a call cut"
    )
    says = f"Each bar is a step. Orange is time in which the accelerator waits for rewards: {strong}."
    says += (
        (" The dashed line is what a step takes that never waits." if "busy" in data else "")
        if known
        else " How long generation and training took was not measured."
    )
    wide, narrow = layouts(
        data,
        lambda narrow: _draw_timeline(alt, present, steps, unit, with_busy="busy" in data, narrow=narrow),
        height=_HEIGHT,
    )
    heads = ["step", "generation", "waiting", "training", "slowest call", "calls cut", "calls"]
    rows = [
        [
            one_line(step.label, 80),
            *map(seconds, (step.generation_s, step.wait_s, step.training_s, step.slowest_s)),
            f"{step.cut:,}",
            f"{step.calls:,}",
        ]
        for step in steps
    ]
    title = "Step by step"
    yield Figure("timeline", title, says, says, data, wide, narrow, heads, rows, full=True)


def _phases(steps: Sequence[StepLine], unit: TimeUnit) -> Records:
    records = []
    for step, name in zip(steps, names([step.label for step in steps]), strict=True):
        phases = (
            ("generation", step.generation_s),
            ("training", step.training_s),
            (HIT if step.cut else WAITING, step.wait_s),
        )
        records += [
            {
                "step": name,
                "label": one_line(step.label, 80),
                "phase": phase,
                "order": order,
                "y": unit.of(taken),
                "told": seconds(taken),
                "cut": f"{step.cut:,} of {step.calls:,}",
            }
            for order, (phase, taken) in enumerate(phases)
            if taken is not None
        ]
    return records


def _draw_timeline(
    alt: Altair,
    present: Sequence[str],
    steps: Sequence[StepLine],
    unit: TimeUnit,
    *,
    with_busy: bool,
    narrow: bool,
) -> Chart:
    across = _steps(alt, steps, narrow=narrow)
    bars = (
        alt.Chart(alt.NamedData("phases"))
        .mark_bar()
        .encode(
            x=across.scale(paddingInner=0 if len(steps) > 80 else 0.18, paddingOuter=0.1),
            y=alt.Y("y:Q", title=unit.name, stack="zero"),
            order=alt.Order("order:Q"),
            color=alt.Color(
                "phase:N",
                scale=alt.Scale(domain=present, range=[PHASES[phase] for phase in present]),
                legend=alt.Legend(columns=1 if narrow else len(present), symbolType="square"),
            ),
            tooltip=[
                alt.Tooltip("label:N", title="step"),
                alt.Tooltip("phase:N", title="phase"),
                alt.Tooltip("told:N", title="takes"),
                alt.Tooltip("cut:N", title="calls cut"),
            ],
        )
    )
    if not with_busy:
        return bars
    line = alt.Chart(alt.NamedData("busy"))
    rule = line.mark_rule(color="var(--ink)", strokeDash=[5, 4], strokeWidth=1.2).encode(y=alt.Y("y:Q"))
    if narrow:
        return alt.layer(bars, rule)
    text = line.mark_text(align="left", baseline="middle", dx=8)
    return alt.layer(bars, rule, text.encode(x=alt.value("width"), y=alt.Y("y:Q"), text=alt.Text("label:N")))


def _steps(alt: Altair, steps: Sequence[StepLine], *, narrow: bool) -> Chart:
    """The axis of steps: those that have numbers have ticks at round ones, also where some are left out."""
    axis = alt.Axis(labelAngle=0, labelLimit=60)
    if ticks := round_ticks([step.label for step in steps], 5 if narrow else 12):
        axis = alt.Axis(
            labelAngle=0, values=list(ticks), labelExpr=f"{json.dumps(ticks)}[datum.value]", grid=False
        )
    return alt.X("step:O", sort=None, title="step", axis=axis)


def round_ticks(labels: Sequence[str], most: int) -> dict[str, str]:
    """At which labels ticks stand, and what is written there; empty where labels are not rising numbers.

    Of a long run not every step is drawn, and a round number stands at the nearest that is, if it is near.

    Examples
    --------
    >>> round_ticks(["0", "8", "19", "27", "41"], 3), round_ticks(["a", "b"], 3)
    ({'0': '0', '19': '20', '41': '40'}, {})
    """
    if not all(label.isascii() and label.isdecimal() and len(label) < 16 for label in labels):
        return {}
    numbers = [int(label) for label in labels]
    if any(after <= before for before, after in pairwise(numbers)):
        return {}
    span = numbers[-1] - numbers[0]
    nice = (lead * 10**power for power in range(16) for lead in (1, 2, 5))
    gap = next(gap for gap in nice if span // gap < most)
    first = -(-numbers[0] // gap) * gap
    ticks = {}
    for at in range(first, numbers[-1] + 1, gap):
        off, place = min((abs(one - at), place) for place, one in enumerate(numbers))
        if off <= gap / 10:  # hardly seen between ticks
            ticks[labels[place]] = str(at)
    return ticks


class _Line(NamedTuple):
    """The mean barrier by one way to know it."""

    name: str
    y: float
    label: str
    short: str
    colour: str
    dash: list[int]


def _lines(price: Price) -> list[_Line]:
    """What is known of it."""
    known = (
        ("observed", price.observed, "as observed", "observed", "var(--ink)", [1, 0]),
        (
            "independent",
            price.independent,
            "if calls were independent",
            "if independent",
            "var(--violet)",
            [7, 4],
        ),
        (
            "correlated",
            words.correlated(price),
            "as correlated as measured",
            "as correlated",
            "var(--green)",
            [2, 3],
        ),
    )
    return [
        _Line(name, estimate.value, f"{said(estimate)} {label}", f"{said(estimate)} {short}", colour, dash)
        for name, estimate, label, short, colour, dash in known
        if estimate is not None
    ]


def barrier(alt: Altair, price: Price) -> Iterator[Figure]:
    """Each step's slowest call, and what two models say of their mean."""
    steps = price.by_step
    lines = _lines(price)
    if not lines:
        return
    shown = [
        (name, step, slowest)
        for step, name in zip(steps, names([step.label for step in steps]), strict=True)
        if (slowest := step.slowest_s) is not None
    ]
    if len(shown) < 2:
        return
    unit = time_unit(max(line.y for line in lines))
    lines = [line._replace(y=unit.of(line.y)) for line in lines]
    top = 1.12 * max([*(unit.of(slowest) for _, _, slowest in shown), *(line.y for line in lines)]) or 1.0
    data: dict[str, Records] = {
        "steps": [
            {
                "step": name,
                "label": one_line(step.label, 80),
                "y": unit.of(slowest),
                "told": seconds(slowest),
                "end": CUT if step.cut else FINISHED,
            }
            for name, step, slowest in shown
        ]
    }
    places = apart([line.y for line in lines], 18 * top / _HEIGHT)
    for line, at in zip(lines, places, strict=True):
        data[line.name] = [{"y": line.y, "at": at, "label": line.label, "short": line.short}]
    wide, narrow = layouts(
        data,
        lambda narrow: _draw_barrier(alt, lines, top, [step for _, step, _ in shown], unit, narrow=narrow),
        height=_HEIGHT,
    )
    parts = " Where they part, calls are not slow by chance alone." if len(lines) > 1 else ""
    says = (
        "Training waits for the slowest call of a step: one point each. The lines are means over all steps: "
        f"as observed, and as models have them that are given nothing but the service times.{parts}"
    )
    heads = ["step", "slowest call", "calls cut"]
    rows = [[one_line(step.label, 80), seconds(slowest), f"{step.cut:,}"] for _, step, slowest in shown]
    told = f"{says} Means: {'; '.join(line.label for line in lines)}."
    title = "What each step waits for"
    yield Figure("barrier", title, says, told, data, wide, narrow, heads, rows, full=True)


def _draw_barrier(
    alt: Altair,
    lines: Sequence[_Line],
    top: float,
    steps: Sequence[StepLine],
    unit: TimeUnit,
    *,
    narrow: bool,
) -> Chart:
    ends = [FINISHED, CUT]
    points = (
        alt.Chart(alt.NamedData("steps"))
        .mark_point(filled=True, size=34 if len(steps) > 120 else 60, opacity=0.9)
        .encode(
            x=_steps(alt, steps, narrow=narrow),
            y=alt.Y(
                "y:Q",
                title=f"slowest call of the step, {unit.name}",
                scale=alt.Scale(domain=[0, top], nice=False),
            ),
            color=alt.Color(
                "end:N",
                scale=alt.Scale(domain=ends, range=["var(--wait-mid)", "var(--wait)"]),
                legend=alt.Legend(columns=1 if narrow else 2),
            ),
            shape=alt.Shape("end:N", scale=alt.Scale(domain=ends, range=["circle", "triangle-up"])),
            tooltip=[
                alt.Tooltip("label:N", title="step"),
                alt.Tooltip("told:N", title="slowest call"),
                alt.Tooltip("end:N", title="end"),
            ],
        )
    )
    layers = [points]
    for line in lines:
        one = alt.Chart(alt.NamedData(line.name))
        layers.append(
            one.mark_rule(strokeWidth=1.8, strokeDash=line.dash, color=line.colour).encode(y=alt.Y("y:Q"))
        )
        text = one.encode(
            x=alt.value("width"), y=alt.Y("at:Q"), text=alt.Text(f"{'short' if narrow else 'label'}:N")
        )
        place = {"align": "right", "dx": -2} if narrow else {"align": "left", "dx": 8}
        layers.append(halo(alt, text, baseline="middle", fontWeight=600, color=line.colour, **place))
    return alt.layer(*layers)
