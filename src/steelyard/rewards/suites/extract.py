r"""The candidate's source in a completion: which of its text is the program.

1. What stands after the thinking. Thinking that never closes was cut off: there is no code (`no_answer`).
   A tag in quotes is a program's business. Then, if there is one, what stands in the last `<answer>`.
2. Of fenced blocks, **one**: of those marked Python (or the language that is asked for) or not marked at all,
   the one that defines most of the names that the tests use, then a marked one before an unmarked one, then
   the last. So a corrected version replaces a draft, an example of use or its output does not replace the
   program, and a longer draft does not replace a shorter program. Blocks are never put together: an answer is
   one program.
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
from textwrap import dedent
from typing import NamedTuple

# Three quotes are a fence or a docstring.
_UNQUOTED = (r"(?:(?<=```)|(?<![\"'`]))", r"(?!\"(?!\"\")|'(?!'')|`(?!``))")
_THINKING = re.compile("<(/?)(think|thinking|reasoning)>".join(_UNQUOTED), re.ASCII | re.IGNORECASE)
_ANSWER = re.compile("<(/?)answer>".join(_UNQUOTED), re.ASCII | re.IGNORECASE)
_MARGIN = re.compile(r"[ \t]*(?:(?:[-*+>]|\d{1,3}[.)])[ \t]+)*\Z")
_PYTHON = re.compile(
    r"[{.]*(?:i?python|py|python[23](?:\.\d+)?|py[23]|code|solution)\b", re.ASCII | re.IGNORECASE
)
_SESSION = re.compile(r"\s*(?:>>> |\$ |In \[)")
_DEFINITION = re.compile(
    r"^(?:(?:async[ \t]+)?def|class)[ \t]+(\w+)|^(\w+)[ \t]*(?::[^=\n]*)?=(?!=)", re.MULTILINE
)
_BEGINS_CODE = re.compile(
    r"(?:[ \t]*\n)*(?:[ \t]+\S|import[ \t]|from[ \t]+[\w.]+[ \t]+import[ \t]|def[ \t]|class[ \t]+\w+[(:]|@\w)"
)
_AT_MARGIN = re.compile(r"(?:import|from|def|class|async|if __name__)\b|@")
_DOCSTRING = ('"""', "'''")


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


class _Fence(NamedTuple):
    """A line that may open or close a block.

    Parameters
    ----------
    line
        Its number.
    before, marks, info
        What stands before the fence, the fence, and what stands after it.
    marked
        Whether it says that a program follows, in the language that is looked for.
    """

    line: int
    before: str
    marks: str
    info: str
    marked: bool = False

    @property
    def alone(self) -> bool:
        """Whether nothing but a list's or a quote's mark stands before it."""
        return _MARGIN.match(self.before) is not None

    @property
    def column(self) -> int:
        """The columns before it."""
        return len(self.before.expandtabs(4))


_BEFORE_ALL = _Fence(-1, "", "```", "")


def source_of(
    completion: str,
    prompt: str = "",
    mode: str = "full",
    names: Sequence[str] = (),
    *,
    marks: re.Pattern[str] | None = None,
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
    marks
        What stands after the fence of a program in another language than Python.

    Examples
    --------
    >>> source_of("Sure!\n```python\ndef f(x):\n    return x\n```\nIt is used so:\n```\nf(2)\n```").text
    'def f(x):\n    return x\n'
    >>> source_of("    return x\n", "def f(x):\n", "body", ["f"]).text
    'def f(x):\n    return x\n'
    >>> source_of("<think>First, I").code
    'no_answer'
    """
    text = _answered(completion)
    if text is None:
        return Failure("no_answer", "the thinking never ends, so there is no code")
    blocks = _blocks(text, marks or _PYTHON, opened=_open_at_end(prompt))
    code = text if blocks is None else _chosen(blocks, names)
    if not code.strip():
        what = "the language" if marks else "Python"
        unmarked = (
            f"no fenced block holds {what}: mark one with its name, as in ```{'cpp' if marks else 'python'}"
        )
        return Failure("no_answer", "no code in the completion" if blocks is None else unmarked)
    if mode == "body":
        return Source(_continued(prompt, code, names))
    return Source(dedent(code) if code.lstrip("\n")[0] in " \t" else code)


def _answered(text: str) -> str | None:
    """Return what stands after the thinking, in the answer; `None` where the thinking never ends."""
    kept: list[str] = []
    inside, at, began, thought = "", 0, 0, False
    for tag in _THINKING.finditer(text):
        name = tag[2].lower()
        if not tag[1] and not inside:
            kept.append(text[at : tag.start()])
            inside, began = name, tag.start()
        elif tag[1] and (inside == name or not (inside or thought)):
            if not inside:
                kept.clear()  # the prompt began it
            inside, at, thought = "", tag.end(), True
    before = "".join(kept)
    if inside and not before.strip():
        return None
    text = before + text[began if inside else at :]
    start, end = 0, len(text)
    for tag in _ANSWER.finditer(text):
        if not tag[1]:
            start, end = tag.end(), len(text)
        elif start and end == len(text):
            end = tag.start()
    inner = text[start:end]
    return inner if inner.strip() and ("```" in inner or "```" not in text) else text


def _fences(lines: Sequence[str], marks: re.Pattern[str] = _PYTHON) -> list[_Fence]:
    found = []
    for at, line in enumerate(lines):
        mark = "`" if "```" in line else "~"
        if mark * 3 not in line:
            continue
        end = line.rindex(mark) + 1
        before = line[:end].rstrip(mark)
        if end - len(before) >= 3 and mark * 3 not in before:
            info = line[end:].strip()
            found.append(_Fence(at, before, line[len(before) : end], info, marks.match(info) is not None))
    return found


def _blocks(text: str, marks: re.Pattern[str], *, opened: bool) -> list[_Block] | None:
    """Return the blocks that may be a program, in order; `None` where no fence stands."""
    lines = text.split("\n")
    fences = _fences(lines, marks)
    if not fences and not opened:
        return None
    blocks: list[_Block] = []
    bare = bool(fences) and fences[0].alone and not fences[0].info
    begun = opened or (bare and fences[0].line > 0 and _BEGINS_CODE.match(text) is not None)
    now = _BEFORE_ALL if begun else None
    for fence in fences:
        if now is None:
            if fence.alone or fence.marked:
                now = fence
        elif fence.alone and fence.marks.startswith(now.marks) and fence.column < now.column + 4:
            _close(blocks, now, lines, fence.line)
            now = fence if fence.info else None
    if now is not None:
        if not blocks and bare and not "".join(lines[now.line + 1 :]).strip():
            now, lines = _BEFORE_ALL, lines[: fences[0].line]  # only a block's end stands here
        _close(blocks, now, lines, len(lines))
    return blocks


def _close(blocks: list[_Block], now: _Fence, lines: list[str], end: int) -> None:
    """Take a block, without the columns that its fence stands in, if it may be a program."""
    if now.info and not now.marked:
        return
    width = len(now.before) if now.alone else 0
    inside = lines[now.line + 1 : end]
    if width:
        inside = [line.lstrip(" \t") if line[:width].strip(" \t>") else line[width:] for line in inside]
    text = "\n".join(inside) + ("\n" if inside and end < len(lines) else "")
    if text.strip() and not _SESSION.match(text):
        blocks.append(_Block(now.marked, text))


def _open_at_end(prompt: str) -> bool:
    """Whether a text ends inside a fenced block."""
    return "```" in prompt and len(_fences(prompt.split("\n"))) % 2 == 1


def _chosen(blocks: Sequence[_Block], names: Sequence[str]) -> str:
    if not blocks:
        return ""
    wanted = set(names)
    ranks = [(len(wanted & _defined(block.text)), block.marked, at) for at, block in enumerate(blocks)]
    return blocks[max(ranks)[2]].text


def _defined(code: str) -> set[str]:
    """Return the names that code defines at its left margin."""
    return {found[1] or found[2] for found in _DEFINITION.finditer(code)}


def _continued(prompt: str, code: str, names: Sequence[str]) -> str:
    """Continue the prompt with a body, or with the whole function."""
    defined = _defined(code)
    whole = next((name for name in names if name in defined), None)
    if whole:
        return _before(prompt, whole) + code
    *_, last = ("", *filter(str.strip, prompt.split("\n")))
    unit = last[: len(last) - len(last.lstrip(" \t"))] or ("    " if last.rstrip().endswith(":") else "")
    if not prompt.endswith("\n") and code[:1] in (" ", "\t") and last.rstrip().endswith((":", *_DOCSTRING)):
        prompt += "\n"
    return prompt + (_indented(code, unit) if unit and prompt.endswith("\n") else code)


def _before(prompt: str, entry_point: str) -> str:
    """Return what a prompt of code has before the entry point; nothing of a prompt in words."""
    found = [found.start() for found in _DEFINITION.finditer(prompt) if (found[1] or found[2]) == entry_point]
    code = prompt.lstrip().startswith((*_DOCSTRING, "#")) or _BEGINS_CODE.match(prompt)
    if not found or not code:
        return ""
    lines = prompt[: found[-1]].split("\n")[:-1]
    while lines and lines[-1].startswith("@"):
        lines.pop()
    return "".join(f"{line}\n" for line in lines)


def _indented(code: str, unit: str) -> str:
    """Give a body at the left margin its indentation: the first line's, if only that was trimmed."""
    lines = code.split("\n")
    filled = [at for at, line in enumerate(lines) if line.strip()]
    first, rest = lines[filled[0]], [lines[at] for at in filled[1:]]
    if first[0] in " \t" or _AT_MARGIN.match(first):
        return code
    trimmed = bool(rest) and all(line[0] in " \t" for line in rest)
    if trimmed and first.rstrip().endswith(":"):
        depth = rest[0][: len(rest[0]) - len(rest[0].lstrip(" \t"))]
        trimmed = len(depth.expandtabs(4)) > len(unit.expandtabs(4))
    if trimmed:
        lines[filled[0]] = unit + first
        return "\n".join(lines)
    return "\n".join(unit + line if line.strip() else line for line in lines)
