"""The ledger only grows, refuses what it cannot know, and says what is wrong with itself."""

import contextlib
import sqlite3
from dataclasses import fields, replace
from pathlib import Path

import pytest

from steelyard.clock import Clocks
from steelyard.errors import RefusedError, RunStoppedError
from steelyard.ledger import Departure, Ledger, verify
from steelyard.outcome import Abstained, Attempt, End, Score, Scored, Unscored
from steelyard.rollout import Group, Rollout

SPEC = {"input": "d1", "columns": {}, "rollouts": 6}
PARTS = {"right": "right/1", "short": "short/1"}


def rollout(ordinal, group, place, **columns):
    return Rollout(
        f"r{ordinal}",
        "p",
        f"c{ordinal}",
        {"answer": "2", **columns},
        (group, place),
        ordinal,
        f"f:{ordinal + 1}",
    )


SCATTERED = [
    Group("a", 0, [rollout(0, 0, 0), rollout(2, 0, 1), rollout(5, 0, 2)]),
    Group("b", 1, [rollout(1, 1, 0), rollout(3, 1, 1), rollout(4, 1, 2)]),
]


def attempt(number, ordinal, part="right", **more):
    return Attempt(number, part, 0, ordinal, 1, Clocks(service_s=0.5), **more)


def score(ordinal, verdict, part="right", number=None):
    return Score((0, 0), ordinal, part, PARTS[part], verdict, number)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.ledger"


def begun(ledger, **more):
    return ledger.begin("one", SPEC, PARTS, **more)


@pytest.fixture
def filled(path):
    """A whole run of six rollouts in two scattered groups, and its path."""
    with Ledger(path) as ledger:
        run = begun(ledger)
        ledger.enter(run, SCATTERED)
        ordinals = range(6)
        ledger.leave(
            run,
            attempts=[attempt(n, n) for n in ordinals],
            scores=[score(n, Scored(n / 4), part, n) for n in ordinals for part in PARTS],
            departures=[Departure(group, "grpo", [0.5, -0.25, -0.25]) for group in (0, 1)],
        )
    return path


def edited(path, *statements):
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        for statement in statements:
            db.execute(statement)
    with Ledger(path, write=False) as ledger:
        return ledger.verify()


# --- what goes in comes out


VERDICTS = [
    Scored(1.25),
    Scored(-0.5, "wrong", "ünï 数", "isolated"),
    Scored(1e200, None, None, "cooperative"),
    Scored(5e-324),
    Abstained("column 'tests' is absent"),
    Unscored("judge:tone", "503; its canary failed too"),
]


def test_every_verdict_comes_out_as_it_went_in(path):
    with Ledger(path) as ledger:
        run = begun(ledger)
        ledger.enter(run, SCATTERED)
        ledger.leave(run, scores=[score(n, verdict) for n, verdict in enumerate(VERDICTS)])
        assert ledger.recorded(run, range(6)) == {
            (n, 0): (verdict, None) for n, verdict in enumerate(VERDICTS)
        }
        assert [one[:3] for one in ledger.scores(run)] == [
            (n, 0, verdict) for n, verdict in enumerate(VERDICTS)
        ]


def test_every_clock_of_an_attempt_comes_out_as_it_went_in_and_what_was_not_measured_stays_so(path):
    names = [one.name for one in fields(Clocks) if one.name != "censored"]
    full = Clocks(**{name: (place + 1) / 7 for place, name in enumerate(names)}, censored=True)
    attempts = [
        Attempt(0, "right", 0, 3, 4, full, End.CUT, "cpu", {"cause": "cpu", "boundary": "", "rows": [1, 2]}),
        *(Attempt(n + 1, "short", 2, 1, 1, Clocks(**{name: 0.0})) for n, name in enumerate(names)),
        Attempt(99, "right", 1, 0, 1, Clocks(), End.NEVER_STARTED),
    ]
    with Ledger(path) as ledger:
        run = begun(ledger)
        ledger.leave(run, attempts=attempts)
        assert list(ledger.attempts(run)) == attempts
        assert ledger.next_attempt(run) == 100


def test_a_rollout_comes_out_as_it_went_in(path):
    odd = rollout(0, 0, 0)._replace(
        id=7,
        prompt=[{"role": "user", "content": "1 + 1?"}],
        completion="a\ud800b",
        columns={"answer": 2**70, "x": None},
        files={"a.py": "x"},
        state={"done": True},
    )
    with Ledger(path) as ledger:
        run = begun(ledger)
        ledger.enter(run, [Group("a", 0, [odd])])
        (entered,) = ledger.entered(run)
        assert entered.rollout(run)._replace(where="", raw=None) == odd._replace(where="")
        assert ledger.verify() == []


def test_rollouts_come_in_input_order_whatever_the_order_of_their_groups(filled):
    with Ledger(filled, write=False) as ledger:
        (run,) = ledger.runs()
        assert list(ledger.heads(run)) == [
            (0, 0, 0, "r0"), (1, 1, 0, "r1"), (2, 0, 1, "r2"),
            (3, 1, 1, "r3"), (4, 1, 2, "r4"), (5, 0, 2, "r5"),
        ]  # fmt: skip
        assert [one.ordinal for one in ledger.entered(run, group=1)] == [1, 3, 4]
        assert [one[0] for one in ledger.scores(run)] == [n for n in range(6) for _ in PARTS]


def test_a_rollout_is_found_by_its_id_and_text_wins_over_a_number(path):
    with Ledger(path) as ledger:
        run = begun(ledger)
        ledger.enter(
            run, [Group("a", 0, [rollout(0, 0, 0)._replace(id=7), rollout(1, 0, 1)._replace(id="7")])]
        )
        assert ledger.find(run, "7").ordinal == 1
        assert ledger.find(run, "8") is None


@pytest.mark.parametrize(
    "asked",
    [[], [0], [0, 1, 2], [5, 4, 3], [0, 2, 5], [9], [0, 99, 3], [*range(0, 3_000, 2)], [*range(-3, 3_000)]],
)
def test_what_is_recorded_is_found_for_ranges_and_for_gaps(asked, filled):
    with Ledger(filled, write=False) as ledger:
        (run,) = ledger.runs()
        present = set(asked) & set(range(6))
        assert set(ledger.recorded(run, asked)) == {(n, part) for n in present for part in (0, 1)}
        assert ledger.departed(run, "grpo", asked) == set(asked) & {0, 1}
        assert ledger.departed(run, "rloo", asked) == set()


def test_departures_come_out_by_scheme_and_group(filled):
    with Ledger(filled) as ledger:
        (run,) = ledger.runs()
        ledger.leave(run, departures=[Departure(1, "rloo", [1.0, 2.0, 3.0])])
        assert [(d.group, list(d.advantages)) for d in ledger.departures(run, "grpo")] == [
            (0, [0.5, -0.25, -0.25]), (1, [0.5, -0.25, -0.25]),
        ]  # fmt: skip
        assert {d.scheme: list(d.advantages) for d in ledger.departed_group(run, 1)} == {
            "grpo": [0.5, -0.25, -0.25], "rloo": [1.0, 2.0, 3.0],
        }  # fmt: skip


def test_service_times_come_shortest_first_and_say_which_were_cut(path):
    with Ledger(path) as ledger:
        run = begun(ledger)
        times = [(0.3, False), (0.1, True), (0.2, False)]
        ledger.leave(
            run,
            attempts=[
                *(
                    Attempt(n, "right", 0, n, 2, Clocks(service_s=s, censored=cut))
                    for n, (s, cut) in enumerate(times)
                ),
                Attempt(7, "right", 0, 0, 1, Clocks()),  # nobody measured it
                Attempt(8, "short", 0, 0, 5, Clocks(service_s=9.0)),
            ],
        )
        assert list(ledger.service_times(run, 0)) == [(0.1, True), (0.2, False), (0.3, False)]
        assert ledger.judged_rollouts(run, 1) == 5


# --- it only grows


def test_no_statement_of_the_ledgers_changes_or_removes_what_was_recorded(path):
    said = []
    with Ledger(path) as ledger:
        ledger._db.set_trace_callback(said.append)
        run = begun(ledger)
        ledger.enter(run, SCATTERED)
        ledger.leave(
            run,
            attempts=[attempt(0, 0)],
            scores=[score(0, Scored(1.0), number=0)],
            departures=[Departure(0, "g", [1.0])],
        )
        ledger.spool([b"x\n"])
        ledger.forget_spool()
        ledger.verify()
        ledger._db.set_trace_callback(None)
    changing = [
        one
        for one in said
        if one.split()[0] in {"UPDATE", "DELETE", "REPLACE", "DROP", "ALTER"} or "OR REPLACE" in one
    ]
    assert {one.split("--")[0].strip() for one in changing} == {"DELETE FROM spool"}
    assert any(one.startswith("INSERT INTO scores") for one in said)


def test_a_second_score_for_a_rollout_is_not_taken_and_the_first_stands(filled):
    with Ledger(filled) as ledger:
        (run,) = ledger.runs()
        before = list(ledger.scores(run))
        with pytest.raises(RunStoppedError, match="written down before"):
            ledger.leave(run, attempts=[attempt(50, 0)], scores=[score(0, Scored(9.0), number=50)])
        assert list(ledger.scores(run)) == before
        assert ledger.next_attempt(run) == 6  # all of the transaction went back


def test_a_resumed_run_enters_only_what_is_not_there_yet(path):
    with Ledger(path) as ledger:
        run = begun(ledger)
        assert not run.resumed
        ledger.enter(run, SCATTERED[:1])
    with Ledger(path) as ledger:
        run = begun(ledger)
        assert run.resumed
        ledger.enter(run, SCATTERED)
        assert [head[0] for head in ledger.heads(run)] == list(range(6))
        ledger.enter(run, SCATTERED)
        assert len(list(ledger.heads(run))) == 6
        assert ledger.verify() == []


def test_a_failed_entry_leaves_no_part_of_a_chunk(path):
    with Ledger(path) as ledger:
        run = begun(ledger)
        with pytest.raises(RunStoppedError, match="written down before"):
            ledger.enter(run, [SCATTERED[0], SCATTERED[0]])
        assert list(ledger.heads(run)) == []
        ledger.enter(run, SCATTERED)
        assert len(list(ledger.heads(run))) == 6


# --- runs


def test_the_same_identity_continues_its_run_and_another_is_refused_with_what_differs(filled):
    with Ledger(filled) as ledger:
        assert begun(ledger).number == 1
        with pytest.raises(RefusedError) as refused:
            ledger.begin("two", {**SPEC, "input": "d2"}, PARTS)
        assert 'input: "d1" there, "d2" now' in str(refused.value)
        assert "--new-run" in str(refused.value)
        assert len(ledger.runs()) == 1


def test_a_new_run_stands_beside_the_old_and_is_the_one_that_is_continued(filled):
    with Ledger(filled) as ledger:
        new = begun(ledger, new_run=True)
        assert (new.number, new.resumed) == (2, False)
        ledger.enter(new, SCATTERED)
        other = ledger.begin("two", {**SPEC, "input": "d2"}, {"right": "right/2"}, new_run=True)
        assert (other.number, dict(other.parts)) == (3, {"right": 0})
        assert [run.identity for run in ledger.runs()] == ["one", "one", "two"]
        assert begun(ledger).number == 2
        assert list(ledger.scores(new)) == []
        assert len(list(ledger.scores(ledger.runs()[0]))) == 12
        assert ledger.verify() == []


def test_attempt_ids_go_on_where_a_run_stopped_and_begin_anew_in_another(filled):
    with Ledger(filled) as ledger:
        assert ledger.next_attempt(begun(ledger)) == 6
        assert ledger.next_attempt(begun(ledger, new_run=True)) == 0


# --- the spool


def test_the_spool_gives_back_its_lines_from_any_number_and_is_empty_when_forgotten(path):
    lines = [b"a\n", b"\n", b"\xff\x00\r\n", b"last"]
    with Ledger(path) as ledger:
        ledger.spool(lines)
        assert list(ledger.spooled()) == lines
        assert list(ledger.spooled(start=3)) == lines[2:]
        assert list(ledger.spooled(start=9)) == []
        ledger.spool(iter([b"new\n"]))
        assert list(ledger.spooled()) == [b"new\n"]
        ledger.forget_spool()
        assert list(ledger.spooled()) == []


def test_a_spool_that_breaks_off_leaves_the_one_before(path):
    def breaks():
        yield b"x"
        raise KeyError("x")

    with Ledger(path) as ledger:
        ledger.spool([b"before"])
        with pytest.raises(KeyError):
            ledger.spool(breaks())
        assert list(ledger.spooled()) == [b"before"]


# --- opening


def test_one_writer_at_a_time_and_any_number_of_readers(filled):
    with Ledger(filled) as writer:
        with pytest.raises(RefusedError, match="another run is writing this ledger"):
            Ledger(filled)
        with Ledger(filled, write=False) as one, Ledger(filled, write=False) as other:
            assert len(one.runs()) == len(other.runs()) == 1
            begun(writer, new_run=True)
            assert len(one.runs()) == 2
    with Ledger(filled):
        pass


def test_a_refused_ledger_lets_go_of_its_lock(filled):
    with contextlib.closing(sqlite3.connect(filled)) as db, db:
        db.execute("INSERT INTO migrations VALUES ('999_later', 9)")
    for write in (True, False, True):
        with pytest.raises(RefusedError, match=r"newer steelyard.*'999_later'.*\n.*pip install --upgrade"):
            Ledger(filled, write=write)


def test_reading_makes_no_file(tmp_path):
    with pytest.raises(RefusedError, match="there is no such ledger"):
        Ledger(tmp_path / "none", write=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("raw", [b"text " * 300, b"SQLite format 3\x00" + b"\xff" * 500, b"x"])
def test_what_is_no_ledger_is_refused_and_stays_as_it_is(raw, path):
    path.write_bytes(raw)
    for write in (True, False):
        with pytest.raises(RefusedError):
            Ledger(path, write=write)
    assert path.read_bytes() == raw


def test_a_refused_opening_leaves_nothing_beside_it(path):
    path.write_bytes(b"text " * 300)
    with pytest.raises(RefusedError):
        Ledger(path)
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_an_empty_file_becomes_a_ledger(path):
    path.touch()
    with Ledger(path) as ledger:
        assert ledger.runs() == []
        assert ledger.verify() == []


def test_a_disk_that_is_full_stops_the_run_and_keeps_what_was_acknowledged(filled):
    with Ledger(filled) as ledger:
        (run,) = ledger.runs()
        before = list(ledger.scores(run))
        (pages,) = ledger._db.execute("PRAGMA page_count").fetchone()
        ledger._db.execute(f"PRAGMA max_page_count = {pages}")
        more = [Group("c", 2, [rollout(n, 2, n - 6, text="x" * 5_000) for n in range(6, 60)])]
        with pytest.raises(
            RunStoppedError, match=r"full.*everything acknowledged is kept\n.*the same command again"
        ):
            ledger.enter(run, more)
        assert len(list(ledger.heads(run))) == 6
        ledger._db.execute("PRAGMA max_page_count = 100000")
        ledger.enter(run, more)
        assert len(list(ledger.heads(run))) == 60
        assert list(ledger.scores(run)) == before
        assert ledger.verify() == []


# --- verify


def test_a_whole_run_and_half_a_run_are_sound(filled, tmp_path):
    with Ledger(filled, write=False) as ledger:
        assert ledger.verify() == []
    with Ledger(tmp_path / "half") as ledger:
        run = begun(ledger)
        ledger.enter(run, SCATTERED)
        ledger.leave(run, attempts=[attempt(0, 0)], scores=[score(0, Scored(1.0), number=0)])
        assert ledger.verify() == []


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("DELETE FROM rollouts WHERE ordinal = 3", "a score for rollout 3, which never entered"),
        ("DELETE FROM attempts WHERE attempt = 4", "rollout 4 names attempt 4, which is not recorded"),
        (
            "UPDATE scores SET value = NULL WHERE ordinal = 2",
            "rollout 2 is scored None, which is no finite number",
        ),
        (
            "UPDATE scores SET value = 9e999 WHERE ordinal = 2",
            "rollout 2 is scored inf, which is no finite number",
        ),
        ("UPDATE scores SET value = -9e999 WHERE ordinal = 2", "rollout 2 is scored -inf"),
        (
            "DELETE FROM scores WHERE ordinal = 5 AND part = 1",
            "group 0 left although rollout 5 had not been judged",
        ),
        (
            "UPDATE rollouts SET content = replace(content, 'c1', 'c9') WHERE ordinal = 1",
            "content of rollout 1 does not match",
        ),
        (
            "UPDATE rollouts SET content = x'00' WHERE ordinal = 1",
            "the content of rollout 1 does not match its digest",
        ),
        (
            "UPDATE rollouts SET content = '{}' WHERE ordinal = 1",
            "the content of rollout 1 does not match its digest",
        ),
        (
            "UPDATE rollouts SET digest = zeroblob(16) WHERE ordinal = 0",
            "content of rollout 0 does not match its digest",
        ),
    ],
)
def test_verify_finds_what_was_tampered_with_and_names_it(statement, sentence, filled):
    found = edited(filled, statement)
    assert any(sentence in fault for fault in found), found
    assert all(fault.startswith("run 1: ") for fault in found)


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("DELETE FROM rollouts WHERE grp = 1", "a departure whose rollouts are gone"),
        ("UPDATE scores SET part = 7 WHERE part = 1", "a score of a part that the run does not have"),
        pytest.param("UPDATE departures SET advantages = zeroblob(16)", "not one for each rollout"),
        pytest.param(
            "UPDATE departures SET advantages = x'000000000000f87f000000000000f87f000000000000f87f'", "NaN"
        ),
        pytest.param("UPDATE scores SET verdict = 9 WHERE ordinal = 0", "none of the three verdicts"),
        pytest.param("DELETE FROM runs", "rollouts of no run"),
    ],
)
def test_verify_finds_what_no_run_could_have_written(statement, why, filled):
    assert edited(filled, statement) != [], why


def test_verify_reads_rollouts_with_the_column_names_of_their_run(path):
    raw = b'{"q": "p", "said": "c", "answer": "2", "prompt": "never read"}'
    with Ledger(path) as ledger:
        names = {"prompt": "q", "completion": "said"}
        run = ledger.begin("one", {**SPEC, "columns": names}, PARTS)
        one = Rollout(1, "p", "c", {"answer": "2"}, (0, 0), 0, "f:1", raw=raw)
        ledger.enter(run, [Group(1, 0, [one])])
        assert ledger.verify() == []


def test_verify_finds_a_file_that_was_written_into(filled):
    raw = bytearray(filled.read_bytes())
    start = raw.index(b"never") if b"never" in raw else raw.index(b'"completion":"c3"')
    raw[start : start + 8] = b"\x00" * 8
    filled.write_bytes(raw)
    with Ledger(filled, write=False) as ledger:
        assert ledger.verify() != []


def test_attempts_of_one_rollout_are_those_that_judged_it_alone_or_with_others(path):
    with Ledger(path) as ledger:
        run = begun(ledger)
        ledger.enter(run, SCATTERED)
        together = replace_members(attempt(0, 0), 6)
        alone = [attempt(1, 2, end=End.RAISED), attempt(2, 2), attempt(3, 4)]
        ledger.leave(
            run,
            attempts=[together, *alone],
            scores=[score(n, Scored(1.0), "short", 0) for n in range(6)] + [score(2, Scored(1.0), number=2)],
        )
        assert [one.id for one in ledger.attempts(run, ordinal=2)] == [0, 1, 2]
        assert [one.id for one in ledger.attempts(run, ordinal=4)] == [0, 3]
        assert [one.id for one in ledger.attempts(run, ordinal=0)] == [0]
        assert [one.id for one in ledger.own_attempts(run)] == [1, 2, 3]


def replace_members(one, members):
    return one._replace(members=members, clocks=replace(one.clocks, service_s=1.0))


def test_no_check_of_verify_searches_a_table_by_its_run_alone_for_every_row(filled):
    with Ledger(filled) as ledger:
        for query, _ in verify._CHECKS:
            plan = [step for *_, step in ledger._db.execute(f"EXPLAIN QUERY PLAN {query}")]
            alone = [step for step in plan if step.startswith("SEARCH") and step.endswith("(run=?)")]
            assert not [step for step in alone if "SEARCH p " not in step], plan  # parts are a handful


def test_a_ledger_is_discarded_while_nobody_else_can_have_opened_it(path, monkeypatch):
    refusals = []
    unlink = Path.unlink

    def watched(self, **words):
        if self == path:
            with pytest.raises(RefusedError, match="another run is writing"):
                Ledger(path)
            refusals.append(self)
        unlink(self, **words)

    monkeypatch.setattr(Path, "unlink", watched)
    Ledger(path).discard()
    assert refusals == [path]
    assert list(path.parent.iterdir()) == []


def test_a_run_that_is_gone_on_with_takes_no_old_verdict_for_a_new_rollout(filled):
    with Ledger(filled) as ledger:
        run = begun(ledger)
        ledger.enter(run, SCATTERED)  # the same ones are known
        other = SCATTERED[0]._replace(rollouts=[rollout(0, 0, 0)._replace(completion="new")])
        with pytest.raises(RunStoppedError, match=r"(?s)another rollout under ordinal 0.*new_run=True"):
            ledger.enter(run, [other])
