"""Shapes from `config.json`: the file that a Hugging Face model says its sizes in.

`keys` reads one key, `windows`, `parts`, `experts` and `older` make what a layer has of several, and
`table` says which family has which. Counts are exact to the checkpoint, which the tests prove against
public totals and against transformers' own modules. An unknown `model_type` is refused: a family that
merely looks like Llama may have biases, norms or experts that a guess would leave out.

The language model counts, and what generation needs of it; what does not (vision towers, heads that
predict further tokens) is named in `ModelShape.left_out`.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from steelyard.errors import RefusedError
from steelyard.memory.families.keys import MOST_LAYERS, Keys
from steelyard.memory.families.table import FAMILIES, SAME_AS, Family
from steelyard.memory.settings import shown
from steelyard.memory.shapes import Layer, ModelShape

__all__ = ["known_families", "read_config"]

_NEED: Final = (
    "hidden_size, num_hidden_layers, num_attention_heads, num_key_value_heads, head_dim, intermediate_size, "
    "vocab_size, tie_word_embeddings"
)


def known_families() -> tuple[str, ...]:
    """Every `model_type` that `read_config` can read, sorted."""
    return tuple(sorted({*FAMILIES, *SAME_AS}))


def read_config(config: Mapping[str, object], *, name: str) -> ModelShape:
    """Read the shape of a model from its `config.json`.

    Parameters
    ----------
    config
        The parsed file. Of a multimodal one, the language model is read (`text_config`).
    name
        What to call it, in messages and in the shape.

    Returns
    -------
    ModelShape
        Its `parameters` are those of the checkpoint, less what `left_out` names.

    Raises
    ------
    RefusedError
        An unknown `model_type`, or a key that is absent or cannot be.

    Examples
    --------
    >>> shape = read_config(
    ...     {
    ...         "model_type": "qwen2",
    ...         "hidden_size": 896,
    ...         "intermediate_size": 4864,
    ...         "num_attention_heads": 14,
    ...         "num_key_value_heads": 2,
    ...         "num_hidden_layers": 24,
    ...         "tie_word_embeddings": True,
    ...         "vocab_size": 151936,
    ...     },
    ...     name="Qwen2.5-0.5B",
    ... )
    >>> shape.parameters, shape.depth, shape.cached(tokens=1)
    (494032768, 24, 6144)
    """
    text = config.get("text_config")
    if text is not None and not isinstance(text, Mapping):
        raise RefusedError(
            f"text_config = {shown(text)} must be the keys of the language model",
            where=name,
            remedy="take the model's own config.json (`hf download ORG/NAME config.json`)",
        )
    inner = config if text is None else _inner(config, text)
    family_name, family = _family(inner, where=name)
    keys = Keys(
        config=inner,
        where=name,
        family=family_name,
        defaults=family.defaults,
        nested=text is not None,
        other_names=family.other_names,
    )
    return _shape(keys, family, left_out=_left_out(config, inner))


def _inner(config: Mapping[str, object], text: Mapping[str, object]) -> dict[str, object]:
    """Keys of the language model; whether its head is tied is the whole model's to say."""
    inner = dict(text)
    if "tie_word_embeddings" in config:
        inner["tie_word_embeddings"] = config["tie_word_embeddings"]
    return inner


def _family(config: Mapping[str, object], *, where: str) -> tuple[str, Family]:
    """The family that a config says it is of."""
    said = config.get("model_type")
    if isinstance(said, str) and SAME_AS.get(said, said) in FAMILIES:
        return said, FAMILIES[SAME_AS.get(said, said)]
    known = known_families()
    near = difflib.get_close_matches(said[:80], known, n=1) if isinstance(said, str) else []
    like = f"{near[0]!r}" if near else "'llama'"
    seen = (
        "model_type is absent" if "model_type" not in config else f"model_type = {shown(said)} is not known"
    )
    raise RefusedError(
        f"{seen}; known are {', '.join(known)}",
        where=where,
        remedy=f'copy the config, set "model_type" to the family whose layers it shares (such as {like}), '
        f"and say {_NEED} as in the model's card: the count is then that family's, not this model's own",
    )


def _shape(keys: Keys, family: Family, *, left_out: tuple[str, ...]) -> ModelShape:
    hidden, vocabulary = keys.count("hidden_size"), keys.count("vocab_size")
    norm = hidden * (2 if family.norm_bias else 1)
    ends = family.ends(keys) if family.ends else norm
    return ModelShape(
        name=keys.where,
        family=keys.family,
        hidden=hidden,
        vocabulary=vocabulary,
        layers=_layers(keys, family, norm=norm),
        tied=keys.flag("tie_word_embeddings"),
        vectors=ends + (vocabulary if family.head_bias else 0),
        positions=keys.optional("max_position_embeddings"),
        capped=keys.capped("final_logit_softcapping"),
        left_out=left_out,
    )


def _layers(keys: Keys, family: Family, *, norm: int) -> tuple[Layer, ...]:
    """Equal layers are one, however they alternate: memory does not see their order."""
    depth = keys.count("num_hidden_layers", most=MOST_LAYERS)
    norms = family.norms if isinstance(family.norms, int) else family.norms(keys)
    part = family.attention(keys)
    capped = keys.capped("attn_logit_softcapping")
    counts: dict[Layer, int] = {}
    for index, window in enumerate(family.windows(keys, depth)):
        feeding = family.feed(keys, index)
        layer = Layer(
            count=1,
            attention=replace(part.heads, window=window, capped=capped),
            mlp=feeding.mlp,
            linears=part.linears + feeding.linears,
            vectors=norms * norm + part.vectors + feeding.vectors,
            norms=norms,
            norm=family.norm,
        )
        counts[layer] = counts.get(layer, 0) + 1
    return tuple(replace(layer, count=count) for layer, count in counts.items())


def _left_out(config: Mapping[str, object], inner: Mapping[str, object]) -> tuple[str, ...]:
    """What the checkpoint has that the shape has not, in words."""
    said = []
    towers = [key.removesuffix("_config") for key in ("vision_config", "audio_config") if config.get(key)]
    if towers:
        said.append(f"weights for {' and '.join(towers)} are not counted: this is the language model alone")
    further = inner.get("num_nextn_predict_layers")
    if isinstance(further, int) and further > 0:
        said.append(
            f"layers that predict further tokens ({further}) are not counted: GRPO does not train them"
        )
    quantization = config.get("quantization_config") or inner.get("quantization_config")
    if isinstance(quantization, Mapping):
        method = quantization.get("quant_method")
        method = shown(method) if method is not None else "method not said"
        said.append(
            f"the checkpoint is quantized ({method}): its weights are counted as those of the model it was "
            "made of, and its scales are not"
        )
    return tuple(said)
