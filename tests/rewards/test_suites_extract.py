"""Which text of a completion is the program."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.rewards.suites import Failure, Source, source_of

CODE = "def f(x):\n    return x\n"
OTHER = "def f(x):\n    return -x\n"
USE = "print(f(2))\n"


def block(code, mark="python", fence="```"):
    return f"{fence}{mark}\n{code}{fence}\n"


@pytest.mark.parametrize(
    "completion",
    [
        CODE,
        block(CODE),
        block(CODE, "py"),
        block(CODE, "Python3"),
        block(CODE, ""),
        block(CODE, fence="~~~"),
        block(CODE, fence="````"),
        f"Here it is: ```python\n{CODE}```",
        f"Sure!\n\n{block(CODE)}\nIt works.",
        f"{block(CODE)}Use it so:\n{block(USE)}",
        f"{block(CODE)}Output:\n{block('2', '')}",
        f"{block('pip install x', 'bash')}{block(CODE)}{block('2', 'text')}",
        f"{block(CODE)}{block('>>> f(2)', '')}",
        f"A draft:\n{block(OTHER)}But better:\n{block(CODE)}",
        f"A long draft:\n{block(OTHER + '# and more' * 50)}Shorter:\n{block(CODE)}",
        "1. The code:\n\n   ```python\n   def f(x):\n       return x\n   ```\n",
        "- so:\n\t```python\n\tdef f(x):\n\t    return x\n\t```\n",
        f"```python\n{CODE}",
        f"{CODE}```\nThat is all.",
        f"Unclosed:\n```python\n{OTHER}\n```python\n{CODE}```",
        f"<think>Maybe {block(OTHER)}</think>{block(CODE)}",
        f"so {block(OTHER)}</think>\n{CODE}",
        f"<reasoning>x</reasoning><answer>\n{block(CODE)}</answer>",
        f"<answer>{CODE}</answer>",
        f"<think>a</think>{block(CODE)}<think>{block(OTHER)}</think>",
    ],
)
def test_the_program_is_found_however_it_is_wrapped(completion):
    assert source_of(completion, names=["f"]).text.strip() == CODE.strip()


def test_without_names_the_last_marked_block_is_the_program():
    assert source_of(block(OTHER) + block(CODE) + block("2", "")).text == CODE


def test_a_class_and_a_name_are_definitions_too():
    assert source_of(block("class S:\n    pass\n") + block(USE), names=["S"]).text.startswith("class")
    assert source_of(block("f = lambda x: x\n") + block("f == 1\n"), names=["f"]).text.startswith("f = ")


def test_a_fence_in_a_docstring_does_not_end_the_block():
    code = 'def f(x):\n    """Do.\n\n    ```python\n    f(2)\n    ```\n    """\n    return x\n'
    assert source_of(block(code), names=["f"]).text == code


def test_a_tag_that_a_program_speaks_of_is_no_thinking():
    code = 'def f(text):\n    return text.split("</think>")[-1]\n'
    assert source_of(f"<think>hm</think>{block(code)}", names=["f"]).text == code


def test_code_that_is_indented_as_a_whole_comes_back_to_the_margin():
    assert source_of("    def f(x):\n        return x\n").text == CODE


@pytest.mark.parametrize(
    "completion",
    [
        "",
        "  \n",
        "<think>" + block(CODE),
        "<think>x</think>",
        block("ls", "bash"),
        block(""),
        block(">>> f(1)", ""),
        "```python",
    ],
)
def test_a_completion_without_code_has_no_answer(completion):
    assert source_of(completion) == Failure("no_answer", source_of(completion).reason)
    assert source_of(completion, "def f(x):\n", "body", ["f"]).code == "no_answer"


PROMPT = 'import math\n\ndef helper():\n    return 1\n\ndef f(x):\n    """Return x."""\n'
HEAD = "import math\n\ndef helper():\n    return 1\n\n"


def _f(source):
    space = {}
    exec(source.text, space)  # noqa: S102 - our own code
    return space["f"]


@pytest.mark.parametrize(
    "completion",
    [
        "    return x + helper()\n",
        "\n    return x + helper()",
        "\treturn x + helper()\n".replace("\t", "    "),
        "```python\n    return x + helper()\n```",
        "return x + helper()\n",
        "y = x\n    return y + helper()\n",
        "if x:\n        pass\n    return x + helper()",
        "if x:\n    pass\nreturn x + helper()",
        "def f(x):\n    return x + helper()\n",
        "Here:\n```python\ndef f(x):\n    return x + helper()\n```",
        PROMPT + "    return x + helper()\n",
        block(PROMPT + "    return x + helper()\n"),
        "    def inner():\n        return helper()\n    return x + inner()\n\nprint\n",
        "    return x + helper()\n```\nThat is the body.",
    ],
)
def test_a_body_continues_the_prompt_however_it_comes(completion):
    assert _f(source_of(completion, PROMPT, "body", ["f"]))(2) == 3


def test_a_body_with_tabs_keeps_them():
    assert source_of("\treturn x\n", "def f(x):\n", "body", ["f"]).text == "def f(x):\n\treturn x\n"


@pytest.mark.parametrize("prompt", ["def f(x):", 'def f(x):\n    """Doc."""'])
def test_a_prompt_without_its_last_line_break_is_continued(prompt):
    assert _f(source_of("    y = x\n    return y\n", prompt, "body", ["f"]))(2) == 2


def test_a_prompt_that_ends_within_a_line_is_continued_there():
    assert source_of(" x\n", "def f(x):\n    return", "body", ["f"]).text == "def f(x):\n    return x\n"


def test_a_whole_function_does_not_stand_behind_a_prompt_in_words():
    assert source_of(CODE, "Write f(x).\n", "body", ["f"]).text == CODE


def test_a_whole_function_stands_behind_the_imports_of_its_prompt():
    assert source_of(CODE, PROMPT, "body", ["f"]).text == HEAD + CODE


def test_a_decorator_of_the_prompts_function_goes_with_it():
    prompt = "import functools\n\n@functools.cache\ndef f(x):\n"
    assert source_of(CODE, prompt, "body", ["f"]).text == "import functools\n\n" + CODE


def test_a_prompt_that_ends_in_an_open_fence_is_continued_inside_it():
    assert source_of(f"{CODE}```\nDone.", "Write f.\n```python\n", names=["f"]).text == CODE


@given(st.text(alphabet="`~ab \t\n<>/thinkanswer:=.1", max_size=200), st.sampled_from(["full", "body"]))
def test_any_text_has_a_source_or_a_reason(text, mode):
    said = source_of(text, "def f(x):\n", mode, ["f"])
    assert isinstance(said, Source) or said.code == "no_answer"


@given(st.text(alphabet="abc=:()\n", min_size=1).filter(str.strip))
def test_a_fenced_program_comes_back_as_it_was_written(code):
    assert source_of(f"```python\n{code}\n```").text == code + "\n"


@pytest.mark.parametrize(
    "text",
    [
        "`" * 300_000,
        "```\n" * 60_000,
        "``` a ` " * 30_000,
        "<think>" * 40_000,
        "<answer>" * 30_000 + "</answer>" * 30_000,
        "- " * 150_000 + "```",
        "a" + " " * 300_000 + "\n```",
        "a:" * 150_000,
        "\n " * 150_000 + "```",
        "def " * 80_000,
    ],
)
def test_hostile_text_costs_time_in_proportion_to_its_length(text):
    started = time.process_time()
    source_of(text, "def f(x):\n    '''d'''\n", "body", ["f"])
    assert time.process_time() - started < 5  # a quadratic scan takes minutes


def test_fences_that_do_not_close_a_block_are_read_in_linear_time():
    text = " " * 200_000 + "````\n" + "```\n" * 20_000
    started = time.process_time()
    source_of(text, "", "full", ["f"])
    assert time.process_time() - started < 1  # columns counted at each fence take 4 s
