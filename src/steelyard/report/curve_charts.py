"""The pictures of a price that are curves: how long one reward takes, and what rarer timeouts would save.

Both have a logarithmic axis, because the tail is what costs: one call in a hundred decides what a step takes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from steelyard.pricing.values import Curve, Price
from steelyard.report.figures import Altair, Chart, Figure, Records, halo, layouts
from steelyard.report.units import amount, seconds

_RAREST = 1e-5  # the rarest share that an axis shows
_HEIGHT = 300
_PERCENT = "format(datum.value * 100, '~g') + ' %'"


def survival(alt: Altair, price: Price) -> Iterator[Figure]:
    """Kaplan and Meier's curve with its band, where calls were cut, and the timeout."""
    curve = price.survival
    if curve is None or not len(curve.x):
        return
    curve = _extended(curve)
    x, y = np.asarray(curve.x, dtype=float), np.asarray(curve.y, dtype=float)
    positive = y[y > 0]
    floor = 10.0 ** np.floor(np.log10(positive.min())) if len(positive) else _RAREST
    floor = float(np.clip(floor, _RAREST, 0.1))
    band = len(curve.low) == len(x) and len(curve.high) == len(x)
    points: Records = [
        {"x": round(at, 4), "y": max(share, floor), "told": amount(share, "share")}
        for at, share in zip(x.tolist(), y.tolist(), strict=True)
    ]
    if band:
        for point, low, high in zip(points, curve.low, curve.high, strict=True):
            point |= {"low": max(float(low), floor), "high": max(float(high), floor)}
    limit = [] if price.limit_s is None else [price.limit_s]
    data: dict[str, Records] = {
        "curve": points,
        "cuts": [{"x": at, "y": max(share, floor)} for at, share in _on(curve)],
        "limit": [{"x": at, "label": f"timeout: {seconds(at)}"} for at in limit],
    }
    furthest = max([*x.tolist(), *curve.marks, *limit])
    wide, narrow = layouts(data, lambda _: _draw_survival(alt, floor, furthest, band=band), height=_HEIGHT)
    says = (
        "How many calls are still under way after so many seconds, by Kaplan and Meier: a call that was cut "
        "counts as one that would have taken longer, how much nobody knows."
        + (" The band is the 95 % interval." if band else "")
        + (" Crosses: calls were cut there." if data["cuts"] else " No call was cut.")
    )
    heads = ["seconds", "still under way", *(["from", "to"] if band else [])]
    shares = [y, *([np.asarray(curve.low), np.asarray(curve.high)] if band else [])]
    rows = [
        [f"{at:.2f}", *(amount(float(share[place]), "share") for share in shares)]
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


def _draw_survival(alt: Altair, floor: float, furthest: float, *, band: bool) -> Chart:
    x = alt.X(
        "x:Q",
        title="seconds since the call started",
        scale=alt.Scale(domain=[0, 1.03 * furthest], nice=False),
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
                alt.Tooltip("x:Q", title="seconds", format=".2f"),
                alt.Tooltip("told:N", title="still under way"),
            ],
        ),
        limit.mark_rule(color="var(--wait)", strokeWidth=1.5, strokeDash=[5, 4]).encode(x=alt.X("x:Q")),
        halo(
            alt,
            limit.encode(x=alt.X("x:Q"), y=alt.value(10), text=alt.Text("label:N")),
            align="right",
            dx=-8,
            color="var(--wait-ink)",
        ),
        cross.encode(
            x=alt.X("x:Q"),
            y=alt.Y("y:Q"),
            tooltip=[alt.Tooltip("x:Q", title="calls cut at, seconds", format=".2f")],
        ),
    ]
    if band:
        area = base.mark_area(interpolate="step-after", color="var(--busy)", opacity=0.18)
        layers.insert(0, area.encode(y=alt.Y("low:Q"), y2=alt.Y2("high")))
    return alt.layer(*layers)


def knee(alt: Altair, price: Price) -> Iterator[Figure]:
    """What a step would take at other rates of timeouts, with here and now, and the knee."""
    curve = price.knee_curve
    if curve is None:
        return
    x, y = np.asarray(curve.x, dtype=float), np.asarray(curve.y, dtype=float)
    x, y = x[x > 0], y[x > 0]  # the axis is logarithmic
    if len(x) < 2:
        return
    low, high = float(x.min()), float(x.max())

    def at(rate: float) -> float:
        return float(np.interp(np.log(rate), np.log(x), y))

    base = 0.0 if price.busy is None else price.busy.value
    marks = [(rate, min(max(rate, low), high)) for rate in curve.marks[:1]]
    bend = price.knee.value if price.knee is not None and low <= price.knee.value <= high else None
    data: dict[str, Records] = {
        "curve": [
            {
                "x": rate,
                "y": round(step, 4),
                "base": base,
                "told": amount(rate, "share"),
                "step": seconds(step),
            }
            for rate, step in zip(x.tolist(), y.tolist(), strict=True)
        ],
        "here": [
            {
                "x": shown,
                "y": at(shown),
                "label": ["here and now:", f"{amount(rate, 'share')}, {seconds(at(shown))}"],
            }
            for rate, shown in marks
        ],
        "knee": [] if bend is None else [{"x": bend, "label": f"knee: {amount(bend, 'share')}"}],
        "busy": [] if price.busy is None else [{"x": low, "y": base, "label": f"busy: {seconds(base)}"}],
    }
    left = any(np.log(shown / low) > 0.4 * np.log(high / low) for _, shown in marks)
    wide, narrow = layouts(
        data, lambda narrow: _draw_knee(alt, low, high, left=left, narrow=narrow), height=_HEIGHT
    )
    says = "What a step would take if more or fewer calls timed out. The orange part is waiting."
    if bend is not None:
        says += (
            f" Right of the knee at {amount(bend, 'share')} nearly every step has a call that times out, so "
            "that a few less save nothing; left of it, each one less counts."
        )
    heads = ["calls that time out", "a step takes"]
    rows = [[amount(rate, "share"), seconds(step)] for rate, step in zip(x.tolist(), y.tolist(), strict=True)]
    yield Figure("knee", "How rare timeouts must be", says, says, data, wide, narrow, heads, rows)


def _draw_knee(alt: Altair, low: float, high: float, *, left: bool, narrow: bool) -> Chart:
    across = alt.X(
        "x:Q",
        title="calls that time out (logarithmic)",
        scale=alt.Scale(type="log", domain=[low, high], nice=False),
        axis=alt.Axis(values=_marks(low, high, [1] if narrow else [1, 3]), labelExpr=_PERCENT),
    )
    line = alt.Chart(alt.NamedData("curve")).encode(x=across)
    up = alt.Y("y:Q", title="expected step, seconds", scale=alt.Scale(domainMin=0))
    tip = [alt.Tooltip("told:N", title="calls that time out"), alt.Tooltip("step:N", title="a step takes")]
    here, bend, floor = (alt.Chart(alt.NamedData(name)) for name in ("here", "knee", "busy"))
    # the curve only rises: left above it and right below it there is room
    beside = {"align": "right", "dx": -10, "dy": -26} if left else {"align": "left", "dx": 12, "dy": 12}
    point = here.mark_point(filled=True, size=130, opacity=1, color="var(--ink)", stroke="var(--paper)")
    busy = floor.encode(x=alt.X("x:Q"), y=alt.Y("y:Q"), text=alt.Text("label:N"))
    knee_text = bend.encode(x=alt.X("x:Q"), y=alt.value("height"), text=alt.Text("label:N"))
    return alt.layer(
        line.mark_area(color="var(--wait)", opacity=0.14).encode(y=alt.Y("base:Q"), y2=alt.Y2("y")),
        line.mark_line(color="var(--wait)", strokeWidth=2.4).encode(y=up, tooltip=tip),
        floor.mark_rule(color="var(--busy)", strokeDash=[5, 4], strokeWidth=1.5).encode(y=alt.Y("y:Q")),
        halo(alt, busy, align="left", baseline="top", dx=6, dy=7, color="var(--busy-ink)"),
        bend.mark_rule(color="var(--soft)", strokeDash=[2, 3]).encode(x=alt.X("x:Q")),
        halo(alt, knee_text, align="right", baseline="bottom", dx=-6, dy=-8, color="var(--soft)"),
        point.encode(x=alt.X("x:Q"), y=alt.Y("y:Q")),
        halo(
            alt,
            here.encode(x=alt.X("x:Q"), y=alt.Y("y:Q"), text=alt.Text("label:N")),
            fontWeight=600,
            baseline="middle",
            lineHeight=15,
            **beside,
        ),
    )


def _marks(low: float, high: float, leads: list[int]) -> list[float]:
    """The multiples of each power of ten in between."""
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    values = [lead * 10.0**power for power in powers for lead in leads]
    return [value for value in values if 0.999 * low <= value <= 1.001 * high]
