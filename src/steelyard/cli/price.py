"""`steelyard price`: its options, and what is done with them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from steelyard.errors import RefusedError, printable

if TYPE_CHECKING:
    from steelyard.pricing.money import Prices
    from steelyard.pricing.values import Price

_ALONE = ("median", "batch", "rho", "pass_rate", "attempts", "infrastructure", "spawn")
_OPTIONS = {
    "group_size": "--group",
    "rewards": "--function",
    "weights": "--weight",
    "limit_s": "--limit",
    "split": "--split",
    "skip": "--skip",
    "run": "--run",
    "phases": "--phase",
    "timeout_s": "--timeout",
    "rate": "--rate",
}
_OF_SOURCES = ("run", "limit", "weight", "function", "split", "phase", "trace", "places", "skip")
_NEEDED = ("timeout", "median", "rate", "batch", "group")


SourceArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="[SOURCE]",
        help="A ledger, the scored file beside it, a recorded run; or rollouts that TRL, verl or "
        "verifiers wrote. Without one, numbers alone are priced.",
    ),
]
RunOption = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Which run of a ledger.", show_default="last")
]
BusyOption = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", help="Generation plus training of a step, where SOURCE lacks it."),
]
GenerationOption = Annotated[float | None, typer.Option(metavar="SECONDS", help="Of it, generation.")]
TrainingOption = Annotated[float | None, typer.Option(metavar="SECONDS", help="Of it, training.")]
TimeoutOption = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", help="Where a reward is cut; with SOURCE: what if it were cut here."),
]
MedianOption = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", help="Numbers alone: what a reward takes that is not cut."),
]
RateOption = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        help="Share of rewards that are cut, 0.01 for 1 %; with SOURCE: what if so many were.",
    ),
]
BatchOption = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Numbers alone: completions per step.")
]
GroupOption = Annotated[
    int | None,
    typer.Option(min=1, metavar="G", help="Completions per prompt; for TRL and verl, too."),
]
RhoOption = Annotated[
    float | None, typer.Option(metavar="R", help="Numbers alone: correlation of timeouts within a group.")
]
PassRateOption = Annotated[
    float | None,
    typer.Option(metavar="SHARE", help="Numbers alone: share of the cut ones that would have passed."),
]
AttemptsOption = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Numbers alone: how often one that was cut is tried.")
]
InfrastructureOption = Annotated[
    float | None,
    typer.Option(metavar="SHARE", help="Numbers alone: share of the cut ones that a second try would spare."),
]
SpawnOption = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", help="Numbers alone: of the median, to start a sandbox."),
]
LimitOption = Annotated[
    float | None,
    typer.Option(min=0.0, metavar="SECONDS", help="Where rewards were cut, if SOURCE does not say."),
]
WeightOption = Annotated[
    list[float] | None,
    typer.Option(metavar="W", help="TRL: `reward_weights`, one for each function. Repeatable."),
]
FunctionOption = Annotated[
    list[str] | None,
    typer.Option("--function", metavar="NAME", help="TRL: a column that is a reward function's. Repeatable."),
]
SplitOption = Annotated[
    str | None,
    typer.Option(metavar="WORD", help="prime-rl: which rollouts, `train` or `eval`.", show_default="train"),
]
PhaseOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=MEANING",
        help="A recorded phase of yours that is `generation`, `training` or `reward`. Repeatable.",
    ),
]
SkipOption = Annotated[
    bool, typer.Option("--skip", help="Leave out rows that cannot be read, and count them.")
]
PlacesOption = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Rewards that are served at once, where SOURCE does not show it."),
]
DollarsOption = Annotated[
    float | None, typer.Option(metavar="$/H", min=0.0, help="One accelerator, dollars per hour.")
]
AcceleratorsOption = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="How many wait together.", show_default="1")
]
SandboxDollarsOption = Annotated[
    float | None, typer.Option(metavar="$/H", min=0.0, help="One sandbox, dollars per hour.")
]
SandboxesOption = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="How many are paid for.", show_default="the places")
]
ReportOption = Annotated[Path | None, typer.Option(metavar="PAGE.html", help="Write it as a page, too.")]
TraceOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE.json", help="Write recorded spans as a Chrome trace (Perfetto)."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Everything as one JSON document.")]


def price(
    source: SourceArgument = None,
    *,
    run: RunOption = None,
    busy: BusyOption = None,
    generation: GenerationOption = None,
    training: TrainingOption = None,
    timeout: TimeoutOption = None,
    median: MedianOption = None,
    rate: RateOption = None,
    batch: BatchOption = None,
    group: GroupOption = None,
    rho: RhoOption = None,
    pass_rate: PassRateOption = None,
    attempts: AttemptsOption = None,
    infrastructure: InfrastructureOption = None,
    spawn: SpawnOption = None,
    limit: LimitOption = None,
    weight: WeightOption = None,
    function: FunctionOption = None,
    split: SplitOption = None,
    phase: PhaseOption = None,
    skip: SkipOption = False,
    places: PlacesOption = None,
    dollars: DollarsOption = None,
    accelerators: AcceleratorsOption = None,
    sandbox_dollars: SandboxDollarsOption = None,
    sandboxes: SandboxesOption = None,
    report: ReportOption = None,
    trace: TraceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a reward costs a training step: seconds, idle time, corrupted groups, dollars; and what to do.

    Numbers alone: steelyard price --busy 24.51 --timeout 30 --median 2 --rate 0.01 --batch 128 --group 8
    """
    given = Given(**locals())
    from steelyard.cli.outputs import refuse_output, refuse_page

    if report is not None:
        refuse_page(report, given.files("report"))
    if trace is not None:
        refuse_output(trace, "--trace", given.files("trace"))
    found = _of_numbers(given) if source is None else _of_source(source, given)
    if trace is not None and source is not None:
        _write_trace(source, trace, run)
    if report is not None:
        from steelyard.report.page import write_page

        write_page(report, found, None, title=f"The price of {found.source}")
    if as_json:
        typer.echo(as_document(found))
    else:
        _print(found, report, trace)


class Given(NamedTuple):
    """What was said on the command line, by the names of its options."""

    source: Path | None
    run: int | None
    busy: float | None
    generation: float | None
    training: float | None
    timeout: float | None
    median: float | None
    rate: float | None
    batch: int | None
    group: int | None
    rho: float | None
    pass_rate: float | None
    attempts: int | None
    infrastructure: float | None
    spawn: float | None
    limit: float | None
    weight: list[float] | None
    function: list[str] | None
    split: str | None
    phase: list[str] | None
    skip: bool
    places: int | None
    dollars: float | None
    accelerators: int | None
    sandbox_dollars: float | None
    sandboxes: int | None
    report: Path | None
    trace: Path | None
    as_json: bool

    def files(self, besides: str) -> list[Path]:
        """The other files of this command."""
        from steelyard.scoring import ledger_of

        named = {"source": self.source, "report": self.report, "trace": self.trace}
        found = [path for name, path in named.items() if path is not None and name != besides]
        return found + ([] if self.source is None else [ledger_of(self.source)])

    def refuse(self, names: Iterable[str], why: str) -> None:
        """Refuse options that mean nothing here."""
        for name in names:
            if getattr(self, name) not in {None, False}:
                raise RefusedError(why, where=f"--{name.replace('_', '-')}", remedy="leave it out")

    @property
    def prices(self) -> Prices | None:
        """Dollars per hour, if any were said."""
        from steelyard.pricing.money import Prices

        if self.dollars is None:
            self.refuse(("accelerators", "sandbox_dollars", "sandboxes"), "it goes with --dollars")
            return None
        paid = self.sandboxes or self.places or self.batch or 0
        return Prices(self.dollars, self.accelerators or 1, self.sandbox_dollars or 0.0, paid)


def _print(found: Price, report: Path | None, trace: Path | None) -> None:
    from steelyard.cli.words import console, plain
    from steelyard.report.terminal import print_price

    words = console()
    print_price(words, found)
    if report is not None:
        words.print(f"\nreport: [bold]{plain(str(report))}[/]")
    if trace is not None:
        words.print(f"trace: [bold]{plain(str(trace))}[/]   (open it in Perfetto)")


def as_document(found: Price) -> str:
    """Write a price as JSON: every field by its name, what is not known as null."""
    import orjson

    return orjson.dumps(_plain(found), option=orjson.OPT_INDENT_2).decode()


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever a price holds
    from dataclasses import fields, is_dataclass
    from enum import Enum

    if is_dataclass(value) and not isinstance(value, type):
        return _plain({field: getattr(value, field) for field in (one.name for one in fields(value))})
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, float):  # NumPy's, too
        return float(value) if math.isfinite(value) else None
    return value


def _of_numbers(given: Given) -> Price:
    from steelyard.pricing.numbers import price_numbers

    lacking = [name for name in _NEEDED if getattr(given, name) is None]
    if lacking:
        raise RefusedError(
            f"numbers alone need {', '.join(f'--{name}' for name in lacking)}, too",
            where="steelyard price",
            remedy="name a ledger or another SOURCE, or say for example "
            "--busy 24.51 --timeout 30 --median 2 --rate 0.01 --batch 128 --group 8",
        )
    given.refuse(_OF_SOURCES, "it is for a SOURCE, and none is named")
    return price_numbers(
        timeout_s=given.timeout or 0.0,
        median_s=given.median or 0.0,
        rate=given.rate or 0.0,
        batch=given.batch or 0,
        group=given.group or 0,
        busy_s=given.busy,
        generation_s=given.generation,
        training_s=given.training,
        rho=given.rho or 0.0,
        pass_rate=given.pass_rate,
        attempts=1 if given.attempts is None else given.attempts,
        infrastructure=given.infrastructure,
        spawn_s=given.spawn,
        prices=given.prices,
    )


def _of_source(source: Path, given: Given) -> Price:
    from steelyard.priced import price_file

    given.refuse(_ALONE, "it is for numbers alone, and a SOURCE is named")
    try:
        return price_file(
            source,
            busy_s=given.busy,
            generation_s=given.generation,
            training_s=given.training,
            prices=given.prices,
            places=given.places,
            timeout_s=given.timeout,
            rate=given.rate,
            run=given.run,
            phases=dict(map(_phase, given.phase or ())),
            limit_s=given.limit,
            group_size=given.group,
            rewards=tuple(given.function or ()),
            weights=tuple(given.weight or ()),
            split=given.split or "",
            skip=given.skip,
        )
    except RefusedError as error:
        where = _OPTIONS.get(error.where, error.where)
        raise RefusedError(error.reason, where=where, remedy=error.remedy) from None


def _write_trace(source: Path, trace: Path, run: int | None) -> None:
    """Let a trace appear whole, or not at all."""
    from steelyard.files.out import partial_of
    from steelyard.measure.trace import write_trace
    from steelyard.priced import recorded_spans

    spans = recorded_spans(source, run=run)
    partial = partial_of(trace)
    try:
        with partial.open("w", encoding="utf-8") as file:
            write_trace(spans, file)
        partial.replace(trace.resolve())
    finally:
        partial.unlink(missing_ok=True)


def _phase(pair: str) -> tuple[str, str]:
    name, equals, meaning = pair.partition("=")
    if not equals or not name or not meaning:
        raise RefusedError(
            f"{pair!r} is not NAME=MEANING", where="--phase", remedy="as in --phase rollout=generation"
        )
    return name, meaning
