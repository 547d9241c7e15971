"""`steelyard price` and `score --report` as a user runs them: numbers, ledgers, recorded loops, pages."""

import asyncio
import json

import pytest
from as_a_user import in_a_process, rollout, steelyard, write

from steelyard import Group, Ledger, Part, Recipe, Rollout, Runtime, record_steps, reward

NUMBERS = {"busy": 24.51, "timeout": 30, "median": 2, "rate": 0.01, "batch": 128, "group": 8}


def options(**given):
    return [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", value)]


def priced(*words, **given):
    done = steelyard("price", *words, *options(**given), "--json")
    assert done.code == 0, done.err
    return json.loads(done.out)


# --- numbers alone: what the study's table marks c, computed from B, m, T, N and G


@pytest.mark.parametrize(
    ("rate", "step", "idle", "hit"),
    [
        (0.05, 54.5, 0.550, 0.999),
        (0.02, 52.4, 0.532, 0.925),
        (0.01, 46.8, 0.476, 0.724),
        (0.005, 39.8, 0.384, 0.474),
    ],
)
def test_the_command_prices_the_study_from_its_numbers(rate, step, idle, hit):
    found = priced(**NUMBERS | {"rate": rate})
    assert found["step"]["value"] == pytest.approx(step, abs=0.051)
    assert found["idle"]["value"] == pytest.approx(idle, abs=0.00051)
    assert found["hit"]["value"] == pytest.approx(hit, abs=0.00051)
    assert found["idle_hit"]["value"] == pytest.approx(0.550, abs=0.0005)
    other = priced(**NUMBERS | {"rate": rate * 1.3})
    assert abs(other["hit"]["value"] - hit) > 0.0006


def test_correlated_timeouts_hit_fewer_steps():
    for rho, hit in {0.1: 0.616, 0.2: 0.533, 0.3: 0.465, 0.5: 0.353, 1.0: 0.149}.items():
        assert priced(**NUMBERS, rho=rho)["hit"]["value"] == pytest.approx(hit, abs=0.01)


def test_the_answer_stands_first_and_the_largest_saving_next():
    done = steelyard("price", *options(**NUMBERS))
    first = done.out.splitlines()[0]
    assert first == "A step takes 46.8 s: 24.5 s busy, 22.3 s waiting for rewards (47.6 % idle)."
    assert (
        done.out.index("lower the timeout")
        < done.out.index("double the batch")
        < done.out.index("shrink the batch")
    )


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"rate": None}, "--rate"),
        ({"rate": 1.5}, "--rate"),
        ({"timeout": 1}, "--timeout"),
        ({"batch": 100}, "--batch"),
        ({"busy": -1}, "--busy"),
        ({"limit": 3}, "--limit"),
        ({"trace": "x.json"}, "--trace"),
        ({"sandbox_dollars": 1}, "--sandbox-dollars"),
    ],
)
def test_numbers_that_cannot_be_are_refused_by_their_option(change, named):
    given = {name: value for name, value in (NUMBERS | change).items() if value is not None}
    done = steelyard("price", *options(**given))
    assert done.code == 2
    assert named in done.err
    assert "next:" in done.err


def test_numbers_can_be_drawn_as_a_page(tmp_path):
    pytest.importorskip("altair")
    page = tmp_path / "numbers.html"
    done = steelyard("price", *options(**NUMBERS, dollars=3.95, report=page))
    assert f"report: {page}" in done.out
    assert "The price of numbers alone" in page.read_text()


# --- a training loop: a runtime that scores and a recorder, in one ledger


@reward
async def waits(completion: str) -> float:
    await asyncio.sleep(0.004 * len(completion))
    return float(len(completion) % 2)


def two_groups(step):
    """Two groups of four, with completions of one to four characters."""
    return [
        Group(
            f"g{group}",
            group,
            [
                Rollout(o, "p", "x" * (1 + o % 4), {}, (group, o % 4), o, f"row {o}")
                for o in range(4 * group, 4 * group + 4)
            ],
        )
        for group in (2 * step, 2 * step + 1)
    ]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Six steps, recorded and scored in one file."""
    path = tmp_path_factory.mktemp("loop") / "run.ledger"

    async def train():
        with Ledger(path) as ledger, record_steps(path, lane="rank 0") as steps:
            run = ledger.begin("loop", {}, {waits.name: waits.identity})
            async with Runtime(Recipe((Part(waits),)), ledger=ledger, run=run) as runtime:
                for step in range(6):
                    with steps.step(step):
                        with steps.phase("generation"):
                            await asyncio.sleep(0.02)
                        with steps.phase("reward"):
                            async for _ in runtime.score(two_groups(step), step=step):
                                pass
                        with steps.phase("training"):
                            await asyncio.sleep(0.02)

    asyncio.run(train())
    return path


def test_a_recorded_loop_is_priced_with_its_phases_waits_and_queues(recorded):
    found = priced(recorded)
    assert found["measured"]
    assert found["busy"]["value"] == pytest.approx(0.04, abs=0.03)
    assert found["wait"]["value"] >= 0.015
    assert found["exposed"]["value"] == pytest.approx(found["wait"]["value"])
    assert found["in_flight"] >= 4
    assert found["queued"]["value"] >= 0
    assert [doubt["kind"] for doubt in found["doubts"]][:1] == ["too few steps"]
    assert found["step"]["low"] is None
    assert "an interval needs 30 steps" in found["step"]["basis"]
    assert not any("--busy" in note for note in found["notes"])


def test_its_spans_are_a_trace_that_a_viewer_can_open(recorded, tmp_path):
    trace = tmp_path / "trace.json"
    assert steelyard("price", recorded, "--trace", trace).code == 0
    events = json.loads(trace.read_text())["traceEvents"]
    names = [event["name"] for event in events if event["ph"] == "X"]
    assert names.count("generation") == names.count("training") == 6


def test_a_run_that_does_not_exist_and_options_of_others_are_refused(recorded, tmp_path):
    for words, told in (
        ((recorded, "--run", 3), "there is no run 3"),
        ((recorded, "--median", 2), "it is for numbers alone"),
        ((recorded, "--group", 8), "a ledger says it"),
        ((recorded, "--phase", "rollout"), "not NAME=MEANING"),
        ((tmp_path / "nowhere.ledger",), "there is no such file"),
        ((recorded, "--busy", -1), "--busy"),
    ):
        done = steelyard("price", *words)
        assert done.code == 2, words
        assert told in done.err, (words, done.err)
        assert "next:" in done.err


def test_an_empty_ledger_says_what_to_record(tmp_path):
    with Ledger(tmp_path / "x.ledger"):
        pass
    done = steelyard("price", tmp_path / "x.ledger")
    assert done.code == 2
    assert "docs/recording.md" in done.err


# --- a scored file


def test_a_scored_file_is_priced_by_the_record_beside_it(tmp_path):
    write(tmp_path / "rows.jsonl", [rollout(str(i % 3), id=i) for i in range(32)])
    assert steelyard("score", "rows.jsonl", "-r", "gsm8k", "-o", "o.jsonl", "-q", cwd=tmp_path).code == 0
    found = priced(tmp_path / "o.jsonl", busy=10)
    assert found["source"] == "o.jsonl.ledger, run 1"
    assert found["step"]["value"] == pytest.approx(10 + found["wait"]["value"])


def test_score_writes_a_page_of_what_came_of_it(tmp_path):
    pytest.importorskip("altair")
    rows = [
        rollout("#### 2", id="<script>alert(1)</script>"),
        *(rollout(f"#### {i % 2 + 1}", id=i) for i in range(1, 8)),
    ]
    rows += [rollout("#### 3", prompt="another", id=f"w{i}") for i in range(4)]
    write(tmp_path / "rows.jsonl", rows)
    done = steelyard(
        "score", "rows.jsonl", "-r", "gsm8k", "-o", "o.jsonl", "--report", "page.html", cwd=tmp_path
    )
    assert done.code == 0, done.err
    assert "report: page.html" in done.out
    page = (tmp_path / "page.html").read_text()
    assert "12 completions in 2 groups" in page
    assert "<script>alert(1)</script>" not in page


def test_a_page_that_cannot_be_written_is_refused_before_anything_is_judged(tmp_path):
    pytest.importorskip("altair")
    write(tmp_path / "rows.jsonl", [rollout("#### 2")])
    for page in ("no/such/folder.html", "rows.jsonl", "o.jsonl"):
        done = steelyard(
            "score", "rows.jsonl", "-r", "gsm8k", "-o", "o.jsonl", "--report", page, cwd=tmp_path
        )
        assert done.code == 2, page
        assert "--report" in done.err
        assert not (tmp_path / "o.jsonl").exists()
        assert (tmp_path / "rows.jsonl").read_text().startswith("{")


def test_the_command_needs_no_numerical_library_to_say_its_help():
    done = in_a_process("price", "--help")
    assert done.code == 0
    assert "--infrastructure" in done.out


def test_a_page_is_of_the_run_that_was_scored_also_where_a_later_one_stands_in_the_ledger(tmp_path):
    pytest.importorskip("altair")
    write(tmp_path / "a.jsonl", [rollout("#### 2", id=f"a{i}") for i in range(4)])
    write(tmp_path / "b.jsonl", [rollout("#### 3", id=f"b{i}") for i in range(8)])
    words = ("-r", "gsm8k", "-o", "o.jsonl", "--ledger", "x.ledger", "-q")
    assert steelyard("score", "a.jsonl", *words, cwd=tmp_path).code == 0
    assert steelyard("score", "b.jsonl", *words, "--new-run", cwd=tmp_path).code == 0
    assert steelyard("score", "a.jsonl", *words, "--report", "a.html", cwd=tmp_path).code == 0
    page = (tmp_path / "a.html").read_text()
    assert "4 completions in 1 group" in page
    assert "x.ledger, run 1" in page


def test_no_output_is_written_over_a_file_of_the_command(recorded, tmp_path):
    before = recorded.read_bytes()
    for option in ("--report", "--trace"):
        done = steelyard("price", recorded, option, recorded)
        assert done.code == 2
        assert option in done.err
    done = steelyard("price", recorded, "--trace", tmp_path / "no" / "folder.json")
    assert done.code == 2
    assert "--trace" in done.err
    assert recorded.read_bytes() == before


def test_a_run_with_a_doubt_is_one_json_document(tmp_path):
    from planted_ledger import fill

    fill(tmp_path / "x.ledger", steps=40, batch=16, contention=0.8)
    found = priced(tmp_path / "x.ledger", busy=24.5)
    assert "contention" in [doubt["kind"] for doubt in found["doubts"]]
    assert found["batch"] == 16
