"""Where a function is: found by its name, by a worker process too, and told apart by its text.

`resolve` finds `package.module:function` and `path/to/file.py:function`; `target_of` is the way back.
`fingerprint` changes with what a function does, so that a changed reward is another one.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from pathlib import Path
from types import CellType, CodeType, ModuleType
from typing import Any, Final

from steelyard.errors import RefusedError, describe

_ALIAS: Final = "_steelyard_"  # of a module that was found by its path, and so has no name to be found by


def resolve(target: str) -> object:
    """Find what a name names; importing it may run anything.

    Raises
    ------
    RefusedError
        If there is no such module, file or name.
    """
    module_name, _, path = target.rpartition(":")
    try:
        found: object = _load(module_name)
    except RefusedError:
        raise
    except BaseException as error:  # importing may do anything, sys.exit included
        if isinstance(error, KeyboardInterrupt):
            raise
        missing = isinstance(error, ModuleNotFoundError) and error.name == module_name.partition(".")[0]
        raise RefusedError(
            f"{module_name} cannot be imported ({describe(error)})",
            where=f"reward {target}",
            remedy="run from the folder that holds it, or name the file: path/to/file.py:function"
            if missing
            else f"mend the file until python {module_name} works"
            if module_name.endswith(".py")
            else f"mend the module until python -c 'import {module_name}' works",
        ) from error
    for name in path.split("."):
        if not hasattr(found, name):
            inside = getattr(found, "__dict__", {})
            here = [n for n, v in inside.items() if callable(v) and not n.startswith("_")][:8]
            raise RefusedError(
                f"there is no {name!r} in {module_name}",
                where=f"reward {target}",
                remedy=f"name one of: {', '.join(here)}" if here else "define the function there",
            )
        found = getattr(found, name)
    return found


def _load(name: str) -> ModuleType:
    if not name.endswith(".py"):
        if "" not in sys.path and str(Path.cwd()) not in sys.path:
            sys.path.insert(0, str(Path.cwd()))
        return importlib.import_module(name)
    path = Path(name).resolve()
    if not path.is_file():
        raise RefusedError("there is no such file", where=f"reward {name}", remedy="check the path")
    alias = _alias(path)
    if alias in sys.modules:
        return sys.modules[alias]
    spec = importlib.util.spec_from_file_location(alias, path)
    if spec is None or spec.loader is None:
        raise RefusedError("this is no Python file", where=f"reward {name}", remedy="check the path")
    module = importlib.util.module_from_spec(spec)
    if str(path.parent) not in sys.path:  # as if it had been run: what lies beside it can be imported
        sys.path.insert(0, str(path.parent))
    sys.modules[alias] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[alias]
        raise
    return module


def _alias(path: Path) -> str:
    return f"{_ALIAS}{blake2b(str(path).encode(), digest_size=6).hexdigest()}_{path.stem}"


def target_of(function: Callable[..., Any]) -> str:
    """Where a worker process finds a function or a class; a script's own is found in its file."""
    module = getattr(function, "__module__", "")
    if module == "__main__":
        main = sys.modules.get("__main__")
        script = getattr(main, "__file__", None)
        spec = getattr(main, "__spec__", None)
        if spec is not None:  # python -m package.module
            module = spec.name
        elif script is not None:
            module = str(Path(script).resolve())
    elif module.startswith(_ALIAS):
        module = getattr(sys.modules.get(module), "__file__", None) or module
    return f"{module}:{getattr(function, '__qualname__', type(function).__qualname__)}"


def file_text(function: Callable[..., Any]) -> str | None:
    """Everything in the function's file: a constant or a helper beside it changes verdicts, too."""
    try:
        file = inspect.getsourcefile(inspect.unwrap(function))
        return None if file is None else Path(file).read_text(errors="replace")
    except (TypeError, OSError, ValueError):
        return None


def unreachable(function: object, target: str, unwrap: Callable[[object], object]) -> str | None:
    """Say why a worker process could not find a function at its target, or `None`.

    Parameters
    ----------
    function
        The function.
    target
        Where it should be found.
    unwrap
        From what stands there to the function in it.
    """
    module, _, name = target.rpartition(":")
    if "<" in name:
        return f"it is a lambda or defined inside another function ({name})"
    if module in {"", "__main__"} or module.endswith(">"):
        return "it was defined in an interactive session"
    main = sys.modules.get("__main__")
    known = _alias(Path(module)) if module.endswith(".py") else module
    found: object = main if _is_main(main, module) else sys.modules.get(known)
    if found is None:  # as far as it can be told without an import
        return None
    for word in name.split("."):
        found = getattr(found, word, None)
    return None if unwrap(found) is function else f"{module.rpartition('/')[2]}:{name} is something else"


def _is_main(main: ModuleType | None, module: str) -> bool:
    spec = getattr(main, "__spec__", None)
    script = getattr(main, "__file__", None)
    return module == (spec.name if spec is not None else str(Path(script).resolve()) if script else "")


def fingerprint(*values: object) -> str:
    """A digest that changes with the text of functions, and with the plain values that they hold.

    The same in every process, so it reads no address; of an object it knows the class, of a function
    that was made without a text its code.
    """
    return blake2b("\n".join(map(_told, values)).encode("utf-8", "replace"), digest_size=8).hexdigest()


def _told(value: object) -> str:
    if value is None or isinstance(value, str | int | float):
        return repr(value)
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_told, value))})"
    if isinstance(value, functools.partial):
        return _told((value.func, value.args, *sorted(value.keywords.items())))
    if inspect.ismethod(value):
        return _told((value.__func__, value.__self__))
    code = getattr(value, "__code__", None)
    if code is None:
        kind = value if isinstance(value, type) or inspect.isbuiltin(value) else type(value)
        settings = fields(kind) if is_dataclass(kind) and kind is not value else ()
        held = [(setting.name, getattr(value, setting.name)) for setting in settings]
        return f"{kind.__module__}.{kind.__qualname__} {_source(kind)}{_told(held) if held else ''}"
    plain = [
        held for held in map(_held, getattr(value, "__closure__", None) or ()) if isinstance(held, _PLAIN)
    ]
    defaults = [getattr(value, "__defaults__", None), *(getattr(value, "__kwdefaults__", None) or {}).items()]
    return f"{_source(value) or _coded(code)} {_told(plain)} {_told(defaults)}"


def _coded(code: CodeType) -> str:
    """Code without a text, by what stands in it; of code in it, which has an address, the same."""
    held = [_coded(one) if isinstance(one, CodeType) else _sorted(one) for one in code.co_consts]
    return repr((code.co_name, code.co_names, code.co_code.hex(), held))


def _sorted(constant: object) -> str:
    return repr(sorted(map(repr, constant))) if isinstance(constant, frozenset) else repr(constant)


_PLAIN = (str, int, float, tuple)


def _held(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _source(value: Any) -> str:  # noqa: ANN401 - a class or a function
    try:
        return inspect.getsource(value)
    except (OSError, TypeError):
        return ""
