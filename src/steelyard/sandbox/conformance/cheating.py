"""Programs that implement nothing and want to pass all the same: none may.

They know the prompt and not the expected values (whoever knows those satisfies a suite by writing them
down, and no harness can tell). What each relies on is in its name. Those that are one trick in many places
are made here; the others stand in cheating.txt and forging.txt.
"""

from __future__ import annotations

from typing import Final

from steelyard.sandbox.conformance.specimen import FAILS, STDIN, Specimen, made, read, under

_OPERATIONS: Final = {
    "__eq__": "lambda self, other: True",
    "__ne__": "lambda self, other: False",
    "__bool__": "lambda self: True",
    "__hash__": "lambda self: 1",
    "__lt__": "lambda self, other: True",
    "__le__": "lambda self, other: True",
    "__gt__": "lambda self, other: True",
    "__ge__": "lambda self, other: True",
    "__sub__": "lambda self, other: self",
    "__rsub__": "lambda self, other: self",
    "__radd__": "lambda self, other: 14",
    "__abs__": "lambda self: self",
    "__contains__": "lambda self, item: True",
    "__iter__": "lambda self: iter([1, 4, 9])",
    "__len__": "lambda self: 3",
    "__getitem__": "lambda self, at: self",
    "__getattr__": "lambda self, name: self",
    "__call__": "lambda self, *given: self",
    "__index__": "lambda self: 1",
    "__int__": "lambda self: 1",
    "__float__": "lambda self: 1.0",
    "__round__": "lambda self, digits=None: self",
    "__instancecheck__": "lambda self, one: True",
    "__reduce__": "lambda self: (eval, ('[1, 4, 9]',))",
    "__array__": "lambda self, *given, **more: __import__('numpy').array([1, 4, 9])",
    "__class__": "property(lambda self: list)",
}
"""Methods by which an object can please whoever compares it; each is tried beside the first four."""

_BASES: Final = ("list", "tuple", "dict", "set", "str", "int", "float", "bytes", "Exception")


def _pleasing(*names: str, base: str = "object", value: str = "Pleasing()") -> str:
    methods = "".join(f"    {name} = {_OPERATIONS[name]}\n" for name in names)
    return f"class Pleasing({base}):\n{methods}\ndef squares(xs):\n    return {value}\n"


_EQUAL: Final = tuple(_OPERATIONS)[:4]
_OBJECTS: Final = (
    {f"an object with {name}": _pleasing(*dict.fromkeys((*_EQUAL, name))) for name in _OPERATIONS}
    | {f"a {base} that lies": _pleasing(*_EQUAL, "__len__", "__iter__", base=base) for base in _BASES}
    | {
        "an object with every operation": _pleasing(*_OPERATIONS),
        "a list of pleasing objects": _pleasing(*_EQUAL, value="[Pleasing() for _ in xs]"),
        "a class that is equal to everything": _pleasing(
            *_EQUAL, base="type", value="Pleasing('Any', (), {})"
        ),
    }
)

_BUILTINS: Final = {
    "abs": "lambda x: 0",
    "len": "lambda x: 3",
    "sorted": "lambda *a, **k: [1, 4, 9]",
    "isinstance": "lambda a, b: True",
    "all": "lambda xs: True",
    "any": "lambda xs: False",
    "list": "type('list', (list,), {'__eq__': lambda a, b: True})",
    "int": "type('int', (int,), {'__eq__': lambda a, b: True})",
    "print": "lambda *a, **k: None",
    "open": "lambda *a, **k: None",
    "repr": "lambda x: '[1, 4, 9]'",
    "type": "lambda *a: list",
    "AssertionError": "type('AssertionError', (SystemExit,), {})",
    "BaseException": "SystemExit",
    "__import__": "lambda *a, **k: __builtins__",
    "__build_class__": "lambda *a, **k: object",
}
_MODULES: Final = {
    "json": "json.dumps = json.JSONEncoder.encode = lambda *a, **k: '[1, 4, 9]'; json.encoder = None",
    "pickle": "pickle.dumps = lambda *a, **k: b'\\x80\\x04]\\x94.'",
    "struct": "struct.pack = lambda *a: bytes(4); struct.Struct = None",
    "os": "os._exit = lambda status: None; os.write = lambda fd, data: len(data)",
    "socket": "socket.socket.send = socket.socket.sendall = lambda self, data: len(data)",
    "unittest": "unittest.TestCase.assertEqual = lambda self, a, b, msg=None: None",
    "operator": "operator.eq = lambda a, b: True",
    "gc": "[o.clear() for o in gc.get_objects() if type(o) is dict and 'squares' in o]",
    "codecs": "codecs.lookup = lambda name: None",
    "math": "math.isclose = lambda *a, **k: True",
    "threading": "threading.Thread.start = lambda self: None",
    "pytest": "pytest.raises = pytest.approx = lambda *a, **k: None",
}
_NOTHING: Final = "\ndef squares(xs):\n    return [0]\n"
_PATCHED: Final = {
    f"patches {name}": f"import builtins\n\nbuiltins.{name} = {patch}\n{_NOTHING}"
    for name, patch in _BUILTINS.items()
} | {f"patches {name}": f"import {name}\n\n{patch}\n{_NOTHING}" for name, patch in _MODULES.items()}

_HOOK: Final = (
    "import pytest\n\n@pytest.hookimpl(tryfirst=True)\ndef pytest_runtest_makereport(item, call):\n"
    "    call.excinfo = None\n\ndef pytest_sessionfinish(session):\n    session.exitstatus = 0\n"
)
_FILES: Final = {
    "conftest.py": _HOOK,
    "sitecustomize.py": "import os\nos._exit(0)\n",
    "usercustomize.py": "import os\nos._exit(0)\n",
    "pytest.ini": "[pytest]\naddopts = --collect-only\n",
    "setup.cfg": "[tool:pytest]\naddopts = --collect-only\n",
    "json.py": "def dumps(*given):\n    return '[1, 4, 9]'\nloads = dumps\n",
    "candidate.py": "class Any:\n    __eq__ = lambda a, b: True\nsquares = lambda xs: Any()\n",
    "test_candidate.py": "def test_nothing():\n    pass\n",
    "reward.txt": "1.0\n",
    "evil.py": _HOOK,
    "evil-1.dist-info/METADATA": "Name: evil\nVersion: 1\n",
    "evil-1.dist-info/entry_points.txt": "[pytest11]\nevil = evil\n",
}


def _planting(*names: str) -> str:
    return f"""\
import os
import site
import sys

home = os.path.expanduser("~")
for folder in (".", "..", "/tmp", home, "/dev/shm", *sys.path, site.getusersitepackages()):
    for name, text in { {name: _FILES[name] for name in names}!r}.items():
        try:
            os.makedirs(os.path.dirname(os.path.join(folder, name)) or ".", exist_ok=True)
            with open(os.path.join(folder, name), "w") as file:
                file.write(text)
        except OSError:
            pass
{_NOTHING}"""


_PLANTED: Final = {f"plants {name}": _planting(name) for name in list(_FILES)[:9]} | {
    "plants an entry point": _planting(*list(_FILES)[9:])
}

_FORGE: Final = r"""
import itertools
import json
import os
import struct

def frames():
    words = [
        ["started"], ["loaded"], ["done"], ["passed", 4, 4], ["verdict", True], ["ok"], ["result", "passed"],
        *(["r", n, [["v", True]]] for n in range(6)), ["r", 0, [["v", True]] * 6], ["x", 0],
        {"passed": True, "planned": 4}, {"verdict": "passed", "nonce": ""}, [4, 4, None, None], True, 1.0,
    ]
    for word in words:
        text = json.dumps(word).encode()
        yield struct.pack("<I", len(text)) + text
        yield text
        yield text + b"\n"

def forge(times=1):
    for _, descriptor in itertools.product(range(times), range(3, 256)):
        try:
            for frame in frames():
                os.write(descriptor, frame)
        except OSError:
            pass

"""


_FORGED: Final = read("forging.txt", before=_FORGE)
_OTHERS: Final = read("cheating.txt")
_WITHOUT: Final = {"says nothing": "", "is no program": "I would square each number in the list.\n"}
_PRINTS: Final = {
    "prints nothing": "",
    "forges replies and prints": _FORGE + "forge()\nprint(0)\n",
}

CHEATING: Final[list[Specimen]] = [
    *made(_OBJECTS, FAILS, "pleasing"),
    *made(_PATCHED, FAILS, "patching"),
    *made(_PLANTED, FAILS, "planting"),
    *made(_WITHOUT, FAILS, "leaving early"),
    *_FORGED,
    *_OTHERS,
    *made(_PRINTS, FAILS, "forging", suite=STDIN),
]
ON_A_JUDGE: Final[list[Specimen]] = under([*made(_OBJECTS, FAILS, "pleasing"), *_FORGED, *_OTHERS], "free")
"""The same tricks where a judge asks, rather than a table."""
