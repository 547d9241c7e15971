r"""The words of a price: what both the page and the terminal say, and in which order.

A price becomes sections of rows: what it is in plain words, the number, and a word on what it means. Nothing
is said of what is `None`. Texts of a run (ids, causes, reasons) come from a policy: `plain` leaves nothing in
them that a terminal or a renderer of text would act on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from steelyard.clock import Seconds, in_words
from steelyard.errors import printable
from steelyard.pricing.values import Estimate, Price, Remedy

_ACTS = {
    code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
    # controls, and what turns the direction of writing
    for code in (*range(32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x2028, 0x2029)
    if chr(code) not in "\n\t"
}


class Row(NamedTuple):
    """One line: what it is, the number, its interval (empty where there is none), what it means."""

    name: str
    value: str
    interval: str
    means: str = ""


class Section(NamedTuple):
    """Rows under a heading; `key` names it in a page."""

    key: str
    title: str
    rows: list[Row]


def plain(text: str) -> str:
    r"""Make a text safe to print: control characters and lone surrogates as their escapes.

    Examples
    --------
    >>> print(plain("\x1b[31mred"))
    \x1b[31mred
    """
    return printable(text.translate(_ACTS))


def one_line(text: str, length: int = 300) -> str:
    """The text in one line of at most `length` characters."""
    line = plain(" ".join(text.split()))
    return line if len(line) <= length else line[: length - 3] + "..."


def headline(price: Price) -> str:
    """The answer without its interval: what a step takes, and how much of it is waiting."""
    if price.step is not None and price.busy is not None and price.wait is not None:
        return (
            f"A step takes {said(price.step)}: {said(price.busy)} busy, "
            f"{said(price.wait)} waiting for rewards{f', {said(price.other)} other' if price.other else ''}."
        )
    if price.wait is not None:
        return f"A step waits {said(price.wait)} for rewards."
    return f"The accelerator waits {said(price.idle)} of the time for rewards." if price.idle else ""


def answer(price: Price) -> str:
    """The answer, in one sentence, with how far it is known."""
    said_of = headline(price).removesuffix(".")
    known = []
    if price.idle is not None and price.wait is not None:
        known.append(f"{said(price.idle)} idle")
    if (shown := price.idle or price.wait) is not None and interval(shown):
        known.append(f"95 % interval {interval(shown)}")
    if not said_of:
        return ""
    return f"{said_of} ({', '.join(known)})." if known else f"{said_of}."


def basis(price: Price) -> str:
    """What the price rests on, in a line."""
    how = "Measured" if price.measured else "Computed from numbers, not measured"
    size = f"{number(price.batch)} completions a step in groups of {number(price.group)}"
    return plain(f"{how}: {price.basis}; {size}." if price.basis else f"{how}; {size}.")


def sections(price: Price) -> list[Section]:
    """Everything a price says in numbers, without remedies, doubts and notes.

    Parameters
    ----------
    price
        What was priced.

    Returns
    -------
    list of Section
        Those that have a row.
    """
    found = [
        Section("step", "One step", _rows(_step(price))),
        Section("barrier", "What the step waits for: its slowest reward", _rows(_barrier(price))),
        Section("service", "How long one reward takes", _quantiles(price)),
        Section("signal", "What failures do to the training signal", _rows(_signal(price))),
        Section("causes", "What ended calls before they finished", _causes(price)),
        Section("money", "Money", _rows(_money(price.money))),
    ]
    return [section for section in found if section.rows]


def saves(remedy: Remedy) -> str:
    """What a remedy saves, short: `12.3 s`, that it costs as much, or that it is not known."""
    if remedy.saves is not None:
        less = remedy.saves.value < 0
        return f"{amount(-remedy.saves.value, remedy.saves.unit)} lost" if less else said(remedy.saves)
    return "not known" if remedy.refused else "no time"


def details(remedy: Remedy) -> list[str]:
    """The sentences about a remedy: the step that it leaves, its cost, its ground, why it is refused."""
    found = []
    if remedy.refused:
        found.append(f"Not known: {remedy.refused}")
    if remedy.after is not None:
        known = interval(remedy.after)
        found.append(f"Leaves a step of {said(remedy.after)}{f' ({known})' if known else ''}.")
    if remedy.costs:
        found.append(f"Costs: {remedy.costs}")
    if remedy.rests_on:
        found.append(f"Rests on: {remedy.rests_on}")
    return [one_line(sentence, 1_000) for sentence in found]


_Said = Iterable[tuple[str, Estimate | None, str]]


def _rows(said_of: _Said) -> list[Row]:
    return [
        Row(plain(name), said(estimate), interval(estimate), plain(means))
        for name, estimate, means in said_of
        if estimate is not None
    ]


def _step(price: Price) -> _Said:
    limit = f"the timeout of {in_words(price.limit_s)}" if price.limit_s is not None else "the timeout"
    yield "step", price.step, "all of it, on average"
    yield "busy", price.busy, "generation plus training: the accelerator works"
    yield "waiting", price.wait, "the accelerator stands still until the last reward is in"
    yield "other", price.other, "neither busy nor waiting: a weight sync, logging"
    yield "idle", price.idle, "of the run's wall time: all waiting over all time"
    yield "idle, a hit step", price.idle_hit, f"of a step in which a reward reaches {limit}"
    yield "calls that time out", price.rate, f"of all calls of a reward, those that reach {limit}"
    yield "steps that are hit", price.hit, "of all steps, those with at least one such call"
    yield "queue", price.queued, "a call waits for its turn before it starts"
    yield "exposed", price.exposed, "reward time that neither generation nor training covers, per step"
    yield "exposed share", price.tail_ratio, "exposed, of all the time in which rewards are under way"
    if price.in_flight is not None:
        yield (
            "most at once",
            Estimate(price.in_flight, "calls"),
            "under way at the same time",
        )


def _barrier(price: Price) -> _Said:
    yield "observed", price.observed, "the slowest reward of each step, on average, as it was"
    yield "if independent", price.independent, "the same, if calls were slow independently of each other"
    yield (
        "as correlated",
        price.correlated,
        "the same, if calls of one prompt time out together as often as measured",
    )
    yield (
        "correlation",
        price.correlation,
        "of timeouts within a prompt: 0 is chance alone, 1 is all or none",
    )
    yield (
        "knee",
        price.knee,
        "of calls: if more time out, nearly every step is hit, and fewer save little",
    )


def _quantiles(price: Price) -> list[Row]:
    rows = []
    for one in price.quantiles:
        name = {0.5: "half of the calls"}.get(one.share, f"{number(100 * one.share)} % of the calls")
        if one.estimate is not None:
            rows.append(Row(name, said(one.estimate), interval(one.estimate), "take at most this"))
        elif one.above_s is not None:
            rows.append(
                Row(name, f"over {number(one.above_s)} s", "", "calls were cut before: how much is not known")
            )
    return rows


def _signal(price: Price) -> _Said:
    yield "groups with a failure", price.group_hit, "of the groups of one prompt: at least one call failed"
    voted = "as a failure voted in this run" if price.measured else "if a failure is scored 0"
    yield "groups gone wrong", price.corrupted, f"of the groups: advantages are wrong, {voted}"
    yield "signs turned", price.sign_changed, "of completions: pushed the wrong way by that"
    yield "if scored 0", price.zeroed, "of the groups would go wrong if what is unscored were scored 0"
    yield "thin groups", price.thin, "of the groups: fewer than two rewards left if failures do not vote"


def _causes(price: Price) -> list[Row]:
    return [
        Row(
            one_line(cause.cause, 60),
            f"{cause.calls:,} call{'' if cause.calls == 1 else 's'}",
            "",
            f"{amount(cause.share, 'share')} of all; {amount(cause.seconds, 's')} in sum",
        )
        for cause in price.causes
    ]


_MONEY: Mapping[str, tuple[str, str]] = {
    "per_hour": ("the bill", "accelerators and sandboxes together"),
    "per_step": ("a step", "its share of the bill"),
    "per_1000": ("1,000 completions", "their share of the bill"),
    "idle_share": ("for waiting", "of the bill, spent while the accelerator waits"),
    "idle_per_hour": ("for waiting, hourly", "the same in dollars"),
    "idle_per_day": ("for waiting, daily", "the same, if it goes on like this"),
}


def _money(money: Mapping[str, Estimate]) -> _Said:
    for key, estimate in money.items():
        name, means = _MONEY.get(key, (key.replace("_", " "), estimate.basis))
        yield name, estimate, means
