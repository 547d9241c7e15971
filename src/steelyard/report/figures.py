"""What every picture of a page shares: its data once, two layouts, its colours by name, a table.

A figure is a Vega-Lite specification made by Altair. Its colours are the style sheet's variables
(`var(--wait)`), which an SVG looks up when it is shown: dark, light and paper need no drawing anew. A narrow
window does, for labels then go elsewhere: two layouts over the same data, and the page's script takes one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple, TypeAlias

from steelyard.errors import RefusedError
from steelyard.report.words import one_line

Records: TypeAlias = list[dict[str, Any]]
Spec: TypeAlias = dict[str, Any]
Altair: TypeAlias = Any
"""The module, which is imported where a page is drawn."""
Chart: TypeAlias = Any

FONT: Final = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"

_CONFIG: Final[Spec] = {
    "aria": False,  # the box around it says what it shows; thousands of marks would say nothing
    "font": FONT,
    "background": "transparent",
    "view": {"stroke": None},
    "axis": {
        "domain": False,
        "ticks": False,
        "gridColor": "var(--line)",
        "gridWidth": 1,
        "labelColor": "var(--soft)",
        "labelFontSize": 12,
        "labelPadding": 8,
        "labelOverlap": "parity",
        "labelSeparation": 8,
        "titleColor": "var(--soft)",
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "titlePadding": 10,
    },
    "axisX": {"grid": False, "domain": True, "domainColor": "var(--line)"},
    # titles of a y axis lie above it, so that they are read without turning the head
    "axisY": {"titleAngle": 0, "titleAlign": "left", "titleAnchor": "start", "titleX": 0, "titleY": -14},
    "legend": {
        "orient": "top",
        "direction": "horizontal",
        "title": None,
        "labelColor": "var(--ink)",
        "labelFontSize": 12,
        "labelLimit": 320,
        "symbolSize": 110,
        "symbolStrokeWidth": 0,
        "columnPadding": 18,
        "offset": 34,
    },
    "text": {"color": "var(--ink)", "fontSize": 12, "font": FONT},
}


class Figure(NamedTuple):
    """A picture with everything that goes with it.

    Parameters
    ----------
    key
        Its name in the page.
    title, says
        Above it: what it shows, and how to read it.
    describes
        What it shows, for whoever does not see it.
    data
        Records by the name under which the specifications ask for them.
    wide, narrow
        The specifications.
    heads, rows
        The numbers, as a table.
    full
        Whether it needs the width of the page.
    """

    key: str
    title: str
    says: str
    describes: str
    data: Mapping[str, Records]
    wide: Spec
    narrow: Spec
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    full: bool = False

    def document(self) -> Spec:
        """What the page's script reads."""
        return {"data": dict(self.data), "wide": self.wide, "narrow": self.narrow}


def drawing(where: str) -> tuple[Altair, Any]:
    """Import Altair and vl-convert, or refuse with what to install.

    Parameters
    ----------
    where
        The page for which they are needed.

    Raises
    ------
    RefusedError
        One of them cannot be imported.
    """
    try:
        return import_module("altair"), import_module("vl_convert")
    except ImportError as error:
        raise RefusedError(
            f"the page is drawn by Altair and vl-convert, which cannot be imported ({error})",
            where=where,
            remedy="pip install 'steelyard[report]'",
        ) from error


def layouts(data: Mapping[str, Records], draw: Callable[[bool], Chart], *, height: int) -> tuple[Spec, Spec]:
    """Both layouts of a chart.

    Parameters
    ----------
    data
        Records by name; layers over an empty name are left out, for Vega warns of an axis without extent.
    draw
        From whether it is narrow to an Altair chart.
    height
        Of the plot in pixels.
    """

    def laid(*, narrow: bool) -> Spec:
        # checking it against the schema takes longer than all else; the tests have a browser draw it
        spec = _filled(draw(narrow).to_dict(validate=False), data)
        spec |= {
            "height": round(0.85 * height) if narrow else height,
            "autosize": {"type": "fit-x", "contains": "padding"},
            "padding": {"left": 2, "top": 4, "bottom": 2, "right": 12},
            "config": _CONFIG,
        }
        return spec

    return laid(narrow=False), laid(narrow=True)


def _filled(spec: Spec, data: Mapping[str, Records]) -> Spec:
    """The layers over records that there are."""

    def has(layer: Spec) -> bool:
        inner = layer.get("layer", [{}])
        name = layer.get("data", inner[0].get("data", {})).get("name")
        return bool(data.get(name, True))

    return spec | {"layer": [layer for layer in spec["layer"] if has(layer)]} if "layer" in spec else spec


def apart(positions: Sequence[float], gap: float) -> list[float]:
    """Move labels as little as needed to keep `gap` between neighbours; order and mean are kept.

    Examples
    --------
    >>> apart([10.0, 20.0], 4.0), apart([10.0, 10.0], 4.0), apart([20.0, 9.0, 10.0, 11.0], 2.0)
    ([10.0, 20.0], [8.0, 12.0], [20.0, 8.0, 10.0, 12.0])
    """
    order = sorted(range(len(positions)), key=positions.__getitem__)
    blocks: list[tuple[float, list[int]]] = []  # centre, members
    for index in order:
        centre, members = positions[index], [index]
        while blocks and centre - blocks[-1][0] < gap * (len(members) + len(blocks[-1][1])) / 2:
            before, others = blocks.pop()
            count = len(members) + len(others)
            centre = (centre * len(members) + before * len(others)) / count
            members = others + members
        blocks.append((centre, members))
    moved = [0.0] * len(positions)
    for centre, members in blocks:
        for place, index in enumerate(members):
            moved[index] = centre + gap * (place - (len(members) - 1) / 2)
    return moved


def names(labels: Sequence[str]) -> list[str]:
    """Labels that are short and all different, as an axis of names needs them."""
    short = [one_line(label, 24) for label in labels]
    return short if len(set(short)) == len(short) else [str(place + 1) for place in range(len(short))]


def halo(alt: Altair, chart: Chart, **mark: object) -> Chart:
    """Text on a rim of the paper's colour, so that it is read across lines."""
    rim = chart.mark_text(**mark, stroke="var(--paper)", strokeWidth=7, strokeJoin="round")
    return alt.layer(rim, chart.mark_text(**mark))
