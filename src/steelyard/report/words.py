r"""The words of a price: what both the page and the terminal say, and in which order.

A price becomes sections of rows: what it is in plain words, the number, and a word on what it means. Nothing
is said of what is `None`. Texts of a run (ids, causes, reasons) come from a policy: `plain` leaves nothing in
them that a terminal or a renderer of text would act on.
"""

from __future__ import annotations

from collections.abc import Iterable
from re import compile as pattern
from typing import Final, NamedTuple

from steelyard.clock import in_words
from steelyard.errors import printable
from steelyard.pricing.values import Estimate, Price, Remedy
from steelyard.report.units import amount, counted, interval, less, number, said

OTHERS: Final = "No time to gain by these, or not known"
SAYS: Final = "What this source tells"
LACKS: Final = "Not measured"
NOTICED: Final = 0.005
"""The part of a step (where that is not known, of its wait) that is worth a change."""
OVER: Final = 0.02
"""The part of the wait from which what is not the slowest reward is told apart."""
_MUCH: Final = 0.1
"""The part of the wait from which the answer's reason says so."""
_SAME: Final = 0.01
"""Two numbers that differ by less of them are told once."""
_UNCORRELATED: Final = 0.005
"""A correlation below is told as 0."""
_UNIT: Final = pattern(r"(\d) (s|ms|µs|%)(?!\w)")

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


def together(text: str) -> str:
    """A text in which no number is parted from its unit at the end of a line."""
    return _UNIT.sub("\\1\N{NO-BREAK SPACE}\\2", text)


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


def why(price: Price) -> str:
    """Why a step waits, in a sentence that says what a hit step and a barrier are; empty if nobody knows."""
    half = next((one.estimate for one in price.quantiles if one.share == 0.5 and one.estimate), None)
    slowest = price.observed or price.correlated or price.independent
    told = []
    if price.rate is not None and price.rate.value > 0:
        at = f" at {in_words(price.limit_s)}" if price.limit_s is not None else ""
        told.append(f"{said(price.rate)} of calls time out{at}")
        if price.hit is not None:
            told[0] += f", and {said(price.hit)} of steps wait for one (are hit)"
    elif price.rate is not None and slowest is not None:
        told.append(f"no call {'timed' if price.measured else 'times'} out")
    if slowest is not None and (told or half):
        takes = "takes" if price.observed else "is expected to take"
        barrier = f"the slowest reward of a step (its barrier) {takes} {said(slowest)}"
        told.append(barrier + (f", half of all calls {said(half)}" if half else ""))
    over = _over(price)
    if over is not None and price.wait is not None and over.value > _MUCH * price.wait.value:
        told.append(f"queues and the loop add {said(over)}")
    return f"Why: {'; '.join(told)}." if told else ""


def _over(price: Price) -> Estimate | None:
    """What a step waits beyond its slowest reward: in queues, or because of the loop."""
    if price.wait is None or price.observed is None:
        return None
    over = price.wait.value - price.observed.value
    return Estimate(over, "s") if over > OVER * price.wait.value else None


def ground(price: Price) -> str:
    """What was priced and what that rests on, in a line."""
    size = [
        *([counted(price.batch, "completion") + " a step"] if price.batch else []),
        *([f"groups of {number(price.group)}"] if price.group else []),
    ]
    rests = "; ".join(part for part in (price.basis, " in ".join(size)) if part)
    if price.measured:
        timed = price.wait is not None or price.quantiles
        return plain(
            f"{price.source}. {'Measured: ' if timed and rests else ''}{rests}".strip() + _stop(rests)
        )
    source = "" if price.source.casefold() in price.basis.casefold() else f"{price.source}. "
    return plain(f"{source}{rests[:1].upper()}{rests[1:]}" + _stop(rests))


def _stop(sentence: str) -> str:
    return "." if sentence else ""


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
        Section(
            "barrier", "The barrier: the slowest reward of a step, for which it waits", _rows(_barrier(price))
        ),
        Section("service", "How long one reward takes", _quantiles(price)),
        Section("signal", "What failures do to the training signal", _rows(_signal(price))),
        Section("causes", "What ended calls before they finished", _causes(price)),
        Section("money", "Money", _rows(_money(price))),
    ]
    return [section for section in found if section.rows]


class Advice(NamedTuple):
    """Remedies: those that save something noticeable, and the others."""

    noticed: list[Remedy]
    others: list[Remedy]


def advice(price: Price) -> Advice:
    """The remedies of a price, parted by whether they save a part of a step that one would notice."""
    whole = price.step or price.wait
    least = NOTICED * whole.value if whole is not None else 0.0
    noticed = [one for one in price.remedies if one.saves is not None and one.saves.value > least]
    return Advice(noticed, [one for one in price.remedies if one not in noticed])


def saves(remedy: Remedy) -> str:
    """What a remedy saves, short: `12.3 s`, that it costs as much, or that it is not known."""
    if remedy.saves is None:
        return "not known" if remedy.refused else "no time"
    return f"{said(less(remedy.saves))} lost" if remedy.saves.value < 0 else said(remedy.saves)


def range_of(remedy: Remedy) -> str:
    """The interval of what a remedy saves, or of what it loses; empty where there is none."""
    if remedy.saves is None:
        return ""
    if remedy.saves.value >= 0:
        return interval(remedy.saves)
    known = interval(less(remedy.saves))
    return f"{known} lost" if known else ""


def outcome(remedy: Remedy) -> str:
    """Why a remedy is of no use, short: `saves 0`, `loses 15.6 ms`, `no time`, `not known`."""
    if remedy.saves is None:
        return saves(remedy)
    if remedy.saves.value < 0:
        return f"loses {said(less(remedy.saves))}"
    return f"saves {said(remedy.saves)}" if remedy.saves.value else "saves 0"


def reason(remedy: Remedy) -> str:
    """The title of a remedy, and why it is refused."""
    return one_line(f"{remedy.title}: {remedy.refused}" if remedy.refused else remedy.title, 1_000)


def details(remedy: Remedy) -> list[str]:
    """The sentences about a remedy: the step that it leaves, its cost, its ground, why it is refused."""
    found = []
    if remedy.refused:
        found.append(f"Not known: {remedy.refused}")
    if remedy.after is not None and not (remedy.saves and not remedy.saves.value):
        found.append(f"Leaves a step of {_ranged(remedy.after)}")
    if remedy.dollars is not None and remedy.dollars.value:
        lost = remedy.dollars.value < 0
        found.append(
            f"{'Costs' if lost else 'Saves'} {_ranged(less(remedy.dollars) if lost else remedy.dollars)}"
        )
    if remedy.costs:
        found.append(f"Costs: {remedy.costs}")
    if remedy.rests_on:
        found.append(f"Rests on: {remedy.rests_on}")
    return [one_line(sentence, 1_000) for sentence in map(_ended, found)]


def _ranged(estimate: Estimate) -> str:
    known = interval(estimate)
    return f"{said(estimate)} ({known})" if known else said(estimate)


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith((".", "?", "!")) else f"{sentence}."


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
    yield "of it queues and loop", _over(price), "beyond the slowest reward: for a place, or for the loop"
    yield "other", price.other, "neither busy nor waiting: a weight sync, logging"
    yield "idle", price.idle, "of the run's wall time: all waiting over all time"
    yield "idle in steps hit", price.idle_hit, f"of a step in which a reward reaches {limit}"
    yield "calls that time out", price.rate, f"of all calls of a reward, those that reach {limit}"
    yield "steps hit", price.hit, "of all steps, those with at least one such call"
    yield "queue", price.queued, "a call waits for its turn before it starts"
    if not _same(price.exposed, price.wait):
        yield "exposed", price.exposed, "reward time that neither generation nor training covers, per step"
    yield "exposed share", price.tail_ratio, "of the time in which rewards are under way: no work covers it"
    if price.in_flight is not None:
        yield (
            "most at once",
            Estimate(price.in_flight, "calls"),
            "under way at the same time",
        )


def _same(one: Estimate | None, other: Estimate | None) -> bool:
    return one is not None and other is not None and abs(one.value - other.value) <= _SAME * other.value


def correlated(price: Price) -> Estimate | None:
    """The barrier of correlated calls; `None` where it is the independent one, but for chance."""
    alone = _same(price.correlated, price.independent) if price.correlation is None else not _coupled(price)
    return None if alone else price.correlated


def dependence(price: Price) -> tuple[str, str]:
    """What models take calls for, in full and short: independent, or as correlated as measured or said."""
    if not _coupled(price):
        return "independent", "independent"
    return f"as correlated as {'measured' if price.measured else 'was said'}", "correlated"


def _coupled(price: Price) -> bool:
    return price.correlation is not None and price.correlation.value >= _UNCORRELATED


def _barrier(price: Price) -> _Said:
    as_often = "as often as measured" if price.measured else "as often as was said"
    yield "observed", price.observed, "the slowest reward of each step, on average, as it was"
    yield "if independent", price.independent, "the same, if calls were slow independently of each other"
    yield (
        "as correlated",
        correlated(price),
        f"the same, if calls of one prompt time out together {as_often}",
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
                Row(name, f"over {in_words(one.above_s)}", "", "calls were cut before: how much is not known")
            )
    return rows


def _signal(price: Price) -> _Said:
    yield "groups with a failure", price.group_hit, "of the groups of one prompt: at least one call failed"
    voted = "as a failure voted in this run" if price.measured else "if a failure is scored 0"
    yield "groups gone wrong", price.corrupted, f"of the groups: advantages are wrong, {voted}"
    yield (
        "signs changed",
        price.sign_changed,
        "of completions: pushed where nothing should, or not pushed where something should (or otherwise)",
    )
    yield "if scored 0", price.zeroed, "of the groups would go wrong if what is unscored were scored 0"
    yield "thin groups", price.thin, "of the groups: fewer than two rewards left if failures do not vote"


def _causes(price: Price) -> list[Row]:
    return [
        Row(
            one_line(cause.cause, 60),
            counted(cause.calls, "call"),
            "",
            f"{amount(cause.share, 'share')} of all; {amount(cause.seconds, 's')} in sum",
        )
        for cause in price.causes
    ]


def _money(price: Price) -> _Said:
    money, idle = price.money, price.idle
    # where sandboxes are paid for, too, what waits is a part of the bill
    part = money.get("idle_share")
    both = part is not None and idle is not None and part.value < (1 - _SAME) * idle.value
    bill = "accelerators and sandboxes together" if both else "the accelerators"
    alone = "accelerators that wait; sandboxes work then" if both else "spent while the accelerator waits"
    known = {
        "per_hour": ("the bill", bill),
        "per_step": ("a step", "its share of the bill"),
        "per_1000": ("1,000 completions", "their share of the bill"),
        "idle_share": ("for waiting", f"of the bill: {alone}"),
        "idle_per_hour": ("for waiting, hourly", "the same in dollars"),
        "idle_per_day": ("for waiting, daily", "the same, if it goes on like this"),
    }
    for key, estimate in money.items():
        name, means = known.get(key, (key.replace("_", " "), estimate.basis))
        yield name, estimate, means
