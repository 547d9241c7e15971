"""What is sent into a container before anything else: the modules of the runner, and how they are unpacked.

The container needs a Python, and nothing of ours: `command` is started in it, reads one parcel from standard
input, and becomes the runner. The parcel holds what this Python compiled, too: another version compiles anew.
"""

from __future__ import annotations

import importlib.util
import io
import py_compile
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import Final

OLDEST: Final = (3, 11)
"""The oldest Python that the runner works with."""

_BELOW: Final = ("clock", "errors", "execution")
"""What the runner imports beside this room; none of it imports anything but Python."""

_UNPACK: Final = """
import sys
if sys.version_info < {oldest}:
    sys.exit("Python %d.%d is too old for the runner: {words} or newer is needed" % sys.version_info[:2])
import io, os, tempfile, zipfile
def take(size):
    parts = []
    while size:
        part = os.read(0, min(size, 1 << 20))
        if not part: os._exit(0)
        parts.append(part); size -= len(part)
    return b"".join(parts)
parcel = zipfile.ZipFile(io.BytesIO(take(int.from_bytes(take(4), "little"))))
for place in ("/run", "/tmp", "/var/tmp", "/dev/shm", "."):
    try: folder = tempfile.mkdtemp(prefix="steelyard-", dir=place); break
    except OSError: pass
else: sys.exit("no folder can be written: give the container a temporary one")
parcel.extractall(folder)
os.chmod(folder, 0o755)
tempfile.tempdir = folder
sys.path.insert(0, folder)
from steelyard.sandbox.runner import main
main()
"""


def command(python: str) -> list[str]:
    """The command that unpacks a parcel and becomes the runner.

    Parameters
    ----------
    python
        The container's interpreter.
    """
    words = ".".join(map(str, OLDEST))
    return [python, "-I", "-B", "-c", _UNPACK.format(oldest=OLDEST, words=words)]


@cache
def parcel() -> bytes:
    """The modules, as they are sent: a length of four bytes, and a zip file."""
    house = Path(__file__).parent.parent
    sources = [house / f"{name}.py" for name in _BELOW]
    for room in ("sandbox", "sandbox/guest"):
        sources += sorted((house / room).glob("*.py"))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file, tempfile.TemporaryDirectory() as folder:
        file.writestr("steelyard/__init__.py", "")
        for source in sources:
            name = Path("steelyard") / source.relative_to(house)
            file.write(source, name)
            compiled = py_compile.compile(
                str(source),
                cfile=f"{folder}/compiled",
                dfile=str(name),
                doraise=True,
                invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
            )
            file.write(str(compiled), importlib.util.cache_from_source(str(name)))
    content = packed.getvalue()
    return len(content).to_bytes(4, "little") + content
