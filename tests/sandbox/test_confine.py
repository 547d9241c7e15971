"""A guest under its real confinement, in a real bubblewrap: what must work there, and what must not."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import steelyard.sandbox.guest

pytestmark = pytest.mark.needs("bubblewrap")

PACKAGE = Path(steelyard.sandbox.guest.__file__).parent.parent
UID = 1000
PROCESSES = 40
FILE_BYTES = 4 << 20
FILES = 300
FILE_SIZE = 1 << 20
CPU_S = 1

SERVER = f"""
import json, os, sys, traceback, types
sys.path.insert(0, "/steelyard")
from guest import confine
secret = os.open("/usr", os.O_RDONLY)
prepared = confine.prepare(dict(
    file_bytes={FILE_BYTES}, files={FILES}, file_size={FILE_SIZE}, processes={PROCESSES}, descriptors=64
))

def start(code, write):
    null = os.open("/dev/null", os.O_RDONLY)
    for source, target in ((null, 0), (write, 1), (write, 2), (write, 700)):
        os.dup2(source, target)
    confine.enter(prepared, keep=(700,), cpu_s={CPU_S})
    main = types.ModuleType("__main__")
    main.__file__ = "/box/work/main.py"
    sys.modules["__main__"], sys.argv = main, [main.__file__]
    sys.path.insert(0, "/box/work")
    with open(main.__file__, "w") as file:
        file.write(code)
    exec(compile(code, main.__file__, "exec"), main.__dict__)
    sys.stdout.flush()

def begin(code):
    read, write = os.pipe()
    pid = confine.clone(prepared)
    if pid == 0:
        try:
            start(code, write)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(3)
    os.close(write)
    return pid, read

def end(pid, read):
    output = b"".join(iter(lambda: os.read(read, 65536), b""))
    os.close(read)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return [status, output.decode(errors="replace")]

for line in sys.stdin:
    guests = [begin(code) for code in json.loads(line)]
    print(json.dumps([end(*guest) for guest in guests]), flush=True)
"""

HELPERS = """
import ctypes, errno, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)

def attempt(action):
    try:
        return action()
    except OSError as error:
        return errno.errorcode[error.errno]

def call(name, *arguments):
    result = getattr(libc, name)(*arguments)
    return errno.errorcode[ctypes.get_errno()] if result == -1 else result
"""


@dataclass
class Done:
    status: int
    output: str


class Slot:
    """A fork server in a bubblewrap, as another user of the machine where we are root."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            slot_command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def run(self, code: str) -> Done:
        return self.run_together(code)[0]

    def run_together(self, *codes: str) -> list[Done]:
        print(json.dumps(codes), file=self._process.stdin)
        answer = self._process.stdout.readline()
        assert answer, "the server ended"
        return [Done(*done) for done in json.loads(answer)]

    def close(self) -> None:
        self._process.stdin.close()
        assert self._process.wait(20) == 0
        self._process.stdout.close()


def slot_command() -> list[str]:
    """Return bwrap's command; as root, mounts that another user may pass come first, seen by it alone."""
    wanted = [Path("/usr"), Path(sys.base_prefix)]
    binds, prepare = [], ["mount -t tmpfs steelyard-test /mnt", "chmod 755 /mnt"]
    for index, (source, target) in enumerate([*((path, path) for path in wanted), (PACKAGE, "/steelyard")]):
        readable = f"/mnt/{index}"
        prepare += [f"mkdir {readable}", f"mount --bind '{source}' {readable}"]
        binds += ["--ro-bind", readable if os.geteuid() == 0 else str(source), str(target)]
    links = [("usr/lib", "/lib"), ("usr/lib64", "/lib64"), ("usr/bin", "/bin"), ("/box/tmp", "/tmp")]  # noqa: S108
    paths = [f"/dev/{name}" for name in ("null", "zero", "full", "urandom")]
    devices = [["--dev-bind", path, path] for path in paths]
    command = [
        *("bwrap", "--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"),
        *("--uid", str(UID), "--gid", str(UID), "--die-with-parent", "--new-session", "--clearenv"),
        *("--setenv", "PATH", "/usr/bin:/bin", "--setenv", "SLOT", "secret"),
        *binds,
        *(word for target, link in links for word in ("--symlink", target, link)),
        *(word for device in devices for word in device),
        *("--symlink", "/box/shm", "/dev/shm"),  # noqa: S108 - inside
        *("--dir", "/box", "--dir", "/etc", "--dir", "/fake-proc"),
        *("--proc", "/proc", "--remount-ro", "/"),
        *(str(Path(sys.base_prefix, "bin", "python3")), "-P", "-S", "-B", "-c", SERVER),
    ]
    if os.geteuid() != 0:
        return command
    script = " && ".join([*prepare, 'exec setpriv --reuid 65534 --regid 65534 --clear-groups -- "$@"'])
    return ["unshare", "--mount", "sh", "-c", script, "sh", *command]


@pytest.fixture(scope="module")
def slot() -> Iterator[Slot]:
    slot = Slot()
    slot.run("")  # all its own processes are there before a test begins
    yield slot
    slot.close()


HONEST = {
    "pool": """
        import multiprocessing
        if __name__ == "__main__":
            with multiprocessing.Pool(2) as pool:
                print(pool.map(abs, [-1, -2]) == [1, 2])""",
    "queue": """
        import multiprocessing
        if __name__ == "__main__":
            queue = multiprocessing.Queue()
            process = multiprocessing.Process(target=queue.put, args=(True,))
            process.start()
            print(queue.get())
            process.join()""",
    "spawn and forkserver": """
        import multiprocessing
        if __name__ == "__main__":
            for method in ("spawn", "forkserver"):
                context = multiprocessing.get_context(method)
                process = context.Process(target=abs, args=(1,))
                process.start()
                process.join()
                assert process.exitcode == 0
            print(True)""",
    "manager": """
        import multiprocessing
        if __name__ == "__main__":
            with multiprocessing.Manager() as manager:
                shared = manager.dict(key=True)
                print(shared["key"])""",
    "shared memory": """
        from multiprocessing import shared_memory
        block = shared_memory.SharedMemory(create=True, size=1000)
        block.buf[0] = 1
        print(block.buf[0] == 1)
        block.close()
        block.unlink()""",
    "subprocess": """
        import subprocess, sys
        command = [sys.executable, "-c", "import os; print(os.getppid() == 1)"]
        print(subprocess.run(command, capture_output=True, text=True, check=True).stdout)""",
    "shell": """
        import subprocess
        print(subprocess.run("echo True | cat", shell=True, capture_output=True, text=True).stdout)""",
    "threads": """
        from concurrent.futures import ThreadPoolExecutor
        with ThreadPoolExecutor(4) as pool:
            print(sum(pool.map(int, range(100))) == 4950)""",
    "asyncio": """
        import asyncio, sys
        async def main():
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", "print(True)", stdout=asyncio.subprocess.PIPE)
            print((await process.communicate())[0].decode())
        asyncio.run(main())""",
    "files": """
        import mmap, os, shutil, tempfile
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as file:
            file.write(bytes(4096)); file.flush()
            mmap.mmap(file.fileno(), 4096)[0:1] = b"x"
            open(f"{folder}/a", "w").close()
            shutil.copytree(folder, "copy"); os.mkfifo("pipe"); os.rename("copy/a", "a")
            os.link("a", "b"); os.symlink("a", "c"); os.utime("a"); os.chmod("a", 0o600)
            with open("/dev/null", "w") as nothing:
                nothing.write("x")
            print(sorted(os.listdir()) == ["a", "b", "c", "copy", "main.py", "pipe"])""",
    "events": """
        import os, select, signal, time
        reached = []
        signal.signal(signal.SIGALRM, lambda *_: reached.append(True))
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        event = os.eventfd(1)
        poll = select.epoll(); poll.register(event, select.EPOLLIN)
        assert poll.poll(1) and select.select([event], [], [], 1)[0]
        while not reached: time.sleep(0.01)
        signal.raise_signal(signal.SIGALRM)
        print(len(reached) == 2)""",
    "local sockets": """
        import socket
        server = socket.socket(socket.AF_UNIX); server.bind("name"); server.listen()
        client = socket.socket(socket.AF_UNIX); client.connect("name"); client.send(b"x")
        print(server.accept()[0].recv(1) == b"x" and bool(socket.socketpair()))""",
    "locks of its own files": """
        import fcntl, sqlite3
        with open("lock", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX); fcntl.lockf(file, fcntl.LOCK_EX)
        for _ in range(2):
            with sqlite3.connect("data") as base:
                base.execute("create table if not exists t (x)"); base.execute("insert into t values (1)")
        print(base.execute("select count(*) from t").fetchall() == [(2,)])""",
    "its own person and limits": """
        import os, resource, threading
        resource.prlimit(0, resource.RLIMIT_NOFILE, (32, 64))
        print(os.getpid() == 1 == threading.get_native_id() and os.getuid() == 1000
              and bool(os.sched_getaffinity(0)) and os.getcwd() == "/box/work" and os.nice(1) >= 1)""",
}


@pytest.mark.parametrize("what", HONEST)
def test_honest_programs_work(slot, what):
    done = slot.run(textwrap.dedent(HONEST[what]))
    assert (done.status, done.output.strip()) == (0, "True")


REFUSED = {
    "a user namespace": ('call("unshare", 0x10000000)', "EPERM"),
    "a user namespace by clone": (
        "libc.syscall(CLONE, 0x10000011, 0, 0, 0, 0); errno.errorcode[ctypes.get_errno()]",
        "EPERM",
    ),
    "a mount": ('call("mount", b"tmpfs", b"/box", b"tmpfs", 0, None)', "EPERM"),
    "taking the cover off /proc": ('call("umount2", b"/proc", 2)', "EPERM"),
    "another root": ('call("chroot", b"/box")', "EPERM"),
    "another host name": ('call("sethostname", b"x", 1)', "EPERM"),
    "tracing": ('call("ptrace", 16, os.getppid(), 0, 0)', "EPERM"),
    "another's memory": ('call("process_vm_readv", 1, None, 0, None, 0, 0)', "EPERM"),
    "a file in memory": ('attempt(lambda: os.memfd_create("x"))', "EPERM"),
    "System V memory": ('call("shmget", 0, 4096, 0o1600)', "EPERM"),
    "the internet": ("attempt(lambda: socket.socket(socket.AF_INET))", "EPERM"),
    "netlink": ("attempt(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW))", "EPERM"),
    "typing into the terminal": ('call("ioctl", 0, 0x5412, b"x")', "EPERM"),
    "a second filter": ('call("prctl", 22, 2, None, 0, 0)', "EPERM"),
    "an open door for a tracer": ('call("prctl", 0x59616D61, -1, 0, 0, 0)', "EPERM"),
    "setting the clock": ("attempt(lambda: __import__('time').clock_settime(0, 0))", "EPERM"),
    "another user": ("attempt(lambda: os.setuid(0))", "EPERM"),
    "a device": ('attempt(lambda: os.mknod("device", 0o20600, os.makedev(1, 1)))', "EPERM"),
    "a file in the root": ('attempt(lambda: os.open("/x", os.O_CREAT | os.O_WRONLY))', "EROFS EACCES"),
    "a file among the devices": (
        'attempt(lambda: os.open("/dev/x", os.O_CREAT | os.O_WRONLY))',
        "EROFS EACCES",
    ),
    "the machine's device nodes": ('attempt(lambda: os.utime("/dev/null"))', "EROFS"),
    "a changed interpreter": ("attempt(lambda: os.open(os.__file__, os.O_WRONLY))", "EROFS EACCES"),
    "the host's passwords": ('attempt(lambda: os.open("/etc/shadow", os.O_RDONLY))', "ENOENT"),
    "the server's environment": ('attempt(lambda: os.open("/proc/1/environ", os.O_RDONLY))', "ENOENT"),
    "its own /proc": ('attempt(lambda: os.open("/proc/self/maps", os.O_RDONLY))', "ENOENT"),
    "the server's descriptors": ("attempt(lambda: [os.fstat(n) for n in range(3, 64)])", "EBADF"),
    "what others do with a file": ('call("inotify_init1", 0)', "EPERM"),
    "a notice of it": ('call("fcntl", os.open("/usr", os.O_RDONLY), 1026, 1)', "EPERM"),
    "a lease": ('call("fcntl", os.open("/box/work/main.py", os.O_RDONLY), 1024, 0)', "EPERM"),
    "a higher limit": ("attempt(lambda: __import__('resource').setrlimit(6, (999, 999)))", "ValueError"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_guest_cannot_reach(slot, what):
    expression, expected = REFUSED[what]
    done = slot.run(
        f"{HELPERS}\nCLONE = 56 if os.uname().machine == 'x86_64' else 220\n"
        f"try:\n    *_, answer = [{expression.replace('; ', ', ')}]\n"
        "except ValueError:\n    answer = 'ValueError'\n"
        "print(answer)"
    )
    assert done.status == 0
    assert done.output.strip() in expected.split()


def test_the_descriptors_named_stay_open_and_no_others(slot):
    done = slot.run(f"{HELPERS}\nprint([n for n in range(2000) if libc.fcntl(n, 1) != -1])")
    assert done.output.strip() == "[0, 1, 2, 700]"


def test_no_lock_of_a_guests_is_seen_by_others(slot):
    lock = """import fcntl, struct
file = os.open(os.__file__, os.O_RDONLY)
fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
for command in (fcntl.F_SETLK, fcntl.F_OFD_SETLK):
    fcntl.fcntl(file, command, struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0))
print("locked", flush=True)
"""
    ask = """
asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
print(struct.unpack_from("h", fcntl.fcntl(file, fcntl.F_GETLK, asked))[0] == fcntl.F_UNLCK)
"""
    hold, look = f"{HELPERS}{lock}", f"{HELPERS}import time; time.sleep(0.2)\n{lock}{ask}"
    held, seen = slot.run_together(f"{hold}\nimport time; time.sleep(0.6)", look)
    assert (held.output, seen.output) == ("locked\n", "locked\nTrue\n")
    with Path(os.__file__).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_guest_cannot_signal_the_server_or_its_group(slot):
    done = slot.run(
        f"{HELPERS}\nprint(attempt(lambda: os.kill(-1, 9)), os.getpgrp(), os.getsid(0))\nos.kill(0, 9)"
    )
    assert done.output.split()[1:] == ["1", "1"]
    assert slot.run("print(1)").status == 0  # the server lives


def test_a_guest_that_forks_without_end_meets_its_own_limit_and_leaves_nobody(slot):
    bomb = f"""
        import os, signal, time
        count = 0
        try:
            while count < {PROCESSES * 3}:
                if os.fork() == 0:
                    time.sleep(60)
                    os._exit(0)
                count += 1
        except BlockingIOError:
            pass
        print(count)"""
    for _ in range(2):  # the second would find less room, did the first leave somebody
        assert int(slot.run(textwrap.dedent(bomb)).output) == PROCESSES - 1


def test_the_box_has_a_size_and_a_number_of_files(slot):
    done = slot.run(f"""
import errno, os
def fill(action):
    try:
        for number in range({FILES + FILE_BYTES // FILE_SIZE}):
            action(number)
    except OSError as error:
        return errno.errorcode[error.errno], number
def big(number):
    with open(f"big{{number}}", "wb") as file:
        file.write(bytes({FILE_SIZE}))
print(*fill(big))
print(*fill(lambda number: os.mkdir(f"{{number}}")))
try:
    os.truncate("main.py", {FILE_SIZE + 1})
except OSError as error:
    print(errno.errorcode[error.errno])""")
    assert done.status == 0, done.output
    size, number, more, folders, long = done.output.split()
    assert (size, more, long) == ("ENOSPC", "ENOSPC", "EFBIG")
    assert int(number) <= FILE_BYTES // FILE_SIZE
    assert int(folders) < FILES


def test_a_guest_that_computes_without_end_is_killed(slot):
    done = slot.run("import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass")
    assert done.status == -9


def test_calling_in_the_numbers_of_another_abi_kills(slot):
    if os.uname().machine != "x86_64":
        pytest.skip("x32 exists on x86_64 only")
    done = slot.run("import ctypes\nctypes.CDLL(None).syscall(0x40000000 + 39)\nprint('alive')")
    assert (done.status, done.output) == (-31, "")


def test_two_guests_at_once_cannot_meet_in_an_abstract_socket(slot):
    listen = "s = socket.socket(socket.AF_UNIX); s.bind(b'\\0name'); s.listen(); time.sleep(0.6)"
    meet = "time.sleep(0.3); print(attempt(lambda: socket.socket(socket.AF_UNIX).connect(b'\\0name')))"
    listener, visitor = slot.run_together(*(f"{HELPERS}\nimport time\n{act}" for act in (listen, meet)))
    assert listener == Done(0, "")
    assert visitor.output.strip() in {"EPERM", "ECONNREFUSED"}  # Landlock's answer, or another network's


def test_nothing_of_a_guest_is_there_for_the_next(slot):
    slot.run("open('/box/work/left', 'w').close(); open('/tmp/left', 'w').close()")
    done = slot.run("import os\nprint(sorted(os.listdir('/box')), os.listdir('/tmp'), os.listdir())")
    assert done.output.strip() == "['home', 'shm', 'tmp', 'work'] [] ['main.py']"


def test_the_facts_of_a_guest_are_the_required_ones(slot):
    done = slot.run(
        "import json, sys\nsys.path.insert(0, '/steelyard')\n"
        "from guest.facts import facts\nprint(json.dumps(facts()))"
    )
    facts = json.loads(done.output)
    assert (
        facts
        | {
            **dict.fromkeys(("uid", "gid"), str(UID)),
            **dict.fromkeys(("pid", "no_new_privs"), "1"),
            **dict.fromkeys(("cap_eff", "dumpable"), "0"),
            **dict.fromkeys(("network_socket", "new_user_namespace", "ptrace", "proc_processes"), "no"),
            **dict.fromkeys(
                (
                    "root_writable",
                    "usr_writable",
                    "dev_writable",
                    "proc_writable",
                    "device_attributes_writable",
                ),
                "no",
            ),
            **dict.fromkeys(("etc_shadow", "etc_hostname", "homes"), "no"),
            **dict.fromkeys(("own_session", "box_writable"), "yes"),
            "seccomp": "2",
            "descriptors": "0 1 2 700",
            "network_devices": "",
            "prefix": sys.base_prefix,
            "version": " ".join(sys.version.split()),
        }
        == facts
    )


def test_a_setup_that_fails_says_at_which_stage():
    from steelyard.sandbox.guest import confine

    with pytest.raises(confine.SetupError, match="prepare: "):
        confine.prepare({})
