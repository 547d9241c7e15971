"""IFBench's kinds about layout: `format:`."""

from __future__ import annotations

import re
import string
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final

from steelyard.rewards.instructions.kind import Kind, kind, text, verbatim
from steelyard.rewards.instructions.lists import EMOJI
from steelyard.rewards.instructions.reading import EDGES, bare, sentences

_CLOSES: Final = {")": "(", "]": "[", "}": "{"}
_LETTERS: Final = re.compile(r"\W*[aA]\W*[bB]\W*[cC]\W*")
_NO_QUOTE: Final = string.digits + string.punctuation.replace('"', "")
_TEMPLATE: Final = ("My Answer:", "My Conclusion:", "Future Outlook:")


def _characters(ranges: str) -> frozenset[str]:
    return frozenset(chr(code) for one in ranges.split() for code in _range(one))


def _range(one: str) -> range:
    first, _, last = one.partition("-")
    return range(int(first, 16), int(last or first, 16) + 1)


_EMOJI: Final = _characters(EMOJI)


def _nested(said: str) -> bool:
    opened: list[str] = []
    deepest = 0
    for mark in said:
        if mark in "([{":
            opened.append(mark)
            deepest = max(deepest, len(opened))
        elif mark in _CLOSES:
            if opened and opened[-1] == _CLOSES[mark]:
                opened.pop()
                if deepest >= 5:
                    return True
            else:
                opened.clear()
                deepest = 0
    return False


def _nested_quotes(said: str) -> bool:
    opened: list[str] = []
    deepest = 0
    for mark in said:
        if opened and mark == opened[-1]:
            opened.pop()
            if deepest - len(opened) >= 3:
                return True
        elif mark in "\"'":
            opened.append(mark)
            deepest = max(deepest, len(opened))
    return False


def _one_of(said: str, options: str) -> bool:
    separator = "/" if "/" in options else "or" if "or" in options else ","
    choices = [option.strip() for option in options.split(separator)]
    if _LETTERS.match(options):
        return said in choices
    return said.strip(EDGES).lower() in (choice.strip(EDGES).lower() for choice in choices)


def _word_a_line(said: str) -> bool:
    said = bare(said).strip()
    return sum(1 for line in said.split("\n") if line) == len(said.split())


def _emoji_at_ends(said: str) -> bool:
    parts = [bare(one).strip() for one in sentences(said)]
    for part, following in pairwise([*parts, ""]):
        # The emoji may stand behind the mark that ends its sentence: then it opens the next part.
        if not part or not (_EMOJI.intersection(part[-2:]) or following[:1] in _EMOJI):
            return False
    return True


def _stairs(said: str) -> bool:
    indents = [len(line) - len(line.lstrip(" ")) for line in _without_some_blanks(said.split("\n"))]
    return all(one < following for one, following in pairwise(indents))


def _without_some_blanks(lines: list[str]) -> Iterator[str]:
    """Leave blank lines out as the published checker does, which removes them from the list that it walks.

    So it never looks at the line behind a removed one, and of equal lines removes the first.
    """
    kept: list[str | None] = []
    overlooked: defaultdict[str, deque[int]] = defaultdict(deque)
    walk = iter(lines)
    for line in walk:
        if line.strip():
            kept.append(line)
            continue
        behind = next(walk, None)
        if overlooked[line]:
            kept[overlooked[line].popleft()] = None
            overlooked[line].append(len(kept))
            kept.append(line)
        if behind is not None:
            overlooked[behind].append(len(kept))
            kept.append(behind)
    return (line for line in kept if line is not None)


def _explained_quotes(said: str) -> bool:
    said = said.replace("“", '"').replace("”", '"').replace("'\"'", "")
    said = "".join(said.split())
    told = said.strip(_NO_QUOTE)
    return '""' not in said and told != "" and not told.endswith('"')


def _marked_list(said: str, mark: str) -> bool:
    return said.count(mark) >= 2


def _thesis(said: str) -> bool:
    start = said.find("<i>")
    start = said.find("<em>") if start < 0 else start
    end = said.find("</i>", start) if start >= 0 else -1
    end = said.find("</em>", start) if start >= 0 and end < 0 else end
    return end >= 0 and bool(said[start + 3 : end].strip()) and bool(said[end + 4 :].strip())


def _sub_bullets(said: str) -> bool:
    return all("-" in bullet for bullet in said.split("*")[1:])


def _bullets_last(said: str) -> bool:
    before, bullets, reading = 0, 0, True
    for line in map(str.strip, said.split("\n")):
        if line.startswith("*"):
            reading = False
            bullets += 1
            if before < 2:
                return False
        elif reading:
            found = sentences(line)
            before += len(found)
            reading = bool(found)
        else:
            return False
    return bullets >= 2


def _template(said: str) -> bool:
    return all(part in said for part in _TEMPLATE)


def _no_whitespace(said: str) -> bool:
    return not any(map(str.isspace, said))


KINDS: Final[Mapping[str, Kind]] = {
    "format:parentheses": kind(_nested),
    "format:quotes": kind(_nested_quotes),
    "format:options": kind(_one_of, options=text),
    "format:newline": kind(_word_a_line),
    "format:emoji": kind(_emoji_at_ends),
    "format:line_indent": kind(_stairs),
    "format:quote_unquote": kind(_explained_quotes),
    "format:list": kind(_marked_list, sep=verbatim),
    "format:thesis": kind(_thesis),
    "format:sub-bullets": kind(_sub_bullets),
    "format:no_bullets_bullets": kind(_bullets_last),
    "format:output_template": kind(_template),
    "format:no_whitespace": kind(_no_whitespace),
}
