"""What enters: a rollout, and the group it belongs to.

A rollout is one prompt, one completion, and the columns that came with it. Prompts and completions
are strings, or conversations: lists of messages `{"role": ..., "content": ...}`, tool turns
included. A trajectory of an agent carries final `files` and an end `state` beside them.

Adapters make these values (`steelyard.files` from JSON Lines, `steelyard.integrations` from
trainers). Nothing here knows where they came from beyond the words in `where`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple, TypeAlias

import orjson

Message: TypeAlias = Mapping[str, Any]
Text: TypeAlias = str | Sequence[Message]


Key: TypeAlias = tuple[int, int]
"""Where a rollout stands in its run: the group's ordinal and the index inside it, from 0.

Results are mapped by key, never by content: equal completions exist and stay two rows.
"""


class Rollout(NamedTuple):
    """One prompt, one completion, and the columns that came with it.

    Parameters
    ----------
    id
        The user's name for it, or its line number.
    prompt, completion
        Text, or a list of messages.
    columns
        Everything a reward may read beside the completion: `answer`, `schema`, `tests`, ...
        The same for a whole group.
    key
        Group ordinal and index in the group.
    ordinal
        Its place in the input, from 0.
    where
        The words for messages, such as `rollouts.jsonl:7`.
    files
        What an agent left behind: path to text.
    state
        The end state that the environment confirms.
    """

    id: str | int
    prompt: Text
    completion: Text
    columns: Mapping[str, Any]
    key: Key
    ordinal: int
    where: str
    files: Mapping[str, str] | None = None
    state: Any = None

    @property
    def digest(self) -> bytes:
        """16 bytes that name the content (not the id, not the place): equal content, equal digest."""
        return content_digest(self.prompt, self.completion, self.columns, self.files, self.state)


class Group(NamedTuple):
    """All rollouts of one prompt: the unit over which GRPO normalises. Complete when it enters."""

    id: str | int
    ordinal: int
    rollouts: Sequence[Rollout]


def final_text(completion: Text) -> str:
    """Return the text that is judged: a string itself, or the last assistant message's content.

    A message's content may be a list of parts (`{"type": "text", "text": ...}`); their texts are
    joined. A conversation without an assistant message has no text: the empty string.

    Examples
    --------
    >>> final_text([{"role": "assistant", "content": "4"}, {"role": "tool", "content": "ok"}])
    '4'
    """
    if isinstance(completion, str):
        return completion
    for message in reversed(completion):
        if message.get("role") == "assistant" and message.get("content"):
            return _content_text(message["content"])
    return ""


def _content_text(content: object) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping))
    return ""


def canonical_json(value: object) -> bytes:
    """Bytes that are equal exactly when two JSON values are: sorted keys, no spaces.

    orjson refuses what strict JSON has no word for (a lone surrogate, an integer beyond 64 bits);
    such values go through the standard library's writer instead.
    """
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except (TypeError, ValueError):
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def content_digest(
    prompt: Text,
    completion: Text,
    columns: Mapping[str, Any],
    files: Mapping[str, str] | None = None,
    state: object = None,
) -> bytes:
    """blake2b-128 over the length-prefixed fields of a rollout's content."""
    hasher = blake2b(digest_size=16)
    for field in (_field(prompt), _field(completion), canonical_json(columns)):
        hasher.update(b"%d:" % len(field))
        hasher.update(field)
    if files is not None or state is not None:
        hasher.update(canonical_json([files, state]))
    return hasher.digest()


def _field(text: Text) -> bytes:
    if isinstance(text, str):
        return b"s" + text.encode("utf-8", "surrogatepass")
    return b"m" + canonical_json(text)
