"""A fit as a page: the answer, the phases as bars, what to change, how far one can go, every formula."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from steelyard.memory.values import Fit, Lever
from steelyard.report import blocks, memory_charts
from steelyard.report import memory_words as words
from steelyard.report.blocks import Html, text
from steelyard.report.figures import Figure, drawing
from steelyard.report.memory_words import FitReport
from steelyard.report.page import write_document


def write_memory_page(path: Path | str, reports: Sequence[FitReport], *, title: str = "") -> None:
    """Write a page about a plan: on one card in full; on several, a comparison first.

    Parameters
    ----------
    path
        The file, which is replaced.
    reports
        Of one plan, for each card.
    title
        Its name, in the tab and above everything; the model and the card, if nothing else.

    Raises
    ------
    RefusedError
        Altair or vl-convert is not installed, or the file cannot be written.
    """
    alt, _ = drawing(str(path))
    body: list[Html] = []
    figures: list[Figure] = []
    if len(reports) > 1:
        heads, rows = words.compared(reports)
        told = words.cheapest(reports)
        best = f"<p><b>{text(told)}</b></p>" if told else ""
        body += [
            blocks.heading("Card by card", "cards"),
            Html(
                f'<div class="card flows">{best}<p>{text(words.COMPARED)}</p>'
                f"{blocks.table(heads, rows, kind='calls')}</div>"
            ),
        ]
    for place, report in enumerate(reports):
        suffix = f"-{place + 1}" if len(reports) > 1 else ""
        drawn = memory_charts.phases(alt, report.fit, f"phases{suffix}")
        figures.append(drawn)
        body += _fit(report, drawn, suffix)
    first = reports[0].fit
    named = words.title(first) if len(reports) == 1 else first.estimate.plan.model.name
    write_document(path, body, figures, title=title or f"Will it fit: {named}")


def _fit(report: FitReport, drawn: Figure, suffix: str) -> Iterator[Html]:
    fit = report.fit
    yield _answer(report, f"lints{suffix}")
    yield blocks.heading("What lies there", f"residents{suffix}")
    yield blocks.grid([blocks.figure(drawn, memory_charts.keys(fit))])
    if report.lints:
        yield blocks.heading("To beware of", f"lints{suffix}")
        yield _lints(report)
    if fit.levers:
        yield blocks.heading("What to change first", f"levers{suffix}")
        yield _levers(fit)
    sections = [*report.speed, *([report.checked] if report.checked else [])]
    if sections:
        yield blocks.heading("How fast it will be", f"speed{suffix}")
        yield blocks.columns(blocks.card(one.title, blocks.facts(one)) for one in sections)
    if report.notes:
        yield blocks.heading(words.NOTES, f"notes{suffix}")
        yield blocks.notes(report.notes)
    yield blocks.heading("From what it was reckoned", f"formulas{suffix}")
    yield Html(f"<p>{text(words.ground(fit.estimate.plan))}</p>")
    known = words.signs(fit.estimate.phases)
    heads = ["", "resident", "GiB", "formula", "source", "owner"]
    tables = (
        blocks.card(
            words.phase_title(phase),
            blocks.table(heads, [list(one) for one in words.lines(phase, known)], kind="calls residents"),
            says=words.process_says(phase),
            wide=True,
        )
        for phase in fit.estimate.phases
    )
    yield blocks.stack(tables)


def _answer(report: FitReport, lints: str) -> Html:
    fit = report.fit
    stopped = words.stopped(report)
    link = f'<p class="warned"><a href="#{lints}">{text(stopped)}</a></p>' if stopped else ""
    verdict = {"fits": "good", "tight": "close", "does not fit": "bad"}[words.colour_of(report)]
    tiles = blocks.tiles(
        (f"largest {name}" if name != "context" else "longest context", value, below)
        for name, value, below in words.largest(fit)
    )
    return Html(
        f'<p class="answer {verdict}">{blocks.measures(words.headline(fit))}</p>'
        f'<p class="why">{blocks.measures(words.why(fit))}</p>'
        f"<header><p>{blocks.measures(words.doubt(fit))} "
        f"{text(words.parameters(fit.estimate.plan))}.</p>{link}</header>" + tiles
    )


def _lints(report: FitReport) -> Html:
    body = "".join(
        f'<section class="doubt"><h3>{text(one.severity)}: {text(one.code)}</h3>'
        f"<p>{text(words.lint_says(one))}</p><p><b>Do:</b> {text(one.remedy)}.</p></section>"
        for one in report.lints
    )
    return Html(f'<div class="doubts">{body}</div>')


def _levers(fit: Fit) -> Html:
    noticed, others = words.levers(fit)
    most = max((one.saves for one in noticed), default=1.0)
    says = "GiB bought at the peak, the most first. They do not add up: another phase may become the peak."
    told = f"<p>{text(says)}</p>" if noticed else f"<p>{text(words.NO_LEVER)}</p>"
    if together := words.together(fit):
        told = f"<p><b>{text(together)}</b></p>{told}"
    body = "".join(_lever(fit, one, most) for one in noticed)
    if body:
        told += f'<ol class="remedies">{body}</ol>'
    if others:
        folded = "".join(_lever(fit, one, None) for one in others)
        told += (
            f'<details class="others"><summary>{text(words.OTHERS)}: {len(others)}</summary>'
            f'<ol class="remedies">{folded}</ol></details>'
        )
    return Html(f'<div class="card flows">{told}</div>')


def _lever(fit: Fit, one: Lever, most: float | None) -> str:
    if most is None:
        right = f'<div class="none">{text(words.outcome(one))}</div>'
    else:
        wide = 100 * one.saves / most
        right = (
            f'<div class="saves">{text(words.gib(one.saves))} GiB '
            f"<small>{text(words.leaves(fit, one))}</small></div>"
            f'<div class="bar" aria-hidden="true"><i class="body" style="left:0;width:{wide:.2f}%"></i>'
            '<i class="zero" style="left:0"></i></div>'
        )
    return (
        f'<li><div><h3>{text(one.name)}</h3><p class="code">{text(one.option)}</p>'
        f"<p>Costs: {text(one.cost)}</p></div><div>{right}</div></li>"
    )
