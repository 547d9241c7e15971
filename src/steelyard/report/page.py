"""One HTML file that needs nothing else: pictures, tables, and the words between them.

It is sent by mail, kept beside a run, opened years later without a network. So everything is inside: style,
data, and Vega with its script. A policy in its head forbids connections and every script but the two that are
named by their digest; what a run says (ids, completions, reasons) is escaped, and is data to both.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

from steelyard.errors import RefusedError
from steelyard.pricing.values import Estimate, Price
from steelyard.report import blocks, curve_charts, reward_charts, step_charts, words
from steelyard.report.blocks import Html, text
from steelyard.report.figures import Figure, drawing
from steelyard.report.scored import ScoredRun
from steelyard.report.units import amount, interval, said, seconds


def write_page(path: Path | str, price: Price | None, scored: ScoredRun | None, *, title: str) -> None:
    """Write a page about a price, a scored run, or both.

    Parameters
    ----------
    path
        The file, which is replaced.
    price, scored
        What to show; one of them at least.
    title
        Its name, in the tab and above everything.

    Raises
    ------
    RefusedError
        Altair or vl-convert is not installed, there is nothing to show, or the file cannot be written.
    """
    if price is None and scored is None:
        raise RefusedError(
            "a page needs a price or a scored run, and there is neither",
            where=str(path),
            remedy="hand in one of them",
        )
    alt, _ = drawing(str(path))
    body: list[Html] = []
    figures: list[Figure] = []
    if scored is not None:
        drawn = [*reward_charts.groups(alt, scored), *reward_charts.histogram(alt, scored)]
        figures += drawn
        body += _scored(scored, drawn)
    if price is not None:
        if scored is not None:
            body.append(blocks.heading("What its rewards cost", "price"))
        drawn = [
            *step_charts.timeline(alt, price),
            *step_charts.barrier(alt, price),
            *curve_charts.survival(alt, price),
            *curve_charts.knee(alt, price),
        ]
        figures += drawn
        body += _price(price, drawn)
    write_document(path, body, figures, title=title)


def write_document(path: Path | str, body: Sequence[Html], figures: Sequence[Figure], *, title: str) -> None:
    """Write a page about anything: blocks of HTML, and the figures that stand in them.

    Parameters
    ----------
    path
        The file, which is replaced.
    body
        Made by `steelyard.report.blocks`, which escapes.
    figures
        Those in the body.
    title
        Its name, in the tab and above everything.

    Raises
    ------
    RefusedError
        Altair or vl-convert is not installed, or the file cannot be written.
    """
    document = _document(title, blocks.joined(body), figures, _vega(str(path)))
    try:
        Path(path).write_text(document, encoding="utf-8")
    except OSError as error:
        raise RefusedError(
            f"the page cannot be written ({error.strerror})",
            where=str(path),
            remedy="name a file that can be",
        ) from error


# --- the page around it


@cache
def _vega(where: str) -> str:
    """Vega, Vega-Lite and their embedding, as one script."""
    _, convert = drawing(where)
    bundle: str = convert.javascript_bundle()
    return bundle.replace("</script", "<\\/script")


def _own(name: str) -> str:
    return files("steelyard.report").joinpath(name).read_text(encoding="utf-8")


def _document(title: str, body: Html, figures: Sequence[Figure], vega: str) -> str:
    """Put everything into one file."""
    scripts = [vega, _own("page.js")] if figures else []
    digests = " ".join(f"'sha256-{b64encode(sha256(one.encode()).digest()).decode()}'" for one in scripts)
    digests = digests or "'none'"
    policy = (
        f"default-src 'none'; script-src {digests}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    data = json.dumps({one.key: one.document() for one in figures}, allow_nan=False, separators=(",", ":"))
    data = data.replace("<", "\\u003c")  # nothing in a script ends it then
    code = "".join(f"<script>{one}</script>\n" for one in scripts)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="steelyard">
<title>{text(title)}</title>
<link rel="icon" href="data:,">
<style>
{_own("page.css")}</style>
</head>
<body>
<main>
<header><h1>{text(title)}</h1></header>
{body}
<footer>Made by steelyard. This file holds everything it shows and loads nothing.</footer>
</main>
<script type="application/json" id="figures">{data}</script>
{code}</body>
</html>
"""


# --- a price


def _price(price: Price, drawn: Sequence[Figure]) -> Iterator[Html]:
    """A price: the answer, what to change, where the time goes, why it may be wrong, the numbers."""
    yield _answer(price)
    if price.remedies:
        yield blocks.heading("What to change first", "remedies")
        advice = words.advice(price)
        says = "Time saved per step, the most first. Savings do not add up." + (
            " The line across a bar is the 95 % interval: where it reaches zero, the saving may be none."
            if any(map(words.range_of, advice.noticed))
            else ""
        )
        above = f"<p>{text(says)}</p>" if advice.noticed else ""
        yield Html(f'<div class="card flows">{above}{blocks.remedies(advice)}</div>')
    if drawn:
        yield blocks.heading("Where the time goes", "time")
        yield blocks.grid(map(blocks.figure, drawn))
    if price.doubts:
        yield blocks.heading("Why these numbers may be wrong", "doubts")
        yield blocks.doubts(price.doubts)
    if price.suspicions:
        yield blocks.heading("Rewards that look like failures written down as numbers", "suspicions")
        yield blocks.suspicions(price.suspicions)
    if sections := words.sections(price):
        yield blocks.heading("The numbers", "numbers")
        known = any(row.interval for section in sections for row in section.rows)
        yield Html(f"<p>{text('Ranges are 95 % intervals.' if known else 'No interval is known.')}</p>")
        yield blocks.columns(blocks.card(one.title, blocks.facts(one)) for one in sections)
    if price.says or price.notes:
        yield blocks.heading("What is known, and what is not", "notes")
        lists = [(words.SAYS, price.says), (words.LACKS, price.notes)]
        yield blocks.grid(blocks.card(title, blocks.notes(told)) for title, told in lists if told)


def _answer(price: Price) -> Html:
    """The answer in a sentence, as a bar, and as single numbers."""
    headline, why = words.headline(price), words.why(price)
    parts: list[tuple[str, str, float, str]] = []
    if price.busy is not None and price.wait is not None:
        parts = [
            ("busy: generation and training", said(price.busy), price.busy.value, "generation"),
            ("waiting for rewards", said(price.wait), price.wait.value, "wait"),
        ]
        if price.other is not None:
            parts.append(("other", said(price.other), price.other.value, "flat"))
    count = len(price.doubts)
    doubted = (
        f'<p class="warned"><a href="#doubts">{count} {"doubt" if count == 1 else "doubts"}: '
        f"{text(', '.join(one.kind.value for one in price.doubts))}</a></p>"
        if count
        else ""
    )
    money = next((price.money[key] for key in ("per_step", "per_hour") if key in price.money), None)
    told: list[tuple[str, Estimate | None, str]] = [
        ("idle", price.idle, "of all wall time"),
        ("steps hit", price.hit, "have a call that times out"),
        ("calls that time out", price.rate, f"at {seconds(price.limit_s)}" if price.limit_s else ""),
        ("groups gone wrong", price.corrupted, "by failures that were given a number"),
        ("a step costs" if "per_step" in price.money else "an hour costs", money, ""),
    ]
    numbers = blocks.tiles(
        (
            name,
            said(one),
            f"{known} ({below})" if (known := interval(one)) and below else known or below,
        )
        for name, one, below in told
        if one is not None
    )
    return Html(
        (f'<p class="answer">{blocks.measures(headline)}</p>' if headline else "")
        + (f'<p class="why">{blocks.measures(why)}</p>' if why else "")
        + f"<header><p>{text(words.ground(price))}</p>{doubted}</header>"
        + blocks.shares(parts)
        + numbers
    )


# --- a scored run


def _scored(scored: ScoredRun, drawn: Sequence[Figure]) -> Iterator[Html]:
    """A scored run: verdicts, what the groups teach, the spread of rewards, slow and failing calls."""
    yield _verdicts(scored)
    told: list[Html] = []
    if scored.zero_variance:
        told.append(blocks.card("Groups that teach nothing", _equal(scored), says=_equal_says(scored)))
    if scored.codes:
        says = "Completions without full marks, by the code of their verdict."
        told.append(
            blocks.card("Why not full marks", blocks.counts(scored.codes, scored.rollouts), says=says)
        )
    if drawn or told:
        yield blocks.heading("What there is to learn from", "rewards")
        yield blocks.grid([*map(blocks.figure, drawn), blocks.stack(told)])
    if scored.failing:
        count = len(scored.failing) if scored.failed is None else scored.failed
        of = "" if count == len(scored.failing) else f", {len(scored.failing):,} of {count:,}"
        yield blocks.heading(f"Failing calls{of}", "failing")
        yield Html(f'<div class="card flows">{blocks.calls(scored.failing)}</div>')
    if scored.slowest:
        yield blocks.heading("Slowest calls", "slowest")
        yield Html(f'<div class="card flows">{blocks.calls(scored.slowest)}</div>')


def _verdicts(scored: ScoredRun) -> Html:
    mean = "" if scored.mean is None else f"The mean reward is {scored.mean:.3g}. "
    size = f"{scored.rollouts:,} completions in {scored.groups:,} groups. "
    told = f"{size}{mean}" + (
        f"{scored.zero_variance:,} of the groups teach nothing." if scored.zero_variance else ""
    )
    colours = {"scored": "busy", "abstained": "flat", "unscored": "wait"}
    means = {
        "scored": "scored",
        "abstained": "abstained: the reward does not apply",
        "unscored": "unscored: judging failed, no reward was made up",
    }
    parts = [
        (means.get(verdict, verdict), f"{count:,}", float(count), colours.get(verdict, "flat"))
        for verdict, count in scored.verdicts.items()
    ]
    scheme = f" Advantages: {scored.advantage}." if scored.advantage else ""
    return Html(
        f'<p class="answer">{text(told)}</p><header><p>{text(scored.source)}.{text(scheme)}</p></header>'
        + blocks.shares(parts)
    )


def _equal_says(scored: ScoredRun) -> str:
    share = amount(scored.zero_variance / max(1, scored.groups), "share")
    return (
        f"In {scored.zero_variance:,} of {scored.groups:,} groups ({share}) everybody got the same reward: "
        "all advantages are 0, and what was spent on them is spent."
    )


def _equal(scored: ScoredRun) -> Html:
    kinds = {"all right": scored.all_right, "all wrong": scored.all_wrong, "all alike": scored.all_equal}
    shown = [one for one in scored.by_group if one.zero_variance]
    rows = [
        [words.one_line(one.id, 80), f"{one.size:,}", "" if one.mean is None else f"{one.mean:.3g}"]
        for one in shown
    ]
    table = blocks.table(["group", "rollouts", "reward"], rows)
    of = "" if len(shown) == scored.zero_variance else f" of {scored.zero_variance:,} shown"
    return Html(
        blocks.counts({kind: count for kind, count in kinds.items() if count}, scored.groups)
        + f'<details><summary>Which groups ({len(shown):,}{of})</summary><div class="scroll" tabindex="0">'
        + f"{table}</div></details>"
    )
