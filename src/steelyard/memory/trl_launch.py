"""How the processes of a TRL run share the model: DDP, FSDP or DeepSpeed, as its files say it.

There are four places to say so, and TRL users use all of them: `deepspeed` and `fsdp`/`fsdp_config` of
`GRPOConfig`, a file of `accelerate launch` (`accelerate_config`: a name that TRL ships, or what the file
holds), and the flags of `accelerate launch` in the same file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from steelyard.memory.plan import Offload, Sharding
from steelyard.memory.settings import Settings, shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Processes, and what they share.

    Attributes
    ----------
    gpus
        Processes of the trainer, each with a GPU.
    by
        Who shares: `ddp` is nobody.
    sharding
        What is shared.
    optimizer, weights
        Where they lie.
    recompute
        FSDP's own activation checkpointing is on.
    """

    gpus: int
    by: Literal["ddp", "fsdp", "deepspeed"] = "ddp"
    sharding: Sharding = "none"
    optimizer: Offload = "none"
    weights: Offload = "none"
    recompute: bool = False


SHIPPED: Final[Mapping[str, Mapping[str, object]]] = {
    "single_gpu": {"distributed_type": "NO"},
    "multi_gpu": {"distributed_type": "MULTI_GPU", "num_processes": 8},
    "fsdp1": {
        "distributed_type": "FSDP",
        "num_processes": 8,
        "fsdp_config": {"fsdp_reshard_after_forward": "FULL_SHARD"},
    },
    "fsdp2": {
        "distributed_type": "FSDP",
        "num_processes": 8,
        "fsdp_config": {"fsdp_reshard_after_forward": True},
    },
    **{
        f"zero{stage}": {
            "distributed_type": "DEEPSPEED",
            "num_processes": 8,
            "deepspeed_config": {"zero_stage": stage},
        }
        for stage in (1, 2, 3)
    },
}
"""Files that TRL ships, and can be named (`trl/accelerate_configs/`)."""

_STAGES: Final[tuple[Sharding, ...]] = ("none", "zero1", "zero2", "zero3")

_STRATEGIES: Final[Mapping[str, Sharding]] = {
    "true": "zero3",
    "full_shard": "zero3",
    "1": "zero3",
    "false": "zero2",
    "shard_grad_op": "zero2",
    "2": "zero2",
    "no_shard": "none",
    "3": "none",
}
"""FSDP's strategies as the versions spell them: version 2 has a flag, version 1 names and numbers. What keeps
its weights gathered between forward and backward shares gradients and optimizer states only."""


def launched(asked: Settings, gpus: int | None, notes: list[str]) -> Launch:
    """Read who shares what.

    Parameters
    ----------
    asked
        The settings of a run.
    gpus
        Processes, where the caller knows; None takes `num_processes`, else 1.
    notes
        Gets a sentence for what is set and has no effect.

    Raises
    ------
    RefusedError
        A file's name where its content is needed, two sharers at once, or an unknown strategy.
    """
    file = _file(asked)
    count = gpus if gpus is not None else _processes(asked, file)
    if count < 1:
        raise asked.refused(f"{count} GPUs", "give 1 or more")
    deep = _deepspeed(asked, file)
    shared = _fsdp(asked, file)
    if deep is not None and shared is not None:
        raise asked.refused("DeepSpeed and FSDP are both set", "choose one")
    if asked.get("fsdp_config") and not asked.get("fsdp"):
        notes.append("fsdp_config has no effect without fsdp: true")
    if deep is not None:
        return _by_deepspeed(asked, count, deep)
    return Launch(gpus=count) if shared is None else _by_fsdp(asked, count, shared)


def _file(asked: Settings) -> Mapping[str, object]:
    """What accelerate's file holds."""
    value = asked.get("accelerate_config")
    if isinstance(value, str):
        if value not in SHIPPED:
            raise asked.refused(
                f"accelerate_config is {shown(value)}, and nothing here opens a file",
                f"give what the file holds, or one of {', '.join(SHIPPED)}",
            )
        return SHIPPED[value]
    return asked.table("accelerate_config")


def _processes(asked: Settings, file: Mapping[str, object]) -> int:
    alone = str(file.get("distributed_type", "")).upper() == "NO"
    found = Settings(
        asked.values, {"num_processes": 1 if alone else file.get("num_processes", 1)}, asked.where
    )
    return found.whole("num_processes", least=1)


def _deepspeed(asked: Settings, file: Mapping[str, object]) -> Settings | None:
    """DeepSpeed's settings in accelerate's words, or None."""
    value = asked.get("deepspeed")
    if isinstance(value, str):
        raise asked.refused(
            f"deepspeed is {shown(value)}, and nothing here opens a file",
            "give what the file holds, a mapping",
        )
    if value is not None:
        given = asked.table("deepspeed")
        zero = Settings(
            Settings(given, {}, "deepspeed").table("zero_optimization"), {"stage": 0}, "deepspeed"
        )
        words = {
            "zero_stage": zero.get("stage"),
            "offload_optimizer_device": zero.table("offload_optimizer").get("device", "none"),
            "offload_param_device": zero.table("offload_param").get("device", "none"),
        }
        return Settings(words, {}, "deepspeed.zero_optimization")
    if "deepspeed_config" in file or str(file.get("distributed_type", "")).upper() == "DEEPSPEED":
        held = Settings(file, {}, "accelerate_config").table("deepspeed_config")
        if "deepspeed_config_file" in held:
            raise asked.refused(
                "accelerate_config names a deepspeed_config_file", "give its content as deepspeed"
            )
        return Settings(held, {"zero_stage": 2}, "accelerate_config.deepspeed_config")
    if asked.flag("use_deepspeed") or asked.get("zero_stage") is not None:
        return Settings(asked.values, {"zero_stage": 2}, asked.where)
    return None


def _by_deepspeed(asked: Settings, gpus: int, deep: Settings) -> Launch:
    stage = deep.whole("zero_stage")
    if stage >= len(_STAGES):
        raise asked.refused(f"ZeRO has no stage {stage}", "give 0, 1, 2 or 3")
    devices = [str(deep.get(name) or "none") for name in ("offload_optimizer_device", "offload_param_device")]
    optimizer, weights = ("none" if device == "none" else "host" for device in devices)
    return Launch(
        gpus=gpus,
        by="deepspeed",
        sharding=_STAGES[stage],
        optimizer="host" if "host" in (optimizer, weights) else "none",
        weights="host" if weights == "host" else "none",
    )


def _fsdp(asked: Settings, file: Mapping[str, object]) -> Settings | None:
    """FSDP's settings without their prefix, or None."""
    given = asked.get("fsdp")
    if given:
        value = asked.get("fsdp_config")
        if isinstance(value, str):
            raise asked.refused(
                f"fsdp_config is {shown(value)}, and nothing here opens a file",
                "give what the file holds, a mapping",
            )
        words = [] if given is True else given.split() if isinstance(given, str) else list(_words(asked))
        old = {"cpu_offload": True} if "offload" in words else {}
        strategy = [word for word in words if word not in ("offload", "auto_wrap")]
        new = {"reshard_after_forward": strategy[0]} if strategy else {}
        return Settings({**old, **new, **_bare(asked.table("fsdp_config"))}, {}, "fsdp_config")
    if "fsdp_config" in file or str(file.get("distributed_type", "")).upper() == "FSDP":
        held = Settings(file, {}, "accelerate_config").table("fsdp_config")
        return Settings(_bare(held), {}, "accelerate_config.fsdp_config")
    if asked.flag("use_fsdp"):
        flags = {name: value for name, value in asked.values.items() if name.startswith("fsdp_")}
        return Settings(_bare(flags), {}, asked.where)
    return None


def _words(asked: Settings) -> tuple[str, ...]:
    value = asked.get("fsdp")
    if not isinstance(value, list | tuple):
        raise asked.refused(f"fsdp is {shown(value)}", "give true, and the rest in fsdp_config")
    return tuple(str(word) for word in value)


def _bare(table: Mapping[str, object]) -> dict[str, object]:
    return {str(name).removeprefix("fsdp_"): value for name, value in table.items()}


def _by_fsdp(asked: Settings, gpus: int, shared: Settings) -> Launch:
    strategy = shared.get("reshard_after_forward")
    strategy = strategy if strategy is not None else shared.get("sharding_strategy")
    name = "true" if strategy is None else str(strategy).lower()
    if name not in _STRATEGIES:
        raise asked.refused(f"FSDP's {strategy!r} is not reckoned with", "give full_shard or shard_grad_op")
    offload: Offload = (
        "host"
        if any(str(shared.get(key)).lower() == "true" for key in ("cpu_offload", "offload_params"))
        else "none"
    )
    return Launch(
        gpus=gpus,
        by="fsdp",
        sharding=_STRATEGIES[name],
        optimizer=offload,
        weights=offload,
        recompute=str(shared.get("activation_checkpointing")).lower() == "true",
    )
