"""A language model for tests, made on the spot: 0.1 M parameters shaped like Qwen3, and its own tokenizer.

Nothing is downloaded. Weights are drawn from a seed, so that two calls make the same model.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

TEXT = ("what is 1 + 2 ? the answer is 3 .", "0 1 2 3 4 5 6 7 8 9", "#### 42", "yes no maybe")


def tiny_tokenizer(texts: Iterable[str] = TEXT, *, vocabulary: int = 300) -> PreTrainedTokenizerFast:
    """Train byte-level BPE on the texts; any other text can be written in it, too."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=["<pad>", "<eos>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token="<pad>",  # noqa: S106 - no password
        eos_token="<eos>",  # noqa: S106
        padding_side="left",
    )


def tiny_model(
    tokenizer: PreTrainedTokenizerFast,
    *,
    seed: int = 0,
    hidden: int = 64,
    layers: int = 2,
    spread: float = 0.2,
    tied: bool = True,
) -> Qwen3ForCausalLM:
    """Draw a model from a seed; `spread` is the standard deviation of its weights."""
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=hidden // 4,
        max_position_embeddings=512,
        initializer_range=spread,
        tie_word_embeddings=tied,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Qwen3ForCausalLM(config)
