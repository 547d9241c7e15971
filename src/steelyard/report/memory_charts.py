"""The picture of a fit: what lies on a GPU in each phase, and where the card ends.

Colours are of an owner's family: blue, green and violet the trainer's, orange the engine's, grey the
device's. A letter says the same as a colour, and stands in the tables, too.
"""

from __future__ import annotations

from typing import Final

from steelyard.memory.values import GIB, Fit
from steelyard.report import memory_words as words
from steelyard.report.figures import Altair, Chart, Figure, Records, halo, layouts
from steelyard.report.words import one_line, plain

FAMILIES: Final = {"trainer": ("trainer", 12), "engine": ("engine", 6), "device": ("device", 2)}
"""Variables of the style sheet, `--trainer-1` and so on, and how many there are."""
_ROW: Final = 74
_LABELLED: Final = {False: 0.02, True: 0.06}
"""The part of the axis that a letter needs, in the wide and in the narrow layout."""


def colours(fit: Fit) -> dict[str, str]:
    """A colour of the style sheet for each resident.

    Parameters
    ----------
    fit
        Whose residents.
    """
    owner = words.owners(fit.estimate.phases)
    seen = dict.fromkeys(FAMILIES, 0)
    found = {}
    for name in words.signs(fit.estimate.phases):
        family, size = FAMILIES[owner[name]]
        found[name] = f"var(--{family}-{seen[owner[name]] % size + 1})"
        seen[owner[name]] += 1
    return found


def phases(alt: Altair, fit: Fit, key: str = "phases") -> Figure:
    """One stacked bar for each phase, a line where the card ends, and the range of the peak.

    Parameters
    ----------
    alt
        Altair.
    fit
        What to draw.
    key
        Its name in the page.
    """
    records = _residents(fit)
    peak = fit.estimate.peak
    title = words.TITLES[peak.name]
    longest = max(fit.card.bytes, fit.estimate.high) / GIB
    data: dict[str, Records] = {
        f"{key}-residents": records,
        f"{key}-card": [
            {
                "x": fit.card.bytes / GIB,
                "label": f"{one_line(fit.card.name, 24)}: {words.gib(fit.card.bytes)} GiB",
            }
        ],
        f"{key}-range": [
            {"phase": title, "low": fit.estimate.low / GIB, "high": fit.estimate.high / GIB},
        ],
        f"{key}-totals": [
            {
                "phase": words.TITLES[one.name],
                "x": one.bytes / GIB,
                "label": words.gib(one.bytes),
            }
            for one in fit.estimate.phases
        ],
    }
    says = (
        "A bar for each phase: all that lies on the fullest GPU at its worst moment. The dashed line is "
        f"where {plain(fit.card.name)} ends. The thin line below the longest bar, from "
        f"{words.gib(fit.estimate.low)} to {words.gib(fit.estimate.high)} GiB, is how far it may be off."
    )
    wide, narrow = layouts(
        data,
        lambda narrow: _draw(alt, fit, key, longest, narrow=narrow),
        height=_ROW * len(fit.estimate.phases),
    )
    heads = ["phase", "resident", "owner", "GiB"]
    rows = [[one["phase"], one["label"], one["owner"], one["told"]] for one in records]
    return Figure(key, "Phase by phase", says, says, data, wide, narrow, heads, rows, full=True)


def keys(fit: Fit) -> list[tuple[str, str]]:
    """What the legend says: each resident and its colour."""
    named, colour = _named(fit), colours(fit)
    return [(named[name], colour[name]) for name in named]


def _named(fit: Fit) -> dict[str, str]:
    """Each resident with its letter."""
    return {name: f"{sign}  {one_line(name, 28)}" for name, sign in words.signs(fit.estimate.phases).items()}


def _residents(fit: Fit) -> Records:
    known, named = words.signs(fit.estimate.phases), _named(fit)
    longest = max(fit.card.bytes, fit.estimate.high)
    records = []
    for phase in fit.estimate.phases:
        start = 0.0
        for one in sorted(phase.residents, key=lambda one: list(known).index(one.name)):
            end = start + one.bytes
            records.append(
                {
                    "phase": words.TITLES[phase.name],
                    "label": named[one.name],
                    "sign": known[one.name],
                    "start": start / GIB,
                    "end": end / GIB,
                    "middle": (start + end) / 2 / GIB,
                    "part": one.bytes / longest,
                    "told": words.gib(one.bytes),
                    "owner": one.owner,
                    "formula": one_line(one.formula, 160),
                    "source": one_line(one.source, 160),
                }
            )
            start = end
    return records


def _draw(alt: Altair, fit: Fit, key: str, longest: float, *, narrow: bool) -> Chart:
    named, colour = _named(fit), colours(fit)
    order = [words.TITLES[one.name] for one in fit.estimate.phases]
    down = alt.Y("phase:N", sort=order, title=None, scale=alt.Scale(paddingInner=0.42, paddingOuter=0.25))
    scale = alt.Scale(domain=[0, longest * (1.16 if narrow else 1.07)], nice=False)
    across = alt.X(
        "start:Q", title="GiB on one GPU", scale=scale, axis=alt.Axis(tickCount=5 if narrow else 9)
    )
    residents = alt.Chart(alt.NamedData(f"{key}-residents"))
    bars = residents.mark_bar(stroke="var(--paper)", strokeWidth=1).encode(
        y=down,
        x=across,
        x2="end:Q",
        color=alt.Color(
            "label:N",
            scale=alt.Scale(domain=list(named.values()), range=[colour[name] for name in named]),
            legend=None,
        ),
        tooltip=[
            alt.Tooltip("label:N", title="resident"),
            alt.Tooltip("told:N", title="GiB"),
            alt.Tooltip("owner:N", title="owner"),
            alt.Tooltip("formula:N", title="formula"),
            alt.Tooltip("source:N", title="source"),
        ],
    )
    letters = (
        residents.transform_filter(f"datum.part > {_LABELLED[narrow]}")
        .mark_text(color="var(--paper)", fontWeight="bold", tooltip=False)
        .encode(y=down, x=alt.X("middle:Q", scale=scale), text="sign:N")
    )
    return alt.layer(bars, letters, *_marks(alt, fit, key, down, scale))


def _marks(alt: Altair, fit: Fit, key: str, down: Chart, scale: Chart) -> list[Chart]:
    """The card's end, the range of the peak, and the sizes."""
    card = alt.Chart(alt.NamedData(f"{key}-card"))
    ends_late = fit.card.bytes > 0.5 * max(fit.card.bytes, fit.estimate.high)
    at_card = alt.X("x:Q", scale=scale)
    rule = card.mark_rule(color="var(--ink)", strokeWidth=2, strokeDash=[6, 4]).encode(x=at_card)
    name = card.mark_text(align="right" if ends_late else "left", baseline="bottom", dy=-4).encode(
        x=at_card, y=alt.value(0), text="label:N"
    )
    span = alt.Chart(alt.NamedData(f"{key}-range")).encode(y=down, x=alt.X("low:Q", scale=scale), x2="high:Q")
    whisker = span.mark_rule(color="var(--ink)", strokeWidth=1.5, yOffset=28)
    total = alt.Chart(alt.NamedData(f"{key}-totals")).encode(
        y=down, x=alt.X("x:Q", scale=scale), text="label:N"
    )
    size = halo(alt, total, align="left", baseline="middle", dx=7, fontWeight="bold")
    return [rule, name, whisker, size]
