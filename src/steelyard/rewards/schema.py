r"""The reward `schema`: the JSON value of a completion validates against a JSON Schema; 1.0 or 0.0.

What value a completion commits to, and what is read as JSON at all, `jsontext` says. Validation is
`jsonschema-rs`, with these choices:

- The dialect is the schema's own `$schema`, else the row's column `draft`, else the setting `draft`,
  else 2020-12.
- `format` is an annotation unless `formats` is set. A format without a check passes.
- No reference is fetched, neither from the network nor from a file. What a schema refers to is in it.
- Patterns run in linear time, so they know no lookaround and no backreference.
- `1.0` is an integer, `0.3` a multiple of `0.1`, `true` is not 1: by value, as JSON Schema says.

A schema that cannot be used (no schema, a reference elsewhere, such a pattern) is a fault of the row's
column: `lint` names it, and nothing is scored.

A schema pays for its shape only: `{}` and `true` are met by any JSON value, and a schema without the
facts by a value without them. Such a reward is farmable: gate it with one that reads the content, or put
the facts into the schema (`const`, `enum`).

Validators are compiled once per schema and process, and the last `_SCHEMAS` are kept by the schema's
text. Judging is linear in the value also where a schema refers to itself; *explaining* is not (every
branch tells why it failed, and so do theirs: a value of 100 characters can take a minute). So the reason
names the place only where that is cheap, by the size of the value and what the schema makes of it. What a
schema costs by itself (2 ** n ways to one leaf, a pattern of 60,000 states) is its author's: no limit.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache, partial
from graphlib import CycleError, TopologicalSorter
from hashlib import blake2b
from math import inf, isinf
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import unquote

import orjson

from steelyard.errors import RefusedError, describe
from steelyard.outcome import Scored
from steelyard.rewards.answers import shown
from steelyard.rewards.base import TextReward
from steelyard.rewards.jsontext import Committed, UnreadableError, committed_json, read_json

_DRAFTS: Final = {
    "draft4": "Draft4Validator",
    "draft6": "Draft6Validator",
    "draft7": "Draft7Validator",
    "draft2019-09": "Draft201909Validator",
    "draft2020-12": "Draft202012Validator",
}
_SPELLED = {draft.removeprefix("draft").replace("-", ""): draft for draft in _DRAFTS}
_SCHEMAS = 256  # validators that are kept: a group's rows mostly stand together
_EXPLAINED = 10_000  # steps of a validator that explains, each perhaps an error with its context: 10 ms

_MASK = "the value"  # stands for it in messages: it may be long, and what is wrong comes after it
_FULL = Scored(1.0)
_WRONG = Scored(0.0, "wrong", "the value does not match the schema")
_NO_SCHEMA = "is no object, boolean, or JSON text of one"

_Path: TypeAlias = tuple[str, ...]


class Compiled(NamedTuple):
    """A schema that can be used: its validator, and what explaining one node of a value may cost."""

    validator: Any
    weight: float


def _text_of(schema: object) -> str | bytes | None:
    """Return a schema's JSON text, by which its validator is kept; `None` if it can be none."""
    if isinstance(schema, str):
        return schema
    if not isinstance(schema, dict | bool):
        return None
    try:
        return orjson.dumps(schema)
    except TypeError:  # an integer beyond 64 bits, or what JSON has no word for
        try:
            return json.dumps(schema, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            return None


@lru_cache(maxsize=_SCHEMAS)
def _compiled(text: str | bytes, draft: str | None, formats: bool) -> Compiled | str:  # noqa: FBT001 - a cache key
    """Compile a schema, or say what is wrong with it."""
    try:
        schema = read_json(text) if isinstance(text, str) else orjson.loads(text)
    except UnreadableError as error:
        return f"is no JSON: {error}"
    if not isinstance(schema, dict | bool):
        return _NO_SCHEMA
    import jsonschema_rs as rs  # noqa: PLC0415 - on first use

    own = isinstance(schema, dict) and "$schema" in schema
    make = rs.validator_for if own or draft is None else getattr(rs, _DRAFTS[draft])
    try:
        validator = make(
            schema,
            validate_formats=formats,
            offline=True,
            pattern_options=rs.RegexOptions(),
            mask=_MASK,
        )
    except (ValueError, rs.ReferencingError) as error:
        return _unusable(error)
    return Compiled(validator, _weight(schema))


def _unusable(error: Exception) -> str:
    """Say why a schema cannot be compiled, and what to do."""
    message = str(getattr(error, "message", error)).replace(_MASK, shown(getattr(error, "instance", None)))
    place = _place(getattr(error, "instance_path", ()))
    remedy = "mend it"
    if "etriev" in message:
        remedy = "nothing is fetched: put what it refers to under $defs"
    elif "meta-schema" in message:
        remedy = f"name a dialect in $schema that is known: {', '.join(_DRAFTS)}"
    elif '"regex"' in message:
        remedy = "write the pattern without lookaround and backreference"
    return f"is no usable schema: {place}: {message[:120]}; {remedy}"


def _weight(schema: object) -> float:
    """Bound what a validator does to explain one node of a value: the schemas that it may go through.

    One, where none branches. Infinite, where references lead back to themselves, or are no pointers
    into the schema (anchors, dynamic references, other bases).
    """
    found: list[tuple[_Path, _Path | None]] = []
    branches = False
    todo: list[tuple[_Path, object]] = [((), schema)]
    while todo:
        path, one = todo.pop()
        if isinstance(one, list):
            todo += [((*path, str(at)), inner) for at, inner in enumerate(one)]
        elif isinstance(one, dict):
            based = bool(path) and isinstance(one.get("$id", one.get("id")), str)
            to = one.get("$ref")
            pointer = not isinstance(to, str) or to == "#" or to.startswith("#/")
            if based or not pointer or "$dynamicRef" in one or "$recursiveRef" in one:
                return inf
            found.append((path, _pointed(to) if isinstance(to, str) else None))
            branches = branches or "anyOf" in one or "oneOf" in one
            todo += [((*path, key), inner) for key, inner in one.items()]
    unfolded = _unfolded(found)
    return unfolded if branches or isinf(unfolded) else 1.0


def _pointed(reference: str) -> _Path:
    """Return the place that a reference such as `#/$defs/a` names."""
    steps = unquote(reference).split("/")[1:]
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in steps)


def _unfolded(found: list[tuple[_Path, _Path | None]]) -> float:
    """Count the schemas at these places as often as references (place, target) lead to them."""
    targets = {target for _, target in found if target is not None} | {()}
    own: Counter[_Path] = Counter()
    inside: dict[_Path, Counter[_Path]] = {target: Counter() for target in targets}
    for path, target in found:
        defined = path[:1] in {("$defs",), ("definitions",)}  # met only where it is referred to
        for outer in (path[:length] for length in range(defined, len(path) + 1)):
            if outer in targets:
                own[outer] += 1
                if target is not None:
                    inside[outer][target] += 1
    sizes: dict[_Path, int] = {}
    try:
        for outer in TopologicalSorter(inside).static_order():
            sizes[outer] = own[outer] + sum(times * sizes[to] for to, times in inside[outer].items())
    except CycleError:
        return inf
    return sizes[()]


def _draft(value: object) -> str | None:
    """Return the draft that is meant, whatever its spelling; `None` if there is none."""
    if type(value) not in {str, int}:
        return None
    spelled = re.sub(r"[^a-z0-9]", "", str(value).lower()[:40]).removeprefix("draft").lstrip("0")
    return _SPELLED.get(spelled)


def _usable(columns: Mapping[str, Any], draft: str | None, formats: bool) -> Compiled | str:  # noqa: FBT001 - ours
    """Return the row's schema, compiled, or what is wrong with its columns."""
    schema = columns.get("schema")
    if schema is None:
        return "column 'schema' is missing or null: give every row its schema, or one for all as a setting"
    said = columns.get("draft")
    if said is not None:
        draft = _draft(said)
        if draft is None:
            return f"column 'draft' is no known draft ({shown(said)}): write one of {', '.join(_DRAFTS)}"
    text = _text_of(schema)
    found = _NO_SCHEMA if text is None else _compiled(text, draft, formats)
    if not isinstance(found, str):
        return found
    glance = (
        type(schema).__name__ if text is None else shown(text if isinstance(text, str) else text.decode())
    )
    return f"column 'schema' ({glance}) {found}"


def schema_fault(
    columns: Mapping[str, Any], *, draft: str | None = None, formats: bool = False
) -> str | None:
    """Say what is wrong with a row's schema or draft, or `None`."""
    found = _usable(columns, draft, formats)
    return found if isinstance(found, str) else None


def judge_schema(
    completion: str,
    columns: Mapping[str, Any],
    *,
    schema: str | bytes | None = None,
    draft: str | None = None,
    formats: bool = False,
    strict: bool = False,
) -> Scored:
    """Judge whether the JSON value of a completion validates: 1.0, or 0.0 and why.

    Parameters
    ----------
    completion
        The text.
    columns
        `schema`, and perhaps `draft`; not read where `schema` is given.
    schema
        The JSON text of the one schema for all.
    draft, formats, strict
        As in `schema`.

    Raises
    ------
    RefusedError
        If the schema cannot be used: `lint` says so before a run.

    Examples
    --------
    >>> row = {"schema": {"required": ["age"], "properties": {"age": {"type": "integer"}}}}
    >>> judge_schema('{"age": 3}', row).value
    1.0
    >>> judge_schema('{"age": "3"}', row).reason
    '$.age: the value is not of type "integer"'
    """
    found = _usable(columns, draft, formats) if schema is None else _compiled(schema, draft, formats)
    if isinstance(found, str):
        raise RefusedError(
            found, where="column 'schema'", remedy="run the reward's `lint` over the rows first"
        )
    said = committed_json(completion, strict=strict)
    if isinstance(said, Scored):
        return said
    if found.validator.is_valid(said.value):
        return _FULL
    return _explained(found, said)


def _explained(compiled: Compiled, said: Committed) -> Scored:
    """Name the first fault of a value that does not validate, where that costs little."""
    nodes = said.text.count(",") + said.text.count("[") + said.text.count("{") + 1
    if nodes * compiled.weight > _EXPLAINED:
        return _WRONG
    try:
        compiled.validator.validate(said.value)
    except ValueError as error:
        path, message = getattr(error, "instance_path", ()), getattr(error, "message", "")
        return Scored(0.0, "wrong", f"{_place(path)}: {message}"[:80])
    return _WRONG


def _place(path: Any) -> str:  # noqa: ANN401 - keys and indices
    """Write a path into a value, short enough to leave room for what is wrong there."""
    steps = "".join(f"[{step}]" if isinstance(step, int) else f".{step[:30]}" for step in path)
    return f"${steps}" if len(steps) <= 40 else f"$...{steps[-37:]}"


def schema(
    *,
    schema: Mapping[str, Any] | bool | str | Path | None = None,
    draft: str | int | None = None,
    formats: bool = False,
    strict: bool = False,
) -> TextReward:
    """Make the reward `schema`: the completion's JSON value against a JSON Schema; 1.0 or 0.0.

    Parameters
    ----------
    schema
        One schema for all rows: an object, a boolean, JSON text, or a path that ends in `.json`. Without
        it every row has its own in the column `schema` (an object, a boolean, or JSON text).
    draft
        The dialect of schemas that name none: `draft4`, `draft6`, `draft7`, `draft2019-09` or
        `draft2020-12`, the default. A row's column `draft` goes before it.
    formats
        Whether `format` must hold.
    strict
        Whether the answer must be the JSON value and nothing else: no tag, fence or prose.

    Raises
    ------
    RefusedError
        If the one schema cannot be used, or the draft is unknown.

    Examples
    --------
    >>> schema(schema={"type": "array", "maxItems": 3}, draft=7).identity
    'schema/1:draft7:e4a90cdbd9d4c433'
    """
    dialect = None if draft is None else _draft(draft)
    if draft is not None and dialect is None:
        raise RefusedError(
            f"{shown(draft)} is no known draft",
            where="schema(draft=...)",
            remedy=f"write one of {', '.join(_DRAFTS)}",
        )
    words = ["schema/1", dialect, "formats" if formats else None, "strict" if strict else None]
    if schema is None:
        rule = partial(judge_schema, draft=dialect, formats=formats, strict=strict)
        fault = partial(schema_fault, draft=dialect, formats=formats)
        rules = ":".join(filter(None, words))
        return TextReward("schema", rules, rule, columns=("schema",), fault=fault, also=("draft",))
    text = _one(schema, dialect, formats=formats)
    digest = blake2b(text.encode() if isinstance(text, str) else text, digest_size=8).hexdigest()
    rule = partial(judge_schema, schema=text, draft=dialect, formats=formats, strict=strict)
    return TextReward("schema", ":".join(filter(None, [*words, digest])), rule)


def _one(schema: object, draft: str | None, *, formats: bool) -> str | bytes:
    """Return the JSON text of the one schema for all, which can be used."""
    where = "schema(schema=...)"
    if isinstance(schema, Path) or (isinstance(schema, str) and schema.endswith(".json")):
        where = str(schema)
        try:
            schema = Path(schema).read_text(encoding="utf-8-sig")
        except (OSError, ValueError) as error:
            raise RefusedError(
                f"the schema cannot be read ({describe(error)})", where=where, remedy="check the path"
            ) from None
    text = _text_of(dict(schema) if isinstance(schema, Mapping) else schema)
    found = _NO_SCHEMA if text is None else _compiled(text, draft, formats)
    if text is None or isinstance(found, str):
        raise RefusedError(
            f"it {found}",
            where=where,
            remedy="give a JSON Schema: an object, a boolean, its JSON text, or a path that ends in .json",
        )
    return text
