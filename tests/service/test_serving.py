"""`steelyard serve`: real processes, real sockets."""

import json
import os
import signal
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import httpx
import pytest
from serving import DEFAULTS, children, edit, runs, served, until

from steelyard.service.__main__ import main
from steelyard.service.front import MOST_BYTES
from steelyard.service.server import _tcp

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc")

MINE = """
import asyncio, os, time
from pathlib import Path
import helper

VALUE = 1
ASKED = []


def judged(completion):
    if completion == "die":
        os._exit(3)
    if completion == "spin":
        Path("worker").write_text(str(os.getpid()))
        while True:
            pass
    return VALUE + helper.MORE


async def waited(completion):
    ASKED.append(completion)
    if completion == "number":
        return len(ASKED)
    if completion == "crash":
        os._exit(3)
    if completion == "block":
        Path("blocked").touch()
        time.sleep(600)
    if completion == "late":
        Path("began").touch()
        while not Path("go").exists():
            await asyncio.sleep(0.01)
    return VALUE + helper.MORE
"""


LINES = {"accept": "application/x-ndjson"}


def rows(*completions, **more):
    return [{"prompt": one, "completion": one, **more} for one in completions]


def groups(*completions):
    return {"groups": [{"id": one, "rollouts": rows(one)} for one in completions]}


@pytest.fixture
def mine(tmp_path):
    """A folder with a reward of the user's, and a helper beside it."""
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "helper.py").write_text("MORE = 0.0\n")
    return tmp_path


@pytest.fixture(scope="module")
def gsm8k(tmp_path_factory):
    """A server of a reward of ours, which needs no worker process."""

    def begin(recipe, **_settings):
        return [sys.executable, "-m", "steelyard", "serve", recipe, "--port", "0", "--advantage", "rloo"]

    with served(tmp_path_factory.mktemp("gsm8k"), "gsm8k", begin=begin, socket=None) as server:
        yield server


@pytest.fixture
def background():
    """Calls that go on beside the test."""
    with ThreadPoolExecutor(16) as pool:
        yield pool.submit


# --- scoring


def test_rows_are_scored_in_the_order_in_which_they_were_posted(gsm8k):
    posted = [{"prompt": p, "completion": f"#### {n}", "answer": n % 2} for n in range(4) for p in "ab"]
    answer = gsm8k.score(*posted)
    assert answer.status_code == 200
    said = answer.json()
    assert [row["id"] for row in said["rows"]] == list(range(1, 9))
    assert [row["value"] for row in said["rows"]] == [1.2] * 4 + [0.2] * 4
    assert said["identity"] == gsm8k.health()["identity"]
    assert said["reloaded"] == 0
    assert said["stop"] is None


def test_requests_at_the_same_time_get_their_own_answers(gsm8k):
    def one(number):
        said = gsm8k.score(
            {"prompt": "p", "completion": f"#### {number}", "answer": number % 2, "id": number}
        )
        return [(row["id"], row["value"]) for row in said.json()["rows"]]

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(one, range(64)))
    assert answers == [[(n, 1.2 if n < 2 else 0.2)] for n in range(64)]


def test_a_bad_post_is_told_as_json_with_the_next_step(gsm8k):
    lacking = gsm8k.score({"prompt": "p"})
    assert lacking.status_code == 400
    assert lacking.json()["error"]["rows"][0]["column"] == "completion"
    assert gsm8k.score(*rows("c")).status_code == 422
    broken = gsm8k.client.post("/score", content=b"{", headers=LINES)
    assert (broken.status_code, broken.json()["error"]["where"]) == (400, "body")
    assert gsm8k.client.get("/nowhere").json()["error"]["next"].startswith("POST /score")
    assert gsm8k.client.get("/score").status_code == 405


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_that_is_too_large_is_refused(gsm8k, announced):
    piece = bytes(1 << 20)
    pieces = MOST_BYTES // len(piece) + 1
    content = piece * pieces if announced else (piece for _ in range(pieces))
    answer = gsm8k.client.post("/score", content=content)
    assert answer.status_code == 413
    assert "fewer groups" in answer.json()["error"]["next"]


def test_the_recipe_says_what_it_needs(gsm8k):
    recipe = gsm8k.client.get("/recipe").json()
    assert recipe["recipe"] == "gsm8k"
    assert [(part["name"], part["weight"]) for part in recipe["parts"]] == [("gsm8k", 1.0)]
    assert recipe["needed"] == ["answer"]
    assert recipe["identity"] == gsm8k.health()["identity"]


def test_a_trainer_is_told_to_stop_when_too_much_cannot_be_judged(gsm8k):
    said = gsm8k.score(*({"prompt": str(n), "completion": "#### 2", "answer": []} for n in range(256))).json()
    assert {row["value"] for row in said["rows"]} == {None}
    assert "are unscored" in said["stop"]


def test_lines_come_as_groups_are_scored(mine):
    with served(mine, "mine.py:waited") as server:
        with server.client.stream("POST", "/score", json=groups("late", "soon"), headers=LINES) as answer:
            assert answer.headers["content-type"] == "application/x-ndjson"
            lines = answer.iter_lines()
            assert [row["group"] for row in json.loads(next(lines))["rows"]] == ["soon"]
            (mine / "go").touch()
            assert [[row["group"] for row in json.loads(line)["rows"]] for line in lines] == [["late"]]
        nothing = server.client.post("/score", json=groups(), headers=LINES)
        assert (nothing.status_code, nothing.content) == (200, b"")


# --- reloading


def test_a_reload_takes_the_function_and_its_helper_and_nothing_of_their_state(mine):
    both = '[[part]]\nreward = "mine.py:judged"\n[[part]]\nreward = "mine.py:waited"\nweight = 100.0\n'
    (mine / "r.toml").write_text(both)
    with served(mine, "r.toml", watch=True) as server:
        identities = {server.health()["identity"]}
        assert server.values(*rows("a")) == [101.0]
        assert server.values(*rows("number")) == [201.0]  # the second time that it is asked

        edit(mine / "mine.py", MINE.replace("VALUE = 1", "VALUE = 2"))
        edit(mine / "helper.py", "MORE = 0.5\n")
        said = server.reload().json()
        assert said["reloaded"] == 1
        assert server.values(*rows("number", "a")) == [102.5, 252.5]
        identities.add(said["identity"])

        edit(mine / "helper.py", "MORE = 0.7\n")
        os.kill(server.pid, signal.SIGHUP)
        until(lambda: server.health()["reloaded"] == 2)
        assert server.values(*rows("number", "a")) == [102.7, 272.7]
        identities.add(server.health()["identity"])

        (mine / "helper.py").write_text("MORE = \n")  # as an editor does, and it is watched
        until(lambda: server.health()["last_load"]["error"])
        (mine / "helper.py").write_text("MORE = 0.75\n")
        until(lambda: server.health()["reloaded"] == 3)
        assert server.values(*rows("number", "a")) == [102.75, 277.75]
        identities.add(server.health()["identity"])
        assert len(identities) == 4
        assert server.said().count("judges from now on") == 3


def test_what_cannot_be_loaded_or_was_not_asked_for_judges_nothing(mine):
    with served(mine, "mine.py:judged") as server:
        before = server.score(*rows("a")).json()
        edit(mine / "mine.py", MINE.replace("VALUE = 1", "VALUE = 2"))
        edit(mine / "helper.py", "MORE = 0.5\n")
        after = server.score(*rows("die", "a")).json()  # a worker process that begins after the edit
        assert [row["code"] for row in after["rows"]] == ["reproduced", None]
        assert after["rows"][1]["value"] == before["rows"][0]["value"] == 1.0
        assert after["identity"] == before["identity"]

        (mine / "helper.py").write_text("MORE = \n")
        answer = server.reload()
        assert answer.status_code == 409
        assert "helper.py, line 1" in answer.json()["error"]["reason"]
        assert answer.json()["identity"] == before["identity"]
        health = server.health()
        assert (health["ok"], health["identity"], health["reloaded"]) == (True, before["identity"], 0)
        assert "helper.py, line 1" in health["last_load"]["error"]
        assert "still judges" in server.said()
        assert server.values(*rows("a")) == [1.0]

        (mine / "helper.py").write_text("MORE = 0.5\n")
        assert server.reload().status_code == 200
        assert server.values(*rows("a")) == [2.5]
        assert server.health()["last_load"]["error"] is None


def test_what_is_under_way_ends_under_the_recipe_under_which_it_began(mine, background):
    with served(mine, "mine.py:waited") as server:
        late = background(server.score, *rows("late", "soon"))
        until((mine / "began").exists)
        (mine / "mine.py").write_text(MINE.replace("VALUE = 1", "VALUE = 2"))
        assert server.reload().status_code == 200
        soon = server.score(*rows("soon")).json()
        assert not late.done()
        assert server.health()["under_way"] == 1
        (mine / "go").touch()
        said = late.result().json()
        assert [row["value"] for row in said["rows"]] == [1.0, 1.0]
        assert [row["value"] for row in soon["rows"]] == [2.0]
        assert (said["reloaded"], soon["reloaded"]) == (0, 1)
        assert said["identity"] != soon["identity"]
        until(lambda: len(children(server.pid)) == 1)


def test_no_request_is_lost_and_none_is_mixed_while_it_reloads(mine, background):
    with served(mine, "mine.py:waited") as server:
        over = threading.Event()

        def post_on():
            seen = set()
            while not over.is_set():
                answer = server.score(*rows(*"abcdefgh"))
                assert answer.status_code == 200, answer.text
                said = answer.json()
                seen.add((said["identity"], *{row["value"] for row in said["rows"]}))
            return seen

        posting = [background(post_on) for _ in range(2)]
        for value in (2, 3):
            (mine / "mine.py").write_text(MINE.replace("VALUE = 1", f"VALUE = {value}"))
            asked = [background(server.reload) for _ in range(4)]
            assert {one.result().status_code for one in asked} == {200}, [one.result().text for one in asked]
        over.set()
        judged = dict(set.union(*(some.result() for some in posting)))
        assert {1.0, 2.0} <= set(judged.values()) <= {1.0, 2.0, 3.0}
        assert len(set(judged.values())) == len(judged)
        assert server.health()["reloaded"] <= 4  # who asks while one is loaded shares the next


# --- who leaves, and what ends


def test_a_client_that_leaves_takes_its_work_along(mine):
    with served(mine, "mine.py:judged", workers=2) as server:
        for leaves in (
            lambda client: client.post("http://x/score", json=groups("spin"), timeout=0.7),
            lambda client: leave_after_a_line(client, groups("spin", "a")),
        ):
            (mine / "worker").unlink(missing_ok=True)
            with (
                httpx.Client(transport=httpx.HTTPTransport(uds=str(mine / "s"))) as client,
                pytest.raises(httpx.ReadTimeout),
            ):
                leaves(client)
            worker = int((mine / "worker").read_text())
            until(lambda worker=worker: not runs(worker))
            until(lambda: server.health()["under_way"] == 0)
            assert server.values(*rows("a")) == [1.0]


def leave_after_a_line(client, posted):
    with client.stream("POST", "http://x/score", json=posted, headers=LINES, timeout=0.7) as answer:
        lines = answer.iter_lines()
        assert next(lines)
        next(lines)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_end_it_finishes_what_it_can_and_leaves_nothing(mine, background, number):
    with served(mine, "mine.py:waited") as server:
        late = background(server.score, *rows("late"))
        until((mine / "began").exists)
        scorers = children(server.pid)
        ending = background(server.end, number)
        if number == signal.SIGTERM:
            (mine / "go").touch()
            assert late.result().json()["rows"][0]["value"] == 1.0
        else:
            assert late.result().status_code == 503
        assert ending.result() == 0
        assert not any(map(runs, scorers))
        assert not (mine / "s").exists()


def test_a_recipe_that_never_loads_hinders_neither_scoring_nor_the_end(mine, background):
    with served(mine, "mine.py:waited") as server:
        (mine / "helper.py").write_text("while True: pass\n")
        asked = background(server.reload)
        until(lambda: len(children(server.pid)) == 2)
        assert server.values(*rows("a")) == [1.0]
        assert server.end() == 0
        assert asked.result().status_code == 409
        assert "Traceback" not in server.said()


@pytest.mark.parametrize("busy_with", ["spin", "block"])
def test_killed_it_leaves_nothing_running(mine, background, busy_with):
    """Whether a worker process is busy, or the scoring process itself, so that it hears nothing."""
    blocks = busy_with == "block"
    with served(mine, "mine.py:waited" if blocks else "mine.py:judged") as server:
        lost = background(server.score, *rows(busy_with))
        until((mine / ("blocked" if blocks else "worker")).exists)
        (scorer,) = children(server.pid)
        below = children(scorer)
        server.end(signal.SIGKILL)
        until(lambda: not any(map(runs, [scorer, *below])), within_s=3)
        with pytest.raises(httpx.HTTPError):
            lost.result()
    if blocks:
        with served(mine, "gsm8k") as again:  # over the socket that was left behind
            assert again.health()["ok"]


def test_a_scoring_process_that_crashes_is_replaced_or_that_is_said(mine):
    with served(mine, "mine.py:waited") as server:
        lost = server.score(*rows("crash"))
        assert lost.status_code == 503
        assert "post again" in lost.json()["error"]["next"]
        assert server.values(*rows("a")) == [1.0]
        assert server.health()["reloaded"] == 1
        assert "exit code 3" in server.said()

        (mine / "helper.py").write_text("MORE = \n")
        with server.client.stream("POST", "/score", json=groups("a", "crash"), headers=LINES) as answer:
            assert "post again" in [json.loads(line) for line in answer.iter_lines()][-1]["error"]["next"]
        until(lambda: not server.health()["ok"])
        answer = server.score(*rows("a"))
        assert answer.status_code == 503
        assert "/reload" in answer.json()["error"]["next"]
        assert server.client.get("/health").status_code == 503
        until(lambda: "helper.py" in (server.health()["last_load"]["error"] or ""))
        (mine / "helper.py").write_text("MORE = 0.0\n")
        assert server.reload().status_code == 200
        assert server.values(*rows("a")) == [1.0]


# --- beginning


@pytest.mark.parametrize(
    ("text", "advantage", "said"),
    [
        ("judged = \n", "grpo", "SyntaxError"),
        ("import os; os._exit(7)\n", "grpo", "exit code 7"),
        (MINE, "batch", "a request is none"),
    ],
)
def test_what_cannot_be_loaded_does_not_begin(text, advantage, said, mine, monkeypatch, capfd):  # noqa: PLR0917
    monkeypatch.chdir(mine)
    (mine / "mine.py").write_text(text)
    assert main(replace(DEFAULTS, recipe="mine.py:judged", advantage=advantage)) == 2
    told = capfd.readouterr().err
    assert said in told
    assert "next:" in told
    assert not (mine / "s").exists()


def test_a_socket_in_use_is_refused_with_a_way_out(gsm8k, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert main(replace(DEFAULTS, recipe="gsm8k", socket=None, port=gsm8k.client.base_url.port)) == 2
    assert "--port 0" in capfd.readouterr().err
    with socket.socket(socket.AF_UNIX) as other:
        other.bind("s")
        other.listen()
        assert main(replace(DEFAULTS, recipe="gsm8k")) == 2
    assert "next: name another path" in capfd.readouterr().err
    assert (tmp_path / "s").exists()


def test_an_answer_does_not_wait_for_the_client_to_acknowledge_its_first_half():
    with _tcp("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_without_the_extra_it_says_what_to_install(monkeypatch, capfd):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "steelyard.service.server", raising=False)
    assert main(replace(DEFAULTS, recipe="gsm8k")) == 2
    assert "pip install 'steelyard[web]'" in capfd.readouterr().err
