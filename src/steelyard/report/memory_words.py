"""The words of a fit: what the terminal and the page say of it, and in which order.

The answer first (fits or not, by how much), then what to change, how far one can go, what to beware of, how
fast it will be; then what all of it was reckoned from: every resident of every phase with its formula and
source. Nothing is computed here that the fit does not hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from string import ascii_letters
from typing import Final, NamedTuple

from steelyard.memory.lints import Lint
from steelyard.memory.plan import Engine, Lora, Plan
from steelyard.memory.values import GIB, Fit, Lever, Owner, Phase, Resident, Verdict
from steelyard.report.units import amount, counted, number
from steelyard.report.words import Section, plain

NOTICED: Final = 0.005
"""The part of the peak that is worth a change; what buys less is told apart."""
OTHERS: Final = "Little or nothing to gain by these"
COMPARED: Final = (
    "GiB on the fullest GPU; batch: the largest micro-batch, or tokens of a pass, that fits; step: its time, "
    "busy, and with the wait for rewards where those were told."
)
NOTES: Final = "How the settings were read"
NO_LEVER: Final = "No change that is known here lowers the peak."
TITLES: Final = {"generation": "Generation", "training": "Training", "sync": "Weight sync"}
VERDICTS: Final = {"fits": "fits", "tight": "is tight", "does not fit": "does not fit"}
_SLEEPS: Final = {0: "awake while it trains", 1: "asleep at level 1", 2: "asleep at level 2"}
_SHARED: Final = {
    "none": "DDP",
    "zero1": "ZeRO-1",
    "zero2": "ZeRO-2",
    "zero3": "ZeRO-3 or FSDP",
}


class FitReport(NamedTuple):
    """All that is said of a plan on one card.

    Parameters
    ----------
    fit
        The estimate against the card.
    lints
        What to beware of.
    speed
        The decode roofline and the step time, as sections of rows.
    checked
        What a real allocation said of it, if one was made.
    notes
        What a settings file says that was read in another way than it stands there, or not at all.
    step_s
        Seconds of a step, busy, and with the wait for rewards where that is known; None if not known.
    dollars
        Of a step; None if no price was told.
    """

    fit: Fit
    lints: tuple[Lint, ...] = ()
    speed: tuple[Section, ...] = ()
    checked: Section | None = None
    notes: tuple[str, ...] = ()
    step_s: float | None = None
    dollars: float | None = None


class Line(NamedTuple):
    """One resident of a phase: its sign in the bars, and its cells."""

    sign: str
    name: str
    gib: str
    formula: str
    source: str
    owner: Owner


def gib(size: float) -> str:
    """Bytes in GiB, without the unit.

    Examples
    --------
    >>> gib(96.43 * GIB), gib(105.7 * GIB), gib(2.9 * GIB), gib(0.001 * GIB), gib(0)
    ('96.4', '106', '2.90', '<0.01', '0')
    """
    value = size / GIB
    if value and abs(value) < 0.005:
        return "<0.01"
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}" if value else "0"


def title(fit: Fit) -> str:
    """What is to run where."""
    plan = fit.estimate.plan
    return plain(f"{plan.model.name} on {plan.gpus} x {fit.card.name}")


def headline(fit: Fit) -> str:
    """The answer in a sentence: verdict, peak with its range, and the card."""
    estimate = fit.estimate
    if not _by_size(fit):
        return f"{title(fit)} {VERDICTS[fit.verdict]}: {plain(fit.why).rstrip('.')}."
    each = " of each GPU" if estimate.plan.gpus > 1 else ""
    return (
        f"{title(fit)} {VERDICTS[fit.verdict]}: {gib(estimate.peak.bytes)} GiB "
        f"({gib(estimate.low)} to {gib(estimate.high)}) of {gib(fit.card.bytes)} GiB{each}."
    )


def _by_size(fit: Fit) -> bool:
    """The verdict is about the peak; else something keeps it from starting, which `fit.why` says."""
    return fit.held != 0


def why(fit: Fit) -> str:
    """Where the peak is, and of what it mostly consists."""
    peak = fit.estimate.peak
    most = sorted(peak.residents, key=lambda one: -one.bytes)[:3]
    parts = ", ".join(f"{plain(one.name)} {gib(one.bytes)}" for one in most if one.bytes)
    return f"The peak is in {TITLES[peak.name].lower()} ({plain(peak.moment)}): {parts} GiB."


def stopped(report: FitReport) -> str:
    """That it cannot run as planned, whatever fits; empty if nothing stops it."""
    stops = [plain(one.code) for one in report.lints if one.severity == "stop"]
    return f"As planned it will not run, or not as it says: {', '.join(stops)} (see below)." if stops else ""


def colour_of(report: FitReport) -> Verdict:
    """The verdict whose colour the answer has: what fits, and does not run, is not green."""
    verdict = report.fit.verdict
    return "tight" if verdict == "fits" and stopped(report) else verdict


def lint_says(lint: Lint) -> str:
    """What was seen, and what comes of it."""
    return f"{plain(lint.what).rstrip('.')}: {plain(lint.why).rstrip('.')}."


def doubt(fit: Fit) -> str:
    """How far the numbers are to be trusted, and why."""
    estimate = fit.estimate
    down, up = number(100 * estimate.below), number(100 * estimate.above)
    band = f"± {up}\N{NO-BREAK SPACE}%" if down == up else f"-{down} to +{up}\N{NO-BREAK SPACE}%"
    return f"Confidence: {estimate.confidence}, {band}: {plain(estimate.why).rstrip('.')}."


def ground(plan: Plan) -> str:
    """What was asked, with all that was assumed."""
    told = [
        {"grpo": "GRPO", "sft": "SFT", "inference": "a forward pass"}[plan.task],
        f"{plan.precision} with {plan.optimizer} ({plan.step_kernel})",
        *([f"gradients of {plan.gradient_bytes} bytes"] if plan.gradient_bytes else []),
        *([_adapters(plan.lora)] if plan.lora else []),
        f"{number(plan.prompt)} + {number(plan.completion)} tokens",
        f"micro-batch {number(plan.micro_batch)}",
        *([f"at most {number(plan.micro_tokens)} tokens a pass"] if plan.micro_tokens else []),
        *([f"{counted(plan.prompts, 'prompt')} x {number(plan.generations)}"] if plan.task == "grpo" else []),
        "no checkpointing" if plan.checkpointing == "none" else f"checkpointing by {plan.checkpointing}",
        f"{plan.attention} attention",
        f"{plan.head} head" + (f" of {plan.chunk} tokens" if plan.head == "chunked" else ""),
        *(["fused kernels"] if plan.fused_kernels else []),
        *(["a reference model"] if plan.reference else []),
        *(_shared(plan)),
        *_offloaded(plan),
        *(["expandable segments"] if plan.expandable_segments else []),
        *([_engine(plan.engine)] if plan.task == "grpo" else []),
    ]
    return f"Planned: {', '.join(told)}."


def _adapters(lora: Lora) -> str:
    kind = "QLoRA" if lora.quantized else "LoRA"
    sets = f", {lora.sets} sets" if lora.sets > 1 else ""
    return f"{kind} of rank {number(lora.rank)}{sets}"


def _shared(plan: Plan) -> Iterable[str]:
    if plan.shards > 1:
        yield f"{_SHARED[plan.sharding]} over {plan.shards}"
    if plan.tensor_parallel > 1:
        yield f"tensor parallel over {plan.tensor_parallel}"
    if plan.sequence_parallel > 1:
        yield f"sequence parallel over {plan.sequence_parallel}"


def _offloaded(plan: Plan) -> Iterable[str]:
    """What lies on the host, always or while the engine generates."""
    for name, where in (
        ("optimizer", plan.offload_optimizer),
        ("weights", plan.offload_weights),
        ("reference model", plan.offload_reference),
    ):
        if where != "none" and (name != "reference model" or plan.reference):
            when = {"idle": " during generation", "step": " but for its step"}.get(where, "")
            yield f"{name} on the host{when}"


def _engine(engine: Engine | None) -> str:
    if engine is None or engine.mode == "none":
        return "the trainer's model generates"
    over = f", tensor parallel over {engine.tensor_parallel}" if engine.tensor_parallel > 1 else ""
    if engine.mode == "server":
        return f"vLLM on other GPUs{over}"
    graphs = "" if engine.graphs else ", without CUDA graphs"
    share = number(100 * engine.share)
    return f"vLLM beside it in {share} % of the card, {_SLEEPS[engine.sleep]}{over}{graphs}"


def signs(phases: Sequence[Phase]) -> dict[str, str]:
    """A letter for each resident, the same in all phases: the first, `A`, is the largest anywhere."""
    most: dict[str, float] = {}
    for phase in phases:
        for one in phase.residents:
            most[one.name] = max(most.get(one.name, 0.0), one.bytes)
    names = sorted(most, key=lambda name: -most[name])
    letters = ascii_letters[26:] + ascii_letters[:26]
    return {name: letters[place % len(letters)] for place, name in enumerate(names)}


def owners(phases: Sequence[Phase]) -> dict[str, Owner]:
    """Whose each resident is."""
    return {one.name: one.owner for phase in phases for one in phase.residents}


def largest_first(phase: Phase) -> list[Resident]:
    """A phase's residents."""
    return sorted(phase.residents, key=lambda one: -one.bytes)


def lines(phase: Phase, known: dict[str, str]) -> list[Line]:
    """A phase as the rows of a table, largest first."""
    return [
        Line(
            known[one.name],
            plain(one.name),
            gib(one.bytes),
            plain(one.formula),
            plain(one.source),
            one.owner,
        )
        for one in largest_first(phase)
    ]


def phase_title(phase: Phase) -> str:
    """Its name, its worst moment and its size."""
    return f"{TITLES[phase.name]}, {plain(phase.moment)}: {gib(phase.bytes)} GiB"


def process_says(phase: Phase) -> str:
    """What torch would report of the trainer in that phase."""
    return (
        f"torch would say: max_memory_allocated {gib(phase.allocated)}, "
        f"max_memory_reserved {gib(phase.reserved)} GiB."
    )


def levers(fit: Fit) -> tuple[list[Lever], list[Lever]]:
    """The levers that one would notice, the most first; and the others."""
    ordered = sorted(fit.levers, key=lambda one: -one.saves)
    least = NOTICED * fit.estimate.peak.bytes
    return (
        [one for one in ordered if one.saves >= least],
        [one for one in ordered if one.saves < least],
    )


def together(fit: Fit) -> str:
    """The cheapest levers that do it together, as one would type them; empty where none need to."""
    if not fit.together:
        return ""
    last = fit.together[-1]
    options = " ".join(one.option for one in fit.together)
    is_ = "fits" if last.verdict == "fits" else "is tight"
    return f"The cheapest that do together: {options}. That is {gib(last.left)} GiB, and {is_}."


def leaves(fit: Fit, lever: Lever) -> str:
    """What a lever leaves of the peak, and whether that is enough."""
    if fit.verdict == "fits" or not _by_size(fit):
        return f"brings it to {gib(lever.left)} GiB"
    told = {"fits": "which fits", "tight": "which is tight", "does not fit": "which is still too much"}
    return f"brings it to {gib(lever.left)} of {gib(fit.card.bytes)} GiB, {told[lever.verdict]}"


def outcome(lever: Lever) -> str:
    """What a lever that buys nothing worth having does."""
    if lever.saves < 0:
        return f"{gib(-lever.saves)} GiB more"
    return f"{gib(lever.saves)} GiB" if lever.saves else "nothing"


def largest(fit: Fit) -> list[tuple[str, str, str]]:
    """How far one can go on this card, all else as planned: what, the number, what was planned."""
    plan, found = fit.estimate.plan, fit.largest
    tokens = f"planned: {number(plan.tokens)}"
    if found.context and (positions := plan.model.positions) and found.context > positions:
        tokens += f"; the model has {number(positions)} positions"
    if plan.micro_tokens is None:
        asked = f"planned: {number(plan.micro_batch)}"
        pass_of = ("micro-batch", number(found.micro_batch) if found.micro_batch else "none fits", asked)
    else:
        asked = f"planned: {number(plan.micro_tokens)}"
        pass_of = (
            "pass",
            f"{number(found.micro_tokens)} tokens" if found.micro_tokens else "none fits",
            asked,
        )
    return [
        pass_of,
        ("context", f"{number(found.context)} tokens" if found.context else "none fits", tokens),
        ("model", plain(found.model) if found.model else "none fits", f"planned: {plain(plan.model.name)}"),
    ]


def parameters(plan: Plan) -> str:
    """The model's size."""
    shape = plan.model
    active = f", {number(shape.active)} of them active" if shape.routed else ""
    return f"{counted(shape.parameters, 'parameter')}{active}"


def compared(reports: Sequence[FitReport]) -> tuple[list[str], list[list[str]]]:
    """Several cards in a table: its heads and its rows; dollars where a price was told."""
    priced = any(one.dollars is not None for one in reports)
    heads = ["card", "verdict", "GiB", "range", "of", "batch", "step", *(["$ a step"] if priced else [])]
    rows = [
        [
            plain(fit.card.name),
            fit.verdict,
            gib(fit.estimate.peak.bytes),
            f"{gib(fit.estimate.low)} to {gib(fit.estimate.high)}",
            gib(fit.card.bytes),
            largest(fit)[0][1].removesuffix(" fits").removesuffix(" tokens"),
            "" if one.step_s is None else amount(one.step_s, "s"),
            *([_money(one.dollars)] if priced else []),
        ]
        for one, fit in ((one, one.fit) for one in reports)
    ]
    return heads, rows


def _money(dollars: float | None) -> str:
    return "" if dollars is None else amount(dollars, "$")


def runs(report: FitReport) -> bool:
    """It fits, if tightly, and nothing stops it."""
    return report.fit.verdict != "does not fit" and not stopped(report)


def cheapest(reports: Sequence[FitReport]) -> str:
    """The card that fits for the fewest dollars a step; empty where no price was told."""
    if all(one.dollars is None for one in reports) and any(map(runs, reports)):
        return ""
    fitting = [one for one in reports if runs(one)]
    if not fitting:
        return "None of them fits and runs as planned."
    best = min(fitting, key=lambda one: inf if one.dollars is None else one.dollars)
    if best.dollars is None:
        return "Of none that fits is a step's price known."
    tight = ", which is tight" if best.fit.verdict == "tight" else ""
    return f"The cheapest that fits: {plain(best.fit.card.name)}, {_money(best.dollars)} a step{tight}."
