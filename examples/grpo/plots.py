"""What the runs of `learn.py` look like: one page that needs nothing else, and a table for the terminal."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from steelyard import Rollout, Scored
from steelyard.report import blocks
from steelyard.report.blocks import Html
from steelyard.report.figures import Figure, Records, apart, drawing, halo, layouts
from steelyard.report.page import write_document
from steelyard.report.units import seconds

if TYPE_CHECKING:
    from learn import Run

ENDS = 5
"""The mean over so many steps is what a run begins and ends with."""
AROUND = 3
"""A line is the mean over so many steps before and after."""
BATCH, STREAMING = "waits for the batch", "trains on arrival"
_HEIGHT = 300


class Series(NamedTuple):
    """Values by step, what they are called, and the colour."""

    label: str
    values: Sequence[float]
    colour: str


class Stretch(NamedTuple):
    """What the process that trains did, and from when to when in its step."""

    phase: str
    start: float
    end: float


def share(value: float) -> str:
    """A share as it is read: 36 %."""
    return f"{100 * value:.0f} %"


def interval(values: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """A 95 % interval of a mean, by 4,000 resamples."""
    chance = random.Random(seed)
    means = sorted(fmean(chance.choices(values, k=len(values))) for _ in range(4000))
    return means[100], means[3899]


def write(path: Path, streaming: Run, batch: Run, laundered: Run) -> None:
    """Write the page, and print what it says in short."""
    alt, _ = drawing(str(path))
    figures = [learning(alt, streaming), *one_step(alt, batch, streaming), by_step(alt, batch, streaming)]
    figures.append(against(alt, streaming, laundered))
    told = list(_numbers(streaming, batch, laundered))
    for name, value, below in told:
        print(f"{name:<30} {value:<14} {below}")
    body = [
        Html(f'<p class="answer">{blocks.text(_answer(streaming))}</p>'),
        blocks.tiles(told),
        blocks.heading("The reward rises", "rises"),
        blocks.grid([blocks.figure(figures[0]), blocks.stack(map(_said, streaming.said))]),
        blocks.heading("The step, with and without streaming", "step"),
        blocks.grid(map(blocks.figure, figures[1:-1])),
        blocks.heading("The same run with failures laundered", "laundered"),
        blocks.grid([blocks.figure(figures[-1])]),
    ]
    write_document(path, body, figures, title="A tiny model learns to write functions")


def _answer(run: Run) -> str:
    first, last = fmean(run.passed[:ENDS]), fmean(run.passed[-ENDS:])
    return (
        f"{share(first)} of the programs pass their tests in the first {ENDS} steps, "
        f"{share(last)} in the last {ENDS} of {len(run.passed)}."
    )


def _numbers(streaming: Run, batch: Run, laundered: Run) -> Iterator[tuple[str, str, str]]:
    count = len(batch.seconds)
    pairs = list(zip(batch.seconds, streaming.seconds[:count], strict=True))
    saved = [without - on_arrival for without, on_arrival in pairs]
    low, high = interval(saved)
    for run in (streaming, laundered):
        became = "unscored" if run is streaming else "given the reward 0"
        yield f"pass their tests, {run.name}", _grows(run.passed), f"{run.failed} failures, {became}"
    yield "keep their format, streaming", _grows(streaming.kept), f"first and last {ENDS} steps"
    yield (
        "a step, batch and streaming",
        f"{fmean(batch.seconds):.2f}, {fmean(one for _, one in pairs):.2f} s",
        f"in {count} steps: {fmean(saved):.2f} s less (95 %: {low:.2f} to {high:.2f})",
    )
    yield (
        "right programs punished",
        f"{laundered.punished} of {laundered.failed}",
        f"failures, laundered; streaming: {streaming.punished} of {streaming.failed}",
    )
    yield (
        "mean reward is told",
        f"{_off(laundered):+.3f}",
        f"off, laundered; streaming: {_off(streaming):+.3f}",
    )


def _grows(values: Sequence[float]) -> str:
    first, last = (100 * fmean(some) for some in (values[:ENDS], values[-ENDS:]))
    return f"{first:.0f} to {last:.0f} %"


def _off(run: Run) -> float:
    """How far the mean reward that a run reports is from what its programs are worth."""
    off = fmean(told - true for told, true in zip(run.rewards, run.true, strict=True))
    return round(off, 3) + 0.0  # no negative zero


def _said(said: tuple[Rollout, Scored]) -> Html:
    rollout, total = said
    body = Html(f"<pre>{blocks.text(str(rollout.prompt))}{blocks.text(str(rollout.completion))}</pre>")
    why = f"{total.value:g}" + (f": {total.reason or total.code}" if total.code else "")
    return blocks.card(f"Step {rollout.where.removeprefix('step ')}", body, says=f"Its reward is {why}")


# --- curves


def learning(alt: Any, run: Run) -> Figure:
    """What a policy learns."""
    series = [
        Series("keep their format", run.kept, "var(--green)"),
        Series("pass their tests", run.passed, "var(--busy)"),
    ]
    says = (
        "Of the completions of each step the share that passes all its tests, and the share that keeps its "
        "tags: points, and the mean over seven steps. Where no sandbox could be had, nothing was trained on; "
        "what the program would have got is counted here."
    )
    return _curves(alt, "learning", "What it learns", says, series)


def against(alt: Any, unscored: Run, laundered: Run) -> Figure:
    """One run, twice: what became of failures is all that differs."""
    series = [
        Series("failures unscored", unscored.passed, "var(--busy)"),
        Series("failures laundered", laundered.passed, "var(--wait)"),
    ]
    says = (
        "The share of programs that pass their tests, also of those that could not be judged. Both runs "
        "begin at the same weights, see the same prompts, and fail to judge the same rollouts. One pair of "
        "runs says little, for chance leads each its own way: bench/laundering.py has ten."
    )
    return _curves(alt, "against", "Laundered against unscored", says, series)


def _curves(alt: Any, key: str, title: str, says: str, series: Sequence[Series]) -> Figure:
    data: dict[str, Records] = {
        "points": [
            {"step": step, "y": value, "what": one.label}
            for one in series
            for step, value in enumerate(one.values)
        ],
        "lines": [
            {"step": step, "y": value, "what": one.label}
            for one in series
            for step, value in enumerate(_smooth(one.values))
        ],
    }
    ends = [_smooth(one.values)[-1] for one in series]
    places = apart(ends, 20 / _HEIGHT)
    for one, end, at in zip(series, ends, places, strict=True):
        label = f"{share(end)} {one.label}"
        data[one.label] = [{"step": len(one.values) - 1, "at": at, "label": label}]
    wide, narrow = layouts(data, lambda narrow: _draw_curves(alt, series, narrow=narrow), height=_HEIGHT)
    rows = [
        [str(step), *(share(value) for value in values)]
        for step, values in enumerate(zip(*(one.values for one in series), strict=True))
    ]
    heads = ["step", *(one.label for one in series)]
    return Figure(key, title, says, says, data, wide, narrow, heads, rows)


def _smooth(values: Sequence[float]) -> list[float]:
    return [fmean(values[max(0, at - AROUND) : at + AROUND + 1]) for at in range(len(values))]


def _draw_curves(alt: Any, series: Sequence[Series], *, narrow: bool) -> Any:
    colour = alt.Color(
        "what:N",
        scale=alt.Scale(domain=[one.label for one in series], range=[one.colour for one in series]),
        legend=alt.Legend(symbolType="stroke", symbolStrokeWidth=3) if narrow else None,
    )
    across = alt.X("step:Q", title="step", axis=alt.Axis(tickMinStep=1))
    up = alt.Y(
        "y:Q",
        title="share of completions",
        scale=alt.Scale(domain=[0, 1]),
        axis=alt.Axis(labelExpr="100 * datum.value + ' %'", tickCount=5),
    )
    tips = [
        alt.Tooltip("step:Q"),
        alt.Tooltip("what:N", title="share that"),
        alt.Tooltip("y:Q", title="is", format=".0%"),
    ]
    points = (
        alt.Chart(alt.NamedData("points"))
        .mark_circle(size=26, opacity=0.35)
        .encode(x=across, y=up, color=colour, tooltip=tips)
    )
    lines = alt.Chart(alt.NamedData("lines")).mark_line(strokeWidth=2.6).encode(x=across, y=up, color=colour)
    layers = [points, lines]
    for one in [] if narrow else series:
        named = alt.Chart(alt.NamedData(one.label)).encode(
            x=alt.value("width"), y=alt.Y("at:Q"), text=alt.Text("label:N")
        )
        layers.append(
            halo(alt, named, align="left", dx=8, baseline="middle", fontWeight=600, color=one.colour)
        )
    return alt.layer(*layers)


# --- steps


def stretches(run: Run, step: int) -> list[Stretch]:
    """What the process that trains did in a step: where it did nothing, it waited for verdicts."""
    of_step = [span for span in run.spans if span.step == step]
    whole = next(span for span in of_step if span.phase == "step")
    busy = sorted(
        (span.start, span.end, span.phase) for span in of_step if span.phase in ("generation", "training")
    )
    found, until = list[Stretch](), whole.start
    for start, end, phase in busy:
        if start - until > 1e-4:
            found.append(Stretch("waiting", until - whole.start, start - whole.start))
        found.append(Stretch(phase, start - whole.start, end - whole.start))
        until = end
    return found


def one_step(alt: Any, batch: Run, streaming: Run) -> Iterator[Figure]:
    """The step with the median of what was saved, as both runs spent it."""
    saved = [
        (without - on_arrival, step)
        for step, (without, on_arrival) in enumerate(zip(batch.seconds, streaming.seconds, strict=False))
    ]
    step = sorted(saved)[len(saved) // 2][1]
    data: dict[str, Records] = {
        "stretches": [
            {
                "lane": lane,
                "phase": one.phase,
                "x": one.start,
                "x2": one.end,
                "told": seconds(one.end - one.start),
            }
            for lane, run in ((BATCH, batch), (STREAMING, streaming))
            for one in stretches(run, step)
        ]
    }
    phases = {"generation": "var(--generation)", "training": "var(--training)", "waiting": "var(--wait-mid)"}

    def draw(narrow: bool) -> Any:  # noqa: FBT001 - `layouts` calls it so
        return (
            alt.Chart(alt.NamedData("stretches"))
            .mark_bar(stroke="var(--paper)", strokeWidth=0.6)
            .encode(
                x=alt.X("x:Q", title="seconds since the step began"),
                x2=alt.X2("x2:Q"),
                y=alt.Y(
                    "lane:N",
                    title=None,
                    sort=[BATCH, STREAMING],
                    axis=alt.Axis(labelLimit=130 if narrow else 200),
                ),
                color=alt.Color(
                    "phase:N",
                    scale=alt.Scale(domain=list(phases), range=list(phases.values())),
                    legend=alt.Legend(symbolType="square"),
                ),
                tooltip=[alt.Tooltip("phase:N"), alt.Tooltip("told:N", title="takes")],
            )
        )

    wide, narrow = layouts(data, draw, height=120)
    says = (
        f"Step {step}, the one with the median of what was saved: the same completions are judged, with the "
        "same waits. On arrival, groups are trained on while others are judged."
    )
    heads = ["run", "phase", "begins", "takes"]
    rows = [[one["lane"], one["phase"], seconds(one["x"]), one["told"]] for one in data["stretches"]]
    yield Figure("once", "One step, twice", says, says, data, wide, narrow, heads, rows, full=True)


def by_step(alt: Any, batch: Run, streaming: Run) -> Figure:
    """What each step took."""
    count = len(batch.seconds)
    taken = {BATCH: batch.seconds, STREAMING: streaming.seconds[:count]}
    data: dict[str, Records] = {
        "steps": [
            {"step": step, "y": value, "run": name}
            for name, values in taken.items()
            for step, value in enumerate(values)
        ]
    }
    colours = ["var(--wait)", "var(--busy)"]

    def draw(narrow: bool) -> Any:  # noqa: FBT001, ARG001 - `layouts` calls it so
        return (
            alt.Chart(alt.NamedData("steps"))
            .mark_bar()
            .encode(
                x=alt.X("step:O", title="step", axis=alt.Axis(labelAngle=0)),
                xOffset=alt.XOffset("run:N", sort=list(taken)),
                y=alt.Y("y:Q", title="seconds", scale=alt.Scale(zero=True)),
                color=alt.Color(
                    "run:N",
                    scale=alt.Scale(domain=list(taken), range=colours),
                    legend=alt.Legend(symbolType="square"),
                ),
                tooltip=[
                    alt.Tooltip("step:O"),
                    alt.Tooltip("run:N"),
                    alt.Tooltip("y:Q", title="seconds", format=".2f"),
                ],
            )
        )

    wide, narrow = layouts(data, draw, height=220)
    says = (
        "What each step took, from its beginning to its end. What is saved is training that happens while "
        "other groups are judged; where no core is free meanwhile, nothing is."
    )
    heads = ["step", *taken]
    rows = [
        [str(step), *(f"{value:.2f} s" for value in values)]
        for step, values in enumerate(zip(*taken.values(), strict=True))
    ]
    return Figure("steps", "Step by step", says, says, data, wide, narrow, heads, rows, full=True)
