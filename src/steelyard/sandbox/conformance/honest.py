"""Right programs: each must pass. Most stand in honest.txt and values.txt; here, where bytes matter."""

from __future__ import annotations

from typing import Final

from steelyard.sandbox.conformance.specimen import PASS, STDIN, Specimen, made, read

PLAIN: Final = "def squares(xs):\n    return [x * x for x in xs]\n"
_SOURCES: Final = {
    "lines that end in CRLF": PLAIN.replace("\n", "\r\n"),
    "a byte order mark": "\ufeff" + PLAIN,
    "tabs": PLAIN.replace("    ", "\t"),
    "no newline at the end": PLAIN.rstrip(),
    "a form feed, an encoding, other letters": "# -*- coding: utf-8 -*-\n\x0c\nnaïve = 数 = 2\n\n" + PLAIN,
}
_LONG_OUTPUT: Final = STDIN._replace(
    prompt="Print the numbers from 0 to n - 1, one on each line.",
    tests=[{"input": f"{n}\n", "output": "\n".join(map(str, range(n))) + "\n"} for n in (3, 30_000, 200_000)],
)
_LONG: Final = {"prints 150 kB and 1.4 MB": "for i in range(int(input())):\n    print(i)\n"}
_RIGHT: Final = frozenset({PASS})

HONEST: Final[list[Specimen]] = [
    *read("honest.txt"),
    *read("values.txt"),
    *made(_SOURCES, _RIGHT, "honest"),
    *made(_LONG, _RIGHT, "honest", suite=_LONG_OUTPUT),
]
