"""The judge: a process that holds the tests and no candidate, and asks candidates over a socket.

It parses and compiles its suite once, and then takes one candidate after another. On its channel (a
SEQPACKET socket) it says `{"ready": true}`, or `{"ready": false, "reason": ...}` where the suite is no
Python; then for each message `{"nonce": ..., "seed": 0}` with a descriptor (the socket to the candidate's
process) it runs the whole suite in a fresh namespace and answers

    {"nonce", "planned", "passed", "code", "reason", "unread", "failed": [{"line", "text", "reason"}, ...],
     "check": what is known of the first check that failed, as texts and numbers}

`code` is null where every planned check was executed and true, and else

- `wrong`: a check is false, or a required one was never reached; `exception`: a call raised;
- `load_error`: the source did not become a module; `protocol`: it sent what nobody asked for; `gone`: its
  process ended, the host knows why; `skipped`: the suite skipped itself;
- `suite_error`, `no_verdict`: the fault is the suite's: it raised before it had called the candidate, or it
  holds no check. A candidate cannot bring these about.

A judge that spins (`for x in f():` over an endless iterator) is ended by the kernel after `cpu_s` of its
own time per candidate: therefore it works in a child, for the kernel spares the first process of a
namespace. Processes that the tests started end with the verdict. What the tests themselves change in this
process (patched modules) stays.
"""

from __future__ import annotations

import gc
import mmap
import os
import signal
import sys
from _socket import SCM_RIGHTS, SOL_SOCKET, socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import CoroutineType, FunctionType, ModuleType
from typing import Any

from . import checks, codec, link, proxies, showing, standin
from .conditions import Conditions
from .wire import LostError

unsupported = checks.unsupported

NAME = "test_candidate"
_SHOWN = 5
_MUCH = 1 << 20
_FD = 4  # bytes of a descriptor in an ancillary message
_SIGNALLED = 128  # and the signal: the exit status of who was ended by it


class _StopError(AssertionError):
    """A check has failed, is written down, and ends the suite."""


def run(header: dict[str, Any], tests: bytes, channel: int, page: int | None) -> None:
    """Compile the suite, and judge candidates until the host hangs up."""
    host = socket(fileno=channel)
    alone = _in_a_child()
    try:
        suite = checks.compiled(tests, header.get("entry_point") or "")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = f"the suite is no Python: {type(error).__name__}: {error}"[:300]
        host.send(codec.dumps({"ready": False, "code": "suite_error", "reason": reason}))
        return
    sys.modules["pytest"] = standin.module()
    waits = mmap.mmap(page, mmap.PAGESIZE) if page is not None else None
    host.send(codec.dumps({"ready": True, "sites": len(suite.sites)}))
    while True:
        data, held, _flags, _address = host.recvmsg(1 << 16, 64)
        if not data:
            return
        asked = codec.loads(data)
        fds = [
            int.from_bytes(packed[at : at + _FD], sys.byteorder)
            for level, kind, packed in held
            if (level, kind) == (SOL_SOCKET, SCM_RIGHTS)
            for at in range(0, len(packed) - _FD + 1, _FD)
        ]
        signal.setitimer(signal.ITIMER_PROF, float(header.get("cpu_s") or 10.0))
        answer = {"nonce": asked["nonce"], **judged(suite, header, fds[0], waits, asked.get("seed") or 0)}
        if alone:
            _end_others()
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        for fd in fds:
            os.close(fd)
        host.send(codec.dumps(answer))


def _in_a_child() -> bool:
    """Go on in a child; whether nobody but its parent lives beside it. The parent ends as the child does."""
    alone = os.getpid() == 1
    child = os.fork()
    if child == 0:
        return alone
    while True:
        ended, status = os.wait()
        if ended == child:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else _SIGNALLED - code)


def _end_others(kill: Any = os.kill, wait: Any = os.wait) -> None:
    """End what the tests have started, where nobody else lives: all but this process and the first."""
    with suppress(OSError):
        kill(-1, signal.SIGKILL)
    with suppress(OSError):
        while True:
            wait()


def judged(suite: checks.Suite, header: dict[str, Any], fd: int, page: Any, seed: int) -> dict[str, Any]:
    """Run the suite against one candidate, and say what came of it."""
    name = header.get("module") or "candidate"
    longest, total = header.get("message_bytes") or codec.LIMIT, header.get("total_bytes") or 8 * codec.LIMIT
    in_place = bool(header.get("in_place"))
    wire = link.Link(fd, page, longest, total, suite=NAME, in_place=in_place)
    for chance in ("random", "numpy.random"):
        if chance in sys.modules:
            sys.modules[chance].seed(seed)
    sys.modules[name] = link.Module(wire, name, suite.bound, header.get("entry_point") or "")
    run = _Run(suite, wire, name, share=bool(header.get("share")))
    try:
        run.everything(header.get("entry_point") or "")
    finally:
        for module in (name, NAME):
            sys.modules.pop(module, None)
    told = run.report()
    if total - wire.left > _MUCH:
        del run, wire
        gc.collect()  # its stand-ins refer to one another
    return told


class _Run:
    """One candidate's way through the suite."""

    def __init__(self, suite: checks.Suite, wire: link.Link, name: str, *, share: bool) -> None:
        self.suite, self.link, self.name, self.share = suite, wire, name, share
        self.begun = [0] * len(suite.sites)
        self.held = [0] * len(suite.sites)
        self.events = 0  # failures outside any check
        self.failed: list[dict[str, Any]] = []
        self.conditions = Conditions(wire)
        self.first: dict[str, Any] = {}  # what is known of the first check that failed
        self.code: str | None = None
        self.reason = ""
        self.known: BaseException | None = None  # the exception that is written down already

    # what the rewritten suite calls

    def begin(self, at: int) -> None:
        self.begun[at] += 1
        self.conditions.begin()

    def passed(self, at: int) -> None:
        self.held[at] += 1

    def fails(self, at: int) -> None:
        site = self.suite.sites[at]
        self.tell(self.place(at))
        reason = "the check is false"
        if "got" in self.first and self.code is None:
            reason = f"{self.first['got'][:120]} came back, {self.first['expected'][:120]} was expected"
        self.note("wrong", reason, site.line, site.text)
        if not self.share:
            raise _StopError(site.text)

    def raised(self, at: int) -> bool:
        """Write down what a check raised; whether it goes on upwards."""
        error = sys.exc_info()[1]
        if isinstance(error, _StopError | LostError) or error is None or error is self.known:
            return True
        if isinstance(error, standin.Skipped):
            return True
        site = self.suite.sites[at]
        said = _said(error)
        self.tell(self.place(at), error, said)
        self.note(_code(error), said, site.line, site.text)
        self.known = error
        return not (self.share and isinstance(error, Exception | standin.Failed))

    def tell(self, place: dict[str, Any], error: BaseException | None = None, said: str = "") -> None:
        """Keep what is known of the first check that failed."""
        if self.code is None:
            self.first = place | self.conditions.told(error) | ({"error": said} if said else {})

    def place(self, at: int) -> dict[str, Any]:
        site = self.suite.sites[at]
        return {"number": at + 1, "of": len(self.suite.sites), "line": site.line, "text": site.text}

    def note(self, code: str, reason: str, line: int, text: str) -> None:
        if self.code is None:
            self.code, self.reason = code, f"line {line}: {text.removesuffix(':')}: {reason}"[:400]
            if code == "exception" and not self.link.touched:
                # A name of the candidate's may be anything at all: only a failed import is beyond its reach.
                missing = isinstance(self.known or sys.exc_info()[1], ImportError)
                self.code = "suite_error" if missing or not self.link.named else code
        if len(self.failed) < _SHOWN:
            self.failed.append({"line": line, "text": text, "reason": reason[:300]})

    # the suite

    def everything(self, entry_point: str) -> None:
        """Run the module, its `check`, its tests and its classes."""
        module = sys.modules[NAME] = ModuleType(NAME)
        space = vars(module)
        found = self.loaded(entry_point)
        if found is None:
            return
        for name in self.suite.free:
            if name != entry_point and (shared := link.shared(name)) is not None:
                space[name] = shared
            elif name in found:
                space[name] = found[name]
            elif name == self.name:  # used without an import: the function asked for, or the module
                space[name] = found[entry_point] if entry_point in found else sys.modules[name]
        space.update(self.tools(), __file__=f"{NAME}.py")
        space["__name__"] = "__main__" if self.suite.guarded else NAME
        code: Any = self.suite.code
        if not self.guarded(lambda: exec(code, space), "the suite"):
            return
        if not self.guarded(lambda: self.check(space, found, entry_point), "check") and not self.share:
            return
        for what, test in _tests(space):
            if not self.guarded(test, what) and not self.share:
                return

    def loaded(self, entry_point: str) -> dict[str, Any] | None:
        """What the suite uses of the candidate's module, if it became one."""
        try:
            names = [name for name in self.suite.free if name != self.name]
            return self.link.opened([*names, *([entry_point] if entry_point else [])])
        except LostError:
            return None
        except Exception as error:
            # A module whose names cannot even be listed is none.
            self.code, self.reason = "load_error", _said(error).removeprefix("CandidateLoadError: ")
            return None

    def check(self, space: dict[str, Any], found: dict[str, Any], entry_point: str) -> Any:
        """Call `check(candidate)`, where the suite defines it and does not call it itself."""
        check = space.get("check")
        if type(check) is not FunctionType or self.suite.calls_check:
            return None
        if check.__code__.co_argcount == 0:
            return check()
        if entry_point not in found:
            raise AttributeError(f"the candidate defines no {entry_point or 'entry point'!r}")
        return check(found[entry_point])

    def tools(self) -> dict[str, Any]:
        return {
            checks.BEGIN: self.begin,
            checks.PASSED: self.passed,
            checks.FAILED: self.fails,
            checks.RAISED: self.raised,
            checks.IN_PLACE: proxies.call_in_place,
            checks.SAME: proxies.same,
            checks.COMPARED: self.conditions.compared,
            checks.SEEN: self.conditions.seen,
        }

    def guarded(self, action: Callable[[], Any], what: str) -> bool:
        """Do it; whether it came to its end."""
        try:
            _finished(action())
        except LostError:
            return False
        except _StopError:
            return False
        except standin.Skipped:
            self.events += 1
            self.note("skipped", "the suite skipped it", 1, what)
            return False
        except BaseException as error:
            if error is not self.known:
                self.events += 1
                line, said = _line(error), _said(error)
                self.tell({"line": line, "text": what}, error, said)
                self.note(_code(error), said, line, what)
            return False
        return True

    def report(self) -> dict[str, Any]:
        """The verdict: positive evidence only."""
        counts = list(zip(self.suite.sites, self.begun, self.held, strict=True))
        missed = [site for site, begun, _ in counts if site.required and not begun]
        # Each check once, however often it was come to: how often may be the candidate's to choose.
        planned = sum(begun > 0 for _, begun, _ in counts) + len(missed) + self.events
        passed = sum(0 < begun == held for _, begun, held in counts)
        code, reason, unread = self.code, self.reason, False
        if not self.link.lost:
            unread = self.link.unread()
        if self.link.lost:
            code, reason = self.link.lost, self.link.why
            self.first = self.first or {"unanswered": 1} | self.conditions.told(None)
        elif unread:
            code, reason = "protocol", "an answer that nobody asked for"
        elif code is None and not self.suite.sites:
            code, reason = "no_verdict", "the suite holds no check"
        elif code is None and (passed < planned or not passed):
            text = f"; the first is line {missed[0].line}: {missed[0].text}" if missed else ""
            code, reason = "wrong", f"{planned - passed} checks of {planned} were never reached{text}"
        if code is not None and passed >= planned:
            planned = passed + 1  # whatever went wrong, it is one thing that did not hold
        return {
            "planned": planned,
            "passed": passed,
            "code": code,
            "reason": _ascii(reason)[:500],
            "unread": unread,
            "check": {
                key: _ascii(one, showing.LONG) if type(one) is str else one for key, one in self.first.items()
            },
            "failed": [
                {**row, "text": _ascii(row["text"]), "reason": _ascii(row["reason"])} for row in self.failed
            ],
        }


def _ascii(text: str, most: int = 600) -> str:
    return text.encode("ascii", "backslashreplace").decode()[:most]


def _code(error: BaseException) -> str:
    return "wrong" if isinstance(error, AssertionError | standin.Failed) else "exception"


def _said(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:300]
    except (Exception, LostError):
        return type(error).__name__


def _line(error: BaseException) -> int:
    line, trace = 1, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == f"{NAME}.py":
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


# what a suite holds


def _tests(space: dict[str, Any]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Every test with its name, in the suite's order; parametrised ones once per row."""
    fixtures = {item.name: item for item in space.values() if type(item) is standin.Fixture}
    for name, item in list(space.items()):
        if type(item) is FunctionType and name.startswith("test") and item.__module__ == space["__name__"]:
            yield from _rows(name, item, fixtures, space)
        elif type(item) is type and item.__module__ == space["__name__"]:
            case = any(base.__name__ == "TestCase" for base in item.__mro__)
            if case or name.startswith("Test"):
                yield from _methods(name, item, fixtures)


def _rows(
    name: str, test: Any, fixtures: dict[str, Any], space: dict[str, Any]
) -> Iterator[tuple[str, Callable[[], Any]]]:
    around = [space[word] for word in ("setup_function", "teardown_function") if callable(space.get(word))]
    try:
        rows = standin.rows(test)
    except standin.Skipped:
        yield name, standin.skip
        return
    for row in rows:
        yield name, lambda row=row: _with_fixtures(test, row, fixtures, None, around)  # type: ignore[misc]


def _methods(name: str, kind: Any, fixtures: dict[str, Any]) -> Iterator[tuple[str, Callable[[], Any]]]:
    case = any(base.__name__ == "TestCase" for base in kind.__mro__)
    own = {item.name: item for item in vars(kind).values() if type(item) is standin.Fixture}
    for word in ("setup_class", "setUpClass"):
        if hasattr(kind, word):
            yield f"{name}.{word}", lambda word=word: _class_call(kind, word)  # type: ignore[misc]
    for method in [word for base in reversed(kind.__mro__) for word in vars(base) if word.startswith("test")]:
        function = getattr(kind, method)
        try:
            rows = standin.rows(function, kind)
        except standin.Skipped:
            yield f"{name}.{method}", standin.skip
            continue
        for row in rows:
            yield (
                f"{name}.{method}",
                lambda method=method, row=row: _case(kind, method, row, fixtures | own, case=case),  # type: ignore[misc]
            )


def _class_call(kind: Any, word: str) -> None:
    function = getattr(kind, word)
    function() if hasattr(function, "__self__") else function(kind)


def _case(kind: Any, method: str, row: dict[str, Any], fixtures: dict[str, Any], *, case: bool) -> None:
    made = kind(method) if case else kind()
    before, after = ("setUp", "tearDown") if case else ("setup_method", "teardown_method")
    test = getattr(made, method)
    if (prepare := getattr(made, before, None)) is not None:
        prepare(*([test] if not case and prepare.__code__.co_argcount > 1 else []))
    try:
        _with_fixtures(test, row, fixtures, made, [])
    finally:
        if (finish := getattr(made, after, None)) is not None:
            finish(*([test] if not case and finish.__code__.co_argcount > 1 else []))
        if case:
            made.doCleanups()


def _with_fixtures(
    test: Any, row: dict[str, Any], fixtures: dict[str, Any], owner: Any, around: list[Any]
) -> None:
    """Call a test with its row and the fixtures that it names; end the fixtures after it."""
    ends: list[Iterator[Any]] = []
    made: dict[str, Any] = {}
    for item in fixtures.values():
        if item.autouse:
            _fixture(item.name, fixtures, owner, made, ends)
    given = dict(row)
    for name in _arguments(test):
        if name not in given and name in fixtures:
            given[name] = _fixture(name, fixtures, owner, made, ends)
    for function in around[:1]:
        function(*[test] * bool(function.__code__.co_argcount))
    try:
        _finished(test(**given))
    finally:
        for function in around[1:]:
            function(*[test] * bool(function.__code__.co_argcount))
        for end in reversed(ends):
            next(end, None)


def _fixture(name: str, fixtures: dict[str, Any], owner: Any, made: dict[str, Any], ends: list[Any]) -> Any:
    """A fixture's value, made once for this test."""
    if name not in made:
        function = fixtures[name].function
        words = _arguments(function)
        given = [owner if word == "self" else _fixture(word, fixtures, owner, made, ends) for word in words]
        got = function(*given)
        if function.__code__.co_flags & 0x20:  # a generator: what follows its yield comes after the test
            ends.append(got)
            got = next(got)
        made[name] = got
    return made[name]


def _finished(value: Any) -> None:
    """Run a coroutine to its end."""
    if type(value) is CoroutineType:
        import asyncio

        asyncio.run(value)


def _arguments(function: Any) -> tuple[str, ...]:
    code = getattr(function, "__code__", None)
    if code is None:
        return ()
    named: tuple[str, ...] = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return named[1:] if hasattr(function, "__self__") else named
