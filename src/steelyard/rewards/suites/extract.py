r"""The candidate's source in a completion: which of its text is the program.

1. What stands after the thinking. Thinking that never closes was cut off: there is no code (`no_answer`).
   A tag in quotes is a program's business. Then, if there is one, what stands in the last `<answer>`.
2. Of fenced blocks, **one**: of those marked Python or not marked at all the one that defines most of the
   names that the tests use, then a marked one before an unmarked one, then the last. So a corrected version
   replaces a draft, an example of use or its output does not replace the program, and a longer draft
   does not replace a shorter program. Blocks are never put together: an answer is one program.
3. Without any fence, the whole text.

Fences are ``` or ~~~, three or more, indented, in a list or a quote, at a line's end after prose; one that is
not closed counts to the end (a completion that was cut), a fence four columns deeper than the block's own
belongs to a docstring in it, and one that names a language while a block is open begins another block. Where
the prompt ends in an open fence, the completion begins inside it. Blocks marked as something else (`bash`,
`text`, `json`, `output`) and sessions (`>>>`, `$`) are no programs.

In the mode `body` the text continues the prompt: prompt and body, as they are, tabs and all. A body that a
fence or a trim has robbed of its indentation gets it back; if the text defines the entry point itself, at the
left margin, it stands after what the prompt has before the entry point (imports, helpers).

The peers: LiveCodeBench takes the first or last pair of fences, ROLL and verl the last block, evalplus the
longest run of lines that parses (cubic, and the policy's text is parsed in the trainer). A completion is not
parsed here: it is scanned by lines, in time linear in its length. Whether it is Python says the process that
runs it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

Mode = Literal["full", "body"]

_THINKING = re.compile(r"(?<![\"'`])<(/?)(think|thinking|reasoning)>(?![\"'`])", re.ASCII | re.IGNORECASE)
_ANSWER = re.compile(r"(?<![\"'`])<(/?)answer>(?![\"'`])", re.ASCII | re.IGNORECASE)
_FENCE = re.compile(r"(?P<before>[^`~\n]*?)(?P<fence>`{3,}|~{3,})(?P<info>[^`\n]*)\Z")
_MARGIN = re.compile(r"[ \t]*(?:(?:[-*+>]|\d{1,3}[.)])[ \t]+)*\Z")
_PYTHON = re.compile(r"[{.]*(?:python|py|ipython|python[23](?:\.\d+)?|py[23]|code|solution)\b", re.ASCII | re.IGNORECASE)
_SESSION = re.compile(r"\s*(?:>>> |\$ |In \[)")
_DEFINED = r"^{margin}(?:(?:async[ \t]+)?def[ \t]+|class[ \t]+)?(?:{names})\b(?:[ \t]*[(\[:]|[ \t]*(?::[^=\n]*)?=(?!=))"
_DEF = re.compile(r"^(?:async[ \t]+def|def|class)[ \t]+(\w+)|^(\w+)[ \t]*(?::[^=\n]*)?=(?!=)", re.MULTILINE)
_LIKE_CODE = re.compile(r"(?:import|from|def|class|async)[ \t]+\w|[@#]|[\"']{3}|\w+[ \t]*(?::[^=\n]*)?=(?!=)")
_LEFT = re.compile(r"(?:import|from|def|class|async|if __name__)\b|@|#")


class Source(NamedTuple):
    """A candidate's source."""

    text: str


class Failure(NamedTuple):
    """Why a completion has none: a code and words, as in a verdict."""

    code: str
    reason: str


class _Block(NamedTuple):
    marked: bool
    text: str


def source_of(
    completion: str, prompt: str = "", mode: str = "full", names: Sequence[str] = ()
) -> Source | Failure:
    r"""Return the candidate's source.

    Parameters
    ----------
    completion
        The completion's text.
    prompt
        The prompt's text: in the mode `body` the source begins with it.
    mode
        `full`: the completion is the program. `body`: it continues the prompt.
    names
        The names that the tests use; the entry point first, where there is one.

    Examples
    --------
    >>> source_of("Sure!\n```python\ndef f(x):\n    return x\n```\nUse it:\n```python\nf(2)\n```", names=["f"]).text
    'def f(x):\n    return x\n'
    >>> source_of("    return x\n", "def f(x):\n", "body", ["f"]).text
    'def f(x):\n    return x\n'
    >>> source_of("<think>First, I").code
    'no_answer'
    """
    text = _answered(completion)
    if text is None:
        return Failure("no_answer", "the thinking never ends, so there is no code")
    blocks = _blocks(text, opened=_open_at_end(prompt))
    if blocks is None:
        code = text
    else:
        usable = [block for block in blocks if block.text.strip() and not _SESSION.match(block.text)]
        if not usable:
            return Failure("no_answer", "no fenced block holds Python: mark one with ```python")
        code = _chosen(usable, names)
    if not code.strip():
        return Failure("no_answer", "no code in the completion")
    if mode == "body":
        return Source(_continued(prompt, code, names[0] if names else "", fenced=blocks is not None))
    return Source(code)


def _answered(text: str) -> str | None:
    """Return what stands after the thinking, in the answer; `None` where the thinking never ends."""
    kept: list[str] = []
    inside, at = "", 0
    for tag in _THINKING.finditer(text):
        name = tag[2].lower()
        if not tag[1] and not inside:
            kept.append(text[at : tag.start()])
            inside = name
        elif tag[1] and inside in ("", name):
            if not inside:
                kept.clear()
            inside, at = "", tag.end()
    if inside:
        rest = "".join(kept)
        return rest if "```" in rest else None
    text = "".join([*kept, text[at:]])
    start, end = 0, len(text)
    for tag in _ANSWER.finditer(text):
        if not tag[1]:
            start, end = tag.end(), len(text)
        elif end == len(text) and start:
            end = tag.start()
    inner = text[start:end]
    return inner if inner.strip() else text


def _fences(text: str) -> list[tuple[int, re.Match[str]]]:
    """Return the lines that may open or close a block, by number."""
    lines = text.split("\n")
    found = ((at, _FENCE.match(line)) for at, line in enumerate(lines) if "```" in line or "~~~" in line)
    return [(at, fence) for at, fence in found if fence]


class _Open(NamedTuple):
    """A block that has begun: its first line, its fence, the columns before it, whether it is Python's or unmarked."""

    line: int
    fence: str
    column: int
    marked: bool
    python: bool


def _blocks(text: str, *, opened: bool) -> list[_Block] | None:
    """Return the blocks that may be a program, in order; `None` where no fence stands."""
    fences = _fences(text)
    if not fences and not opened:
        return None
    lines = text.split("\n")
    blocks: list[_Block] = []
    now = _Open(0, "```", 0, marked=False, python=True) if opened else None
    for at, fence in fences:
        info, column = fence["info"].strip(), len(fence["before"].expandtabs(4))
        margin = _MARGIN.match(fence["before"]) is not None
        if now is None:
            if margin or not fence["info"].strip().count(" "):
                now = _opening(at, fence, column if margin else 0)
            continue
        same = fence["fence"][0] == now.fence[0] and len(fence["fence"]) >= len(now.fence)
        if not margin or not same or column >= now.column + 4:
            continue
        _close(blocks, now, lines, at)
        now = _opening(at, fence, column) if info else None
    if now is not None:
        if not blocks and fences and now.line and not "".join(lines[now.line :]).strip():
            return [_Block(marked=False, text="\n".join(lines[: now.line - 1]) + "\n")]  # only the end of a fence stands
        _close(blocks, now, lines, len(lines))
    return blocks


def _opening(at: int, fence: re.Match[str], column: int) -> _Open:
    info = fence["info"].strip()
    python = _PYTHON.match(info) is not None
    return _Open(at + 1, fence["fence"], column, marked=python, python=python or not info)


def _close(blocks: list[_Block], now: _Open, lines: list[str], end: int) -> None:
    if now.python:
        text = "\n".join(_without(lines[now.line : end], now.column))
        blocks.append(_Block(now.marked, text + "\n" if text and end < len(lines) else text))


def _without(lines: list[str], column: int) -> list[str]:
    """Take the columns before a fence from the lines of its block, as far as they are blank."""
    if not column:
        return lines
    return [line[len(line) - len(line.lstrip(" \t")) :] if _narrow(line, column) else line[column:] for line in lines]


def _narrow(line: str, column: int) -> bool:
    return bool(line[:column].strip(" \t"))


def _open_at_end(prompt: str) -> bool:
    """Whether a text ends inside a fenced block."""
    return len(_fences(prompt)) % 2 == 1


def _chosen(blocks: Sequence[_Block], names: Sequence[str]) -> str:
    wanted = set(names)
    best = max(range(len(blocks)), key=lambda at: (len(wanted & _defined(blocks[at].text)), blocks[at].marked, at))
    return blocks[best].text


def _defined(code: str) -> set[str]:
    """Return the names that code defines at its left margin."""
    return {found[1] or found[2] for found in _DEF.finditer(code)}


def _continued(prompt: str, code: str, entry_point: str, *, fenced: bool) -> str:
    """Continue the prompt with a body, or with the whole function."""
    if entry_point and entry_point in _defined(code):
        return _before(prompt, entry_point) + code
    if not prompt.endswith("\n") and code[:1] in (" ", "\t") and prompt.rstrip().endswith((":", '"""', "'''")):
        prompt += "\n"
    return prompt + (_indented(code) if prompt.endswith("\n") and prompt[:1].strip() else code)


def _before(prompt: str, entry_point: str) -> str:
    """Return what a prompt of code has before the entry point; nothing of a prompt in words."""
    if not _LIKE_CODE.match(prompt.lstrip()):
        return ""
    starts = [found.start() for found in _DEF.finditer(prompt) if (found[1] or found[2]) == entry_point]
    if not starts:
        return ""
    lines = prompt[: starts[-1]].split("\n")[:-1]
    while lines and lines[-1].startswith("@"):
        lines.pop()
    return "".join(f"{line}\n" for line in lines)


def _indented(code: str) -> str:
    """Give a body that begins at the left margin its indentation: its first line's, if only that was trimmed."""
    lines = code.split("\n")
    filled = [at for at, line in enumerate(lines) if line.strip()]
    first = lines[filled[0]]
    if first[:1] in (" ", "\t") or _LEFT.match(first):
        return code
    rest = [lines[at] for at in filled[1:]]
    if rest and all(line[:1] in (" ", "\t") for line in rest) and not first.rstrip().endswith((":", "(", "[", "{", ",")):
        lines[filled[0]] = f"    {first}"
        return "\n".join(lines)
    return "\n".join(f"    {line}" if line.strip() else line for line in lines)
