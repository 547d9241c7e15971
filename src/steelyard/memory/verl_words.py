"""verl's settings as one flat table of dotted names: nested YAML, Hydra's words, references, defaults.

`overrides` reads what stands on a command line as Hydra does for scalars and lists; `flattened` lays a nested
file flat, with dotted names over it; `resolved` follows `${...}` as OmegaConf does for a whole value.
`DEFAULTS` are verl 0.9.1's of what `verl_settings` reads (`_generated_ppo_trainer.yaml`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from steelyard.errors import RefusedError
from steelyard.memory.settings import shown
from steelyard.memory.verl_fields import FIELDS, OPEN

_ACTOR: Final = "actor_rollout_ref.actor."
_ROLLOUT: Final = "actor_rollout_ref.rollout."
_MODEL: Final = "actor_rollout_ref.model."

DEFAULTS: Final[Mapping[str, object]] = {
    "data.max_prompt_length": 512,
    "data.max_response_length": 512,
    "data.train_batch_size": 1024,
    "trainer.n_gpus_per_node": 8,
    "trainer.nnodes": 1,
    "algorithm.adv_estimator": "grpo",  # verl's is gae: `verl_settings.read` says so where it is not set
    "algorithm.use_kl_in_reward": False,
    "actor_rollout_ref.hybrid_engine": True,
    _ACTOR + "strategy": "fsdp",
    _ACTOR + "ppo_mini_batch_size": 256,
    _ACTOR + "ppo_micro_batch_size": None,
    _ACTOR + "ppo_micro_batch_size_per_gpu": None,
    _ACTOR + "use_dynamic_bsz": False,
    _ACTOR + "ppo_max_token_len_per_gpu": 16384,
    _ACTOR + "ulysses_sequence_parallel_size": 1,
    _ACTOR + "use_kl_loss": False,
    _ACTOR + "entropy_coeff": 0,
    _ACTOR + "calculate_entropy": False,
    _ACTOR + "optim.optimizer": "AdamW",
    _ACTOR + "fsdp_config.fsdp_size": -1,
    _ACTOR + "fsdp_config.model_dtype": "fp32",
    _ACTOR + "fsdp_config.param_offload": False,
    _ACTOR + "fsdp_config.optimizer_offload": False,
    _ACTOR + "fsdp_config.offload_policy": False,
    _ACTOR + "fsdp_config.reshard_after_forward": True,
    _ACTOR + "megatron.param_offload": False,
    _ACTOR + "megatron.optimizer_offload": False,
    _ACTOR + "megatron.tensor_model_parallel_size": 1,
    _ACTOR + "megatron.pipeline_model_parallel_size": 1,
    _ACTOR + "megatron.context_parallel_size": 1,
    _ACTOR + "megatron.expert_model_parallel_size": 1,
    _ACTOR + "megatron.use_distributed_optimizer": True,
    _ROLLOUT + "name": "vllm",  # verl's has to be set
    _ROLLOUT + "n": 1,
    _ROLLOUT + "nnodes": 0,
    _ROLLOUT + "temperature": 1.0,
    _ROLLOUT + "gpu_memory_utilization": 0.5,
    _ROLLOUT + "tensor_model_parallel_size": 2,
    _ROLLOUT + "free_cache_engine": True,
    _ROLLOUT + "enable_sleep_mode": True,
    _ROLLOUT + "enforce_eager": False,
    _ROLLOUT + "max_num_seqs": 256,
    _ROLLOUT + "max_num_batched_tokens": 8192,
    _ROLLOUT + "max_model_len": None,
    _ROLLOUT + "quantization": None,
    _ROLLOUT + "log_prob_micro_batch_size": None,
    _ROLLOUT + "log_prob_micro_batch_size_per_gpu": None,
    _ROLLOUT + "log_prob_use_dynamic_bsz": f"${{{_ACTOR}use_dynamic_bsz}}",
    _ROLLOUT + "log_prob_max_token_len_per_gpu": f"${{{_ACTOR}ppo_max_token_len_per_gpu}}",
    _ROLLOUT + "checkpoint_engine.update_weights_bucket_megabytes": 2048,
    _ROLLOUT + "update_weights_bucket_megabytes": None,  # where earlier releases have it
    _MODEL + "enable_gradient_checkpointing": True,
    _MODEL + "enable_activation_offload": False,
    _MODEL + "use_remove_padding": True,
    _MODEL + "use_liger": False,
    _MODEL + "use_fused_kernels": False,
    _MODEL + "fused_kernel_options.impl_backend": "torch",
    _MODEL + "target_modules": "all-linear",
    _MODEL + "lora_rank": 0,
    _MODEL + "lora.rank": 0,
    _MODEL + "lora.merge": False,
}

_NUMBER: Final = re.compile(r"[+-]?(\d[\d_]*\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
_REFERENCE: Final = re.compile(r"\$\{\s*(?:oc\.select:\s*)?([\w.]+)\s*(?:,\s*(.*?)\s*)?\}", re.DOTALL)
_WORDS: Final[Mapping[str, object]] = {"null": None, "true": True, "false": False}


def overrides(words: Sequence[str]) -> dict[str, object]:
    """Read words of a Hydra command line: `a.b=1`, `+c=null`, `++d=[x,2]`.

    Raises
    ------
    RefusedError
        A word without `=`, one that deletes (`~a`), an option, or a list that does not end.

    Examples
    --------
    >>> overrides(["trainer.nnodes=2", "+data.seed=null", "optim.lr=1e-6", "trainer.logger=['console',x]"])
    {'trainer.nnodes': 2, 'data.seed': None, 'optim.lr': 1e-06, 'trainer.logger': ['console', 'x']}
    """
    table: dict[str, object] = {}
    for word in words:
        name, equals, text = word.partition("=")
        name = name.strip().lstrip("+")
        if not equals or not name or name[0] in "~-":
            raise RefusedError(
                f"{shown(word)} sets nothing",
                where="Hydra overrides",
                remedy="write name=value, with no space, and leave Hydra's options out",
            )
        table[name] = _scalar(text.strip())
    return table


_DEEPEST: Final = 8
"""Lists in lists; no setting has more than two."""
_LONGEST: Final = 64
"""Characters of a number."""


def _scalar(text: str, depth: int = 0) -> object:
    """One value of Hydra's grammar (hydra.cc, "Override grammar"); what is nothing else is a string."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    if text.startswith("["):
        if not text.endswith("]"):
            raise RefusedError(
                f"{shown(text)} is a list without an end", where="Hydra overrides", remedy="close it"
            )
        if depth == _DEEPEST:
            raise RefusedError(
                f"{shown(text)} is one list too many in another",
                where="Hydra overrides",
                remedy="take it out",
            )
        return [_scalar(part, depth + 1) for part in _parts(text[1:-1])]
    if len(text) <= _LONGEST and _NUMBER.fullmatch(text):
        plain = text.replace("_", "")
        return int(plain) if plain.lstrip("+-").isdigit() else float(plain)
    return text


def _parts(text: str) -> list[str]:
    """What commas part that stand in no brackets and no quotes."""
    parts, depth, quote = [""], 0, ""
    for sign in text:
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        else:
            depth += (sign in "[{") - (sign in "]}")
        if sign == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += sign
    return [part.strip() for part in parts] if text.strip() else []


def flattened(settings: Mapping[str, object]) -> dict[str, object]:
    """Lay nested settings flat; dotted names come last, and so win over the nested ones."""
    flat: dict[str, object] = {}
    for dotted in (False, True):
        for name, value in settings.items():
            if ("." in str(name)) == dotted:
                _lay(flat, str(name), value)
    return flat


def _lay(flat: dict[str, object], name: str, value: object) -> None:
    if isinstance(value, Mapping) and value:
        for leaf, inner in value.items():
            if not str(leaf).startswith("_"):  # `_target_` is Hydra's
                _lay(flat, f"{name}.{leaf}", inner)
    else:
        flat[name] = value


def resolved(flat: Mapping[str, object]) -> dict[str, object]:
    """Lay settings over defaults; follow values that are `${a.b}`, `${.b}` or `${oc.select:a.b,default}`.

    Raises
    ------
    RefusedError
        References that go round.
    """
    return {name: _follow(flat, name, value) for name, value in {**DEFAULTS, **flat}.items()}


def _follow(flat: Mapping[str, object], name: str, value: object) -> object:
    seen = {name}
    while isinstance(value, str) and (match := _REFERENCE.fullmatch(value)):
        other, default = match.groups()
        if other.startswith("."):
            other = name.rpartition(".")[0] + other
        if other in seen:
            raise RefusedError(f"{name} refers to itself", where="verl settings", remedy="give its value")
        seen.add(other)
        name = other
        value = flat.get(other, DEFAULTS.get(other, None if default is None else _scalar(default)))
    return value


def known(name: str) -> bool:
    """The setting is one of verl 0.9.1, as far as its section is known here."""
    section, _, leaf = name.rpartition(".")
    if name in DEFAULTS or OPEN.intersection(name.split(".")):
        return True
    return section in FIELDS and leaf in FIELDS[section].split()
