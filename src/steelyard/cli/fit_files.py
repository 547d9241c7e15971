"""Files that `steelyard fit` is given: read up to a size, and followed up to an end.

A settings file is somebody else's. YAML is read as PyYAML's safe loader reads it, and as OmegaConf does where
the two differ: `1e-3` is a number. Refused is what would be read without end, or otherwise than it looks:
aliases that multiply, or hold themselves, and a name that stands twice in one table.
"""

from __future__ import annotations

import errno
import re
from pathlib import Path
from typing import Any, Final

import yaml

from steelyard.errors import RefusedError
from steelyard.report.words import one_line

MOST_JSON: Final = 16 * 2**20
"""Bytes of a config.json; public ones have some thousand."""
MOST_YAML: Final = 2**18
"""Bytes of a settings file: verl's own, with every default, has 30,000. PyYAML reads this much in seconds."""
_MOST_NODES: Final = 100_000
"""Values of a file, aliases counted as often as they are followed."""
_FLOAT: Final = re.compile(r"[-+]?\d[\d_]*(\.[\d_]*)?[eE][-+]?\d+$")
"""YAML 1.2's numbers, which OmegaConf takes and PyYAML does not: `1e-3`."""
_BROKEN: Final = (yaml.YAMLError, ValueError, TypeError, AttributeError, OverflowError, RecursionError)
"""What PyYAML raises of a file that is none: `!!int x`, the date 2001-99-99, a number of 5,000 digits."""


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # its types are not read
    """PyYAML's, with numbers as YAML 1.2 has them."""


_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789"))


def read_up_to(path: Path, most: int, *, where: str, remedy: str) -> bytes:
    """Read a file, if it is no longer than that: a device has no end.

    Raises
    ------
    RefusedError
        It cannot be read, or is longer.
    """
    try:
        with path.open("rb") as stream:
            found = stream.read(most + 1)
    except OSError as error:
        raise RefusedError(f"it cannot be read ({error.strerror})", where=where, remedy=remedy) from error
    if len(found) > most:
        raise RefusedError(f"it has more than {most:,} bytes", where=where, remedy=remedy)
    return found


def yaml_of(text: str, *, where: str, remedy: str) -> Any:  # noqa: ANN401 - whatever stands there
    """What a YAML text holds; JSON is YAML, too.

    Raises
    ------
    RefusedError
        It is no YAML, names something twice, or its aliases have no end.
    """
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            if (why := _strange(node)) is not None:
                raise RefusedError(why, where=where, remedy=remedy)
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except _BROKEN as error:
        told = "it is nested too deeply" if isinstance(error, RecursionError) else one_line(str(error))
        raise RefusedError(f"it is no YAML ({told})", where=where, remedy=remedy) from error


def _strange(root: yaml.Node) -> str | None:
    """Why a document is not to be built: aliases that have no end, or a name that stands twice."""
    sizes: dict[int, int] = {}
    above: set[int] = set()

    def size(node: yaml.Node) -> int:
        if id(node) in above:
            raise ValueError(f"the alias at line {node.start_mark.line + 1} holds itself")
        if id(node) not in sizes:
            above.add(id(node))
            sizes[id(node)] = 1 + sum(size(one) for one in _below(node))
            above.discard(id(node))
        return sizes[id(node)]

    try:
        whole = size(root)
    except ValueError as error:
        return str(error)
    return None if whole <= _MOST_NODES else f"it has more than {_MOST_NODES:,} values, aliases followed"


def _below(node: yaml.Node) -> list[yaml.Node]:
    """What a node holds; a table must not name anything twice."""
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    line = key.start_mark.line + 1
                    raise ValueError(f"{one_line(key.value, 60)!r} stands twice in one table (line {line})")
                seen.add(key.value)
        return [one for pair in node.value for one in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def kind_of(path: Path) -> str:
    """`file`, `folder`, `other` (a pipe, a device), or `nothing`.

    Raises
    ------
    RefusedError
        It may not be looked at.
    """
    try:
        if path.is_dir():
            return "folder"
        return "file" if path.is_file() else "other" if path.exists() else "nothing"
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return "nothing"
        raise RefusedError(
            f"it cannot be read ({error.strerror})",
            where=one_line(str(path), 120),
            remedy="name a file that can be",
        ) from error
