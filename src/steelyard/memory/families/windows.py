"""Which layers see a sliding window only: what the KV cache need not keep.

transformers wrote such patterns down in different ways before `layer_types` became its one way; a config
that has `layer_types` is taken at its word. Each function gives one window, or None, for every layer.
"""

from __future__ import annotations

from collections.abc import Callable

from steelyard.memory.families.keys import Keys

Window = int | None
Windows = Callable[[Keys, int], tuple[Window, ...]]


def nowhere(_keys: Keys, depth: int) -> tuple[Window, ...]:
    """Every layer sees all."""
    return (None,) * depth


def everywhere(keys: Keys, depth: int) -> tuple[Window, ...]:
    """Every layer has `sliding_window`, if that is not null (Mistral, Phi-3, StarCoder2)."""
    window = keys.optional("sliding_window")
    types = keys.types(depth) or ("sliding_attention",) * depth
    return _by(types, window)


def alternating(keys: Keys, depth: int) -> tuple[Window, ...]:
    """Every layer but each `sliding_window_pattern`-th has a window (Gemma 2 and 3, gpt-oss, Command R7B)."""
    window = keys.optional("sliding_window")
    types = keys.types(depth)
    if types is None:
        every = keys.count("sliding_window_pattern")
        types = tuple("sliding_attention" if (i + 1) % every else "full_attention" for i in range(depth))
    return _by(types, window)


def above(keys: Keys, depth: int) -> tuple[Window, ...]:
    """Layers from `max_window_layers` on have a window if `use_sliding_window` (Qwen2, Qwen3)."""
    types = keys.types(depth)
    if types is None:
        least = keys.count("max_window_layers", least=0)
        types = tuple("sliding_attention" if i >= least else "full_attention" for i in range(depth))
    return _if_used(keys, types)


def below(keys: Keys, depth: int) -> tuple[Window, ...]:
    """Every other layer below `max_window_layers` has a window if `use_sliding_window` (Qwen2-MoE)."""
    types = keys.types(depth)
    if types is None:
        most = keys.count("max_window_layers", least=0)
        types = tuple(
            "sliding_attention" if (i + 1) % 2 and i < most else "full_attention" for i in range(depth)
        )
    return _if_used(keys, types)


def used_everywhere(keys: Keys, depth: int) -> tuple[Window, ...]:
    """Every layer has a window if `use_sliding_window` (Qwen3-MoE)."""
    return _if_used(keys, keys.types(depth) or ("sliding_attention",) * depth)


def without_positions(keys: Keys, depth: int) -> tuple[Window, ...]:
    """Layers without rotary positions have a window if `use_sliding_window` (SmolLM3)."""
    types = keys.types(depth)
    if types is None:
        every = keys.count("no_rope_layer_interval")
        types = tuple("full_attention" if (i + 1) % every else "sliding_attention" for i in range(depth))
    return _if_used(keys, types)


def _if_used(keys: Keys, types: tuple[str, ...]) -> tuple[Window, ...]:
    if not keys.flag("use_sliding_window"):
        return (None,) * len(types)
    return _by(types, keys.optional("sliding_window"))


def _by(types: tuple[str, ...], window: Window) -> tuple[Window, ...]:
    return tuple(window if kind == "sliding_attention" else None for kind in types)
