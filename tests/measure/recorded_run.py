"""A training loop in several processes, recorded into one file: what `test_recorder.py` starts.

`python recorded_run.py FILE HOW`: `fork` and `spawn` start two ranks that open recorders of their own;
`inherited` goes on in a fork with its parent's; `killed` dies in its second step; `unclosed` ends without
closing; `raised` ends by an exception in a phase.
"""

import atexit
import json
import multiprocessing
import os
import signal
import sys
from pathlib import Path

from steelyard.clock import Span
from steelyard.measure import Steps


def to_file(path):
    """A sink: each batch is one append, so that processes do not write into one another's lines."""

    def write(spans):
        lines = "".join(json.dumps(span) + "\n" for span in spans)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(descriptor, lines.encode())
        finally:
            os.close(descriptor)

    return write


def read(path):
    return [Span(*json.loads(line)) for line in Path(path).read_text().splitlines()]


def rank(path, number):
    """What a rank does; its recorder is not closed, and records something after its last step."""
    steps = Steps(to_file(path), lane=f"rank {number}")
    for _ in range(3):
        with steps.step(), steps.phase("generation"):
            pass
    with steps.phase("farewell"):
        pass


def ranks(path, method):
    context = multiprocessing.get_context(method)
    processes = [context.Process(target=rank, args=(path, number)) for number in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return [process.exitcode for process in processes]


def inherited(path):
    """Fork in the middle of a phase, with spans waiting; the child never closes and skips all exits."""
    steps = Steps(to_file(path), lane="rank 0")
    with steps.step():
        with steps.phase("generation"):
            pass
        with steps.phase("reward"):
            child = os.fork()
            if child == 0:
                with steps.call(group=0, member=0) as call:
                    call.value(1.0)
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
    steps.close()
    Path(path).with_suffix(".child").write_text(str(child))


def closing_at_exit(path):
    """A sink that closes itself at the end of the program."""
    closed, write = [], to_file(path)
    atexit.register(closed.append, True)

    def writing(spans):
        if closed:
            raise OSError("the sink is closed")
        write(spans)

    return writing


def main(path, how):
    if how in {"fork", "spawn"}:
        return int(any(ranks(path, how)))
    if how == "inherited":
        inherited(path)
        return 0
    steps = Steps(closing_at_exit(path), lane="rank 0")
    with steps.step(), steps.phase("generation"):
        pass
    if how == "unclosed":
        steps.step().__enter__()
        steps.phase("reward").__enter__()
        return 0
    with steps.step(), steps.phase("reward"):
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        raise ValueError(how)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
