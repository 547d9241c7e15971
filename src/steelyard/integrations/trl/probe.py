"""What the installed trainer makes of rows that could not be judged, by letting it train on some.

Golden groups, with two rewards for each completion: `code`, of which some are lost to a crash, and `format`,
which holds (and is lost, too, where all are). TRL's own trainer gets them as two functions that return
`None` for what was lost; then it gets one of ours, of the same two parts. What it trained with stands beside
what is right: among those that were judged, less their mean, by their sample standard deviation; nothing for
the others, and nothing at all where a loss leaves too few votes.

Then a batch of which nothing was judged, with a pull towards the reference model (`beta`): the length of the
gradient that TRL's trainer makes of it, and that under our mixin.

Model, tokenizer and data are made on the spot.
"""

from __future__ import annotations

import contextlib
import io
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from steelyard.advantages import SCHEMES
from steelyard.errors import SandboxError
from steelyard.outcome import Context, How, Part, Scored, Takes
from steelyard.rewards import Recipe
from steelyard.rollout import Rollout

LOST: Final = None
CLOSE: Final = 1e-3
"""Advantages that differ by less are the same."""

BETA: Final = 0.1
_EPSILON: Final = 1e-4  # what TRL adds to a standard deviation
_WORDS: Final = ["<pad>", "<eos>", *(f"w{number}" for number in range(30))]

Said = float | None

GROUPS: Final[Mapping[str, tuple[Said, ...]]] = {
    "Nothing is lost": (1, 1, 0, 0),
    "One of two right ones is lost": (1, LOST, 0, 0),
    "All are right, one is lost": (1, 1, 1, LOST),
    "The mean is that of three": (1, 3, 2, LOST),
    "Two votes are too few": (1, 0, LOST, LOST),
    "All are lost": (LOST, LOST, LOST, LOST),
    "All eight are right, one is lost": (1, 1, 1, 1, 1, 1, 1, LOST),
    "Half of eight are right, one of these is lost": (1, 1, 1, LOST, 0, 0, 0, 0),
}
"""What `code` says of each completion of a group; `format` says 1, but where all are lost."""


@dataclass(frozen=True, slots=True)
class Case:
    """A group, and the advantages that it was trained with.

    Parameters
    ----------
    name
        What is lost.
    said
        What `code` says of each completion.
    trl
        The advantages that TRL makes of two functions.
    ours
        Those that it makes of one function of ours.
    """

    name: str
    said: tuple[Said, ...]
    trl: tuple[float, ...]
    ours: tuple[float, ...]

    @property
    def right(self) -> tuple[float, ...]:
        """What is right."""
        return right(self.said)


@dataclass(frozen=True, slots=True)
class Probe:
    """What was seen.

    Parameters
    ----------
    version
        Of TRL.
    cases
        The groups.
    pull, pull_ours
        The length of the gradient of a batch of which nothing was judged: TRL's trainer, and ours.
    """

    version: str
    cases: tuple[Case, ...]
    pull: float
    pull_ours: float

    @property
    def right(self) -> bool:
        """Whether ours is right everywhere."""
        return self.pull_ours == 0 and all(same(case.ours, case.right) for case in self.cases)


def right(said: Sequence[Said]) -> tuple[float, ...]:
    """The advantages of a group.

    Parameters
    ----------
    said
        Rewards; `None` of a completion that could not be judged.

    Returns
    -------
    tuple of float
        Less the mean of those that were judged, by their sample standard deviation (+ 1e-4).

    Examples
    --------
    >>> [round(value, 3) for value in right((1, None, 0, 0))]
    [1.155, 0.0, -0.577, -0.577]
    >>> right((1, 1, 1, None))
    (0.0, 0.0, 0.0, 0.0)
    """
    votes = [one for one in said if one is not None]
    if len(votes) < len(said) and len(votes) < SCHEMES["grpo"].minimum(len(said)):
        return (0.0,) * len(said)
    mean, scale = fmean(votes), stdev(votes) + _EPSILON
    return tuple(0.0 if one is None else (one - mean) / scale for one in said)


def same(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether two lines of advantages are the same, as far as fp32 goes."""
    return all(abs(a - b) < CLOSE for a, b in zip(one, other, strict=True))


def probe() -> Probe:
    """Train on the golden groups with the installed TRL: about ten seconds on a CPU.

    Raises
    ------
    ImportError
        If there is none.
    """
    cases: list[Case] = []
    with tempfile.TemporaryDirectory() as folder, _quiet():
        bench = _Bench(Path(folder))
        for size in sorted({len(said) for said in GROUPS.values()}):
            groups = {name: said for name, said in GROUPS.items() if len(said) == size}
            trl = bench.advantages(groups)
            ours = bench.advantages(groups, of_ours=True)
            cases += [Case(name, said, trl[name], ours[name]) for name, said in groups.items()]
        pull, pull_ours = bench.pull(), bench.pull(of_ours=True)
    order = list(GROUPS)
    cases.sort(key=lambda case: order.index(case.name))
    return Probe(metadata.version("trl"), tuple(cases), pull, pull_ours)


@dataclass(frozen=True, slots=True)
class _Part:
    """A reward that says what stands in the column of its name at a completion's place in its group."""

    name: str
    floor: float = 0.0
    how: How = How.ASYNC
    takes: Takes = Takes.ROLLOUT
    depends_on: str = "content"

    @property
    def identity(self) -> str:
        return f"{self.name}/1"

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.name,)

    def lint(self, columns: Mapping[str, Any]) -> str | None:  # noqa: ARG002 - as a reward has it
        return None

    def applies(self, columns: Mapping[str, Any]) -> bool:  # noqa: ARG002
        return True

    async def canary(self) -> bool | None:
        return True

    async def __call__(self, rollout: Rollout, context: Context, /) -> Scored:  # noqa: ARG002
        said = rollout.columns[self.name][rollout.key[1]]
        if said is None:
            raise SandboxError("the probe", "this sandbox is said not to have started")
        return Scored(said)


def _function(name: str) -> Callable[..., list[Said]]:
    """The same, as TRL's users write it."""

    def says(prompts: Sequence[str], **columns: Any) -> list[Said]:  # noqa: ANN401 - as TRL gives them
        size = len(columns[name][0])
        return [columns[name][row][row % size] for row in range(len(prompts))]

    says.__name__ = name
    return says


class _Bench:
    """A trainer's parts, made on the spot."""

    def __init__(self, folder: Path) -> None:
        import torch  # noqa: PLC0415 - with trl, when it is asked for
        from transformers import Qwen3Config, Qwen3ForCausalLM  # noqa: PLC0415

        torch.manual_seed(0)
        config = Qwen3Config(
            vocab_size=len(_WORDS), hidden_size=16, intermediate_size=32, num_hidden_layers=1,
            num_attention_heads=2, num_key_value_heads=1, head_dim=8, max_position_embeddings=64,
            pad_token_id=0, eos_token_id=1, bos_token_id=None,
        )  # fmt: skip
        Qwen3ForCausalLM(config).save_pretrained(folder / "model")
        self._folder = folder

    def advantages(
        self, groups: Mapping[str, Sequence[Said]], *, of_ours: bool = False
    ) -> dict[str, tuple[float, ...]]:
        """Train on groups of one size, and say with which advantages."""
        trainer, _ = self._trained(list(groups.values()), of_ours=of_ours, mixin=False)
        flat, size = list(trainer._logs["advantages"]), len(next(iter(groups.values())))  # noqa: SLF001
        return {name: tuple(flat[place * size : (place + 1) * size]) for place, name in enumerate(groups)}

    def pull(self, *, of_ours: bool = False) -> float:
        """The length of the gradient where nothing was judged."""
        _, gradient = self._trained([(LOST,) * 4], of_ours=of_ours, mixin=of_ours, beta=BETA)
        return gradient

    def _trained(
        self,
        groups: Sequence[Sequence[Said]],
        *,
        of_ours: bool,
        mixin: bool,
        **settings: Any,  # noqa: ANN401
    ) -> tuple[Any, float]:
        import trl  # noqa: PLC0415
        from transformers import PrinterCallback, Qwen3ForCausalLM  # noqa: PLC0415

        from steelyard.integrations import trl as ours  # noqa: PLC0415

        scoring = ours.reward(Recipe((Part(_Part("code")), Part(_Part("format")))), stop=False)
        kind = ours.GRPOTrainer if mixin else trl.GRPOTrainer
        with scoring:
            trainer = kind(
                model=Qwen3ForCausalLM.from_pretrained(self._folder / "model"),
                reward_funcs=scoring if of_ours else [_function("code"), _function("format")],
                args=self._config(groups, settings),
                train_dataset=_dataset(groups),
                processing_class=_tokenizer(),
            )
            trainer.remove_callback(PrinterCallback)
            _step_aside(trainer.model)
            measured = _measuring()
            trainer.add_callback(measured)
            trainer.train()
        return trainer, measured.length

    def _config(self, groups: Sequence[Sequence[Said]], settings: Mapping[str, Any]) -> Any:  # noqa: ANN401
        from trl import GRPOConfig  # noqa: PLC0415

        size = len(groups[0])
        return GRPOConfig(
            output_dir=str(self._folder / "out"), use_cpu=True, bf16=False, gradient_checkpointing=False,
            report_to="none", save_strategy="no", logging_strategy="no", disable_tqdm=True, max_steps=1,
            learning_rate=0.0, max_grad_norm=0.0, max_completion_length=4, num_generations=size,
            per_device_train_batch_size=size * len(groups), shuffle_dataset=False,
            dataloader_pin_memory=False, seed=7, **settings,
        )  # fmt: skip


def _dataset(groups: Sequence[Sequence[Said]]) -> Any:  # noqa: ANN401 - of datasets
    from datasets import Dataset  # noqa: PLC0415

    made = []
    for row, said in enumerate(groups):
        holds = LOST if all(one is LOST for one in said) else 1.0
        made.append({"prompt": f"w{row} w{row + 1}", "code": list(said), "format": [holds] * len(said)})
    return Dataset.from_list(made)


def _tokenizer() -> Any:  # noqa: ANN401 - of transformers
    from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: PLC0415
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415

    made = Tokenizer(
        models.WordLevel({word: place for place, word in enumerate(_WORDS)}, unk_token=_WORDS[0])
    )
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token=_WORDS[0], eos_token=_WORDS[1], padding_side="left"
    )


def _step_aside(model: Any) -> None:  # noqa: ANN401 - of transformers
    """Move a policy off the reference model, so that something pulls."""
    import torch  # noqa: PLC0415

    chance = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weights in model.parameters():
            weights.add_(0.3 * weights.std().nan_to_num(0.0) * torch.randn(weights.shape, generator=chance))


def _measuring() -> Any:  # noqa: ANN401 - a class that needs transformers
    from transformers import TrainerCallback  # noqa: PLC0415

    class Measuring(TrainerCallback):  # type: ignore[misc]  # its types are not read
        length = 0.0

        def on_pre_optimizer_step(self, *_: Any, model: Any = None, **_more: Any) -> None:  # noqa: ANN401
            gradients = [weights.grad for weights in model.parameters() if weights.grad is not None]
            self.length = sum(float(one.double().pow(2).sum()) for one in gradients) ** 0.5

    return Measuring()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep what trainers say of themselves from the page."""
    from transformers.utils import logging as told  # noqa: PLC0415

    before = logging.root.manager.disable
    told.disable_progress_bar()
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
        told.enable_progress_bar()


# On the page


def print_probe(console: Console, seen: Probe) -> None:
    """Print what was seen; 68 columns are enough."""
    version = f"TRL {seen.version}"
    wrong = sum(not same(case.trl, case.right) for case in seen.cases)
    bad = sum(not same(case.ours, case.right) for case in seen.cases)
    _tell(console, f"{version}, two reward functions", f"{wrong} of {len(seen.cases)} groups wrong", wrong)
    _tell(console, f"{version}, one of steelyard's", f"{bad} of {len(seen.cases)} groups wrong", bad)
    console.print()
    console.print(
        "Advantages, as its GRPOTrainer computed them. Of each completion, code\n"
        "says what stands in the first line (\N{MULTIPLICATION X}: lost to a crash); format says 1.",
        style="dim",
    )
    for case in seen.cases:
        console.print()
        console.print(Text(case.name, style="bold"))
        console.print(_table(case, version))
    console.print()
    console.print(Text("Nothing was judged: the length of the gradient", style="bold"))
    console.print(f"beta is {BETA:g}, and the policy is not the reference model", style="dim")
    _tell(console, f"  {version}", f"{seen.pull:.3g}", seen.pull)
    _tell(console, "  steelyard's mixin", f"{seen.pull_ours:.3g}", seen.pull_ours)


def _tell(console: Console, what: str, said: str, wrong: float) -> None:
    console.print(Text.assemble(f"{what:<34}", (said, "bold red" if wrong else "bold green")))


def _table(case: Case, version: str) -> Table:
    table = Table(box=None, show_header=False, padding=0, pad_edge=False)
    table.add_column(no_wrap=True, width=12)
    for _ in case.said:
        table.add_column(justify="right", no_wrap=True, width=7)
    table.add_row(Text("  code"), *map(_word, case.said))
    table.add_row(Text(f"  {version}"), *_line(case.trl, case.right))
    table.add_row(Text("  steelyard"), *_line(case.ours, case.right))
    table.add_row(Text("  right", style="dim"), *(Text(_number(one), style="dim") for one in case.right))
    return table


def _word(said: Said) -> Text:
    return Text("\N{MULTIPLICATION X}", style="yellow") if said is None else Text(f"{said:g}")


def _line(line: Sequence[float], truth: Sequence[float]) -> list[Text]:
    return [
        Text(_number(one), style="green" if abs(one - true) < CLOSE else "bold red")
        for one, true in zip(line, truth, strict=True)
    ]


def _number(value: float) -> str:
    return "0" if abs(value) < CLOSE else f"{value:+.3f}".replace("-", "\N{MINUS SIGN}")
