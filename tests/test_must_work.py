"""The suite's own manners (conftest.py), shown on small suites of their own."""

from pathlib import Path

import pytest

NEEDS_DATA = """
    import pytest

    @pytest.mark.needs("data")
    def test_marked():
        pass

    def test_asks_for_the_fixture(data_dir):
        assert data_dir.is_dir()

    def test_needs_nothing():
        pass
"""
SKIPS_ITSELF = """
    import pytest

    @pytest.mark.needs("data")
    def test_finds_the_file_missing():
        pytest.skip("no such file")

    def test_for_another_reason():
        pytest.skip("on Tuesdays")
"""


@pytest.fixture
def suite(pytester, monkeypatch):
    pytester.makeconftest(Path(__file__).with_name("conftest.py").read_text())
    pytester.makeini("""
        [pytest]
        addopts = --strict-markers -p no:hypothesispytest
        markers = needs(name): what must be present
    """)
    monkeypatch.setenv("STEELYARD_DATA", "absent")
    monkeypatch.delenv("STEELYARD_MUST_WORK", raising=False)
    return pytester


def test_what_needs_an_absent_thing_is_skipped_with_the_reason(suite):
    suite.makepyfile(NEEDS_DATA)
    run = suite.runpytest("-rs")
    run.assert_outcomes(skipped=2, passed=1)
    run.stdout.fnmatch_lines("*needs data: absent is no folder; set STEELYARD_DATA*")


def test_what_must_work_and_is_absent_fails(suite, monkeypatch):
    monkeypatch.setenv("STEELYARD_MUST_WORK", "data")
    suite.makepyfile(NEEDS_DATA)
    run = suite.runpytest()
    run.assert_outcomes(errors=2, passed=1)
    run.stdout.fnmatch_lines("*STEELYARD_MUST_WORK names data: absent is no folder*")


def test_what_is_present_runs_also_where_it_must(suite, monkeypatch):
    monkeypatch.setenv("STEELYARD_DATA", str(suite.mkdir("given")))
    monkeypatch.setenv("STEELYARD_MUST_WORK", "data")
    suite.makepyfile(NEEDS_DATA)
    suite.runpytest().assert_outcomes(passed=3)


def test_a_skip_that_the_test_makes_itself_fails_where_its_need_must_work(suite, monkeypatch):
    monkeypatch.setenv("STEELYARD_DATA", str(suite.mkdir("given")))
    suite.makepyfile(SKIPS_ITSELF)
    suite.runpytest().assert_outcomes(skipped=2)
    monkeypatch.setenv("STEELYARD_MUST_WORK", "data")
    run = suite.runpytest()
    run.assert_outcomes(failed=1, skipped=1)
    run.stdout.fnmatch_lines("*STEELYARD_MUST_WORK names data, but the test skipped itself: no such file*")


def test_a_fixture_that_skips_fails_where_its_need_must_work(suite, monkeypatch):
    monkeypatch.setenv("STEELYARD_DATA", str(suite.mkdir("given")))
    monkeypatch.setenv("STEELYARD_MUST_WORK", "data")
    suite.makepyfile("""
        import pytest

        @pytest.fixture
        def rows(data_dir):
            pytest.skip("no rows")

        def test_reads(rows):
            pass
    """)
    suite.runpytest().assert_outcomes(errors=1)


def test_a_need_that_nobody_must_have_stays_a_skip_beside_one_that_must_work(suite, monkeypatch):
    monkeypatch.setenv("STEELYARD_MUST_WORK", "py313")
    suite.makepyfile(NEEDS_DATA)
    suite.runpytest().assert_outcomes(skipped=2, passed=1)


@pytest.mark.parametrize("where", ["environment", "marker"])
def test_an_unknown_need_is_a_usage_error(suite, monkeypatch, where):
    if where == "environment":
        monkeypatch.setenv("STEELYARD_MUST_WORK", "data,dta")
    marked = "dta" if where == "marker" else "data"
    suite.makepyfile(f"import pytest\n@pytest.mark.needs({marked!r})\ndef test(): pass\n")
    run = suite.runpytest_subprocess()
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    run.stderr.fnmatch_lines("*dta*known needs are*")


def test_a_tmpfs_holds_what_it_was_told_and_no_more(tmpfs):
    small = tmpfs(1 << 20)
    with pytest.raises(OSError, match="No space left"):
        (small / "big").write_bytes(bytes(2 << 20))


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="there is no /proc to look into")
def test_a_test_that_leaves_processes_running_fails_and_they_are_ended(suite):
    suite.makepyfile("""
        import os, signal, subprocess

        def test_leaves_a_child_an_orphan_and_a_fork():
            subprocess.Popen(["sleep", "61"])
            subprocess.run(["sh", "-c", "sleep 62 & true"])
            os.fork() or signal.pause()

        def test_after_it():
            pass
    """)
    run = suite.runpytest_subprocess()
    run.assert_outcomes(passed=2, errors=1)
    run.stdout.re_match_lines(r"the test left processes running: \[.*pytest.*sleep 61.*sleep 62.*\]")
