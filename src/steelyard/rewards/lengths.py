"""How long a completion is, in a unit that is named; and the penalty `overlong`.

A length is what the policy generated: of a conversation every assistant message, its content, its
reasoning where a server splits that off, and the names and arguments of its tool calls. What tools
answered is not counted, and neither are the template's own tokens (roles, ends of turns).

| said | counted |
|---|---|
| `tokenizer=` a `tokenizer.json`, or a folder that holds one | its tokens; no special one is added |
| `tokenizer=` a function `str -> int` | what it returns |
| `column=` `completion_tokens` or `completion_ids` | the row's own count: an integer, or a list |
| `unit="words"` | what stands between white space: wrong for languages that write none |
| `unit="characters"` | code points |

Nothing is guessed: without one of them a length is refused. A row's own count is whatever its writer
counted: TRL's `completion_ids` hold the tools' answers, too. A count under another name is renamed where
rows are read (`--column completion_tokens=FIELD`), for it differs inside a group, as no other column may.

A `tokenizer.json` may ask for truncation or padding: both are switched off, or no text would be long. Its
content is part of the identity. Counting runs in the scoring process and is linear in the text. A
function of the user's is called there as well, under no limit: one that never returns holds up the run.
"""

from __future__ import annotations

import importlib.util
import operator
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

from steelyard.errors import RefusedError, describe
from steelyard.outcome import Scored
from steelyard.rewards.answers import shown
from steelyard.rewards.base import RolloutReward
from steelyard.rewards.importing import file_text, fingerprint
from steelyard.rollout import OF_THE_COMPLETION, Rollout, Text, canonical_json, final_text

Unit = Literal["tokens", "words", "characters"]
Tokenizer = str | Path | Callable[[str], int]

_REASONING = ("reasoning_content", "reasoning", "thinking")  # one of them: servers repeat it under two names
_NONE = Scored(0.0)


def generated(completion: Text) -> list[str]:
    """Return the texts that the policy wrote, in order.

    Examples
    --------
    >>> generated([{"role": "assistant", "content": "Look."}, {"role": "tool", "content": "sunny"}])
    ['Look.']
    """
    if isinstance(completion, str):
        return [completion]
    texts: list[str] = []
    for message in completion:
        if message.get("role") != "assistant":
            continue
        thought = next((text for key in _REASONING if isinstance(text := message.get(key), str) and text), "")
        texts += filter(None, (thought, final_text([message])))
        for call in tool_calls(message):
            texts += filter(None, _written(call))
    return texts


def tool_calls(message: Mapping[str, Any]) -> list[Any]:
    """Return the tool calls of a message, in whichever of the usual two fields they stand."""
    calls = message.get("tool_calls") or message.get("function_call") or []
    return list(calls) if isinstance(calls, Sequence) and not isinstance(calls, str) else [calls]


def _written(call: object) -> list[str]:
    """What the policy wrote of a tool call: the name and the arguments."""
    function = call.get("function", call) if isinstance(call, Mapping) else call
    if not isinstance(function, Mapping):
        return [function] if isinstance(function, str) else []
    said = [function.get("name"), function.get("arguments")]
    return [
        one if isinstance(one, str) else canonical_json(one).decode("utf-8", "replace")
        for one in said
        if one is not None
    ]


@dataclass(frozen=True, slots=True)
class TokenizerFile:
    """A `tokenizer.json`, read once per process.

    Parameters
    ----------
    path
        The file.
    digest
        Of its content: a file that changed under a run counts no more.
    """

    path: str
    digest: str

    def __call__(self, text: str) -> int:
        """Count the tokens of a text."""
        tokenizer = _read_tokenizer(self.path, self.digest)
        if not text.isascii():  # a lone surrogate has no bytes to be split
            text = text.encode("utf-8", "replace").decode()
        return len(tokenizer.encode(text, add_special_tokens=False).ids)


@lru_cache(maxsize=8)
def _read_tokenizer(path: str, digest: str) -> Any:  # noqa: ANN401 - a library that is imported on first use
    from tokenizers import Tokenizer as Read  # noqa: PLC0415 - 40 ms that only this needs

    content = Path(path).read_bytes()
    if _digest(content) != digest:
        raise RefusedError(
            f"{path} has changed since the run began", where="tokenizer", remedy="run again from the start"
        )
    tokenizer = Read.from_buffer(content)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class Length:
    """How a completion's length is counted; make one with `length`.

    Parameters
    ----------
    identity
        The unit, with what it depends on.
    count
        Counts one text; not asked where the row has its own count.
    column
        The row's own count, or empty.
    """

    identity: str
    count: Callable[[str], int]
    column: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that counting reads."""
        return (self.column,) if self.column else ()

    def of(self, rollout: Rollout) -> int:
        """Return the length of a completion.

        Raises
        ------
        Exception
            Whatever a tokenizer of the user's raises.
        """
        if self.column:
            counted = _own_count(rollout.columns.get(self.column))
            if counted is None:
                raise RefusedError(
                    self.fault(rollout.columns) or "no count",
                    where=f"column {self.column!r}",
                    remedy="run the reward's `lint` over the rows first",
                )
            return counted
        counted = sum(operator.index(self.count(text)) for text in generated(rollout.completion))
        if counted < 0:
            raise ValueError(f"the tokenizer counted {counted} tokens")
        return counted

    def fault(self, columns: Mapping[str, Any]) -> str | None:
        """Say what is wrong with the row's own count, or `None`."""
        if not self.column or _own_count(columns.get(self.column)) is not None:
            return None
        value = columns.get(self.column)
        found = "is missing or null" if value is None else f"is no count ({shown(value)})"
        return (
            f"column {self.column!r} {found}: give every row the number of its completion's tokens, or the "
            "list of their ids"
        )


def _own_count(value: object) -> int | None:
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    return None


def _words(text: str) -> int:
    return len(text.split())


_PLAIN: Mapping[str, Callable[[str], int]] = {"words": _words, "characters": len}


def length(
    unit: Unit | None = None,
    *,
    tokenizer: Tokenizer | None = None,
    column: str | None = None,
    where: str = "length(...)",
) -> Length:
    """Say how lengths are counted.

    Parameters
    ----------
    unit
        `tokens`, `words` or `characters`; may be left out where one of the others says it.
    tokenizer
        A `tokenizer.json`, a folder that holds one, or a function `str -> int` that can be pickled. Of
        an object that is no dataclass the identity knows the class, not its settings.
    column
        Where a row holds its own count: `completion_tokens` or `completion_ids`.
    where
        The place, for messages.

    Raises
    ------
    RefusedError
        If none of them says what is counted, or two differ, or the tokenizer cannot be used.

    Examples
    --------
    >>> length("words").identity
    'words'
    """
    if unit not in (None, "tokens", *_PLAIN):
        raise RefusedError(
            f"there is no unit {unit!r}", where=where, remedy="one of tokens, words, characters"
        )
    named = [unit if unit in _PLAIN else None, tokenizer, column]
    if sum(one is not None for one in named) != 1:
        nothing = not any(one is not None for one in named)
        raise RefusedError(
            "it must be said what a length counts" if nothing else "a length counts one thing, not several",
            where=where,
            remedy="name one: tokenizer='path/to/tokenizer.json', column='completion_tokens' (the row's own "
            "count), unit='words' or unit='characters'",
        )
    if unit is not None and unit in _PLAIN:
        return Length(unit, _PLAIN[unit])
    if column is not None:
        return _own(column, where)
    if isinstance(tokenizer, str | Path):
        file = _tokenizer_file(Path(tokenizer), where)
        return Length(f"tokens {file.digest}", file)
    if not callable(tokenizer):
        raise RefusedError(
            f"a tokenizer is a path or a function, not {shown(tokenizer)}",
            where=where,
            remedy="give a tokenizer.json, or a function that counts the tokens of a text",
        )
    identity = f"tokens {fingerprint(tokenizer, file_text(tokenizer))}"
    return Length(identity, _picklable(tokenizer, where))


def _own(column: str, where: str) -> Length:
    if column not in OF_THE_COMPLETION:
        raise RefusedError(
            f"{column!r} is no column that tells of one completion",
            where=where,
            remedy=f"one of {', '.join(sorted(OF_THE_COMPLETION))}; --column completion_tokens=FIELD renames",
        )
    return Length(f"column {column}", len, column)


def _tokenizer_file(path: Path, where: str) -> TokenizerFile:
    """Read a tokenizer once, so that a run with a broken one does not begin."""
    path = path / "tokenizer.json" if path.is_dir() else path
    if importlib.util.find_spec("tokenizers") is None:
        raise RefusedError(
            "counting tokens needs the package tokenizers",
            where=where,
            remedy="pip install 'steelyard[tokens]', or count unit='words' or unit='characters'",
        )
    try:
        file = TokenizerFile(str(path.resolve()), _digest(path.read_bytes()))
        _read_tokenizer(file.path, file.digest)
    except Exception as error:
        raise RefusedError(
            f"{path} is no tokenizer that can be read ({describe(error)})",
            where=where,
            remedy="name the tokenizer.json that stands beside the model, or its folder",
        ) from error
    return file


def _picklable(tokenizer: Callable[[str], int], where: str) -> Callable[[str], int]:
    """Refuse what would make a reward the only one that cannot be handed to another process."""
    try:
        pickle.dumps(tokenizer)
    except Exception as error:
        raise RefusedError(
            f"the tokenizer cannot be pickled ({describe(error)}), and so neither could the reward",
            where=where,
            remedy="define it with def at the top level of a module",
        ) from error
    return tokenizer


def soft_punishment(size: int, max_length: int, buffer: int) -> float:
    """Return DAPO's soft overlong punishment: equation 13 of arXiv:2503.14476.

    0 up to `max_length - buffer`, falling linearly to -1 at `max_length`, -1 beyond.

    Examples
    --------
    >>> [soft_punishment(size, 100, 20) for size in (80, 90, 100, 500)]
    [0.0, -0.5, -1.0, -1.0]
    """
    over = size - (max_length - buffer)
    if over <= 0:
        return 0.0
    return -1.0 if over >= buffer else -over / buffer


def judge_overlong(rollout: Rollout, *, counted: Length, max_length: int, buffer: int) -> Scored:
    """Judge a completion's length: a value in [-1, 0]."""
    size = counted.of(rollout)
    value = soft_punishment(size, max_length, buffer)
    if value == 0.0:
        return _NONE
    return Scored(value, "overlong", f"{size} long, free up to {max_length - buffer}")


def overlong(
    max_length: int,
    buffer: int,
    *,
    unit: Unit | None = None,
    tokenizer: Tokenizer | None = None,
    column: str | None = None,
) -> RolloutReward:
    """Make the penalty `overlong`: 0 for a completion that is short enough, down to -1.

    It is a part of its own, so it is also paid by rows that another part floored. Beside it the reward
    for the answer decides: a short wrong answer pays no penalty, and earns nothing.

    Parameters
    ----------
    max_length
        From here on -1; best where the sampler cuts.
    buffer
        The stretch before it over which the penalty grows.
    unit, tokenizer, column
        What is counted, as in `length`.

    Raises
    ------
    RefusedError
        If the numbers are not `1 <= buffer <= max_length`, or nothing says what is counted.

    Examples
    --------
    >>> from steelyard import Context, Rollout
    >>> reward = overlong(100, 20, unit="characters")
    >>> row = Rollout("a", "", "x" * 90, {}, (0, 0), 0, "here")
    >>> reward([row], Context())[0].value, reward.floor
    (-0.5, -1.0)
    """
    where = "overlong(...)"
    if not (type(max_length) is type(buffer) is int and 1 <= buffer <= max_length):
        raise RefusedError(
            f"buffer and max_length must be integers with 1 <= buffer <= max_length, got {shown(buffer)} and "
            f"{shown(max_length)}",
            where=where,
            remedy="for example overlong(max_length=20480, buffer=4096, ...), as in the paper",
        )
    counted = length(unit, tokenizer=tokenizer, column=column, where=where)
    return RolloutReward(
        "overlong",
        f"overlong/1:{max_length}:{buffer}:{counted.identity}",
        partial(judge_overlong, counted=counted, max_length=max_length, buffer=buffer),
        floor=-1.0,
        columns=counted.columns,
        fault=counted.fault,
    )
