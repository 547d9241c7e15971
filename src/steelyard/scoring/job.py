"""Score the rollouts of a file: look it over, write down, judge, write out.

The same call again after a crash goes on where the record ends, and what it writes is what an
uninterrupted run would have written, clocks apart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, aclosing, closing, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from steelyard.advantages import SCHEMES, VotingGroup
from steelyard.clock import Seconds
from steelyard.errors import RefusedError, RunStoppedError
from steelyard.execution import FIXED
from steelyard.files import (
    Columns,
    FileSource,
    LineSource,
    ScoredFile,
    SpoolSource,
    Survey,
    groups,
    is_once,
    partial_of,
    read_once,
    survey,
)
from steelyard.files.absent import absent
from steelyard.ledger import BESIDE, Departure, Ledger, Run
from steelyard.outcome import ScoredGroup
from steelyard.rewards import Recipe
from steelyard.rewards.serving import refuse_in_worker
from steelyard.rollout import Group, canonical_json
from steelyard.runtime import CHUNK, PLACES, Runtime, refuse_scheme, refuse_unattested
from steelyard.scoring.rows import OUT_COLUMNS, as_lines, columns_out, in_chunks, scored_rows
from steelyard.scoring.summary import Counting, Summary

_TOLD = 10_000  # rows between two words about how far it is


@dataclass(frozen=True, slots=True)
class Options:
    """How a file is scored.

    Parameters
    ----------
    columns
        Our column names to the file's, where they differ; `reward_model.ground_truth` is a path.
    advantage
        The scheme.
    skip_bad_rows
        Leave lines out that are no rollout, and mark rollouts whose columns are bad as unscored;
        else a file with any is refused.
    timeout_s
        Seconds per attempt, as in `Runtime`.
    workers, places
        As in `Runtime`.
    new_run
        Begin afresh beside what the ledger holds.
    keep
        Fields of the input that the scored rows carry along.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    advantage: str = "grpo"
    skip_bad_rows: bool = False
    timeout_s: Seconds | None = None
    workers: int | None = None
    places: int = PLACES
    new_run: bool = False
    keep: tuple[str, ...] = ()


class Progress(NamedTuple):
    """How far a run is."""

    stage: str
    """`reading`, `judging` or `writing`."""
    done: int
    total: int | None
    verdicts: Mapping[str, int]


def score_file(
    file: str | Path,
    recipe: Recipe,
    out: str | Path,
    *,
    ledger: str | Path | None = None,
    options: Options | None = None,
    progress: Callable[[Progress], None] = lambda _progress: None,
) -> Summary:
    """Score a file of rollouts.

    Parameters
    ----------
    file, recipe
        JSON Lines, plain or `.gz`, or Parquet, `-` is standard input; and what to ask.
    out
        Where the scored rows appear when all are judged; `.gz` is compressed, `.parquet` is Parquet.
    ledger
        Where the record is kept; `out` with `.ledger` appended if not given.
    options, progress
        Everything else; and who is told how far it is, every chunk.

    Raises
    ------
    RefusedError
        Before anything is judged: the file, a column, the ledger, `out` or a boundary cannot be used.
    RunStoppedError
        Later: the disk is full, or a reward cannot judge anything. The same call continues.
    """
    refuse_in_worker("score_file")
    file, out, options = str(file), Path(out), options or Options()
    refuse_scheme(recipe, options.advantage)
    path = ledger_of(out) if ledger is None else Path(ledger)
    _refuse_mix_ups(file, out, path)
    refuse_unattested(recipe)
    target = ScoredFile(out)
    with ExitStack() as stack:
        record: Ledger | None = None
        if is_once(file):
            record = stack.enter_context(_opened(path))
            record.spool(read_once(file))
        source = stack.enter_context(closing(_source(file, record)))
        progress(Progress("reading", 0, None, {}))
        found = survey(source, recipe, options.columns, _reading(progress), keep=options.keep)
        _refuse_bad(found, source, recipe, options)
        if record is None:
            record = stack.enter_context(_opened(path))
        run = _begin(record, found, recipe, options)
        counting = Counting(found, options.advantage)
        judging = _Judging(record, run, recipe, options, counting)
        asyncio.run(judging.judge(_as_surveyed(source, found), progress))
        judging.of_the_batch()
        rows = scored_rows(record, run, recipe, found, options.advantage, keep=options.keep)
        _write(
            target,
            _counted(rows, found.rollouts, progress),
            partial(columns_out, record, run, found, options.keep),
        )
        record.forget_spool()
        return counting.finish(record, run)


def ledger_of(out: Path) -> Path:
    """Where the record is kept if nobody says: `out` with `.ledger` appended."""
    _refuse_nameless("--out", out)
    return out.with_name(out.name + ".ledger")


def _refuse_nameless(option: str, path: Path) -> None:
    if path.name in {"", "-"}:
        raise RefusedError(f"{str(path)!r} names no file", where=option, remedy=f"name a file with {option}")


def _reading(progress: Callable[[Progress], None]) -> Callable[[int], None]:
    return lambda lines: progress(Progress("reading", lines, None, {}))


def _write(target: ScoredFile, rows: Iterator[dict[str, Any]], columns: Callable[[], Columns]) -> None:
    if target.is_table:
        target.write_table(rows, columns())
    else:
        target.write(in_chunks(as_lines(rows)))


def _counted(
    rows: Iterable[dict[str, Any]], total: int, progress: Callable[[Progress], None]
) -> Iterator[dict[str, Any]]:
    for done, row in enumerate(rows):
        if done % _TOLD == 0:
            progress(Progress("writing", done, total, {}))
        yield row


def _as_surveyed(source: LineSource, found: Survey) -> Iterator[Group]:
    """Read the groups, as long as the file is the one that was looked over."""
    try:
        for group in groups(source, found):
            if source.changed():
                raise _changed(source)
            yield group
    except (ValueError, LookupError) as error:  # its lines stand elsewhere now
        if source.changed():
            raise _changed(source) from error
        raise


def _changed(source: LineSource) -> RunStoppedError:
    return RunStoppedError(
        f"{source.name}: the file was written to while it was judged; nothing of what is new was recorded"
        "\n  next: wait for its writer to end, and score it again with --new-run"
    )


def _refuse_mix_ups(file: str, out: Path, ledger: Path) -> None:
    """Refuse a file that another one, or one that comes and goes beside it, would overwrite."""
    _refuse_nameless("--out", out)
    _refuse_nameless("--ledger", ledger)
    ours = [("--out", out), ("--out's partial file", partial_of(out)), ("--ledger", ledger)]
    ours += [(f"--ledger's {suffix} file", ledger.with_name(ledger.name + suffix)) for suffix in BESIDE]
    named: dict[Path, str] = {} if file == "-" else {Path(file).resolve(): "FILE"}
    for word, path in ours:
        earlier = named.setdefault(path.resolve(), word)
        if earlier != word:
            raise RefusedError(
                f"{earlier} and {word} are the same file",
                where=str(path),
                remedy="give each a name of its own",
            )


@contextmanager
def _opened(path: Path) -> Iterator[Ledger]:
    """Open the ledger; one that was made here and holds no run goes again, and so does a refused spool."""
    new = not path.exists()
    with Ledger(path) as record:
        try:
            yield record
        except RefusedError:
            record.forget_spool()
            raise
        finally:
            if new and not record.runs():
                record.discard()


def _source(file: str, record: Ledger | None) -> LineSource:
    if record is None:
        return FileSource(Path(file))
    name = "standard input" if file == "-" else Path(file).name
    return SpoolSource(name, lambda start: record.spooled(start=start))


def _refuse_bad(found: Survey, source: LineSource, recipe: Recipe, options: Options) -> None:
    """Refuse what no row can mend, then single bad rows unless they are to be skipped."""
    if source.changed():
        raise RefusedError(
            "the file was written to while it was read",
            where=source.name,
            remedy="wait for its writer to end",
        )
    if not found.rollouts and not found.faults:
        raise RefusedError(
            "there is no row in it", where=found.name, remedy='a row is {"prompt": ..., "completion": ...}'
        )
    _refuse_absent(found, recipe, options)
    bad = sum(found.fault_counts.values())
    if bad and (not options.skip_bad_rows or not found.rollouts):
        raise RefusedError(
            f"{bad} bad {'row' if bad == 1 else 'rows'} ({_by_kind(found)}); nothing was judged\n"
            + "\n".join(f"  {found.name}:{fault.line}: {fault.kind}: {fault}" for fault in found.faults)
            + (f"\n  ... and {bad - len(found.faults)} more" if bad > len(found.faults) else ""),
            where=found.name,
            remedy="mend them, or score the others with --bad-rows skip"
            if found.rollouts
            else "mend them: no other row is left",
        )


def _refuse_absent(found: Survey, recipe: Recipe, options: Options) -> None:
    """Refuse columns that stand in no row, all at once, and names that nobody reads."""
    names = options.columns
    if not found.fields:
        return
    lacking = absent(found, recipe)
    if lacking is not None:
        raise RefusedError(
            lacking.reason,
            where=found.name,
            remedy=" ".join(f"--column {column}=FIELD" for column in lacking.columns)
            + f" says which field{'' if len(lacking.columns) == 1 else 's'} to take",
        )
    there = ", ".join(sorted(found.fields))
    for kept in options.keep:
        if kept in OUT_COLUMNS or kept not in found.fields:
            why = "is a column of the scored rows" if kept in OUT_COLUMNS else "is in no row"
            raise RefusedError(
                f"the field {kept!r} {why}", where="--keep", remedy=f"the input has {there}; name another"
            )
    for name, its_field in names.items():
        if its_field not in found.fields:
            raise RefusedError(
                f"no row has a field {its_field!r}; there are {there}",
                where=f"--column {name}={its_field}",
                remedy="name one of these",
            )


def _by_kind(found: Survey) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in found.fault_counts.most_common())


def _begin(record: Ledger, found: Survey, recipe: Recipe, options: Options) -> Run:
    spec = {
        "input": found.digest,
        "name": found.name,
        **({"code": code} if (code := _code(recipe)) else {}),
        "parts": {part.reward.name: part.reward.identity for part in recipe.parts},
        "recipe": recipe.identity,
        "weights": recipe.weights,
        "combine": "weighted sum" if recipe.combine is None else "own",
        "columns": dict(options.columns),
        "bad_rows": "skip" if options.skip_bad_rows else "refuse",
        "timeout_s": options.timeout_s,
        "rollouts": found.rollouts,
        **({"shapes": [shape.identity for shape in recipe.shapes]} if recipe.shapes else {}),
    }
    # the same bytes under another name are the same input; what is said of code is in the parts' identities
    said = {name: value for name, value in spec.items() if name not in {"name", "code"}}
    identity = blake2b(canonical_json(said), digest_size=16).hexdigest()
    parts = {part.reward.name: part.reward.identity for part in recipe.parts}
    return record.begin(identity, spec, parts, new_run=options.new_run)


def _code(recipe: Recipe) -> dict[str, dict[str, Any]]:
    """Where parts run code, and under which settings, in words that can be compared."""
    found: dict[str, dict[str, Any]] = {}
    for reward in (part.reward for part in recipe.parts):
        boundary, limits = getattr(reward, "boundary", None), getattr(reward, "limits", None)
        if boundary is not None and limits is not None:
            language = getattr(reward, "language", None)
            found[reward.name] = {
                "boundary": boundary.identity.rstrip(":"),
                **asdict(limits),
                "language": getattr(language, "name", "python"),
                "deadline": getattr(reward, "deadline", FIXED),
            }
    return found


class _Judging:
    """Runs the runtime over a file's groups, and keeps what a scheme over the whole batch needs."""

    def __init__(
        self, record: Ledger, run: Run, recipe: Recipe, options: Options, counting: Counting
    ) -> None:
        self._record, self._run, self._recipe, self._options = record, run, recipe, options
        self._counting = counting
        self._by_batch = SCHEMES[options.advantage].scope == "batch"
        self._voting: dict[int, VotingGroup] = {}

    async def judge(self, given: Iterable[Group], progress: Callable[[Progress], None]) -> None:
        """Judge every group."""
        options, summary = self._options, self._counting.summary
        total = sum(size * count for size, count in summary.sizes.items())
        runtime = Runtime(
            self._recipe,
            ledger=self._record,
            run=self._run,
            advantage=options.advantage,
            timeout_s=options.timeout_s,
            workers=options.workers,
            places=options.places,
            stop=False,
            by_chunk=True,
        )
        done = told = 0
        async with aclosing(runtime.score(given)) as scored:
            async for one in scored:
                self._counting.see(one)
                if self._by_batch:
                    self._keep(one)
                done += len(one.totals)
                if done - told >= CHUNK or done == total:
                    told = done
                    progress(Progress("judging", done, total, summary.verdicts))
        summary.deadlines = runtime.standings()

    def _keep(self, one: ScoredGroup) -> None:
        parts = {name: [score.verdict for score in scores] for name, scores in one.parts.items()}
        self._voting[one.group.ordinal] = VotingGroup(one.totals, parts)

    def of_the_batch(self) -> None:
        """Record advantages that needed every group: the whole file is one batch."""
        scheme = SCHEMES[self._options.advantage]
        order = sorted(self._voting)
        advantages = scheme.by_batch([self._voting[group] for group in order], self._recipe.weights)
        gone = self._record.departed(self._run, scheme.name, order)
        self._record.leave(
            self._run,
            departures=[
                Departure(group, scheme.name, one.values)
                for group, one in zip(order, advantages, strict=True)
                if group not in gone
            ],
        )
