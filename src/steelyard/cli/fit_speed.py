"""How fast a planned run is: tokens per second that it can decode, and what a step takes with its rewards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from steelyard.cli.fit_options import FitOptions
from steelyard.errors import RefusedError
from steelyard.report.units import amount, counted, interval, number, said
from steelyard.report.words import Row, Section

if TYPE_CHECKING:
    from steelyard.memory.plan import Plan
    from steelyard.memory.steps import StepTime
    from steelyard.memory.values import Card, Fit
    from steelyard.pricing.money import Prices
    from steelyard.pricing.values import Price

_OPTIONS = {"median": "--reward-median", "timeout": "--reward-timeout", "rate": "--reward-rate"}


class Speed(NamedTuple):
    """What is known of it.

    Parameters
    ----------
    sections
        In words.
    decode
        Points of the decode roofline: `sequences`, `context`, and the fields of `memory.roofline.Decode`.
    step
        Seconds of a step: `generation_s`, `training_s`, `busy_s` and `low`, `high` of both; `wait_s`,
        `step_s`, `idle` and `dollars`, where what they need was said. None if not known, or if the engine
        does not start.
    """

    sections: tuple[Section, ...]
    decode: list[dict[str, Any]]
    step: dict[str, Any] | None


def speed_of(fit: Fit, given: FitOptions, hourly: float | None = None) -> Speed:
    """How fast a plan runs on a card.

    Parameters
    ----------
    fit
        What is to run, on what.
    given
        The options: what is known of rewards.
    hourly
        Of one GPU, in dollars.

    Raises
    ------
    RefusedError
        Some of a reward's numbers are said, and others lacking.
    """
    plan, card = fit.estimate.plan, fit.card
    if fit.held == 0:
        said = Row("it does not start", "", "", "the engine's cache holds no sequence of full length")
        return Speed((Section("step", "A step", [said]),), [], None)
    points = _decoded(plan, card, fit.held)
    sections = [_decode_section(points, fit)] if points else []
    if plan.task == "inference":
        return Speed(tuple(sections), points, None)
    timed = _step(plan, card, fit.held)
    if isinstance(timed, str):
        sections.append(Section("step", "A step", [Row("not known", "", "", timed)]))
        return Speed(tuple(sections), points, None)
    price = _priced(plan, timed, given, hourly)
    dollars = _dollars(plan, timed, price, hourly)
    sections.append(_step_section(timed, price, dollars))
    return Speed(tuple(sections), points, _step_values(timed, price, dollars))


def _decoded(plan: Plan, card: Card, held: int | None) -> list[dict[str, Any]]:
    """Points of the roofline: the batch as it begins and as it ends, and one sequence alone."""
    from dataclasses import asdict

    from steelyard.memory.plan import Engine
    from steelyard.memory.roofline import decode

    if plan.task != "grpo" or not card.sustained:
        return []
    engine = plan.engine or Engine(mode="none")
    own = engine.mode == "none"
    each = plan.tensor_parallel if own else engine.tensor_parallel
    batch = -(-plan.completions // _copies(plan))
    if not own:
        batch = min(batch, engine.sequences, held or batch)
    points = dict.fromkeys([(batch, plan.prompt), (batch, plan.tokens), (1, plan.tokens)])
    return [
        {"sequences": sequences, "context": context}
        | asdict(
            decode(
                plan.model,
                card,
                batch=sequences,
                context=context,
                tensor_parallel=each,
                weight_bytes=2.0 if own else engine.weight_bytes,
                cache_bytes=2.0 if own else engine.cache_bytes,
            )
        )
        for sequences, context in points
    ]


def _copies(plan: Plan) -> int:
    """How many models generate beside each other; of a server, which is described by its own GPUs, one."""
    engine = plan.engine
    if engine is not None and engine.mode == "server":
        return 1
    each = plan.tensor_parallel if engine is None or engine.mode == "none" else engine.tensor_parallel
    return max(1, plan.gpus // each)


def _decode_section(points: list[dict[str, Any]], fit: Fit) -> Section:
    rows = [
        Row(
            f"{counted(one['sequences'], 'sequence')} at {number(one['context'])} tokens",
            f"{number(one['tokens_per_s'])} tokens/s",
            "",
            f"{one['bound']}-bound; the cache is {number(100 * one['cache_share'])} % of what is read",
        )
        for one in points
    ]
    if fit.held is not None:
        told = f"of {number(fit.estimate.plan.tokens)} tokens at once, on one copy"
        rows.append(Row("the engine's cache holds", counted(fit.held, "sequence"), "", told))
    rate = number(fit.card.sustained / 1e9)
    plan, copies = fit.estimate.plan, _copies(fit.estimate.plan)
    what = "engine" if plan.engine is not None and plan.engine.mode != "none" else "model"
    by = f"one copy of the {what}" + (f", of {number(copies)}" if copies > 1 else "")
    return Section("decode", f"Decoding, at most, by {by} ({rate} GB/s sustained of {fit.card.name})", rows)


def _step(plan: Plan, card: Card, held: int | None) -> StepTime | str:
    """Seconds of a step, or why they are not known."""
    from steelyard.memory.steps import step_time

    try:
        return step_time(plan, card, at_once=held)
    except RefusedError as error:
        return f"{error.reason}; {error.remedy}"


def _priced(plan: Plan, timed: StepTime, given: FitOptions, hourly: float | None) -> Price:
    from steelyard.planned import planned_price

    try:
        return planned_price(
            timed,
            batch=plan.completions,
            group=plan.generations,
            median_s=given.reward_median,
            timeout_s=given.reward_timeout,
            rate=given.reward_rate,
            prices=_prices(plan, hourly),
        )
    except RefusedError as error:
        needs = ", ".join(_OPTIONS.values())
        raise RefusedError(error.reason, where="rewards", remedy=f"of {needs}: {error.remedy}") from None


def _paid(plan: Plan) -> int:
    """GPUs that are paid for: the trainer's, and the server's."""
    engine = plan.engine
    return plan.gpus + (engine.tensor_parallel if engine is not None and engine.mode == "server" else 0)


def _prices(plan: Plan, hourly: float | None) -> Prices | None:
    from steelyard.pricing.money import Prices

    return None if hourly is None else Prices(hourly, _paid(plan), 0.0, 0)


def _dollars(plan: Plan, timed: StepTime, price: Price, hourly: float | None) -> float | None:
    """Of a step: its whole time on all GPUs."""
    if hourly is None:
        return None
    taken = timed.busy_s if price.step is None else price.step.value
    return taken / 3600 * hourly * _paid(plan)


def _step_section(timed: StepTime, price: Price, dollars: float | None) -> Section:
    """A step in words; of busy time the range is what the assumed shares leave open."""
    known = f"{number(timed.low)} to {number(timed.high)} s"
    rows = [
        *(
            [Row("generation", amount(timed.generation_s, "s"), "", "prompts read, completions decoded")]
            if timed.generation_s
            else []
        ),
        Row("training", amount(timed.training_s, "s"), "", "forward and backward passes"),
        Row("both (busy)", amount(timed.busy_s, "s"), known, "; ".join(timed.says)),
    ]
    if price.wait is not None and price.step is not None and price.idle is not None:
        rows += [
            Row("waiting for rewards", said(price.wait), interval(price.wait), "the slowest of a step"),
            Row("a step", said(price.step), interval(price.step), f"{said(price.idle)} of it idle"),
        ]
    if dollars is not None:
        rows.append(Row("a step costs", amount(dollars, "$"), "", "all GPUs, for as long as it takes"))
    return Section("step", "A step", rows)


def _step_values(timed: StepTime, price: Price, dollars: float | None) -> dict[str, Any]:
    return {
        "generation_s": timed.generation_s,
        "training_s": timed.training_s,
        "busy_s": timed.busy_s,
        "low": timed.low,
        "high": timed.high,
        "wait_s": None if price.wait is None else price.wait.value,
        "step_s": None if price.step is None else price.step.value,
        "idle": None if price.idle is None else price.idle.value,
        "dollars": dollars,
        "says": timed.says,
    }
