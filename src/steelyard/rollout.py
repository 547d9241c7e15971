"""What enters: a rollout, and the group it belongs to.

A rollout is one prompt, one completion, and the columns that came with it. Prompts and completions
are strings, or conversations: lists of messages `{"role": ..., "content": ...}`, tool turns
included. A trajectory of an agent carries final `files` and an end `state` beside them.

Adapters make these values (`steelyard.files` from JSON Lines, `steelyard.integrations` from
trainers). Nothing here knows where they came from beyond the words in `where`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple, TypeAlias

import orjson

Message: TypeAlias = Mapping[str, Any]
Text: TypeAlias = str | Sequence[Message]


Key: TypeAlias = tuple[int, int]
"""Where a rollout stands in its run: the group's ordinal and the index inside it, from 0.

Results are mapped by key, never by content: equal completions exist and stay two rows.
"""


OF_THE_COMPLETION = frozenset({"completion_ids", "completion_tokens"})
"""Columns that tell of one completion, and so differ within a group: its tokens, and how many they are."""


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
    raw: bytes | None = None
    """The JSON text it was read from, which the ledger keeps as it is."""

    @property
    def record(self) -> bytes:
        """The rollout as JSON text: what it was read from, or its fields under their own names."""
        if self.raw is not None:
            return self.raw
        fields = {**self.columns, "id": self.id, "prompt": self.prompt, "completion": self.completion}
        if self.files is not None:
            fields["files"] = self.files
        if self.state is not None:
            fields["state"] = self.state
        return canonical_json(fields)

    @property
    def digest(self) -> bytes:
        """16 bytes that name the content (not the id, not the place): equal content, equal digest."""
        return content_digest(self.prompt, self.completion, self.columns, self.files, self.state)


class Group(NamedTuple):
    """All rollouts of one prompt: the unit over which GRPO normalises. Complete when it enters."""

    id: str | int
    ordinal: int
    rollouts: Sequence[Rollout]


def from_record(
    record: dict[str, Any],
    names: Mapping[str, str],
    *,
    key: Key,
    ordinal: int,
    line: int,
    where: str,
    raw: bytes | None = None,
) -> Rollout:
    """Turn one JSON object into a rollout; the object is used up.

    Parameters
    ----------
    record
        The object: `completion`, and where present `id`, `group`, `prompt`, `files`, `state`; every
        other field is a column.
    names
        Our name to the object's field, where they differ: `{"answer": "gold"}`; a field inside others
        is a path, `{"answer": "reward_model.ground_truth"}`.
    key, ordinal, where, raw
        As in `Rollout`.
    line
        Names the rollout if it has no `id`.
    """
    if names:  # all at once: two columns may change places
        follow(record, paths_among(names.values()))
        found = {name: record.get(field) for name, field in names.items()}
        for column in {*names, *names.values()}:
            record.pop(column, None)
        record.update((name, value) for name, value in found.items() if value is not None)
    pop = record.pop
    name = pop("id", None)
    prompt = pop("prompt", None)
    completion = pop("completion")
    pop("group", None)
    return Rollout(
        line if name is None else name,
        "" if prompt is None else prompt,
        completion,
        record,
        key,
        ordinal,
        where,
        pop("files", None),
        pop("state", None),
        raw,
    )


def paths_among(fields: Iterable[str]) -> list[str]:
    """Those of the fields' names that may be paths."""
    return [field for field in fields if "." in field]


def follow(record: dict[str, Any], paths: Iterable[str]) -> None:
    """Give what a path leads to a field of its own, named by the path; a field called so wins.

    Examples
    --------
    >>> record = {"reward_model": {"ground_truth": "72"}}
    >>> follow(record, ["reward_model.ground_truth", "reward_model.style"])
    >>> record
    {'reward_model': {'ground_truth': '72'}, 'reward_model.ground_truth': '72'}
    """
    for path in paths:
        if path in record:
            continue
        value: Any = record
        for step in path.split("."):
            value = value.get(step) if isinstance(value, dict) else None
        if value is not None:
            record[path] = value


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


def parse_json(text: bytes) -> Any:  # noqa: ANN401 - JSON is anything
    """Read JSON as Python writes it.

    orjson is strict and quick. What it refuses or would round is read again by the standard
    library: NaN (json.dumps writes it), lone surrogates, and integers beyond 64 bits.

    Raises
    ------
    ValueError
        If neither can read it.
    """
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return _lenient(text)
    for field in value.values() if type(value) is dict else (value,):
        kind = type(field)
        if kind is float:
            if field >= _BEYOND_64_BITS or field <= -_BEYOND_64_BITS:
                return _lenient(text)
        elif (kind is list or kind is dict) and _needs_care(text):
            return _lenient(text)
    return value


_LONG = re.compile(rb"[0-9]{19}")
_DEEP = 500  # levels: what is nested deeper than Python's stack can be read but not written again


def _needs_care(text: bytes) -> bool:
    return _LONG.search(text) is not None or text.count(b"[") + text.count(b"{") > _DEEP


_BEYOND_64_BITS = 2.0**63


def _lenient(text: bytes) -> Any:  # noqa: ANN401 - JSON is anything
    try:
        value = json.loads(text)
    except RecursionError:
        value = None
    if (value is None and text.strip() != b"null") or _depth(value) > _DEEP:
        raise ValueError(f"nested too deeply: more than {_DEEP} levels")
    return value


def _depth(value: object) -> int:
    """Levels of lists and objects; no recursion, for what can be read may be too deep to walk so."""
    depth, level = 0, [value]
    while level := [inner for one in level for inner in _inside(one)]:
        depth += 1
    return depth


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def content_digest(
    prompt: Text,
    completion: Text,
    columns: Mapping[str, Any],
    files: Mapping[str, str] | None = None,
    state: object = None,
) -> bytes:
    """blake2b-128 over the length-prefixed fields of a rollout's content."""
    asked = prompt.encode("utf-8", "surrogatepass") if type(prompt) is str else _messages(prompt)
    said = completion.encode("utf-8", "surrogatepass") if type(completion) is str else _messages(completion)
    rest = canonical_json(columns)
    content = b"%d:%b%d:%b%d:%b" % (len(asked), asked, len(said), said, len(rest), rest)
    if files is not None or state is not None:
        content += canonical_json([files, state])
    return blake2b(content, digest_size=16).digest()


def _messages(text: Text) -> bytes:
    return b"\xff" + canonical_json(text)  # no text starts so: 0xff is not UTF-8
