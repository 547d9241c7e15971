"""One look at a whole file: its faults, its groups, its digest; and lines that are found again."""

import io
import json
from hashlib import sha256
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.errors import RefusedError, RunStoppedError
from steelyard.files import FileSource, ScoredFile, SpoolSource, groups, is_once, survey
from steelyard.outcome import Part
from steelyard.rewards import Recipe, find

GSM8K = Recipe((Part(find("gsm8k")),))


class Lines:
    """Lines in memory; a place is a line number from 0."""

    name = "memory"

    def __init__(self, raw):
        self._lines = io.BytesIO(raw).readlines()

    def lines(self):
        return enumerate(self._lines)

    def at(self, place):
        return self._lines[place]

    def close(self):
        pass


def row(said="#### 2", prompt="p", answer="2", **more):
    return {"prompt": prompt, "completion": said, "answer": answer, **more}


def text(rows):
    return "".join(one if isinstance(one, str) else json.dumps(one) + "\n" for one in rows).encode()


def look(rows, asked=GSM8K, names=None):
    source = Lines(rows if isinstance(rows, bytes) else text(rows))
    return survey(source, asked, names or {}), source


def kinds(found):
    return [(fault.line, fault.kind, fault.column) for fault in found.faults]


# --- faults


def test_a_sound_file_has_no_fault_and_every_row_a_place_a_line_a_length_and_a_group():
    found, _ = look([row("abc"), "\n", row("de", prompt="q"), row("f")])
    assert kinds(found) == []
    assert found.rollouts == 3
    assert list(found.places) == [0, 2, 3]
    assert list(found.lines) == [1, 3, 4]
    assert list(found.lengths) == [3, 2, 1]
    assert list(found.members) == [0, 2, 1]
    assert list(found.starts) == [0, 2, 3]
    assert found.group_ids == [1, 3]
    assert found.sizes() == {2: 1, 1: 1}
    assert found.skipped == 0


def test_each_kind_of_fault_is_found_with_line_and_column_and_counted():
    found, _ = look([
        row(), "{\n", "[]\n", {"prompt": "p"}, row(7), row(id=1.5), row(prompt="q", answer=None),
        row(prompt="r", answer="many"), row(group="g"), row(group="g", answer="3"), row(id="x"), row(id="x"),
        '{"torn',
    ])  # fmt: skip
    assert dict(found.fault_counts) == {
        "broken JSON": 1, "not an object": 1, "missing column": 2, "wrong type": 2, "bad column": 1,
        "unequal columns in a group": 1, "duplicate id": 1, "torn last line": 1,
    }  # fmt: skip
    assert sorted(kinds(found)) == [
        (2, "broken JSON", ""), (3, "not an object", ""), (4, "missing column", "completion"),
        (5, "wrong type", "completion"), (6, "wrong type", "id"), (7, "missing column", "answer"),
        (8, "bad column", "answer"), (10, "unequal columns in a group", "answer"), (12, "duplicate id", "id"),
        (13, "torn last line", ""),
    ]  # fmt: skip
    assert found.rollouts == 5  # rows with bad columns are rollouts still
    assert list(found.lines) == [1, 7, 8, 9, 11]


def test_every_line_is_a_rollout_or_skipped_or_blank():
    found, _ = look([row(id="x"), row(id="x"), "{\n", "\n", row(group="g"), row(group="g", answer="3")])
    assert found.rollouts + found.skipped == 5


def test_the_first_twenty_faults_are_kept_and_all_are_counted():
    found, _ = look(["{\n"] * 50)
    assert [fault.line for fault in found.faults] == list(range(1, 21))
    assert found.fault_counts == {"broken JSON": 50}


def test_a_group_with_bad_columns_is_one_fault():
    found, _ = look([row(answer="many")] * 3)
    assert kinds(found) == [(1, "bad column", "answer")]
    assert found.rollouts == 3


def test_a_fault_names_the_files_own_word_for_the_column():
    found, _ = look([{"q": "p", "completion": "c", "gold": None}], names={"answer": "gold", "prompt": "q"})
    assert kinds(found) == [(1, "missing column", "gold")]
    assert "answer" in str(found.faults[0])


def test_a_duplicate_is_told_from_ids_that_only_hash_alike():
    found, _ = look([row(id=-1), row(id=-2), row(id=2**61 - 2), row(id="-1"), row(id=0), row(id=2**61 - 1)])
    assert kinds(found) == []
    found, _ = look([row(id=-1), row(id=-2), row(id=-1)])
    assert kinds(found) == [(3, "duplicate id", "id")]
    assert found.rollouts == 2


def test_a_long_value_is_shortened_in_a_fault():
    found, _ = look(["x" * 10_000 + "\n", row(["y" * 10_000])])
    assert all(len(str(fault)) < 300 for fault in found.faults)


def test_every_field_that_any_row_has_is_known():
    found, _ = look([row(), row(seed=1), row()])
    assert found.fields == {"prompt", "completion", "answer", "seed"}


def test_the_digest_is_that_of_every_byte():
    raw = b"\xef\xbb\xbf" + text([row(), "{\n", "\n", row(said="x")])[:-1]
    found, _ = look(raw)
    assert found.digest == sha256(raw).hexdigest()


def test_a_column_can_be_a_path_and_is_one_field_of_the_file():
    rows = [
        {"prompt": "p", "completion": "#### 2", "info": {"gold": {"answer": "2"}, "uid": "a"}},
        {"prompt": "p", "completion": "#### 2", "info": {"gold": {"answer": "3"}, "uid": "b"}},
        {"prompt": "p", "completion": "#### 2", "info": {"gold": "4", "uid": "c"}},
        {"prompt": "p", "completion": "#### 2", "info": {"gold": {"answer": "3"}, "uid": "a"}},
        {"prompt": "p", "completion": "#### 2", "info.gold.answer": "5"},
    ]
    found, source = look(rows, names={"answer": "info.gold.answer", "id": "info.uid"})
    assert kinds(found) == [(3, "missing column", "info.gold.answer"), (4, "duplicate id", "info.uid")]
    read = [rollout for group in groups(source, found) for rollout in group.rollouts]
    assert [(one.id, one.columns.get("answer")) for one in read] == [
        ("a", "2"), ("b", "3"), ("c", None), (5, "5"),
    ]  # fmt: skip
    assert read[0].columns["info"] == {"gold": {"answer": "2"}, "uid": "a"}
    assert "info.gold.answer" in found.fields
    assert found.id_types == {str, int}


# --- groups


@settings(max_examples=150, deadline=None)
@given(st.permutations(range(17)), st.booleans(), st.booleans())
def test_rows_in_any_order_make_the_same_groups_of_the_same_rows(order, named, blank):
    keys = [n * n % 5 for n in range(17)]  # groups of unequal sizes
    rows = [
        row(f"c{n}", id=f"r{n}", **({"group": keys[n]} if named else {"prompt": f"p{keys[n]}"}))
        for n in range(17)
    ]
    lines = [line for n in order for line in ([rows[n], "\n"] if blank else [rows[n]])]
    found, source = look(lines)
    assert found.fault_counts == {}
    made = list(groups(source, found))
    assert [group.ordinal for group in made] == list(range(len(set(keys))))
    assert [group.id for group in made] == found.group_ids
    seen = {}
    for group in made:
        ids = [rollout.id for rollout in group.rollouts]
        assert len({keys[int(name[1:])] for name in ids}) == 1
        # in the order of the file, keyed by it, and groups by their first rows
        places = [order.index(int(name[1:])) for name in ids]
        assert places == sorted(places) == [rollout.ordinal for rollout in group.rollouts]
        assert [rollout.key for rollout in group.rollouts] == [(group.ordinal, n) for n in range(len(ids))]
        assert all(rollout.completion == f"c{rollout.id[1:]}" for rollout in group.rollouts)
        assert all(rollout.where == f"memory:{found.lines[rollout.ordinal]}" for rollout in group.rollouts)
        seen[keys[int(ids[0][1:])]] = set(ids)
    assert seen == {key: {f"r{n}" for n in range(17) if keys[n] == key} for key in set(keys)}
    firsts = [group.rollouts[0].ordinal for group in made]
    assert firsts == sorted(firsts)


def test_what_a_bad_row_leaves_behind_does_not_move_its_neighbours():
    found, source = look([row("a", id="a"), "{\n", row(7), row("b", id="b", prompt="q"), row("c", id="c")])
    assert [[r.id for r in group.rollouts] for group in groups(source, found)] == [["a", "c"], ["b"]]


def test_values_that_are_equal_in_python_but_not_in_json_part_groups():
    found, _ = look([row(answer=value) for value in (1, 1.0, "1", 1, 1.0)])
    assert list(found.starts) == [0, 2, 4, 5]
    assert list(found.members) == [0, 3, 1, 4, 2]


def test_conversations_group_by_their_content():
    one, other = [{"role": "user", "content": "1"}], [{"content": "1", "role": "user"}]
    found, _ = look([row(prompt=one), row(prompt=other), row(prompt=[*one, *one])])
    assert found.sizes() == {2: 1, 1: 1}


# --- sources


@pytest.fixture(params=["file", "spool"])
def source(request, tmp_path):
    raw = b"first\r\n\nthird\nno newline"
    if request.param == "file":
        (tmp_path / "lines").write_bytes(raw)
        opened = FileSource(tmp_path / "lines")
        yield opened
        opened.close()
    else:
        lines = raw.splitlines(keepends=True)
        yield SpoolSource("spool", lambda start: iter(lines[start - 1 :]))


def test_a_line_is_found_again_at_its_place_in_any_order(source):
    lines = dict(source.lines())
    assert list(lines.values()) == [b"first\r\n", b"\n", b"third\n", b"no newline"]
    for places in (list(lines), list(lines)[::-1], [*lines, *lines]):
        assert [source.at(place) for place in places] == [lines[place] for place in places]
    assert dict(source.lines()) == lines


def test_what_can_be_read_only_once_is_known(tmp_path):
    (tmp_path / "plain").touch()
    (tmp_path / "table").write_bytes(b"PAR1...")
    (tmp_path / "no.parquet").write_bytes(b"PAR")
    asked = ["-", "x.jsonl.gz", "none", "none.parquet", str(tmp_path / "plain"), str(tmp_path / "table")]
    assert [name for name in asked if is_once(name)] == ["-", "x.jsonl.gz", str(tmp_path / "table")]
    with pytest.raises(RefusedError, match="called Parquet, but begins with b'PAR', not with b'PAR1'"):
        is_once(str(tmp_path / "no.parquet"))


def test_a_missing_file_has_its_neighbours_named_rows_or_tables(tmp_path):
    for name in ("a.jsonl", "b.jsonl.gz", "c.parquet", "d.txt"):
        (tmp_path / name).touch()
    with pytest.raises(RefusedError, match=r"there are a\.jsonl, b\.jsonl\.gz, c\.parquet$"):
        FileSource(tmp_path / "e.jsonl")


# --- the scored file


def test_a_scored_file_appears_whole_or_not_at_all(tmp_path):
    def breaks():
        yield b"half"
        raise KeyError("x")

    target = tmp_path / "o"
    with pytest.raises(KeyError):
        ScoredFile(target).write(breaks())
    assert list(tmp_path.iterdir()) == []
    ScoredFile(target).write([b"one\n", b"two\n"])
    with pytest.raises(KeyError):
        ScoredFile(target).write(breaks())
    assert target.read_bytes() == b"one\ntwo\n"
    assert list(tmp_path.iterdir()) == [target]


def test_what_a_killed_run_left_of_a_scored_file_is_replaced(tmp_path):
    (tmp_path / "o.partial").write_bytes(b"x" * 1000)
    ScoredFile(tmp_path / "o").write([b"one\n"])
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("o", b"one\n")]


def test_two_runs_that_write_one_scored_file_never_mix_their_rows(tmp_path):
    def meanwhile():
        yield b"first\n"
        ScoredFile(tmp_path / "o").write([b"second\n"])
        yield b"first\n"

    with pytest.raises(RunStoppedError, match="another run is writing"):
        ScoredFile(tmp_path / "o").write(meanwhile())
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("o", b"second\n")]


def test_asking_whether_a_scored_file_could_be_written_touches_nothing(tmp_path):
    for name in ("o", "o.partial"):
        (tmp_path / name).write_text(name)
    ScoredFile(tmp_path / "o")
    assert sorted((path.name, path.read_text()) for path in tmp_path.iterdir()) == [
        ("o", "o"),
        ("o.partial", "o.partial"),
    ]
    with pytest.raises(RefusedError, match="nothing can be written there"):
        ScoredFile(tmp_path / "none" / "o")


def test_a_survey_needs_no_more_of_a_recipe_than_it_says():
    asked = SimpleNamespace(
        counts=False,
        needed=["gold"],
        read=["gold"],
        lint=lambda columns: ("gold", "odd") if columns["gold"] % 2 else None,
    )
    found, _ = look([{"prompt": "p", "completion": "c", "gold": n} for n in range(4)], asked)
    assert kinds(found) == [(2, "bad column", "gold"), (4, "bad column", "gold")]


@pytest.mark.parametrize(("one", "other"), [([1], [True]), ({"a": 1}, {"a": 1.0}), (1, True), (0, 0.0)])
def test_values_that_python_takes_for_equal_are_different_columns(one, other):
    asked = SimpleNamespace(needed=["answer"], read=["answer"], counts=False, lint=lambda _columns: None)
    found, _ = look([row(answer=one), row(answer=other), row(answer=one)], asked)
    assert list(found.members) == [0, 2, 1]
    assert list(found.starts) == [0, 2, 3]


def test_a_line_that_is_no_rollout_does_not_make_a_duplicate_of_the_one_behind_it():
    found, _ = look(['{"id": "a"}\n', row("x", id="a"), row("y", id="a")])
    assert kinds(found) == [(1, "missing column", "completion"), (3, "duplicate id", "id")]
    assert list(found.lines) == [2]


def test_rows_of_two_training_steps_are_two_groups_unless_a_group_column_says_otherwise():
    found, _ = look([row(step=1), row(step=2), row(step=1)])
    assert list(found.starts) == [0, 2, 3]
    found, _ = look([row(step=1, group="g"), row(step=2, group="g")])
    assert list(found.starts) == [0, 2]
