"""The pictures of a price that are curves: how long one reward takes, and what rarer timeouts would save.

Both have a logarithmic axis, because the tail is what costs: one call in a hundred decides what a step takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from steelyard.pricing.values import Curve, Price
from steelyard.report import words
from steelyard.report.figures import Altair, Chart, Figure, Records, halo, layouts
from steelyard.report.units import TimeUnit, amount, said, seconds, time_unit

_RAREST = 1e-5  # the rarest share that an axis shows
_HEIGHT = 300
_ROOM = 1.2  # above a curve, for labels
_PERCENT = "format(datum.value * 100, '~g') + ' %'"


def survival(alt: Altair, price: Price) -> Iterator[Figure]:
    """Kaplan and Meier's curve with its band, where calls were cut, and the timeout."""
    curve = price.survival
    if curve is None or not len(curve.x):
        return
    curve = _extended(curve)
    limit = [] if price.limit_s is None else [price.limit_s]
    furthest = max([*curve.x, *curve.marks, *limit])
    unit = time_unit(furthest)
    share = limit[0] / furthest if limit and furthest else 1.0
    x, y = np.asarray(curve.x, dtype=float), np.asarray(curve.y, dtype=float)
    positive = y[y > 0]
    floor = 10.0 ** np.floor(np.log10(positive.min())) if len(positive) else _RAREST
    floor = float(np.clip(floor, _RAREST, 0.1))
    band = len(curve.low) == len(x) and len(curve.high) == len(x)
    points: Records = [
        {"x": unit.of(at), "y": max(share, floor), "told": amount(share, "share")}
        for at, share in zip(x.tolist(), y.tolist(), strict=True)
    ]
    if band:
        for point, low, high in zip(points, curve.low, curve.high, strict=True):
            point |= {"low": max(float(low), floor), "high": max(float(high), floor)}
    data: dict[str, Records] = {
        "curve": points,
        "cuts": [{"x": unit.of(at), "y": max(share, floor)} for at, share in _on(curve)],
        "limit": [{"x": unit.of(at), "label": f"timeout: {seconds(at)}"} for at in limit],
    }
    wide, narrow = layouts(
        data,
        lambda narrow: _draw_survival(alt, floor, furthest, unit, band=band, share=share, narrow=narrow),
        height=_HEIGHT,
    )
    says = (
        "How many calls are still under way after so long, by Kaplan and Meier: a call that was cut "
        "counts as one that would have taken longer, how much nobody knows."
        + (" The band is the 95 % interval." if band else "")
        + (" Crosses: calls were cut there." if data["cuts"] else " No call was cut.")
    )
    heads = [unit.name, "still under way", *(["from", "to"] if band else [])]
    shares = [y, *([np.asarray(curve.low), np.asarray(curve.high)] if band else [])]
    rows = [
        [f"{unit.of(at):.4g}", *(amount(float(share[place]), "share") for share in shares)]
        for place, at in enumerate(x.tolist())
    ]
    title = "How long one reward takes"
    yield Figure("survival", title, says, says, data, wide, narrow, heads, rows)


def _extended(curve: Curve) -> Curve:
    """The curve from the start, when every call was under way, to the last that was cut."""
    x, y, low, high = map(list, (curve.x, curve.y, curve.low, curve.high))
    if x[0] > 0:
        x, y = [0.0, *x], [1.0, *y]
        low, high = [1.0, *low] if low else [], [1.0, *high] if high else []
    last = max(curve.marks, default=x[-1])
    if last > x[-1]:  # between the last end and the last cut nothing is known to have ended
        x, y, low, high = [*x, last], [*y, y[-1]], [*low, *low[-1:]], [*high, *high[-1:]]
    return Curve(x, y, low, high, curve.marks)


def _on(curve: Curve) -> Iterator[tuple[float, float]]:
    """The marks of a curve with its height there; of very many, 300."""
    marks = np.unique(np.asarray(curve.marks, dtype=float))
    if len(marks) > 300:
        marks = marks[np.linspace(0, len(marks) - 1, 300).astype(int)]
    x, y = np.asarray(curve.x, dtype=float), np.asarray(curve.y, dtype=float)
    at = np.clip(np.searchsorted(x, marks, side="right") - 1, 0, len(x) - 1)
    yield from zip(marks.tolist(), y[at].tolist(), strict=True)


def _draw_survival(
    alt: Altair, floor: float, furthest: float, unit: TimeUnit, *, band: bool, share: float, narrow: bool
) -> Chart:
    x = alt.X(
        "x:Q",
        title=f"{unit.name} since the call started",
        axis=alt.Axis(tickCount=4 if narrow else 8),
        scale=alt.Scale(domain=[0, 1.03 * unit.of(furthest)], nice=False),
    )
    decades = [10.0**power for power in range(round(np.log10(floor)), 1)]
    y = alt.Y(
        "y:Q",
        title="calls still under way (logarithmic)",
        scale=alt.Scale(type="log", domain=[floor, 1]),
        axis=alt.Axis(values=decades, labelExpr=_PERCENT),
    )
    base = alt.Chart(alt.NamedData("curve")).encode(x=x)
    line = base.mark_line(interpolate="step-after", color="var(--busy)", strokeWidth=2)
    limit = alt.Chart(alt.NamedData("limit"))
    cuts = alt.Chart(alt.NamedData("cuts"))
    cross = cuts.mark_point(shape="cross", size=70, filled=False, color="var(--wait)", strokeWidth=1.6)
    layers = [
        line.encode(
            y=y,
            tooltip=[
                alt.Tooltip("x:Q", title=unit.name, format=".4~g"),
                alt.Tooltip("told:N", title="still under way"),
            ],
        ),
        limit.mark_rule(color="var(--wait)", strokeWidth=1.5, strokeDash=[5, 4]).encode(x=alt.X("x:Q")),
        halo(
            alt,
            limit.encode(x=alt.X("x:Q"), y=alt.value(10), text=alt.Text("label:N")),
            color="var(--wait-ink)",
            **_beside(share),
        ),
        cross.encode(
            x=alt.X("x:Q"),
            y=alt.Y("y:Q"),
            tooltip=[alt.Tooltip("x:Q", title=f"calls cut at, {unit.name}", format=".4~g")],
        ),
    ]
    if band:
        area = base.mark_area(interpolate="step-after", color="var(--busy)", opacity=0.18)
        layers.insert(0, area.encode(y=alt.Y("low:Q"), y2=alt.Y2("high")))
    return alt.layer(*layers)


def knee(alt: Altair, price: Price) -> Iterator[Figure]:
    """What a step would take at other rates of timeouts, by a model without queues, and what it was here."""
    curve = price.knee_curve
    if curve is None:
        return
    x, y = np.asarray(curve.x, dtype=float), np.asarray(curve.y, dtype=float)
    x, y = x[x > 0], y[x > 0]  # the axis is logarithmic
    if len(x) < 2:
        return
    low, high = float(x.min()), float(x.max())
    whole = price.wait if price.busy is None else price.step  # without busy time the curve is of waits
    measured = whole if price.measured and curve.marks else None
    unit = time_unit(float(y.mean()) if measured is None else measured.value)
    base = 0.0 if price.busy is None else unit.of(price.busy.value)
    here = [(rate, min(max(rate, low), high)) for rate in curve.marks[:1]]
    bend = price.knee.value if price.knee is not None and low <= price.knee.value <= high else None
    told = [(amount(rate, "share"), seconds(at)) for rate, at in zip(x.tolist(), y.tolist(), strict=True)]
    data: dict[str, Records] = {
        "curve": [
            {"x": rate, "y": unit.of(at), "base": base, "told": share, "step": takes}
            for rate, at, (share, takes) in zip(x.tolist(), y.tolist(), told, strict=True)
        ],
        "here": [{"x": at, "label": f"here and now: {amount(rate, 'share')}"} for rate, at in here],
        "measured": []
        if measured is None
        else [{"x": here[0][1], "y": unit.of(measured.value), "label": f"measured: {said(measured)}"}],
        "knee": [] if bend is None else [{"x": bend, "label": f"knee: {amount(bend, 'share')}"}],
        "busy": [] if price.busy is None else [{"x": low, "y": base, "label": f"busy: {said(price.busy)}"}],
    }
    frame = _Frame(
        low,
        high,
        _ROOM * max(one["y"] for one in [*data["curve"], *data["measured"]]) or 1.0,
        float(np.log(here[0][1] / low) / np.log(high / low)) if here else 0.0,
        *_titles(price, unit),
    )
    wide, narrow = layouts(data, lambda narrow: _draw_knee(alt, frame, narrow=narrow), height=_HEIGHT)
    says = _says_knee(price, bend, with_dot=measured is not None)
    heads = ["calls that time out", "a step takes" if price.busy is not None else "a step waits"]
    yield Figure("knee", "How rare timeouts must be", says, says, data, wide, narrow, heads, told)


def _titles(price: Price, unit: TimeUnit) -> tuple[str, str]:
    """What the curve is of, and on which conditions: for a wide window, and for a narrow one."""
    what = "wait" if price.busy is None else "step"
    long, short = words.dependence(price)
    return (
        f"expected {what} if calls were {long}, no queues, {unit.name}",
        f"{what} if {short}, no queues, {unit.sign}",
    )


def _says_knee(price: Price, bend: float | None, *, with_dot: bool) -> str:
    says = (
        f"What a step would {'wait' if price.busy is None else 'take'} if more or fewer calls timed out, by "
        f"a model: calls are {words.dependence(price)[0]}, and none waits in a queue. The orange part is "
        "waiting."
    )
    if with_dot:
        says += (
            " The dot is what was measured: what it has beyond the curve is not in the model, such as queues."
        )
    if bend is not None:
        says += (
            f" Right of the knee at {amount(bend, 'share')} nearly every step has a call that times out, so "
            "that a few less save nothing; left of it, each one less counts."
        )
    return says


class _Frame(NamedTuple):
    """The axes: both ends of the rates, the top, where between the ends here and now is, titles."""

    low: float
    high: float
    top: float
    here: float
    wide: str
    narrow: str


def _draw_knee(alt: Altair, frame: _Frame, *, narrow: bool) -> Chart:
    low, high = frame.low, frame.high
    across = alt.X(
        "x:Q",
        title="calls that time out (logarithmic)",
        scale=alt.Scale(type="log", domain=[low, high], nice=False),
        axis=alt.Axis(values=_marks(low, high, [1] if narrow else [1, 3]), labelExpr=_PERCENT),
    )
    line = alt.Chart(alt.NamedData("curve")).encode(x=across)
    up = alt.Y(
        "y:Q",
        title=frame.narrow if narrow else frame.wide,
        scale=alt.Scale(domain=[0, frame.top], nice=False),
    )
    tip = [alt.Tooltip("told:N", title="calls that time out"), alt.Tooltip("step:N", title="the model says")]
    here, dot, bend, floor = (alt.Chart(alt.NamedData(name)) for name in ("here", "measured", "knee", "busy"))
    beside = _beside(frame.here)
    point = dot.mark_point(filled=True, size=130, opacity=1, color="var(--ink)", stroke="var(--paper)")
    x, y, text = alt.X("x:Q"), alt.Y("y:Q"), alt.Text("label:N")
    return alt.layer(
        line.mark_area(color="var(--wait)", opacity=0.14).encode(y=alt.Y("base:Q"), y2=alt.Y2("y")),
        line.mark_line(color="var(--wait)", strokeWidth=2.4).encode(y=up, tooltip=tip),
        floor.mark_rule(color="var(--busy)", strokeDash=[5, 4], strokeWidth=1.5).encode(y=y),
        bend.mark_rule(color="var(--soft)", strokeDash=[2, 3]).encode(x=x),
        here.mark_rule(color="var(--ink)", strokeWidth=1.2).encode(x=x),
        halo(
            alt,
            floor.encode(x=x, y=y, text=text),
            align="left",
            baseline="top",
            dx=6,
            dy=7,
            color="var(--busy-ink)",
        ),
        halo(
            alt,
            bend.encode(x=x, y=alt.value("height"), text=text),
            align="right",
            baseline="bottom",
            dx=-6,
            dy=-8,
            color="var(--soft)",
        ),
        point.encode(x=x, y=y),
        halo(alt, here.encode(x=x, y=alt.value(9), text=text), baseline="middle", **beside),
        halo(alt, dot.encode(x=x, y=y, text=text), baseline="bottom", dy=-8, fontWeight=600, **beside),
    )


def _beside(share: float) -> dict[str, object]:
    """Where the label of an upright line stands that is at this share of the width: where there is room."""
    if 0.36 <= share <= 0.64:
        return {"align": "center"}
    return {"align": "left", "dx": 8} if share < 0.36 else {"align": "right", "dx": -8}


def _marks(low: float, high: float, leads: list[int]) -> list[float]:
    """The multiples of each power of ten in between."""
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    values = [lead * 10.0**power for power in powers for lead in leads]
    return [value for value in values if 0.999 * low <= value <= 1.001 * high]
