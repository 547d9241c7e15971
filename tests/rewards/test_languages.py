"""Programs in other languages: compiled once behind the real boundary, and run for each input."""

import asyncio
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from boundaries import LOST, NEVER, SMALL, FakeBoundary, in_a_loop, opened, row, scored, verdicts
from boundaries import group_of as grouped
from steelyard.clock import Clocks
from steelyard.errors import RefusedError, RunStoppedError, SandboxError, SuspectError
from steelyard.execution import MIB, Ended, Execution, Limits
from steelyard.outcome import Context
from steelyard.rewards.code import tests as unit_tests
from steelyard.rewards.languages import COMPILING, LANGUAGES, Language, folded, spoken
from steelyard.rewards.recipe_file import read_recipe
from steelyard.rewards.suites import Fault
from steelyard.rewards.suites.extract import source_of

SUMS = [{"input": "2 3", "output": "5"}, {"input": "10 -4", "output": "6"}]
BY_NAME = {language.name: language for language in LANGUAGES}
MOULD = {
    name: getattr(SMALL, name)
    for name in ("memory_bytes", "processes", "file_bytes", "files", "output_bytes")
}
QUICK = replace(
    BY_NAME["cpp"], name="quick", aliases=(), limits=replace(COMPILING, cpu_s=1.0, reply_bytes=MIB, **MOULD)
)
"""C++ whose compilations share their slot with the runs."""


PROGRAMS = dict(
    re.findall(
        r"^//// (.*)\n((?:(?!////).*\n)*)",
        Path(__file__).with_name("languages_cpp.txt").read_text(),
        re.MULTILINE,
    )
)
HEAD = PROGRAMS.pop("head")


def programs_in(group, head=HEAD):
    """Programs of a group by name, each with the code of its end (`None`: right, whatever it tried)."""
    said = {}
    for title, program in PROGRAMS.items():
        of, name, code = re.fullmatch(r"(\w+): (.*) -> (\w+)", title).groups()
        if of == group:
            said[name] = (None if code == "right" else code, head + program)
    return said


ENDS, HOSTILE, COMPILING_ENDS = programs_in("ends"), programs_in("hostile"), programs_in("compiling", "")
RIGHT = HEAD + "int main() { return sum(); }\n"
HONEST = '#include <cstdio>\nint main() { long a, b; scanf("%ld %ld", &a, &b); printf("%ld", a + b); }\n'

real = pytest.mark.needs("bubblewrap", "cxx")


def codes(said):
    return [verdict.code for verdict in said]


def judged(*programs, language="quick", limits=SMALL, boundary=None, **settings):
    own = {"quick": QUICK, **settings.pop("languages", {})}
    return verdicts(
        programs, tests=SUMS, limits=limits, language=language, languages=own, boundary=boundary, **settings
    )


@pytest.fixture(scope="module")
def ends():
    """All of these in one run."""
    programs = {**ENDS, **COMPILING_ENDS}
    return dict(zip(programs, judged(*(text for _, text in programs.values())), strict=True))


@real
@pytest.mark.needs("cgroup")
class TestCpp:
    @pytest.mark.parametrize("name", ENDS)
    def test_every_end_has_its_code(self, ends, name):
        code, verdict = ENDS[name][0], ends[name]
        assert (verdict.value, verdict.code) == (float(code is None), code), verdict
        assert verdict.integrity == "isolated"

    @pytest.mark.parametrize("name", COMPILING_ENDS)
    def test_what_does_not_compile_is_the_floor_with_a_code(self, ends, name):
        verdict = ends[name]
        assert (verdict.value, verdict.code) == (0.0, COMPILING_ENDS[name][0]), verdict
        assert verdict.reason

    def test_the_reason_is_the_compilers_first_error_and_the_programs_last_words(self, ends):
        assert ends["not C++"].reason.startswith("main.cpp:1:1: error: ")
        assert "undefined reference to `main'" in ends["no main"].reason
        assert "SIGABRT" in ends["assert"].reason
        assert "Assertion" in ends["assert"].reason
        assert ends["reading a device"].reason.startswith("compiling: ")

    def test_a_compiler_reads_no_file_of_the_host(self):
        (verdict,) = judged('#include "/etc/passwd"\n#include "/etc/hostname"\nint main() {}')
        assert verdict.code == "load_error"
        assert "root" not in verdict.reason

    def test_hostile_programs_are_contained_and_an_honest_one_after_each_is_paid(self):
        rows = [text for _, hostile in HOSTILE.values() for text in (hostile, HONEST)]

        async def main():
            async with opened(slots=1) as boundary:
                reward = unit_tests(boundary, limits=replace(SMALL, cpu_s=0.5), language=QUICK)
                (group,) = await scored(reward, grouped(*rows, tests=SUMS[:1]))
                return list(group.totals)

        said = asyncio.run(main())
        assert dict(zip(HOSTILE, codes(said[::2]), strict=True)) == {
            n: code for n, (code, _) in HOSTILE.items()
        }
        assert codes(said[1::2]) == [None] * len(HOSTILE)

    def test_the_share_of_inputs_is_paid_where_it_is_asked_for(self):
        half = HEAD + 'int main() { puts("6"); }'
        assert [verdict.value for verdict in judged(half, RIGHT, "int main({}", share=True)] == [
            0.5,
            1.0,
            0.0,
        ]

    @in_a_loop
    async def test_clocks_hold_the_compilation_and_its_limits_are_its_own(self):
        heavy = "#include <iostream>\n#include <map>\n" + RIGHT
        async with opened(slots=2) as boundary:
            limits = replace(SMALL, cpu_s=0.2)
            reward = unit_tests(boundary, limits=limits, language="cpp")
            await reward.attest()
            reported = []
            said = await reward(row(heavy, SUMS), Context(report=reported.append))
        assert said.value == 1.0, said
        assert len(reported) == 3  # compiled once, then a run for each input
        assert reported[-1].cpu_s > reported[0].cpu_s > 0.2
        assert reported[-1].wall_s > reported[0].wall_s > 0


C = '#include <stdio.h>\nint main(void) { long a, b; scanf("%ld %ld", &a, &b); printf("%ld\\n", a + b); }\n'
JAVA = (
    "import java.util.Scanner;\npublic class Main {\n"
    "  record Pair(int a, int b) { int sum() { return a + b; } }\n"
    "  public static void main(String[] given) {\n    Scanner in = new Scanner(System.in);\n"
    "    System.out.println(new Pair(in.nextInt(), in.nextInt()).sum());\n  }\n}\n"
)
JAVASCRIPT = (
    "const [a, b] = require('fs').readFileSync(0, 'utf8').split(' ').map(Number);\nconsole.log(a + b);\n"
)
RUST = (
    "use std::io;\nfn main() {\n    let mut line = String::new();\n"
    "    io::stdin().read_line(&mut line).unwrap();\n"
    "    let sum: i64 = line.split_whitespace().map(|word| word.parse::<i64>().unwrap()).sum();\n"
    '    println!("{sum}");\n}\n'
)
PERL = 'my ($a, $b) = split " ", <STDIN>; print $a + $b, "\\n";'
OWN = {"perl": {"file": "main.pl", "run": ["perl", "main.pl"], "hello": 'print "hello\\n";'}}
SEEN = "/usr/local/bin:/usr/bin:/bin"
"""Where candidates find programs."""
ELSEWHERE = {
    "c": (C, "int main( {", "gcc"),
    "java": (JAVA, "class Main { int x = ; }", "javac"),
    "javascript": (JAVASCRIPT, "let let = (;", "node"),
    "rust": (RUST, "fn main( {", "rustc"),
    "perl": (PERL, "my ($a = ;", "perl"),
}


@pytest.mark.needs("bubblewrap")
@pytest.mark.parametrize(
    "language",
    [name for name, (*_, program) in ELSEWHERE.items() if shutil.which(program, path=SEEN) is not None],
)
def test_each_toolchain_that_is_below_usr_judges_right_wrong_and_broken(language):
    right, broken, _program = ELSEWHERE[language]
    wrong = (
        right.replace("a + b", "a - b").replace(".sum();", ".max().unwrap();").replace("$a + $b", "$a - $b")
    )
    said = verdicts([right, wrong, broken], tests=SUMS, language=language, languages=OWN, limits=Limits())
    assert codes(said)[:2] == [None, "wrong_answer"], said
    assert said[2].code == (
        "load_error" if language in BY_NAME and BY_NAME[language].compile else "exception"
    ), said


@pytest.mark.needs("bubblewrap")
@pytest.mark.skipif(shutil.which("javac", path="/usr/local/bin:/usr/bin:/bin") is None, reason="no javac")
def test_an_older_java_has_nothing_of_a_newer_one():
    (said,) = verdicts([JAVA], tests=SUMS, language="Java 8", limits=Limits())
    assert (said.code, said.reason.split(" ")[0]) == ("load_error", "Main.java:3:"), said  # the record


PYTHON = (
    "a, b = map(int, input().split())\nprint(a + b)",
    "print(5)",
    "print(int(input()))",
    "raise SystemExit(3)",
    "import os\nos.abort()",
    "while True: pass",
    "import time\ntime.sleep(60)",
    "def f(:",
)


@pytest.mark.needs("bubblewrap", "cgroup")
def test_python_by_a_recipe_of_commands_is_judged_as_it_is_without():
    if shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin") is None:
        pytest.skip("no python3 is where candidates see it")
    recipe = Language("by command", "main.py", ("python3", "main.py"), 'print("hello")')
    limits = replace(SMALL, cpu_s=0.5)
    plain = verdicts(PYTHON, tests=SUMS, limits=limits)
    by_command = verdicts(PYTHON, tests=SUMS, limits=limits, language=recipe)
    assert [(verdict.value, verdict.code) for verdict in by_command] == [
        (verdict.value, verdict.code) for verdict in plain
    ]


# --- which language a row is in


class TestTheLanguageOfARow:
    REWARD = unit_tests(FakeBoundary(lambda *_: LOST), languages=OWN)

    @pytest.mark.parametrize(
        ("word", "name"),
        [
            *((word, "cpp") for word in ("cpp", "C++", "c++", "g++", "CXX")),
            *((word, "cpp17") for word in ("C++17", "cpp17", "GNU C++17", "C++17 (GCC 7-32)", "GNU G++17")),
            ("C++20 (GCC 13-64)", "cpp20"),
            ("C", "c"), ("GNU C11", "c11"), ("c99", "c99"), ("Java 8", "java8"), ("Java", "java"),
            ("Rust 2021", "rust"), ("Rust 2018", "rust2018"), ("Perl", "perl"),
            ("Node.js", "javascript"), ("JavaScript", "javascript"),
        ],
    )  # fmt: skip
    def test_has_the_words_that_datasets_use(self, word, name):
        own = self.REWARD.languages
        assert spoken(word, own).name == name
        assert self.REWARD.lint({"tests": SUMS, "language": word}) is None

    @pytest.mark.parametrize("word", ["python", "Python 3", "py", "PyPy 3-64", "python3"])
    def test_python_needs_no_recipe(self, word):
        assert spoken(word, ()) is None

    @pytest.mark.parametrize("word", ["Python 2", "python2", "PyPy", "PyPy 2"])
    def test_what_is_no_python_3_is_not_run_as_one(self, word):
        said = self.REWARD.lint({"tests": SUMS, "language": word})
        assert said.startswith(f"language {word!r} has no recipe")

    @pytest.mark.parametrize(
        ("word", "flags"),
        [
            ("C99", ["-std=gnu99"]), ("C17", ["-std=gnu17"]), ("C", ["-std=gnu17"]),
            ("Rust 2015", ["--edition=2015"]), ("Rust 2024", ["--edition=2024"]),
            ("Rust", ["--edition=2021"]),
            ("Java 11", ["--release", "11"]), ("Java 21", ["--release", "21"]),
        ],
    )  # fmt: skip
    def test_a_standard_edition_or_release_is_the_one_that_is_compiled(self, word, flags):
        command = spoken(word, ()).compile
        at = command.index(flags[0])
        assert list(command[at : at + len(flags)]) == flags

    def test_the_settings_own_recipe_is_known_to_rows_by_its_name(self):
        awk = Language("awk", "main.awk", ("awk", "-f", "main.awk"), 'BEGIN { print "hello" }')
        reward = unit_tests(FakeBoundary(lambda *_: LOST), language=awk)
        assert reward.lint({"tests": SUMS, "language": "AWK"}) is None

    def test_the_column_goes_over_the_setting_and_python_is_the_default(self):
        reward = unit_tests(FakeBoundary(lambda *_: LOST), language="cpp")
        asserts = {"tests": "assert f(1) == 1"}
        assert "its language is cpp" in reward.lint(asserts)
        assert reward.lint({**asserts, "language": "python"}) is None
        assert self.REWARD.lint(asserts) is None

    @pytest.mark.parametrize(
        ("columns", "said"),
        [
            ({"tests": SUMS, "language": "brainf"}, "language 'brainf' has no recipe: python, perl, cpp"),
            ({"tests": SUMS, "language": 7}, "language is 7"),
            ({"tests": "assert f(1) == 1", "language": "cpp"}, "only whole programs"),
            (
                {"tests": {"fn_name": "f", "inputs": [[1]], "outputs": [1]}, "language": "cpp"},
                "only whole programs",
            ),
            ({"tests": SUMS, "language": "cpp", "completion_mode": "body"}, "no completion_mode"),
        ],
    )
    def test_what_cannot_be_judged_is_a_bad_row_with_a_reason(self, columns, said):
        assert said in self.REWARD.lint(columns)

    def test_every_word_of_a_recipe_is_its_own(self):
        words = [folded(word) for language in LANGUAGES for word in (language.name, *language.aliases)]
        assert len(words) == len(set(words))

    def test_a_recipe_of_ones_own_goes_over_ours(self):
        own = replace(BY_NAME["cpp"], compile=("clang++", "-o", "main", "main.cpp"))
        assert spoken("C++", [own]) is own

    def test_identities_differ_with_the_recipe(self):
        made = [
            unit_tests(FakeBoundary(lambda *_: LOST), **settings).identity
            for settings in ({}, {"language": "cpp"}, {"language": "cpp20"}, {"languages": OWN})
        ]
        assert len(set(made)) == 4


class TestRecipesInAFile:
    def recipe(self, settings):
        return read_recipe(
            f'[[part]]\nreward = "tests"\n[part.settings]\nboundary = "bubblewrap"\n{settings}'
        )

    def test_a_toolchain_of_ones_own_is_a_table(self):
        made = self.recipe(
            'language = "zig"\n[part.settings.languages.zig]\nfile = "main.zig"\n'
            'compile = ["zig", "build-exe", "main.zig"]\nrun = ["./main"]\nhello = "..."\n'
            "limits = { cpu_s = 30 }\nenvironment = { ZIG_GLOBAL_CACHE_DIR = '/box/tmp' }\n"
        )
        language = made.parts[0].reward.language
        assert (language.name, language.compile[0], language.run) == ("zig", "zig", ("./main",))
        assert language.limits == replace(COMPILING, cpu_s=30)
        assert language.environment == (("ZIG_GLOBAL_CACHE_DIR", "/box/tmp"),)

    @pytest.mark.parametrize(
        ("table", "said"),
        [
            ('file = "a.b"\nrun = ["a"]', "it lacks hello"),
            ('file = "a.b"\nrun = "a"\nhello = "x"', "run = 'a'"),
            ('file = "a.b"\nrun = []\nhello = "x"', "run = []"),
            ('file = "a/b"\nrun = ["a"]\nhello = "x"', "is no plain name"),
            ('files = "a.b"', "'files' means nothing here"),
            ('file = "a.b"\nrun = ["a"]\nhello = "x"\nlimits = { cpu = 1 }', "limits = {'cpu': 1}"),
            ('file = "a.b"\nrun = ["a"]\nhello = "x"\nlimits = { cpu_s = 0 }', "limits.cpu_s = 0"),
            ('file = "a.b"\nrun = ["a"]\nhello = "x"\nenvironment = { A = 1 }', "environment = {'A': 1}"),
        ],
    )
    def test_what_is_no_recipe_is_refused_with_its_name(self, table, said):
        with pytest.raises(RefusedError) as refused:
            self.recipe(f"[part.settings.languages.zig]\n{table}\n")
        assert said in str(refused.value)
        assert "language zig" in str(refused.value)

    def test_the_command_line_says_the_language_of_rows_that_do_not(self, tmp_path):
        rows = tmp_path / "rows.jsonl"
        rows.write_text('{"prompt": "?", "completion": "x", "tests": [{"input": "", "output": "x"}]}\n')
        score = ["score", rows, "--reward", "tests", "--language", "brainf", "--out", tmp_path / "out.jsonl"]
        done = subprocess.run(
            [sys.executable, "-m", "steelyard", *score], capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert "language 'brainf' has no recipe" in " ".join(done.stderr.split())

    def test_an_unknown_language_is_refused_with_those_there_are(self):
        with pytest.raises(RefusedError, match="language 'brainf' has no recipe: python, cpp"):
            self.recipe('language = "brainf"')


class TestTheSourceInACompletion:
    CPP = BY_NAME["cpp"].marks

    @pytest.mark.parametrize(
        "mark", ["cpp", "c++", "C++", "cxx", "cc", "cpp17", "c++20", "{.cpp}", "cpp main.cpp"]
    )
    def test_a_block_of_the_language_is_the_program(self, mark):
        said = f"Plan:\n```python\nprint(1)\n```\n```{mark}\nint main() {{}}\n```\nIt prints:\n```\n1\n```\n"
        assert source_of(said, marks=self.CPP).text == "int main() {}\n"

    def test_of_several_the_last_is_taken_and_nothing_of_the_thinking(self):
        said = (
            "<think>```cpp\nint a;\n```</think>\n```cpp\nint b;\n```\n```cpp\nint c;\n```\n```c\nint d;\n```"
        )
        assert source_of(said, marks=self.CPP).text == "int c;\n"

    def test_an_unmarked_block_will_do_and_a_bare_text(self):
        assert source_of("```\nint main() {}\n```", marks=self.CPP).text == "int main() {}\n"
        assert source_of("int main() {}", marks=self.CPP).text == "int main() {}"

    def test_a_prompt_that_ends_in_its_fence_begins_it(self):
        said = source_of("int main() {}\n```\nDone.", "Write it.\n```cpp\n", marks=self.CPP)
        assert said.text == "int main() {}\n"

    def test_blocks_of_other_languages_are_no_programs(self):
        said = source_of("```python\nprint(1)\n```", marks=self.CPP)
        assert said.code == "no_answer"
        for mark in ("cpp", "c++", "cs", "css", "c#"):
            assert source_of(f"```{mark}\nx\n```", marks=BY_NAME["c"].marks).code == "no_answer"


# --- the incentive law, on a boundary that does as it is told


def files(*names):
    return Execution(
        Ended.EXIT, 0, replies=(b"made", *(part for name in names for part in (name, b"..."))),
        clocks=Clocks(wall_s=1.0, cpu_s=0.5),
    )  # fmt: skip


SAYS_HELLO = Execution(Ended.EXIT, 0, stdout=b"hello\n", clocks=Clocks(wall_s=0.1))
FIVE = Execution(Ended.EXIT, 0, stdout=b"5\n", clocks=Clocks(wall_s=0.1, cpu_s=0.1))
ONE = [{"input": "2 3", "output": "5"}]


def doing(build, *runs):
    """A boundary where the toolchain works, a candidate's build ends so, and its runs so."""
    ends = iter((SAYS_HELLO, *runs))

    def end(source, _times):
        if source == QUICK.hello:
            return files(b"main")
        return build if source else next(ends)

    return FakeBoundary(end)


class TestTheIncentiveLaw:
    @in_a_loop
    async def test_it_is_compiled_once_and_run_once_for_each_input(self):
        boundary = doing(files(b"main"), FIVE, FIVE)
        reward = unit_tests(boundary, language=QUICK)
        said = await reward(row("x", [*ONE, *ONE]), Context())
        assert said.value == 1.0
        commands = [header["command"][0] for *_, header in boundary.runs]
        assert commands == ["g++", "./main", "g++", "./main", "./main"]  # its hello, then the candidate

    @in_a_loop
    async def test_a_toolchain_is_tried_once_for_all_rows(self):
        boundary = doing(files(b"main"), FIVE, FIVE, FIVE)
        reward = unit_tests(boundary, language=QUICK)
        await reward.attest()
        await asyncio.gather(*(reward(row("x", ONE), Context()) for _ in range(3)))
        assert sum(source == QUICK.hello.encode() for source, *_ in boundary.runs) == 1

    @pytest.mark.parametrize("lost", [LOST, Execution(Ended.LIMIT, limit="wall", clocks=Clocks(wall_s=9.0))])
    @in_a_loop
    async def test_contact_lost_while_it_compiles_is_suspect(self, lost):
        reward = unit_tests(doing(lost), language=QUICK)
        with pytest.raises(SuspectError):
            await reward(row("x", ONE), Context())

    @in_a_loop
    async def test_a_compiler_that_never_began_is_nobodys_fault(self):
        reward = unit_tests(doing(NEVER), language=QUICK)
        with pytest.raises(SandboxError):
            await reward(row("x", ONE), Context())

    @in_a_loop
    async def test_a_program_that_never_began_after_it_was_compiled_is_suspect(self):
        reward = unit_tests(doing(files(b"main"), NEVER), language=QUICK)
        with pytest.raises(SuspectError, match="input 1 never began"):
            await reward(row("x", ONE), Context())

    @pytest.mark.parametrize(
        ("build", "code"),
        [
            (Execution(Ended.EXIT, 1, stdout=b"warning\nx:1: error: no\nmore"), "load_error"),
            (Execution(Ended.EXIT, 1), "load_error"),
            (Execution(Ended.EXIT, 0), "load_error"),
            (Execution(Ended.EXIT, 0, replies=(b"made",)), "load_error"),
            (Execution(Ended.EXIT, 0, replies=(b"large", b"99999999")), "files"),
            (Execution(Ended.EXIT, 1, evidence={"memory_kills": 1}), "memory"),
            (Execution(Ended.LIMIT, limit="cpu"), "cpu"),
        ],
    )
    @in_a_loop
    async def test_what_a_compilation_ends_in_is_final(self, build, code):
        boundary = doing(build)
        said = await unit_tests(boundary, language=QUICK)(row("x", ONE), Context())
        assert (said.value, said.code) == (0.0, code)
        assert len(boundary.runs) == 3  # its hello's two, and one of the candidate's

    ABSENT = SandboxError("sandbox:fake", "FileNotFoundError: there is no g++ inside")

    @pytest.mark.parametrize(
        ("end", "said"),
        [
            (ABSENT, "there is no g++ inside"),
            (Execution(Ended.EXIT, 1, stdout=b"g++: fatal error: no cc1plus"), "its hello does not compile"),
            (Execution(Ended.EXIT, 127, stderr=b"no libstdc++"), "its hello does not compile"),
            (LOST, "contact was lost"),
        ],
    )
    @in_a_loop
    async def test_a_toolchain_that_does_not_work_refuses_the_run_and_is_nobodys_floor(self, end, said):
        reward = unit_tests(FakeBoundary(lambda *_: end), language=QUICK)
        with pytest.raises(RefusedError, match="language quick") as refused:
            await reward.attest()
        assert said in str(refused.value)
        named = unit_tests(FakeBoundary(lambda *_: end), languages={"quick": QUICK})
        await named.attest()  # nobody has named it yet
        with pytest.raises(RunStoppedError, match="language quick"):
            await named(row("x", ONE, language="quick"), Context())

    @pytest.mark.needs("bubblewrap")
    def test_a_compiler_that_is_not_there_stops_the_run_before_anything_is_judged(self):
        absent = replace(QUICK, name="absent", compile=("no-such-compiler",))
        with pytest.raises(RefusedError, match="there is no no-such-compiler inside"):
            asyncio.run(self.attested(absent))

    async def attested(self, language):
        async with opened(slots=2) as boundary:
            await unit_tests(boundary, language=language).attest()


def test_limits_that_are_no_multiple_reach_a_command_as_whole_mebibytes():
    boundary = FakeBoundary(lambda *_: SAYS_HELLO)
    language = Language("x", "x.x", ("x", "-m{memory_mib}"), "x")
    reward = unit_tests(boundary, language=language, limits=Limits(memory_bytes=300 * MIB + 5))
    asyncio.run(reward.attest())
    assert boundary.runs[0][3]["command"] == ["x", "-m300"]


def test_a_word_without_a_recipe_is_a_fault():
    assert isinstance(spoken("klingon", ()), Fault)
