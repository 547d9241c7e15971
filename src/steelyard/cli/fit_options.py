"""The options of `steelyard fit`: one list, which is the command's signature and what it was given.

None, or False, is "not said": what a settings file says stands then, or the default of `memory.plan`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias, get_type_hints

import typer

from steelyard.errors import RefusedError
from steelyard.report.words import one_line

_BATCH, _TRAINER, _ENGINE, _SPEED = "Batch", "Trainer", "Engine that generates", "Step time and price"
_OUTPUT = "What comes out"

Words: TypeAlias = list[str] | None


def _count(panel: str, says: str, *, least: int = 1) -> Any:  # noqa: ANN401 - typer's own type
    return typer.Option(metavar="N", min=least, help=says, rich_help_panel=panel)


def _word(panel: str, choices: str, says: str) -> Any:  # noqa: ANN401 - typer's own type
    return typer.Option(metavar=choices, help=says, rich_help_panel=panel)


def _switch(panel: str, name: str, says: str) -> Any:  # noqa: ANN401 - typer's own type
    return typer.Option(f"--{name}", help=says, rich_help_panel=panel)


def _seconds(says: str) -> Any:  # noqa: ANN401 - typer's own type
    return typer.Option(metavar="SECONDS", min=0.0, help=says, rich_help_panel=_SPEED)


class FitOptions(NamedTuple):
    """What was said on the command line, by the names of its options."""

    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="A config.json or a folder with one, a name or size class of --models, or a model in the "
            "local Hugging Face cache.",
        ),
    ] = None
    card: Annotated[
        Words, typer.Option(metavar="NAME", help="A card of --cards. Repeated: they are compared.")
    ] = None
    card_gib: Annotated[
        float | None,
        typer.Option(metavar="GIB", min=0.0, help="A card that has no name: what a program can have of it."),
    ] = None
    card_bandwidth: Annotated[
        float | None,
        typer.Option(metavar="GB/S", min=0.0, help="Its bandwidth on paper, for how fast it decodes."),
    ] = None
    card_tflops: Annotated[
        float | None,
        typer.Option(metavar="TFLOP/S", min=0.0, help="Its dense bf16 operations, for how fast it trains."),
    ] = None
    gpus: Annotated[int | None, typer.Option(metavar="N", min=1, help="GPUs of the trainer.")] = None
    files: Annotated[
        list[Path] | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Settings of a TRL (GRPOConfig) or verl run, YAML or JSON. Options go before.",
        ),
    ] = None
    changes: Annotated[
        Words,
        typer.Option("--set", metavar="A.B=C", help="A setting of FILE that is to be another. Repeatable."),
    ] = None
    task: Annotated[
        str | None,
        typer.Option(metavar="WORD", help="What is done: grpo, sft, inference.", show_default="grpo"),
    ] = None

    prompt: Annotated[int | None, _count(_BATCH, "Tokens of a prompt, at most.", least=0)] = None
    completion: Annotated[int | None, _count(_BATCH, "Tokens of a completion, at most.", least=0)] = None
    micro_batch: Annotated[int | None, _count(_BATCH, "Completions in one pass of one GPU.")] = None
    micro_tokens: Annotated[int | None, _count(_BATCH, "Tokens in one pass, where sequences are packed.")] = (
        None
    )
    generations: Annotated[int | None, _count(_BATCH, "Completions of one prompt.")] = None
    prompts: Annotated[int | None, _count(_BATCH, "Prompts of a step, over all GPUs.")] = None

    precision: Annotated[
        str | None, _word(_TRAINER, "WORD", "How weights are kept: bf16, autocast, sharded, master, fp32.")
    ] = None
    optimizer: Annotated[
        str | None,
        _word(
            _TRAINER,
            "WORD",
            "adamw, adamw_8bit, paged_adamw, paged_adamw_8bit, adafactor, muon, sgd, sgd_momentum.",
        ),
    ] = None
    gradient_bytes: Annotated[
        int | None, _count(_TRAINER, "Bytes of a gradient, if not as wide as the weight: Megatron has 4.")
    ] = None
    step_kernel: Annotated[
        str | None,
        _word(_TRAINER, "WORD", "How the optimizer goes over its tensors: fused, foreach, single."),
    ] = None
    lora: Annotated[
        int | None, typer.Option(metavar="RANK", min=1, help="Adapters.", rich_help_panel=_TRAINER)
    ] = None
    lora_targets: Annotated[
        str | None,
        _word(_TRAINER, "NAME[,NAME...]", "Matrices with adapters, in place of every linear layer."),
    ] = None
    qlora: Annotated[
        bool, _switch(_TRAINER, "qlora", "Adapters, of rank 16 if --lora says none, over 4 bits.")
    ] = False
    checkpointing: Annotated[
        str | None, _word(_TRAINER, "WORD", "What becomes of activations: none, recompute, offload.")
    ] = None
    attention: Annotated[str | None, _word(_TRAINER, "flash|sdpa|eager", "Kernel of attention.")] = None
    head: Annotated[
        str | None,
        _word(_TRAINER, "WORD", "How log-probabilities are made: naive, selective, chunked, fused."),
    ] = None
    head_tokens: Annotated[
        str | None, _word(_TRAINER, "all|completion", "Of which tokens the head makes logits.")
    ] = None
    chunk: Annotated[int | None, _count(_TRAINER, "Tokens of a chunk of the head.")] = None
    chunk_vocabulary: Annotated[
        int | None, _count(_TRAINER, "Entries of the vocabulary that it takes at a time; all, if not said.")
    ] = None
    kernels: Annotated[str | None, _word(_TRAINER, "plain|fused", "Of norms and gates; fused: Liger.")] = None
    reference: Annotated[
        bool, _switch(_TRAINER, "reference", "A reference model (beta above 0, no LoRA).")
    ] = False
    no_reference: Annotated[bool, _switch(_TRAINER, "no-reference", "None, whatever the settings say.")] = (
        False
    )
    sharding: Annotated[
        str | None, _word(_TRAINER, "WORD", "What GPUs share; FSDP is zero3: none, zero1, zero2, zero3.")
    ] = None
    tensor_parallel: Annotated[int | None, _count(_TRAINER, "GPUs that share each matrix.")] = None
    sequence_parallel: Annotated[int | None, _count(_TRAINER, "GPUs that share a sequence.")] = None
    offload_optimizer: Annotated[
        str | None,
        _word(
            _TRAINER,
            "WORD",
            "Its states: none, idle (on the host during generation), step (but for its step), host.",
        ),
    ] = None
    offload_weights: Annotated[
        str | None, _word(_TRAINER, "WORD", "Where weights and gradients lie: none, idle, host.")
    ] = None
    offload_reference: Annotated[
        str | None, _word(_TRAINER, "WORD", "Where the reference model lies: none, idle, host.")
    ] = None
    expandable_segments: Annotated[
        bool, _switch(_TRAINER, "expandable-segments", "The allocator's option is on.")
    ] = False

    engine: Annotated[
        str | None,
        _word(_ENGINE, "WORD", "vLLM: colocate (on the trainer's GPUs), server (on others), none."),
    ] = None
    utilization: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE", min=0.0, max=1.0, help="Of a card that vLLM may take.", rich_help_panel=_ENGINE
        ),
    ] = None
    sleep: Annotated[
        int | None,
        typer.Option(
            metavar="0|1|2", min=0, max=2, help="Level while the trainer works.", rich_help_panel=_ENGINE
        ),
    ] = None
    engine_tensor_parallel: Annotated[int | None, _count(_ENGINE, "GPUs that share its weights.")] = None
    sequences: Annotated[int | None, _count(_ENGINE, "Sequences at once, at most.")] = None
    context: Annotated[int | None, _count(_ENGINE, "Tokens of a sequence, at most (max_model_len).")] = None
    batched_tokens: Annotated[int | None, _count(_ENGINE, "Tokens in one of its passes, at most.")] = None
    bucket: Annotated[
        float | None,
        typer.Option(
            metavar="GIB", min=0.0, help="Through which weights are pushed.", rich_help_panel=_ENGINE
        ),
    ] = None
    own_process: Annotated[bool, _switch(_ENGINE, "own-process", "Not the trainer's.")] = False
    eager: Annotated[bool, _switch(_ENGINE, "eager", "Without CUDA graphs.")] = False
    engine_weights: Annotated[str | None, _word(_ENGINE, "bf16|fp8", "Its weights.")] = None
    kv_cache: Annotated[str | None, _word(_ENGINE, "bf16|fp8", "Its cache.")] = None

    reward_median: Annotated[float | None, _seconds("What a reward takes.")] = None
    reward_timeout: Annotated[float | None, _seconds("Where a reward is cut.")] = None
    reward_rate: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE", min=0.0, max=1.0, help="Of rewards that are cut.", rich_help_panel=_SPEED
        ),
    ] = None
    price: Annotated[
        list[float] | None,
        typer.Option(
            "--price",
            metavar="$/H",
            min=0.0,
            help="One GPU, dollars per hour. Repeated: of each card, in their order.",
            rich_help_panel=_SPEED,
        ),
    ] = None

    report: Annotated[
        Path | None,
        typer.Option(metavar="PAGE.html", help="Write it as a page, too.", rich_help_panel=_OUTPUT),
    ] = None
    as_json: Annotated[
        bool, typer.Option("--json", help="Everything as one JSON document.", rich_help_panel=_OUTPUT)
    ] = False
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Build the model (extra torch), compare; on a GPU run a step.",
            rich_help_panel=_OUTPUT,
        ),
    ] = False
    points: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv", help="Where --verify appends what a GPU took.", rich_help_panel=_OUTPUT
        ),
    ] = None
    cards: Annotated[
        bool, typer.Option("--cards", help="List the cards known by name.", rich_help_panel=_OUTPUT)
    ] = False
    models: Annotated[
        bool, typer.Option("--models", help="List the models known by name.", rich_help_panel=_OUTPUT)
    ] = False

    @property
    def file(self) -> Path | None:
        """The settings file.

        Raises
        ------
        RefusedError
            There are several.
        """
        files = self.files or []
        if len(files) > 1:
            raise RefusedError(
                f"{len(files)} files are named, and a plan is of one run",
                where="--from",
                remedy="name one; --set changes settings of it",
            )
        return files[0] if files else None


def with_options(run: Callable[[FitOptions], None]) -> Callable[..., None]:
    """Make a command of a function: its options are those of `FitOptions`.

    Parameters
    ----------
    run
        The command; its docstring is the help.
    """

    def command(ctx: typer.Context, **given: Any) -> None:  # noqa: ANN401 - typer has checked them
        _refuse_stray(ctx.args)
        run(FitOptions(**given))

    kinds = get_type_hints(FitOptions, include_extras=True)
    command.__name__, command.__doc__ = run.__name__, run.__doc__
    command.__annotations__ = {"ctx": typer.Context, **kinds}
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)]
        + [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=FitOptions._field_defaults[name],
                annotation=kind,
            )
            for name, kind in kinds.items()
        ]
    )
    return command


def _refuse_stray(words: list[str]) -> None:
    """Refuse words that are no option's, such as settings pasted from verl's command line."""
    for word in words:
        told = one_line(word, 80)
        raise RefusedError(
            f"{told!r} stands alone, and is no option",
            where="steelyard fit",
            remedy=f"say --set {told}" if "=" in word else "name a model by --model, a file by --from",
        )
