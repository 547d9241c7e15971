"""`steelyard serve`: real processes, real sockets."""

import asyncio
import errno
import json
import os
import signal
import socket
import stat
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from serving import DEFAULTS, PATIENCE_S, children, edit, runs, served, until

from steelyard.clock import SystemClock
from steelyard.errors import RefusedError
from steelyard.rewards.asked import recipe_of
from steelyard.service import front, supervisor
from steelyard.service.__main__ import main
from steelyard.service.front import Front
from steelyard.service.scorer import _runtime
from steelyard.service.server import _tcp, _unix
from steelyard.service.supervisor import Supervisor

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc")

MINE = """
import asyncio, os, time
from pathlib import Path
import helper

VALUE = 1
ASKED = []


def judged(completion):
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


def groups(*completions, **more):
    return {"groups": [{"id": one, "rollouts": rows(one, **more)} for one in completions]}


def filled(folder):
    """A folder with a reward of the user's, and a helper beside it."""
    (folder / "mine.py").write_text(MINE)
    (folder / "helper.py").write_text("MORE = 0.0\n")
    return folder


@pytest.fixture
def mine(tmp_path):
    return filled(tmp_path)


@pytest.fixture(scope="module")
def gsm8k(tmp_path_factory):
    """A server for whoever only posts: its one awaited part weighs nothing, and it has no worker process."""
    folder = filled(tmp_path_factory.mktemp("gsm8k"))
    both = '[[part]]\nreward = "gsm8k"\n[[part]]\nreward = "mine.py:waited"\nweight = 0.0\n'
    (folder / "r.toml").write_text(both)

    def begin(recipe, **_settings):
        return [sys.executable, "-m", "steelyard", "serve", recipe, "--port", "0", "--advantage", "rloo"]

    with served(folder, "r.toml", begin=begin, socket=None) as server:
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
def test_a_body_that_is_too_large_is_refused(announced, monkeypatch):
    monkeypatch.setattr(front, "MOST_BYTES", 1_000)
    pieces = [bytes(300)] * 4

    async def in_pieces():
        for piece in pieces:
            yield piece

    async def post():
        transport = httpx.ASGITransport(Front(Supervisor(DEFAULTS, SystemClock())).app())
        async with httpx.AsyncClient(transport=transport, base_url="http://steelyard") as client:
            return await client.post("/score", content=b"".join(pieces) if announced else in_pieces())

    answer = asyncio.run(post())
    assert answer.status_code == 413
    assert "fewer groups" in answer.json()["error"]["next"]


def test_the_recipe_says_what_it_needs(gsm8k):
    recipe = gsm8k.client.get("/recipe").json()
    assert recipe["recipe"] == "r.toml"
    assert [(part["name"], part["weight"]) for part in recipe["parts"]] == [("gsm8k", 1.0), ("waited", 0.0)]
    assert recipe["needed"] == ["answer"]
    assert recipe["identity"] == gsm8k.health()["identity"]


def test_a_trainer_is_told_to_stop_when_too_much_cannot_be_judged(gsm8k):
    said = gsm8k.score(*({"prompt": str(n), "completion": "#### 2", "answer": []} for n in range(256))).json()
    assert {row["value"] for row in said["rows"]} == {None}
    assert "are unscored" in said["stop"]


def test_lines_come_as_groups_are_scored(gsm8k):
    posted = groups("late", "soon", answer=2)
    with gsm8k.client.stream("POST", "/score", json=posted, headers=LINES) as answer:
        assert answer.headers["content-type"] == "application/x-ndjson"
        lines = answer.iter_lines()
        assert [row["group"] for row in json.loads(next(lines))["rows"]] == ["soon"]
        (gsm8k.folder / "go").touch()
        assert [[row["group"] for row in json.loads(line)["rows"]] for line in lines] == [["late"]]
    nothing = gsm8k.client.post("/score", json=groups(), headers=LINES)
    assert (nothing.status_code, nothing.content) == (200, b"")


# --- reloading


def test_a_reload_takes_the_function_and_its_helper_and_nothing_of_their_state(mine):
    with served(mine, "mine.py:waited", watch=True, looks_s=0.05) as server:
        identities = {server.health()["identity"]}
        assert server.values(*rows("a")) == [1.0]
        assert server.values(*rows("number")) == [2.0]  # the second time that it is asked

        edit(mine / "mine.py", MINE.replace("VALUE = 1", "VALUE = 2"))
        edit(mine / "helper.py", "MORE = 0.5\n")
        said = server.reload().json()
        assert said["reloaded"] == 1
        assert server.values(*rows("number", "a")) == [1.0, 2.5]
        identities.add(said["identity"])

        (mine / "helper.py").write_text("MORE = \n")  # as an editor does, and it is watched
        until(lambda: server.health()["last_load"]["error"])
        (mine / "helper.py").write_text("MORE = 0.75\n")
        until(lambda: server.health()["reloaded"] == 2)
        assert server.values(*rows("number", "a")) == [1.0, 2.75]
        identities.add(server.health()["identity"])
        assert len(identities) == 3
        assert server.said().count("judges from now on") == 2


def test_what_cannot_be_loaded_or_was_not_asked_for_judges_nothing(mine):
    with served(mine, "mine.py:judged") as server:
        before = server.health()
        edit(mine / "mine.py", MINE.replace("VALUE = 1", "VALUE = 2"))
        edit(mine / "helper.py", "MORE = 0.5\n")
        after = server.score(*rows("a")).json()  # by a worker process that begins after the edit
        assert [row["value"] for row in after["rows"]] == [1.0]
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
        os.kill(server.pid, signal.SIGHUP)
        until(lambda: server.health()["reloaded"] == 1)
        assert server.values(*rows("a")) == [2.5]
        assert server.health()["last_load"]["error"] is None


def test_a_reload_loses_no_request_and_each_ends_under_the_recipe_under_which_it_began(mine, background):
    with served(mine, "mine.py:waited") as server:
        late = background(server.score, *rows("late", "soon"))
        until((mine / "began").exists)
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
        (mine / "mine.py").write_text(MINE.replace("VALUE = 1", "VALUE = 2"))
        asked = [background(server.reload) for _ in range(4)]
        assert {one.result().status_code for one in asked} == {200}, [one.result().text for one in asked]
        over.set()
        judged = dict(set.union(*(some.result() for some in posting)))
        assert sorted(judged.values()) == [1.0, 2.0]
        now = server.health()
        assert judged[now["identity"]] == 2.0
        assert 1 <= now["reloaded"] <= 2  # who asks while one is loaded shares the next

        assert not late.done()
        assert now["under_way"] == 1
        (mine / "go").touch()
        said = late.result().json()
        assert [row["value"] for row in said["rows"]] == [1.0, 1.0]
        assert (said["reloaded"], judged[said["identity"]]) == (0, 1.0)
        until(lambda: len(children(server.pid)) == 1)


# --- who leaves, and what ends


def test_a_client_that_leaves_takes_its_work_along_and_so_does_a_server_that_is_killed(mine, background):
    with served(mine, "mine.py:judged", workers=2) as server:
        for accepts, posted in (("*/*", groups("spin")), (LINES["accept"], groups("spin", "a"))):
            with posting(server, posted, accepts) as line:
                worker = until(lambda: spinning(mine))
                if accepts != "*/*":  # it leaves between two lines
                    until(lambda line=line: b'"group":"a"' in line.recv(1 << 20))
            until(lambda worker=worker: not runs(worker))
            until(lambda: server.health()["under_way"] == 0)
            (mine / "worker").unlink()
        assert server.values(*rows("a")) == [1.0]

        lost = background(server.score, *rows("spin"))
        until(lambda: spinning(mine))
        kill_and_see(server, lost)


def spinning(folder):
    """The worker process that is busy for ever, if one is."""
    file = folder / "worker"
    return int(file.read_text() or 0) if file.exists() else 0


def kill_and_see(server, lost):
    """Kill a server; whatever it started ends, and who waits for an answer is told."""
    (scorer,) = children(server.pid)
    below = children(scorer)
    server.end(signal.SIGKILL)
    until(lambda: not any(map(runs, [scorer, *below])), within_s=3)
    with pytest.raises(httpx.HTTPError):
        lost.result()


@contextmanager
def posting(server, posted, accepts):
    """A connection over which something was posted, and that is hung up where the block ends."""
    body = json.dumps(posted)
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(PATIENCE_S)
        line.connect(str(server.folder / "s"))
        head = f"POST /score HTTP/1.1\r\nHost: x\r\nAccept: {accepts}\r\nContent-Length: {len(body)}"
        line.sendall(f"{head}\r\n\r\n{body}".encode())
        yield line


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_end_it_finishes_what_it_can_and_leaves_nothing(mine, background, number):
    finishes = number == signal.SIGTERM
    with served(mine, "mine.py:waited", grace_s=PATIENCE_S if finishes else 0.2) as server:
        late = background(server.score, *rows("late"))
        until((mine / "began").exists)
        scorers = children(server.pid)
        if finishes:  # also while a recipe is loaded that never will be
            (mine / "helper.py").write_text("while True: pass\n")
            asked = background(server.reload)
            scorers = until(lambda: len(found := children(server.pid)) == 2 and found)
            assert server.values(*rows("a")) == [1.0]
        ending = background(server.end, number)
        if finishes:
            assert asked.result().status_code == 409
            (mine / "go").touch()
            assert late.result().json()["rows"][0]["value"] == 1.0
        else:
            assert late.result().status_code == 503
        assert ending.result() == 0
        assert not any(map(runs, scorers))
        assert not (mine / "s").exists()
        assert "Traceback" not in server.said()


def test_killed_it_leaves_nothing_running_though_its_scoring_process_hears_nothing(mine, background):
    with served(mine, "mine.py:waited") as server:
        lost = background(server.score, *rows("block"))
        until((mine / "blocked").exists)
        kill_and_see(server, lost)
    with _unix(str(mine / "s")), socket.socket(socket.AF_UNIX) as client:  # over what was left behind
        client.connect(str(mine / "s"))


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


def test_what_the_machine_lacks_is_said_and_tried_again(mine, monkeypatch, capfd):
    """Whether nobody judges, or one does and an edit is watched for."""
    monkeypatch.chdir(mine)
    monkeypatch.setattr(supervisor, "LOOKS_S", 0.02)
    lacking = threading.Event()
    start = asyncio.create_subprocess_exec

    async def start_if_it_can(*words, **more):
        if lacking.is_set():
            raise BlockingIOError(errno.EAGAIN, "no process to be had")
        return await start(*words, **more)

    async def look():
        kept = Supervisor(replace(DEFAULTS, recipe="mine.py:waited"), SystemClock())
        transport = httpx.ASGITransport(Front(kept).app())
        async with httpx.AsyncClient(transport=transport, base_url="http://steelyard") as client:
            scorer = await kept.reload()
            lacking.set()
            os.kill(scorer.process.pid, signal.SIGKILL)
            health = await until_health(client, lambda said: said["last_load"]["error"])
            assert not health["ok"]
            assert "no process to be had" in health["last_load"]["error"]
            lacking.clear()
            health = await until_health(client, lambda said: said["ok"])
            assert (health["reloaded"], health["last_load"]["error"]) == (1, None)

            kept.background(kept.watch())
            lacking.set()
            (mine / "mine.py").write_text(MINE.replace("VALUE = 1", "VALUE = 2"))
            health = await until_health(client, lambda said: said["last_load"]["error"])
            assert health["ok"]
            lacking.clear()
            await until_health(client, lambda said: said["reloaded"] == 2)
            answer = await client.post("/score", json={"rollouts": rows("a")})
            assert [row["value"] for row in answer.json()["rows"]] == [2.0]
        await kept.end()

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start_if_it_can)
    asyncio.run(look())
    assert capfd.readouterr().err.count("no process to be had") >= 2


async def until_health(client, holds):
    async with asyncio.timeout(PATIENCE_S):
        while not holds(said := (await client.get("/health")).json()):  # noqa: ASYNC110 - as a client does
            await asyncio.sleep(0.01)
    return said


def test_a_standard_error_that_takes_no_more_ends_nothing(monkeypatch):
    kept = Supervisor(DEFAULTS, SystemClock())
    kept.reloaded = 0
    full = Path("/dev/full").open("w")  # noqa: SIM115 - closing it raises, too
    monkeypatch.setattr(sys, "stderr", full)
    kept._note(RefusedError("it is broken", where="recipe", remedy="mend it"))
    monkeypatch.undo()
    assert "it is broken" in kept.last["error"]
    with pytest.raises(OSError, match="No space"):
        full.close()


# --- beginning


@pytest.mark.parametrize(
    ("text", "said"), [("judged = \n", "SyntaxError"), ("import os; os._exit(7)\n", "exit code 7")]
)
def test_what_cannot_be_loaded_does_not_begin(text, said, mine, monkeypatch, capfd):
    monkeypatch.chdir(mine)
    (mine / "mine.py").write_text(text)
    assert main(replace(DEFAULTS, recipe="mine.py:judged")) == 2
    told = capfd.readouterr().err
    assert said in told
    assert "next:" in told
    assert not (mine / "s").exists()


def test_a_scheme_over_a_batch_is_refused():
    with pytest.raises(RefusedError, match="a request is none"):
        _runtime(recipe_of("gsm8k"), replace(DEFAULTS, advantage="batch"))


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


def test_nobody_else_may_open_a_socket_whatever_the_umask(tmp_path):
    mask = os.umask(0)
    try:
        with _unix(str(tmp_path / "s")):
            assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o600
    finally:
        assert os.umask(mask) == 0


def test_an_answer_does_not_wait_for_the_client_to_acknowledge_its_first_half():
    with _tcp("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_the_times_are_those_that_the_document_states():
    assert (supervisor.GRACE_S, supervisor.LOOKS_S) == (2.0, 0.25)


def test_without_the_extra_it_says_what_to_install(monkeypatch, capfd):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "steelyard.service.server", raising=False)
    assert main(replace(DEFAULTS, recipe="gsm8k")) == 2
    assert "pip install 'steelyard[web]'" in capfd.readouterr().err
