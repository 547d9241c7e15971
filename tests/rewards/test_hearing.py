"""What a candidate says of its calls costs the host no more than its length, whatever it says."""

import json
import time

import pytest

from steelyard.rewards import hearing
from steelyard.rewards.hearing import TableHearing, report_in
from steelyard.rewards.suites import compile_suite

BOTH = compile_suite("assert f(2) == 4\nassert f(3) == 9").table
LOADED, DONE = b'["loaded"]', b'["done"]'


def heard(*frames, table=BOTH, share=False):
    told = TableHearing(table, share=share)
    for frame in frames:  # all of them: a candidate goes on after it was told that it is enough
        told.listen(frame)
    return told


@pytest.mark.parametrize("frame", [b'["r",0,[]]', b'["r",0,[["v",4],["v",9],["v",1]]]', b'["r",0,{}]'])
def test_a_message_brings_at_least_one_outcome_and_at_most_those_that_are_missing(frame):
    assert "nobody asked for" in heard(LOADED, frame, b'["r",0,[["v",4],["v",9]]]', DONE).fault


def test_the_first_fault_is_kept_and_nothing_is_read_after_it(monkeypatch):
    told = heard(LOADED, b'["r",0,[]]')
    first = told.fault
    monkeypatch.setattr(hearing.codec, "loads", lambda _: pytest.fail("it was read"))
    assert told.listen(b'["loaded"]') is True
    assert told.fault == first
    assert told.said() is None


def test_nothing_is_read_after_a_check_that_does_not_hold(monkeypatch):
    told = heard(LOADED, b'["r",0,[["v",5]]]')
    monkeypatch.setattr(hearing.codec, "loads", lambda _: pytest.fail("it was read"))
    assert told.listen(b"[]") is True
    assert told.said()[0] == 0


def test_the_leaves_of_a_check_are_looked_for_once_however_many_messages_come():
    table = compile_suite("assert all(f(x) for x in range(1000)) and all(f(x) for x in range(999))").table
    frames = [b'["r",%d,[["v",1]]]' % at for at in range(len(table.calls))]
    started = time.process_time()
    assert heard(LOADED, *frames, DONE, table=table).said() == (1, None)
    assert time.process_time() - started < 2  # once for each message takes 5 s


@pytest.mark.parametrize(
    "frame",
    [
        json.dumps(["load_error", "E", "ab " * 1_000_000, 3]).encode(),
        json.dumps(["load_error", "E\ud800", "\ud800", 10**400]).encode(),
    ],
    ids=["long", "surrogates"],
)
def test_what_a_load_error_says_is_cut_before_it_is_read(frame):
    _, first = heard(frame).said()
    assert first.code == "load_error"
    assert len(first.reason) < 300
    first.reason.encode()


@pytest.mark.parametrize(
    "said",
    ['["x",[[[]]],"m",1]', '["x","E",{"a":1},1]', '["x","E","m",1,[1]]', '["x","E"]', "[]", "7", "[1]"],
)
def test_an_exception_is_told_in_words(said):
    assert heard(LOADED, f'["r",0,[{said}]]'.encode()).fault


def test_a_report_that_is_nested_without_end_is_no_report():
    deep = b"[" * 900 + b"]" * 900
    assert report_in([b'["load_error",%b,""]' % deep], "n") is None
