"""Right programs: each must pass. Most stand in honest.txt and values.txt; here, where bytes matter."""

from programs.specimen import PASS, SNIPPET, STDIN, Specimen, read

PLAIN = "def squares(xs):\n    return [x * x for x in xs]\n"
FENCE = "```"
SOURCES = {
    "lines that end in CRLF": PLAIN.replace("\n", "\r\n"),
    "a byte order mark": "\ufeff" + PLAIN,
    "tabs": PLAIN.replace("    ", "\t"),
    "no newline at the end": PLAIN.rstrip(),
    "a form feed, an encoding, other letters": "# -*- coding: utf-8 -*-\n\x0c\nnaïve = 数 = 2\n\n" + PLAIN,
    "fenced in prose": f"My solution:\n\n{FENCE}python\n{PLAIN}{FENCE}\n\nIt gives `[]` for an empty list.\n",
    "fenced without a language": f"{FENCE}\n{PLAIN}{FENCE}",
    "fenced, and never closed": f"Sure!\n\n{FENCE}py\n{PLAIN}",
    "thinking first": f"<think>\nThis will do:\n{FENCE}python\ndef squares(xs): ...\n{FENCE}\n</think>\n\n"
    f"{FENCE}python\n{PLAIN}{FENCE}\n",
}
LONG_OUTPUT = STDIN._replace(
    prompt="Print the numbers from 0 to n - 1, one on each line.",
    tests=[{"input": f"{n}\n", "output": "\n".join(map(str, range(n))) + "\n"} for n in (3, 30_000, 200_000)],
)

HONEST: list[Specimen] = [
    *read("honest.txt"),
    *read("values.txt"),
    *(Specimen(name, source, frozenset({PASS}), SNIPPET) for name, source in SOURCES.items()),
    Specimen(
        "prints 150 kB and 1.4 MB",
        "for i in range(int(input())):\n    print(i)\n",
        frozenset({PASS}),
        LONG_OUTPUT,
    ),
]
