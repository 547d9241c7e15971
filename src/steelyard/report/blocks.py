"""Blocks of HTML: every text that enters one is escaped here, and nowhere else.

`Html` is text that has been; what is not is escaped by `text`, which spells out control characters as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import NewType

from steelyard.pricing.values import Doubt, Estimate, Remedy, Suspicion
from steelyard.report import words
from steelyard.report.figures import Figure
from steelyard.report.scored import CallLine
from steelyard.report.units import amount, number, seconds
from steelyard.report.words import Section

Html = NewType("Html", str)


def text(value: str) -> Html:
    """A text as HTML.

    Examples
    --------
    >>> text("</script><img onerror='x'>")
    '&lt;/script&gt;&lt;img onerror=&#x27;x&#x27;&gt;'
    """
    return Html(escape(words.plain(value)))


def measures(value: str) -> Html:
    """A text in which no number is parted from its unit at the end of a line."""
    return Html(words.together(text(value)))


def joined(parts: Iterable[Html]) -> Html:
    """Blocks one after another."""
    return Html("\n".join(parts))


def heading(title: str, key: str) -> Html:
    """A heading that links can name."""
    return Html(f'<h2 id="{key}">{text(title)}</h2>')


def card(title: str, body: Html, *, says: str = "", wide: bool = False) -> Html:
    """A frame with a title and a sentence. One that holds a list may be broken over pages of paper."""
    kind = "card flows full" if wide else "card flows"
    told = f"<p>{text(says)}</p>" if says else ""
    return Html(f'<section class="{kind}"><h3>{text(title)}</h3>{told}{body}</section>')


def grid(parts: Iterable[Html]) -> Html:
    """Frames beside one another where there is room."""
    return Html(f'<div class="grid">{joined(parts)}</div>')


def columns(parts: Iterable[Html]) -> Html:
    """Frames of different heights in two columns where there is room."""
    return Html(f'<div class="columns">{joined(parts)}</div>')


def stack(parts: Iterable[Html]) -> Html:
    """Frames under one another, in one place of a grid."""
    body = joined(parts)
    return Html(f'<div class="stack">{body}</div>' if body else "")


def figure(one: Figure, keys: Iterable[tuple[str, str]] = ()) -> Html:
    """A picture with its title, how to read it, and its numbers as a table.

    `keys` are names with their colours, where those are more than a legend of the picture has room for.
    """
    told = "".join(f'<li><i style="background:{colour}"></i>{text(name)}</li>' for name, colour in keys)
    legend = f'<ul class="keys">{told}</ul>' if told else ""
    numbers = table(one.heads, one.rows)
    return Html(
        f'<figure class="card{" full" if one.full else ""}" id="{one.key}">'
        f"<h3>{text(one.title)}</h3><p>{text(one.says)}</p>{legend}"
        f'<div class="chart" data-figure="{one.key}" role="img" aria-label="{text(one.describes)}"></div>'
        f'<details><summary>The numbers as a table</summary><div class="scroll" tabindex="0">{numbers}</div>'
        f"</details></figure>"
    )


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, kind: str = "") -> Html:
    """A table; each cell knows its column's head, for narrow windows that show rows as paragraphs."""
    head = "".join(f'<th scope="col">{text(one)}</th>' for one in heads)
    body = "".join(
        "<tr>"
        + "".join(
            f'<td data-head="{text(name)}">{text(cell)}</td>' for name, cell in zip(heads, row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    named = f' class="{kind}"' if kind else ""
    return Html(f"<table{named}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")


def facts(section: Section) -> Html:
    """Rows of names, numbers, intervals and meanings."""
    known = any(row.interval for row in section.rows)
    body = "".join(
        f"<tr><td>{text(row.name)}</td><td>{text(row.value)}</td>"
        f"{f'<td>{text(row.interval)}</td>' if known else ''}<td>{text(row.means)}</td></tr>"
        for row in section.rows
    )
    return Html(f'<table class="facts{"" if known else " sure"}"><tbody>{body}</tbody></table>')


def tiles(told: Iterable[tuple[str, str, str]]) -> Html:
    """Single numbers, large: what it is, the number, a word below."""
    body = "".join(
        f"<div><dt>{text(name)}</dt><dd>{text(value)}<small>{measures(below)}</small></dd></div>"
        for name, value, below in told
    )
    return Html(f'<dl class="tiles">{body}</dl>' if body else "")


def shares(parts: Sequence[tuple[str, str, float, str]]) -> Html:
    """One bar cut in proportion: a name, a number, a size and a colour for each part that has a size."""
    shown = [part for part in parts if part[2] > 0]
    if not shown:
        return Html("")
    whole = sum(size for _, _, size, _ in shown)
    bar = "".join(
        f'<i style="flex-grow:{100 * size / whole:.6g};background:var(--{colour})"></i>'
        for _, _, size, colour in shown
    )
    keys = "".join(
        f'<li><i style="background:var(--{colour})"></i><b>{text(value)}</b> {text(name)}</li>'
        for name, value, _, colour in shown
    )
    return Html(f'<div class="share" aria-hidden="true">{bar}</div><ul class="keys">{keys}</ul>')


def remedies(advice: words.Advice) -> Html:
    """What to change, in the order given, each with a bar of what it saves; what is of no use is folded."""
    noticed, others = advice
    told = (
        _remedies(noticed)
        if noticed
        else Html("<p>Nothing that can be computed here saves a part that one would notice.</p>")
    )
    if not others:
        return told
    return Html(
        f'{told}<details class="others"><summary>{words.OTHERS}: {len(others)}</summary>'
        f"{_remedies(others, bars=False)}</details>"
    )


def _remedies(found: Sequence[Remedy], *, bars: bool = True) -> Html:
    known = [one.saves for one in found if one.saves is not None]
    ends = [end for one in known for end in (one.value, one.low, one.high) if end is not None]
    low, high = min([0.0, *ends]), max([0.0, *ends]) or 1.0

    def at(value: float) -> float:
        return 100 * (value - low) / (high - low)

    def bar(saves: Estimate) -> str:
        whisker = ""
        if saves.low is not None and saves.high is not None:
            left, width = at(saves.low), at(saves.high) - at(saves.low)
            whisker = f'<i class="whisker" style="left:{left:.2f}%;width:{width:.2f}%"></i>'
        left, right = at(0.0), at(saves.value)
        return (
            f'<div class="bar" aria-hidden="true"><i class="body" style="left:{left:.2f}%;'
            f'width:{right - left:.2f}%"></i><i class="zero" style="left:{left:.2f}%"></i>{whisker}</div>'
        )

    def told(one: Remedy) -> str:
        if one.saves is None or not one.saves.value:
            return f'<div class="none">{text(words.outcome(one))}</div>'
        known = words.range_of(one)
        interval = f" <small>95 % interval {text(known)}</small>" if known else ""
        return f'<div class="saves">{text(words.saves(one))}{interval}</div>{bar(one.saves) if bars else ""}'

    body = "".join(
        f"<li><div><h3>{measures(words.one_line(one.title))}</h3>"
        + "".join(f"<p>{measures(sentence)}</p>" for sentence in words.details(one))
        + f"</div><div>{told(one)}</div></li>"
        for one in found
    )
    return Html(f'<ol class="remedies">{body}</ol>')


def doubts(found: Sequence[Doubt]) -> Html:
    """Why the numbers may be wrong, each with its number and what to do."""
    body = "".join(
        f'<section class="doubt"><h3>{text(one.kind.value)}: {text(number(one.number))}</h3>'
        f"<p>{text(one.says)}</p><p><b>Do:</b> {text(one.remedy)}</p></section>"
        for one in found
    )
    return Html(f'<div class="doubts">{body}</div>')


def suspicions(found: Sequence[Suspicion]) -> Html:
    """Rewards that look like failures written down as numbers."""
    body = "".join(
        f'<section class="doubt"><h3>{one.seen:,} of {one.of:,}</h3><p>{text(one.says)}</p></section>'
        for one in found
    )
    return Html(f'<div class="doubts">{body}</div>')


def notes(found: Iterable[str]) -> Html:
    """Sentences as a list."""
    return Html(f'<ul class="notes">{"".join(f"<li>{text(one)}</li>" for one in found)}</ul>')


def counts(found: Mapping[str, int], total: int) -> Html:
    """A bar for each word, the most frequent first."""
    rows = sorted(found.items(), key=lambda item: -item[1])
    most = max((count for _, count in rows), default=1) or 1
    body = "".join(
        f'<tr><td class="code">{text(words.one_line(name, 120))}</td>'
        f"<td>{count:,} ({text(amount(count / max(1, total), 'share'))})</td>"
        f'<td><i style="width:{100 * count / most:.1f}%"></i></td></tr>'
        for name, count in rows
    )
    return Html(f'<table class="counts"><tbody>{body}</tbody></table>')


def calls(found: Sequence[CallLine]) -> Html:
    """Calls as a table."""
    heads = ["rollout", "group", "part", "code", "seconds", "reason"]
    rows = [
        [
            *(words.one_line(cell, 120) for cell in (one.id, one.group, one.part)),
            words.one_line(one.code, 40),  # which no line break parts
            seconds(one.seconds),
            words.one_line(one.reason),
        ]
        for one in found
    ]
    used = [place for place in range(len(heads)) if any(row[place] for row in rows)]
    return table([heads[p] for p in used], [[row[p] for p in used] for row in rows], kind="calls")
