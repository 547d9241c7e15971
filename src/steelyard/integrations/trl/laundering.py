"""What the installed TRL would launder or lose, said before it trains.

`FEATURES` is the only place that knows versions: what a release of TRL brought, and the words in its source
by which it is seen. The source that is installed decides; the number does where there is none to read, or
where a version is asked for. The rules are in `rules.py`.

Imports neither torch nor trl; of the latter it reads the trainer that it is given, or whose arguments.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable
from importlib import metadata
from typing import Any, Final, NamedTuple

from steelyard.errors import RefusedError
from steelyard.integrations.trl.rules import RULES, Finding, Seen


class Feature(NamedTuple):
    """Something that TRL learnt.

    Parameters
    ----------
    since
        The first release that has it.
    method
        The method of the trainer in whose source it is seen.
    sign
        The words there.
    """

    since: str
    method: str
    sign: str


FEATURES: Final = {
    "unscorable": Feature("1.6.0", "_generate_and_score_completions", "unscorable_mask"),
    "token_window": Feature("1.9.1", "_compute_loss", "self.args.steps_per_generation"),
    "length_check": Feature("1.10.0", "_calculate_rewards", "!= len(prompts)"),
    "async_instances": Feature("1.14.0", "_calculate_rewards", "is_async_callable"),
    "log_union": Feature("1.14.0", "_generate_and_score_completions", "set(gather_object("),
}
"""What the rules ask the version for."""


def lint(
    trainer_or_args: Any,  # noqa: ANN401 - a trainer's or its arguments' class is TRL's
    reward_funcs: Any = None,  # noqa: ANN401 - as TRL takes it: one, or a list
    *,
    version: str | None = None,
) -> list[Finding]:
    """Say what a trainer would launder or lose.

    Parameters
    ----------
    trainer_or_args
        A trainer of TRL's, or its arguments (`GRPOConfig`, `RLOOConfig`).
    reward_funcs
        Its reward functions, where only its arguments are there.
    version
        Of TRL, instead of the one that is installed.

    Returns
    -------
    list of Finding
        Empty, if there is nothing to say.

    Raises
    ------
    RefusedError
        If no TRL is installed and no version is given, or it is neither a trainer nor arguments.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> def right(completions, **columns): ...
    >>> def tidy(completions, **columns): ...
    >>> args = SimpleNamespace(num_generations=8, scale_rewards="group")
    >>> for found in lint(args, [right, tidy], version="1.16.0"):
    ...     print(f"{found.name}: {found.says}")
    several: where one of right, tidy returns None, TRL adds up the others, as if it had returned 0
    unguarded: right, tidy: nothing ends one that hangs, one that raises ends the run, and inf is trained on
    """
    trainer = trainer_or_args if hasattr(trainer_or_args, "reward_funcs") else None
    args = trainer_or_args if trainer is None else trainer.args
    if trainer is None and not hasattr(args, "num_generations"):
        raise RefusedError(
            f"{type(args).__name__} is neither a trainer of TRL's nor its arguments",
            where="lint",
            remedy="give the trainer, or its GRPOConfig and reward_funcs",
        )
    functions = reward_funcs if trainer is None else trainer.reward_funcs
    functions = functions if isinstance(functions, list | tuple) else [functions] if functions else []
    base = _base(trainer, args)
    dataset = getattr(trainer, "train_dataset", None)
    seen = Seen(
        kind=re.sub("(Trainer|Config)$", "", base.__name__),
        args=args,
        functions=functions,
        columns=getattr(dataset, "column_names", None),
        mixin=any(kind.__name__ == "ScoringMixin" for kind in type(trainer).__mro__),
        has=_features(base, version),
        since=lambda name: FEATURES[name].since,
    )
    return [found for rule in RULES for found in rule(seen)]


def _base(trainer: Any, args: Any) -> type:  # noqa: ANN401 - TRL's
    """TRL's own class of a trainer, or of arguments."""
    given = args if trainer is None else trainer
    kinds = type(given).__mro__
    return next((kind for kind in kinds if kind.__module__.startswith("trl.")), kinds[0])


def _features(base: type, version: str | None) -> Callable[[str], bool]:
    trainer: Any = base
    if base.__name__.endswith("Config") and base.__module__.startswith("trl.trainer."):
        home = importlib.import_module(base.__module__.replace("_config", "_trainer"))
        trainer = getattr(home, base.__name__.replace("Config", "Trainer"))
    number = version or _installed()

    def has(name: str) -> bool:
        feature = FEATURES[name]
        text = None if version is not None else _source(trainer, feature.method)
        return _at_least(number, feature.since) if text is None else feature.sign in text

    return has


def _source(trainer: type, method: str) -> str | None:
    try:
        return inspect.getsource(getattr(trainer, method))
    except (AttributeError, OSError, TypeError):  # a trainer built otherwise, or without a text
        return None


def _installed() -> str:
    try:
        return metadata.version("trl")
    except metadata.PackageNotFoundError:
        raise RefusedError(
            "TRL is not installed", where="lint", remedy="pip install 'steelyard[trl]', or give version="
        ) from None


def _at_least(version: str, since: str) -> bool:
    def numbers(text: str) -> list[int]:
        return [int(number) for number in re.findall(r"\d+", text)[:3]]

    return numbers(version) >= numbers(since)
