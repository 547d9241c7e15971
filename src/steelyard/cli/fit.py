"""`steelyard fit`: whether a run's memory fits a card, and what to change.

Exits with 0 if it fits or is tight, so that `steelyard fit ... && accelerate launch ...` starts what can
start. Exits with 1 if it does not fit (of several cards: on none), if a lint says that it will not run, or if
`--verify` built another model than was reckoned with.

`--json` is one document. Bytes are bytes, and null is not known. Its keys:

- `model`: `name`, `family`, `parameters`, `active`;
- `plan`: every field of `steelyard.memory.plan.Plan` but the shape; `notes`: how settings were read;
- `fits`: one for each card, with `card`, `verdict`, `why`,
  `peak` (`phase`, `moment`, `bytes`, `low`, `high`), `below`, `above`, `confidence`, `doubt` (the
  confidence's reason),
  `phases` (`name`, `moment`, `bytes`, `allocated`, `reserved`, and `residents` with `name`, `owner`, `bytes`,
  `formula`, `source`), `levers` (`name`, `option`, `saves`, `cost`), `together` (options of the
  cheapest levers that make it fit),
  `largest` (`micro_batch`, `micro_tokens`, `context`, `model`), `held` (sequences in the engine's cache),
  `lints` (`code`, `what`, `why`, `remedy`, `severity`), `decode` and `step` (of
  `steelyard.cli.fit_speed.Speed`), and `verified` (`steelyard.cli.fit_verify`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from steelyard.cli.fit_options import FitOptions, with_options
from steelyard.errors import RefusedError
from steelyard.report.units import counted

if TYPE_CHECKING:
    from pathlib import Path

    from steelyard.cli.fit_model import Model
    from steelyard.memory.settings import Read
    from steelyard.memory.values import Card
    from steelyard.report.memory_words import FitReport


@with_options
def fit(given: FitOptions) -> None:
    """Say whether a GRPO run's memory fits a card, where the peak is, and what to change first.

    Nothing is downloaded, and no GPU is needed: steelyard fit --model Qwen3-8B --card "H100 80GB" --gpus 1

    Exits with 1 if it does not fit, or will not run.
    """
    from steelyard.cli.fit_answer import answered
    from steelyard.cli.fit_plan import refuse_endless
    from steelyard.cli.outputs import refuse_page

    if given.cards or given.models:
        _list(given)
        return
    refuse_endless(given)
    if given.report is not None:
        refuse_page(given.report, _read_or_written(given))
    read, model = _plan(given)
    cards = _cards(given)
    prices = _prices(given, len(cards))
    checked = _verified(read, model, cards, given)
    answers = [
        answered(read, card, given, price=price, checked=checked)
        for card, price in zip(cards, prices, strict=True)
    ]
    reports = [one.report for one in answers]
    if given.report is not None:
        from steelyard.report.memory_page import write_memory_page

        write_memory_page(given.report, reports)
    if given.as_json:
        from steelyard.cli.fit_json import as_document

        typer.echo(as_document(answers))
    else:
        _print(reports, given)
    raise typer.Exit(0 if any(one.runs for one in answers) else 1)


def _read_or_written(given: FitOptions) -> list[Path]:
    """Files of this command beside the page, which it must not replace."""
    from pathlib import Path

    model = [] if given.model is None else [Path(given.model), Path(given.model) / "config.json"]
    return [*(one for one in (given.file, given.points) if one), *model]


def _plan(given: FitOptions) -> tuple[Read, Model]:
    """What is to run."""
    from steelyard.cli.fit_model import found_model
    from steelyard.cli.fit_plan import changed, divided
    from steelyard.cli.fit_settings import read_settings
    from steelyard.memory.plan import Plan
    from steelyard.memory.settings import Read

    if given.file is not None or given.changes:
        read, model = read_settings(given)
        return Read(changed(read.plan, given), (*read.notes, *model.shape.left_out)), model
    if given.model is None:
        raise RefusedError(
            "no model is named",
            where="steelyard fit",
            remedy='as in --model Qwen3-8B --card "H100 80GB"; --models lists what is known by name',
        )
    model = found_model(given.model)
    plan = Plan(model=model.shape)
    return Read(divided(changed(plan, given), given), model.shape.left_out), model


def _cards(given: FitOptions) -> list[Card]:
    """The cards that were named, and the one that was described."""
    from steelyard.memory.cards import card, plain
    from steelyard.memory.values import GIB

    found = [card(name) for name in given.card or ()]
    if given.card_gib is not None:
        bandwidth, flops = given.card_bandwidth, given.card_tflops
        found.append(
            plain(
                given.card_gib * GIB,
                bandwidth=None if bandwidth is None else bandwidth * 1e9,
                flops=None if flops is None else flops * 1e12,
            )
        )
    elif given.card_bandwidth is not None or given.card_tflops is not None:
        raise RefusedError(
            "it describes a card, whose memory was not said",
            where="steelyard fit",
            remedy="say --card-gib, too",
        )
    if not found:
        raise RefusedError(
            "no card is named",
            where="steelyard fit",
            remedy='say --card, as in --card "H100 80GB"; --cards lists them',
        )
    return found


def _prices(given: FitOptions, cards: int) -> list[float | None]:
    """Dollars per hour of each card."""
    said = given.price or []
    if len(said) > 1 and len(said) != cards:
        raise RefusedError(
            f"{len(said)} prices of {counted(cards, 'card')}",
            where="--price",
            remedy="say one for all, or one for each card, in their order (--card-gib is the last)",
        )
    return list(said) if len(said) == cards else [said[0] if said else None] * cards


def _verified(read: Read, model: Model, cards: list[Card], given: FitOptions) -> dict[str, Any] | None:
    """What a real allocation says, if one is asked for."""
    if not given.verify:
        if given.points is not None:
            raise RefusedError(
                "nothing is measured without --verify", where="--points", remedy="say --verify, too"
            )
        return None
    if len(cards) > 1:
        raise RefusedError(
            f"one machine is measured, and {len(cards)} cards are named", where="--verify", remedy="name one"
        )
    from steelyard.cli.fit_verify import verified

    return verified(read.plan, cards[0], model.config, points=given.points)


def _print(reports: list[FitReport], given: FitOptions) -> None:
    from steelyard.cli.words import console, plain
    from steelyard.report.memory_terminal import print_comparison, print_fit

    words = console()
    if len(reports) == 1:
        print_fit(words, reports[0])
    else:
        print_comparison(words, reports)
    if given.report is not None:
        words.print(f"\nreport: [bold]{plain(str(given.report))}[/]")


def _list(given: FitOptions) -> None:
    """Say which cards and models are known by name."""
    from steelyard.cli import fit_lists

    if given.as_json:
        from steelyard.cli.fit_values import as_json

        told = {"cards": fit_lists.cards} if given.cards else {}
        told |= {"models": fit_lists.models} if given.models else {}
        typer.echo(as_json({name: listed() for name, listed in told.items()}))
        return
    if given.cards:
        fit_lists.print_cards(fit_lists.cards())
    if given.models:
        fit_lists.print_models(fit_lists.models())
