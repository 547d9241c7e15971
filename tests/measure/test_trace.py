import io
import json
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.clock import Span
from steelyard.errors import RefusedError
from steelyard.measure.trace import write_trace


def traced(spans):
    """The events of a trace: those with a duration, and the names of threads and processes."""
    file = io.StringIO()
    assert write_trace(spans, file) == len(spans)
    events = json.loads(file.getvalue())["traceEvents"]
    named = {
        (event["name"], event["pid"], event["tid"]): event["args"]["name"]
        for event in events
        if event["ph"] == "M" and event["name"].endswith("_name")
    }
    drawn = [event for event in events if event["ph"] == "X"]
    return drawn, named


def badly_nested(events):
    """What overlaps an event of its thread without lying in it; in nanoseconds, as Perfetto reads times."""
    found = []
    threads = defaultdict(list)
    for event in events:
        start, length = round(event["ts"] * 1_000), round(event["dur"] * 1_000)
        threads[event["tid"]].append((start, -(start + length)))
    for spans in threads.values():
        open_until = []
        for start, end in sorted(spans):
            while open_until and open_until[-1] <= start:
                open_until.pop()
            if open_until and -end > open_until[-1]:
                found.append((start, -end))
            open_until.append(-end)
    return found


def test_the_check_of_nesting_sees_an_overlap():
    assert badly_nested([{"tid": 1, "ts": 0, "dur": 5}, {"tid": 1, "ts": 3, "dur": 5}])
    assert not badly_nested([{"tid": 1, "ts": 0, "dur": 5}, {"tid": 1, "ts": 5, "dur": 5}])


def test_a_lane_is_a_named_thread_of_its_process_and_its_phases_nest():
    drawn, named = traced(
        [
            Span(4, "rank 0", "generation", 100.0, 112.5),
            Span(4, "rank 0", "step", 100.0, 154.0),
            Span(4, "rank 0/judge", "reward", 112.5, 142.0),
        ]
    )
    assert [(event["name"], event["ts"], event["dur"]) for event in drawn] == [
        ("step", 0, 54e6),
        ("generation", 0, 12.5e6),
        ("reward", 12.5e6, 29.5e6),
    ]
    assert {event["pid"] for event in drawn} == {1}
    assert drawn[0]["tid"] == drawn[1]["tid"] != drawn[2]["tid"]
    assert sorted(named.values()) == ["rank 0", "rank 0", "rank 0/judge"]
    assert drawn[0]["args"] == {"step": 4}


def test_each_process_has_a_number_and_a_name():
    drawn, named = traced([Span(0, "rank 0", "step", 0, 1), Span(0, "rank 1", "step", 0, 1)])
    assert [named["process_name", event["pid"], 0] for event in drawn] == ["rank 0", "rank 1"]


def test_calls_have_as_many_threads_as_are_under_way_at_once():
    spans = [
        Span(0, "rank 0", "reward", 0, 10),
        Span(0, "rank 0", "call", 0, 4, 3, 0, None, 1.0),
        Span(0, "rank 0", "call", 1, 3, 3, 1, "timeout"),
        Span(0, "rank 0", "call", 3, 9, 3, 2),
        Span(0, "rank 0", "call", 4, 5, 3, 3, None, float("inf")),
    ]
    drawn, named = traced(spans)
    assert [named["thread_name", event["pid"], event["tid"]] for event in drawn] == [
        "rank 0",
        "rank 0 calls",
        "rank 0 calls (2)",
        "rank 0 calls (2)",
        "rank 0 calls",
    ]
    assert [event["args"] for event in drawn[1:]] == [
        {"step": 0, "group": 3, "member": 0, "value": 1.0},
        {"step": 0, "group": 3, "member": 1, "cut_by": "timeout"},
        {"step": 0, "group": 3, "member": 2},
        {"step": 0, "group": 3, "member": 3, "value": "inf"},
    ]


@settings(deadline=None)
@given(
    st.lists(
        st.builds(
            lambda lane, phase, start, length: Span(0, lane, phase, start, start + length),
            st.sampled_from(["rank 0", "rank 0/judge", "rank 1"]),
            st.sampled_from(["step", "reward", "training", "call", "queued"]),
            st.integers(0, 20) | st.floats(0, 20),
            st.integers(0, 9) | st.floats(0, 9),
        ),
        max_size=20,
    )
)
def test_events_of_one_thread_nest_whatever_overlapped(spans):
    drawn, named = traced(sorted(spans, key=lambda span: span.start))
    assert len(drawn) == len(spans)
    assert not badly_nested(drawn)
    assert all(("thread_name", event["pid"], event["tid"]) in named for event in drawn)
    lanes = defaultdict(set)
    for event in drawn:
        lanes[event["tid"]].add(named["thread_name", event["pid"], event["tid"]])
    assert all(len(names) == 1 for names in lanes.values())


@pytest.mark.parametrize("times", [(4, 5), (11, 10), (11, float("inf")), (float("nan"), 12)])
def test_spans_that_are_out_of_order_or_cannot_be_are_refused(times):
    with pytest.raises(RefusedError, match="'rank 0'"):
        write_trace([Span(0, "rank 0", "step", 10, 20), Span(0, "rank 0", "sync", *times)], io.StringIO())


def test_a_trace_of_nothing_is_a_trace():
    assert traced([]) == ([], {})


def test_a_span_is_written_before_the_next_but_one_is_asked_for():
    file, written = io.StringIO(), []

    def spans():
        for step in range(100):
            written.append(file.getvalue().count('"ph":"X"'))
            yield Span(step, "rank 0", "step", step, step + 1)

    write_trace(spans(), file)
    assert all(step - count <= 1 for step, count in enumerate(written))


def test_a_name_of_any_characters_is_legible():
    drawn, named = traced([Span(0, 'rank "0"\ud800\n', "génération", 0, 1)])
    assert drawn[0]["name"] == "génération"
    assert 'rank "0"\ud800\n' in named.values()
