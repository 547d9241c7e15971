"""The pictures of a price that have its steps in a row: where their time goes, and what each waits for.

Orange is waiting, in every picture: strong where a call was cut at the timeout, pale where none was. Blue
is busy. What colour tells is told by place, dash or shape as well. The palette is Okabe and Ito's, toned:
https://jfly.uni-koeln.de/color/.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from steelyard.pricing.values import Price, StepLine
from steelyard.report.figures import Altair, Chart, Figure, Records, apart, halo, layouts, names
from steelyard.report.units import said, seconds
from steelyard.report.words import one_line

WAITING, HIT = "waiting for rewards", "waiting, a call was cut at the timeout"
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
    records = _phases(steps)
    present = [phase for phase in PHASES if any(one["phase"] == phase for one in records)]
    known = "generation" in present
    data: dict[str, Records] = {"phases": records}
    if price.busy is not None and known:
        data["busy"] = [{"y": price.busy.value, "label": f"busy: {said(price.busy)}"}]
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
        lambda narrow: _draw_timeline(alt, present, count, with_busy="busy" in data, narrow=narrow),
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


def _phases(steps: Sequence[StepLine]) -> Records:
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
                "seconds": round(taken, 4),
                "told": seconds(taken),
                "cut": f"{step.cut:,} of {step.calls:,}",
            }
            for order, (phase, taken) in enumerate(phases)
            if taken is not None
        ]
    return records


def _draw_timeline(
    alt: Altair, present: Sequence[str], count: int, *, with_busy: bool, narrow: bool
) -> Chart:
    bars = (
        alt.Chart(alt.NamedData("phases"))
        .mark_bar()
        .encode(
            x=_steps_axis(alt).scale(paddingInner=0 if count > 80 else 0.18, paddingOuter=0.1),
            y=alt.Y("seconds:Q", title="seconds", stack="zero"),
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


def _steps_axis(alt: Altair) -> Chart:
    return alt.X("step:O", sort=None, title="step", axis=alt.Axis(labelAngle=0, labelLimit=60))


class _Line(NamedTuple):
    """The mean barrier by one way to know it."""

    name: str
    y: float
    label: str
    colour: str
    dash: list[int]


def barrier(alt: Altair, price: Price) -> Iterator[Figure]:
    """Each step's slowest call, and what two models say of their mean."""
    steps = price.by_step
    lines = [
        _Line(name, estimate.value, f"{said(estimate)} {label}", colour, dash)
        for name, estimate, label, colour, dash in (
            ("observed", price.observed, "as observed", "var(--ink)", [1, 0]),
            ("independent", price.independent, "if calls were independent", "var(--violet)", [7, 4]),
            ("correlated", price.correlated, "as correlated as measured", "var(--green)", [2, 3]),
        )
        if estimate is not None
    ]
    if not lines:
        return
    shown = [
        (name, step, slowest)
        for step, name in zip(steps, names([step.label for step in steps]), strict=True)
        if (slowest := step.slowest_s) is not None
    ]
    if len(shown) < 2:
        return
    top = 1.12 * max([*(slowest for _, _, slowest in shown), *(line.y for line in lines)]) or 1.0
    data: dict[str, Records] = {
        "steps": [
            {
                "step": name,
                "label": one_line(step.label, 80),
                "y": round(slowest, 4),
                "end": CUT if step.cut else FINISHED,
            }
            for name, step, slowest in shown
        ]
    }
    places = apart([line.y for line in lines], 18 * top / _HEIGHT)
    for line, at in zip(lines, places, strict=True):
        data[line.name] = [{"y": line.y, "at": at, "label": line.label}]
    wide, narrow = layouts(
        data, lambda narrow: _draw_barrier(alt, lines, top, len(shown), narrow=narrow), height=_HEIGHT
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


def _draw_barrier(alt: Altair, lines: Sequence[_Line], top: float, count: int, *, narrow: bool) -> Chart:
    ends = [FINISHED, CUT]
    points = (
        alt.Chart(alt.NamedData("steps"))
        .mark_point(filled=True, size=34 if count > 120 else 60, opacity=0.9)
        .encode(
            x=_steps_axis(alt),
            y=alt.Y(
                "y:Q", title="slowest call of the step, seconds", scale=alt.Scale(domain=[0, top], nice=False)
            ),
            color=alt.Color(
                "end:N",
                scale=alt.Scale(domain=ends, range=["var(--wait-mid)", "var(--wait)"]),
                legend=alt.Legend(columns=1 if narrow else 2),
            ),
            shape=alt.Shape("end:N", scale=alt.Scale(domain=ends, range=["circle", "triangle-up"])),
            tooltip=[
                alt.Tooltip("label:N", title="step"),
                alt.Tooltip("y:Q", title="slowest, seconds", format=".2f"),
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
        text = one.encode(x=alt.value("width"), y=alt.Y("at:Q"), text=alt.Text("label:N"))
        place = {"align": "right", "dx": -2} if narrow else {"align": "left", "dx": 8}
        layers.append(halo(alt, text, baseline="middle", fontWeight=600, color=line.colour, **place))
    return alt.layer(*layers)
