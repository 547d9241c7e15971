"""What becomes of programs whose line to their place breaks, at every moment at which it can."""

import asyncio
from pathlib import Path

import pytest

from boundaries import RIGHT, in_a_loop, until
from steelyard.clock import Clocks
from steelyard.errors import RefusedError, SandboxError
from steelyard.execution import Ended, Execution, Limits
from steelyard.sandbox import Checks, Program, remote, telling
from steelyard.sandbox.boot import FACTS
from steelyard.sandbox.guest import frames
from steelyard.sandbox.process import ProcessLine
from steelyard.sandbox.remote import Remote
from steelyard.sandbox.site import Traits

PROVEN = {**FACTS, "confined_by": "users", "uid": "20000", "descriptors": "0 1 2 7"}
PROVEN |= {"pid_namespace": "pid:[1]", "net_namespace": "net:[2]"}
PROGRAM = Program("program", b"print(1)")
CHECKS = Checks("digest", b"assert f(1) == 1")
DONE = Execution(Ended.EXIT, 0, stdout=b"1\n", clocks=Clocks(wall_s=0.01, cpu_s=0.01))


def ended(execution=DONE):
    told, parts = telling.execution_told(execution)
    return telling.message("ended", told, *parts)


class ScriptedLine:
    """A line whose runner says what its script says: an answer to each request, an error, or nothing ever."""

    def __init__(self, site, script):
        self.site, self.script = site, list(script)
        self.asked, self.out, self.closed = [], asyncio.Queue(), False
        self._reader, self._parcel = frames.Reader(telling.LONGEST), None

    async def send(self, data):
        if self._parcel is None:  # first of all comes the parcel, which is no message
            size = int.from_bytes(data[:4], "little")
            self._parcel, data = data[4 : 4 + size], data[4 + size :]
        for frame in self._reader.feed(data):
            what, told, _parts = telling.read(frame)
            self.asked.append(what)
            if what not in {"settings", "enough"}:
                await self.answer(what, told)

    async def answer(self, what, told):
        said = {"attest": telling.message("facts", {"facts": self.site.facts_inside})}.get(what)
        if said is None or not self.site.attests:
            said = self.script.pop(0) if self.script else b""
        if isinstance(said, Exception):
            raise said
        for part in said if isinstance(said, list) else [said]:
            self.out.put_nowait(part)

    async def receive(self):
        data = await self.out.get()
        if isinstance(data, Exception):
            raise data
        return data if data is not None else await asyncio.Event().wait()

    def said(self):
        return "its last words"

    async def close(self):
        self.closed = True


class ScriptedSite:
    name, identity, traits = "scripted", "scripted/1", Traits()

    def __init__(self, *scripts, attests=True, facts=PROVEN):
        self.scripts, self.attests, self.facts_inside = list(scripts), attests, facts
        self.lines = []

    def facts(self):
        return {"outside": "here"}

    async def open(self, command, mould):
        script = self.scripts.pop(0) if self.scripts else []
        if isinstance(script, Exception):
            raise script
        self.lines.append(ScriptedLine(self, script))
        return self.lines[-1]

    async def close(self):
        self.closed = True


async def outcome(site, **settings):
    """What a program comes to."""
    boundary = Remote(site, **settings)
    try:
        return await boundary.run(PROGRAM, Limits())
    finally:
        await boundary.close()
        assert all(line.closed for line in site.lines)


@in_a_loop
async def test_a_program_that_ends_is_told_whole():
    execution = await outcome(ScriptedSite([ended()]))
    assert (execution.ended, execution.code, execution.stdout) == (Ended.EXIT, 0, b"1\n")
    assert execution.clocks.queued_s is not None
    assert execution.clocks.wall_s == 0.01


@in_a_loop
async def test_what_it_sent_is_heard_until_it_is_enough_which_is_told_once():
    site = ScriptedSite(
        [[telling.message("reply", {}, b"one"), telling.message("reply", {}, b"two"), ended()]]
    )
    boundary, heard = Remote(site), []

    def listen(frame):
        heard.append(frame)
        return True

    await boundary.run(PROGRAM, Limits(), listen=listen)
    assert heard == [b"one"]
    assert site.lines[0].asked.count("enough") == 1
    await boundary.close()


@pytest.mark.parametrize(
    "after_sending",
    [b"", ConnectionError("gone"), b"\xff\xff\xff\xff", frames.pack(b"no message"), telling.message("what")],
    ids=["it ended", "contact", "no frame", "no message", "an unknown word"],
)
@in_a_loop
async def test_a_line_that_is_lost_after_the_program_was_sent_is_suspect_and_not_tried_again(after_sending):
    site = ScriptedSite([[after_sending]], [ended()])
    execution = await outcome(site)
    assert execution.ended is Ended.LOST
    assert execution.evidence["status"]
    assert len(site.lines) == 1


@in_a_loop
async def test_a_line_that_breaks_while_it_is_sent_is_suspect_too():
    execution = await outcome(ScriptedSite([ConnectionError("reset")]))
    assert execution.ended is Ended.LOST


@in_a_loop
async def test_a_place_that_is_lost_before_anything_was_sent_is_replaced():
    proven = telling.message("facts", {"facts": PROVEN})
    site = ScriptedSite([b""], [proven, ended()], attests=False)
    execution = await outcome(site)
    assert execution.ended is Ended.EXIT
    assert len(site.lines) == 2


@in_a_loop
async def test_without_any_place_the_machinery_is_to_blame_and_its_words_are_kept():
    site = ScriptedSite(*[SandboxError("sandbox:scripted", "no capacity")] * 9)
    with pytest.raises(SandboxError, match="no capacity"):
        await outcome(site)
    dying = ScriptedSite(*[[b""]] * 9, attests=False)
    with pytest.raises(SandboxError, match="its last words"):
        await outcome(dying)
    assert len(dying.lines) == 3


@in_a_loop
async def test_what_the_runner_says_never_began_is_tried_again_in_another_place():
    never = telling.message("never", {"cause": "no process", "clocks": {}})
    site = ScriptedSite([never], [never], [ended()])
    assert (await outcome(site)).ended is Ended.EXIT
    assert len(site.lines) == 3


@in_a_loop
async def test_a_place_that_dies_while_nothing_is_asked_of_it_is_replaced_without_suspicion():
    site = ScriptedSite([ended(), ended()], [ended()])
    boundary = Remote(site, slots=1)
    assert (await boundary.run(PROGRAM, Limits())).ended is Ended.EXIT
    site.lines[0].out.put_nowait(b"")
    await until(lambda: site.lines[0].closed)
    assert (await boundary.run(PROGRAM, Limits())).ended is Ended.EXIT
    assert len(site.lines) == 2
    await boundary.close()


@in_a_loop
async def test_what_the_vendor_refuses_in_the_middle_of_a_run_is_the_machinerys():
    site = ScriptedSite(
        [ended()], *[RefusedError("the token has expired", where="site", remedy="another")] * 9
    )
    boundary = Remote(site, slots=1)
    assert (await boundary.run(PROGRAM, Limits())).ended is Ended.EXIT
    with pytest.raises(SandboxError, match="the token has expired"):
        await boundary.run(PROGRAM, Limits(), fresh=True)
    await boundary.close()


@in_a_loop
async def test_a_place_that_takes_nothing_is_given_up_in_time():
    site = ScriptedSite(attests=False)
    site.traits = Traits(boot_s=0.2)

    async def stuck(_data):
        await asyncio.Event().wait()

    lines = site.open

    async def opened_and_deaf(command, mould):
        line = await lines(command, mould)
        line.send = stuck
        return line

    site.open = opened_and_deaf
    boundary = Remote(site)
    with pytest.raises(RefusedError, match=r"proved nothing within 0\.2 s"):
        await boundary.attest()


@in_a_loop
async def test_a_loop_that_has_ended_is_no_hindrance_to_the_next():
    site = ScriptedSite([ended()], [ended()])
    boundary = Remote(site)
    await asyncio.to_thread(asyncio.run, boundary.run(PROGRAM, Limits()))
    assert (await boundary.run(PROGRAM, Limits())).ended is Ended.EXIT
    await boundary.close()


@in_a_loop
async def test_a_line_to_a_process_closes_though_nobody_reads_what_it_wrote():
    async def end():
        return None

    line = await ProcessLine.start(["sh", "-c", "head -c 3000000 /dev/zero; sleep 60"], end)
    await asyncio.sleep(0.2)
    async with asyncio.timeout(20):
        await line.close()
    with pytest.raises(ConnectionError):
        await line.send(b"x")


@in_a_loop
async def test_a_run_that_goes_on_when_its_boundary_is_closed_ends():
    site = ScriptedSite([[None]])
    boundary = Remote(site)
    running = asyncio.ensure_future(boundary.run(PROGRAM, Limits()))
    await until(lambda: site.lines and "run" in site.lines[0].asked)
    await boundary.close()
    async with asyncio.timeout(10):
        assert (await running).ended is Ended.LOST


@pytest.mark.parametrize(
    "told",
    [
        {"code": {}},
        {"limit": ["cpu"]},
        {"ended": "well"},
        {"clocks": {"cpu_s": float("nan")}},
        {"clocks": {"wall_s": -1.0}},
        {"opinion": ["a", 1, None, None, None, None]},
        {"opinion": [1, 1, None, None, None, {}, 7]},
        {"evidence": None},
    ],
)
@in_a_loop
async def test_what_is_no_execution_is_believed_in_no_part(told):
    right, parts = telling.execution_told(DONE)
    execution = await outcome(ScriptedSite([telling.message("ended", {**right, **told}, *parts)]))
    assert execution.ended is Ended.LOST


@pytest.mark.parametrize(
    "said",
    [
        [telling.message("reply", {}, b"x" * 1_000_000)] * 20,
        [telling.message("reply", {}, b"x"), telling.message("never", {"cause": "?", "clocks": {}})],
        [frames.pack(frames.pack(b"[" * 100_000))],
    ],
    ids=["without end", "began and never began", "nested"],
)
@in_a_loop
async def test_a_runner_that_makes_no_sense_is_lost_contact(said):
    execution = await outcome(ScriptedSite([said]))
    assert execution.ended is Ended.LOST


@in_a_loop
async def test_a_silence_longer_than_any_limit_is_a_lost_line(monkeypatch):
    monkeypatch.setattr(remote, "GRACE_S", -29.5)
    execution = await outcome(ScriptedSite([[None]]))
    assert execution.ended is Ended.LOST
    assert "longer than any limit" in execution.evidence["status"]


@in_a_loop
async def test_a_candidate_whose_place_is_lost_has_no_opinion_and_its_judge_is_said_to_be_lost():
    boundary = Remote(ScriptedSite([[b""]]))
    execution, opinion = await boundary.check(RIGHT.encode(), CHECKS, Limits())
    await boundary.close()
    assert (execution.ended, opinion.planned) == (Ended.LOST, None)
    assert opinion.lost


@pytest.mark.parametrize(
    ("facts", "word"),
    [
        ({"uid": "0"}, "user 0"),
        ({"uid": "999"}, "user 999"),
        ({"network_socket": "yes"}, "network_socket"),
        ({"seccomp": "0"}, "seccomp"),
        ({"confined_by": "nothing"}, "confined by"),
        ({"confined_by": "namespaces"}, "pid"),
        ({"descriptors": "0 1 2 7 9"}, "descriptors"),
        ({"pid_namespace": str(Path("/proc/self/ns/pid").readlink())}, "pid namespace"),
        ({"net_namespace": str(Path("/proc/self/ns/net").readlink())}, "net namespace"),
    ],
)
@in_a_loop
async def test_a_place_that_does_not_prove_what_must_hold_is_refused(facts, word):
    boundary = Remote(ScriptedSite(facts={**PROVEN, **facts}))
    with pytest.raises(RefusedError, match=word):
        await boundary.attest()


@in_a_loop
async def test_a_refusal_from_inside_keeps_its_remedy():
    told = {"reason": "no folder", "remedy": "give it one"}
    boundary = Remote(ScriptedSite([telling.message("refused", told)], attests=False))
    with pytest.raises(RefusedError, match=r"no folder[\s\S]*give it one"):
        await boundary.attest()


@in_a_loop
async def test_programs_that_hang_do_not_hold_up_others_for_whom_there_is_a_place():
    hangs = [[None]]
    site = ScriptedSite(*[hangs] * 2, *[[ended()]] * 3)
    boundary = Remote(site, slots=3, usual=1)
    hanging = [asyncio.ensure_future(boundary.run(PROGRAM, Limits())) for _ in range(2)]
    await until(lambda: len(site.lines) == 2)
    execution = await boundary.run(PROGRAM, Limits())
    assert execution.ended is Ended.EXIT
    for task in hanging:
        task.cancel()
    await asyncio.gather(*hanging, return_exceptions=True)
    await boundary.close()
    assert all(line.closed for line in site.lines)


def test_what_is_told_is_read_again():
    limits = Limits(cpu_s=1.5)
    assert Limits(**telling.limits_told(limits)) == limits
    program = Program("table", b"x", (b"calls", b""), b"in", {"share": True})
    assert telling.program_read(*_listed(telling.program_told(program))) == program
    assert telling.checks_read(*_listed(telling.checks_told(b"code", CHECKS))) == (b"code", CHECKS)
    lost = Execution(Ended.LOST, 9, "wall", stdout=b"o", stderr=b"e", peak_bytes=5, evidence={"status": "?"})
    assert telling.execution_read(*_listed(telling.execution_told(lost)))[0] == lost


def _listed(told):
    head, parts = told
    return head, list(parts)
