"""The commands and their options."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from steelyard import __version__
from steelyard.cli.fit import fit
from steelyard.cli.price import price
from steelyard.errors import RefusedError

app = typer.Typer(
    name="steelyard",
    help="Rewards for GRPO / RLVR training: scored as they finish, failures that never become numbers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Scheme = StrEnum("Scheme", ["grpo", "grpo_population", "dr_grpo", "rloo", "batch", "gdpo"])


class BadRows(StrEnum):
    """What to do about rows that cannot be scored."""

    refuse = "refuse"
    skip = "skip"


def _version(*, asked: bool) -> None:
    if asked:
        typer.echo(f"steelyard {__version__}")
        raise typer.Exit


@app.callback()
def common(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=lambda asked: _version(asked=asked), is_eager=True, help="Say the version."
        ),
    ] = False,
) -> None:
    """Rewards for GRPO / RLVR training."""


FileArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="JSON Lines, plain or .gz, or Parquet; - is standard input.")
]
RewardOption = Annotated[
    list[str] | None,
    typer.Option(
        "--reward",
        "-r",
        metavar="NAME[,NAME...]",
        help="Rewards to add up: `steelyard rewards` lists ours; a function of yours is "
        "package.module:function or path/to/file.py:function.",
    ),
]
RecipeOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE.toml", help="Rewards with weights, gates and shapes, instead of --reward."),
]
SchemaDraftOption = Annotated[
    str | None,
    typer.Option(metavar="DRAFT", help="For --reward schema: the draft of schemas that name none."),
]
FormatsOption = Annotated[bool, typer.Option("--formats", help="For --reward schema: assert `format`, too.")]
OutOption = Annotated[
    Path,
    typer.Option("--out", "-o", help="Where the scored rows go; .gz is compressed, .parquet is Parquet."),
]
LedgerOption = Annotated[
    Path | None, typer.Option(help="Where the record is kept.", show_default="OUT.ledger")
]
AdvantageOption = Annotated[
    Scheme, typer.Option(help="How rewards become advantages; rloo is recommended where rows can be missing.")
]
ColumnOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=FIELD",
        help="The file's word for a column, as in answer=gold, or a path into it, as in "
        "answer=reward_model.ground_truth. Repeatable.",
    ),
]
KeepOption = Annotated[
    list[str] | None,
    typer.Option(metavar="FIELD[,FIELD...]", help="Fields of the input that the scored rows carry along."),
]
BadRowsOption = Annotated[
    BadRows, typer.Option(help="A file with bad rows is refused, or its other rows are scored.")
]
TimeoutOption = Annotated[
    float | None,
    typer.Option(
        min=0.001,
        metavar="SECONDS",
        help="Per attempt: CPU seconds of a function of yours (ten times as much wall time), "
        "wall seconds of an async one, or of code that a model wrote.",
        show_default="10, async 60, code 30",
    ),
]
BoundaryOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Where code that a model wrote runs: bubblewrap, runc, gvisor, docker[:IMAGE], podman[:IMAGE], "
        "modal; yours as path/to/file.py:factory, but for serve. `steelyard doctor` says which hold here.",
        show_default="bubblewrap",
    ),
]
CpuOption = Annotated[
    float | None,
    typer.Option(
        min=0.001,
        metavar="SECONDS",
        help="For code that a model wrote: CPU seconds per attempt.",
        show_default="2",
    ),
]
LanguageOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="For code that a model wrote, in rows without a column `language`: what it is written in.",
        show_default="python",
    ),
]
DeadlineOption = Annotated[
    str | None,
    typer.Option(
        metavar="WORD",
        help="For code that a model wrote: its CPU limit is `fixed`, as declared; or below that, from a "
        "`reference` solution; or `adaptive`, from what earlier steps showed as well.",
        show_default="fixed",
    ),
]
WorkersOption = Annotated[
    int | None, typer.Option(min=1, help="Processes for functions of yours.", show_default="one a core")
]
ConcurrencyOption = Annotated[
    int, typer.Option(min=1, help="Async calls under way at once, for each resource.")
]
MaxUnscoredOption = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        max=1.0,
        metavar="SHARE",
        help="Exit with 3 if a larger share could not be judged.",
        show_default="0.05, from 256 rollouts on",
    ),
]


@app.command()
def score(
    file: FileArgument,
    *,
    out: OutOption,
    reward: RewardOption = None,
    recipe: RecipeOption = None,
    schema_draft: SchemaDraftOption = None,
    formats: FormatsOption = False,
    ledger: LedgerOption = None,
    advantage: AdvantageOption = Scheme.grpo,
    column: ColumnOption = None,
    keep: KeepOption = None,
    bad_rows: BadRowsOption = BadRows.refuse,
    boundary: BoundaryOption = None,
    cpu: CpuOption = None,
    language: LanguageOption = None,
    timeout: TimeoutOption = None,
    deadline: DeadlineOption = None,
    workers: WorkersOption = None,
    concurrency: ConcurrencyOption = 64,
    max_unscored: MaxUnscoredOption = None,
    new_run: Annotated[
        bool, typer.Option("--new-run", help="Begin afresh beside the ledger's runs.")
    ] = False,
    report: Annotated[
        Path | None, typer.Option(metavar="PAGE.html", help="Write what came of it as a page, too.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no summary.")] = False,
) -> None:
    """Score the rollouts of a file: a reward and an advantage for every completion.

    The same command again goes on where an earlier one was interrupted.
    """
    from steelyard.cli.asked import asked, overridden
    from steelyard.cli.score import run
    from steelyard.scoring import Options

    places = _places(boundary, cpu, timeout, language, deadline)
    what = asked(_split(reward or []), recipe, schema_draft=schema_draft, formats=formats, places=places)
    if boundary is not None and (words := overridden(what, boundary, places["boundary"])):
        typer.echo(f"steelyard: {words}", err=True)
    options = Options(
        columns=_columns(column or []),
        advantage=advantage.value,
        skip_bad_rows=bad_rows is BadRows.skip,
        timeout_s=timeout,
        workers=workers,
        places=concurrency,
        new_run=new_run,
        keep=tuple(_split(keep or [])),
    )
    code = run(file, what, out, ledger, options, max_unscored=max_unscored, quiet=quiet, page=report)
    raise typer.Exit(code)


@app.command()
def serve(
    recipe: Annotated[
        str,
        typer.Argument(metavar="RECIPE", help="A recipe's FILE.toml, or rewards as for `score --reward`."),
    ],
    *,
    host: Annotated[str, typer.Option(help="Where to listen; whoever reaches it may ask.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 is any free one.")] = 8900,
    socket: Annotated[Path | None, typer.Option(metavar="PATH", help="Listen on a Unix socket.")] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Reload when the recipe or a file of yours changes.")
    ] = False,
    column: ColumnOption = None,
    advantage: AdvantageOption = Scheme.grpo,
    boundary: BoundaryOption = None,
    cpu: CpuOption = None,
    language: LanguageOption = None,
    timeout: TimeoutOption = None,
    workers: WorkersOption = None,
    concurrency: ConcurrencyOption = 64,
) -> None:
    """Score what is posted over HTTP, for a trainer elsewhere; reload on SIGHUP or POST /reload."""
    from steelyard.cli.serve import become

    become(
        {
            "recipe": recipe,
            "host": host,
            "port": port,
            "socket": None if socket is None else str(socket),
            "watch": watch,
            "columns": _columns(column or []),
            "advantage": advantage.value,
            "code": {**_places(None, cpu, timeout, language), "boundary": boundary or "bubblewrap"},
            "timeout_s": timeout,
            "workers": workers,
            "places": concurrency,
        }
    )


@app.command()
def check(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE",
            help="A recipe's .toml file, or rewards by name as for --reward, comma-separated.",
        ),
    ],
    file: FileArgument,
    *,
    column: ColumnOption = None,
    bad_rows: BadRowsOption = BadRows.refuse,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0.001, metavar="SECONDS", help="As in score.", show_default="2, where a reward is async 10"
        ),
    ] = None,
    boundary: BoundaryOption = None,
    cpu: CpuOption = None,
    language: LanguageOption = None,
    workers: WorkersOption = None,
    within: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="After so long nothing more is asked.")
    ] = 8.0,
    as_json: Annotated[bool, typer.Option("--json", help="Everything as one JSON document.")] = False,
) -> None:
    """Inspect what a recipe pays for, before anything is trained with it.

    Exits with 1 if there is a fault.
    """
    from steelyard.cli.check import run
    from steelyard.rewards.asked import recipe_of

    code = run(
        file,
        recipe_of(recipe, places=_places(boundary, cpu, timeout, language)),
        _columns(column or []),
        skip_bad_rows=bad_rows is BadRows.skip,
        timeout_s=timeout,
        workers=workers,
        within_s=within,
        as_json=as_json,
    )
    raise typer.Exit(code)


app.command()(price)
app.command(context_settings={"allow_extra_args": True})(fit)  # which it refuses itself


@app.command()
def rewards(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="One of them, with its settings and an example.")
    ] = None,
) -> None:
    """List the rewards of ours, or say all about one."""
    from steelyard.cli.rewards import listing, one

    if name is None:
        listing()
    else:
        one(name)


@app.command()
def show(
    ledger: Annotated[Path, typer.Argument(metavar="LEDGER", help="A ledger, or the scored file beside it.")],
    *,
    group: Annotated[str | None, typer.Option(metavar="ID", help="One group's rollouts.")] = None,
    row: Annotated[
        str | None,
        typer.Option(metavar="ID", help="One rollout with its texts, reasons, attempts and clocks."),
    ] = None,
    why: Annotated[
        bool,
        typer.Option(
            "--why",
            help="Rollouts not judged, and those that were cut by a limit, or failed twice, so that whose "
            "fault it was had to be found out.",
        ),
    ] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Check the record against itself.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="A row as one JSON document.")] = False,
) -> None:
    """Show what a ledger holds: its runs, a group, or a row with its clocks and reasons."""
    from steelyard.cli import show as words
    from steelyard.cli.record import opened
    from steelyard.cli.row import show_row

    if as_json and row is None:
        raise RefusedError("it is for single rows", where="--json", remedy="say which, as in --row ID --json")
    with opened(ledger) as record:
        if verify:
            raise typer.Exit(words.faults(record))
        if row is not None:
            show_row(record, row, as_json=as_json)
        elif group is not None:
            words.group(record, group)
        elif why:
            words.failed(record)
        else:
            words.runs(record)


@app.command()
def doctor(
    *,
    boundary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Ask only this one; repeatable.",
        ),
    ] = None,
    conformance: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Hold a boundary against hundreds of honest, hostile and cheating programs: one of ours by "
            "name, or yours as package.module:factory or path/to/file.py:factory.",
        ),
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="For --conformance: the table in Markdown.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Everything as one JSON document.")] = False,
) -> None:
    """Say what this machine can isolate code with, what is missing, and the command that mends it.

    Exits with 1 if no boundary holds, or not the one that was named.
    """
    if conformance is None and markdown:
        raise RefusedError(
            "--markdown was given without --conformance",
            where="doctor",
            remedy="steelyard doctor --conformance bubblewrap --markdown",
        )
    if conformance is not None:
        from steelyard.cli.conformance import run as held

        raise typer.Exit(held(conformance, as_json=as_json, markdown=markdown))
    from steelyard.cli.doctor import run

    raise typer.Exit(run(as_json=as_json, named=boundary or ()))


def _places(
    boundary: str | None,
    cpu: float | None,
    timeout: float | None,
    language: str | None,
    deadline: str | None = None,
) -> dict[str, Any]:
    """Settings of rewards that run code, as far as they were given."""
    from steelyard.cli.boundaries import made

    given: dict[str, Any] = {
        "boundary": "bubblewrap" if boundary is None else made(boundary, where="--boundary"),
        "cpu_s": cpu,
        "wall_s": timeout,
        "language": language,
        "deadline": deadline,
    }
    return {name: value for name, value in given.items() if value is not None}


def _split(given: list[str]) -> list[str]:
    return [name.strip() for some in given for name in some.split(",") if name.strip()]


def _pairs(said: str) -> list[str]:
    """Several pairs may stand behind one option; a field's own name may hold a comma."""
    pairs = said.split(",")
    return pairs if all("=" in pair for pair in pairs) else [said]


def _columns(given: list[str]) -> dict[str, str]:
    """Take NAME=FIELD pairs apart."""
    names: dict[str, str] = {}
    for pair in (one for said in given for one in _pairs(said)):
        name, equals, field = pair.partition("=")
        if not equals or not name.strip() or not field.strip():
            raise RefusedError(
                f"{pair!r} is not NAME=FIELD",
                where="--column",
                remedy="say our name first, then the file's, as in --column answer=gold",
            )
        name, field = name.strip(), field.strip()
        if name in names or field in names.values():
            raise RefusedError(
                f"{pair!r} comes after {', '.join('='.join(earlier) for earlier in names.items())}",
                where="--column",
                remedy="each column of ours is one field of the file, and each field one column",
            )
        names[name] = field
    return names
