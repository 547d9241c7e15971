"""The keys of one `config.json`, each read as what it must be, or refused by its name.

An absent key has the value that transformers would give it, which differs by family (`defaults`). That does
not hold for the sizes of a model (`NEEDED`): a config of its own that lacks one is no config. Inside a
multimodal one it is, for there transformers leaves out whatever equals its default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from steelyard.errors import RefusedError
from steelyard.memory.settings import MOST, shown

NEEDED: Final = frozenset(
    {
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
        "vocab_size",
        "moe_intermediate_size",
        "shared_expert_intermediate_size",
        "num_experts",
        "num_local_experts",
        "num_experts_per_tok",
        "n_routed_experts",
        "n_shared_experts",
        "first_k_dense_replace",
        "kv_lora_rank",
        "q_lora_rank",
        "qk_nope_head_dim",
        "qk_rope_head_dim",
        "v_head_dim",
    }
)
"""Keys that make a model what it is: absent from a plain config, they are refused and not guessed."""

Bias = bool | str
"""Something that is always or never there, or the key that says so."""

MOST_LAYERS: Final = 1_000
"""Far above any model: a slip of the keyboard is refused rather than gone through layer by layer."""

_ABSENT: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """A config, its name for messages, and what its family says of absent keys.

    Attributes
    ----------
    config
        The keys of the language model.
    where
        What was read, as a person knows it.
    family
        Its `model_type`.
    defaults
        Values of absent keys.
    nested
        It lies inside another config, so that its sizes may be absent, too.
    other_names
        What a family calls a key, and it alone: `{"hidden_size": "n_embd"}`.
    """

    config: Mapping[str, object]
    where: str
    family: str
    defaults: Mapping[str, object]
    nested: bool = False
    other_names: Mapping[str, str] = field(default_factory=dict)

    def count(self, key: str, *, least: int = 1, most: int | None = None) -> int:
        """Whole number, of `least` or more, up to `most`.

        Raises
        ------
        RefusedError
            Absent without a default, null, or no such number.
        """
        name, value = self._found(key)
        must = f"a whole number of {least} or more" if most is None else f"a whole number, {least} to {most}"
        if value is _ABSENT:
            raise self._absent(name, must)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= (most or MOST):
            raise self.refused(name, value, must)
        return value

    def optional(self, key: str, *, said: bool = False) -> int | None:
        """Whole number of 1 or more; null is None, and so is an absent key, unless it must be `said`.

        Raises
        ------
        RefusedError
            Something else.
        """
        name, value = self._found(key)
        if value is None or (value is _ABSENT and not said):
            return None
        if value is _ABSENT:
            raise self._absent(name, "a whole number of 1 or more, or null")
        return self.count(key)

    def flag(self, key: Bias) -> bool:
        """A flag; or `key` itself, where a family leaves no choice.

        Raises
        ------
        RefusedError
            Neither true nor false.
        """
        if isinstance(key, bool):
            return key
        name, value = self._found(key)
        if value is _ABSENT:
            raise self._absent(name, "true or false")
        if not isinstance(value, bool):
            raise self.refused(name, value, "true or false")
        return value

    def capped(self, key: str) -> bool:
        """Whether scores or logits are capped: a number above 0 says where; null or absent says no.

        Raises
        ------
        RefusedError
            No such number.
        """
        name, value = self._found(key)
        if value is None or value is _ABSENT:
            return False
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise self.refused(name, value, "a number above 0, or null")
        return True

    def word(self, key: str) -> str | None:
        """A word; None where it is absent or null.

        Raises
        ------
        RefusedError
            Something else.
        """
        name, value = self._found(key)
        if value is None or value is _ABSENT:
            return None
        if not isinstance(value, str):
            raise self.refused(name, value, "a word")
        return value

    def indices(self, key: str) -> frozenset[int]:
        """Indices of layers; null or absent: none.

        Raises
        ------
        RefusedError
            No list of whole numbers.
        """
        _, value = self._found(key)
        if value is None or value is _ABSENT:
            return frozenset()
        if (
            not isinstance(value, list | tuple)
            or len(value) > MOST_LAYERS
            or not all(type(i) is int and i >= 0 for i in value)
        ):
            raise self.refused(key, value, "a list of layers, such as [0, 1]")
        return frozenset(value)

    def types(self, depth: int) -> tuple[str, ...] | None:
        """`layer_types`: whether each layer attends to all or to a window; None where it is absent or null.

        Raises
        ------
        RefusedError
            Not one for each layer, or of another kind: linear attention keeps no cache that we can size.
        """
        known = ("full_attention", "sliding_attention")
        value = self.config.get("layer_types")
        if value is None:
            return None
        if not isinstance(value, list | tuple) or len(value) != depth or any(t not in known for t in value):
            raise self.refused("layer_types", value, f"{depth} times {' or '.join(known)}")
        return tuple(value)

    def refused(self, key: str, value: object, must: str) -> RefusedError:
        """What to raise of a value that cannot be."""
        return RefusedError(
            f"{key} = {shown(value)} must be {must}",
            where=self.where,
            remedy=f"write {key} as in the model's own config.json (`hf download ORG/NAME config.json`)",
        )

    def _absent(self, key: str, must: str) -> RefusedError:
        return RefusedError(
            f"{key} is absent; {self.family} needs it: {must}",
            where=self.where,
            remedy=f'add "{key}", or take the model\'s own config.json (`hf download ORG/NAME config.json`)',
        )

    def _found(self, key: str) -> tuple[str, object]:
        """The name under which a key is said, and its value."""
        name = self.other_names.get(key, key)
        if name in self.config:
            return name, self.config[name]
        if key in self.defaults and (self.nested or key not in NEEDED):
            return name, self.defaults[key]
        return name, _ABSENT
