"""Two ranks, for `test_trl_ranks.py`: `trl_ranks.py FOLDER SCENARIO...` plays scenarios in two processes.

torch and trl are imported once; the ranks are forks. What a rank found goes to `FOLDER/SCENARIO.RANK.json`,
how both ended to `FOLDER/SCENARIO.json`. What they leave running becomes a child of this process, told.
"""

from __future__ import annotations

import asyncio
import ctypes
import hashlib
import json
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

import trl_functions
from steelyard import Part, Recipe, RunStoppedError
from steelyard.integrations import trl as steelyard_trl
from tiny_trainer import (
    GRPOTrainer,
    Reference,
    Scripted,
    apart,
    as_words,
    by_word,
    norm,
    rows,
    save_model,
    scripted,
    trainer_of,
    untrained,
)

WAIT_S = 90.0
GROUPS = [
    "1 0 1 crash",
    "1 1 0 0",
    "crash crash 0 1",
    "0 1 1 outage",
]
WHOLE = ["1 0 1 0", "1 1 0 0"]


class Rank:
    """What a scenario has in hand."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.folder = folder
        self.rank = rank

    def trainer(self, kind, rewards, groups, **settings):
        """A trainer of which each rank has an even share of the groups."""
        settings.setdefault("per_device_train_batch_size", 2 * len(groups))
        return trainer_of(kind, rewards, rows(*groups), self.folder / "model", self.folder, **settings)

    def trained(self, recipe, groups, kind=steelyard_trl.GRPOTrainer, reward=None, **settings):
        """Train under a recipe, close it; return the trainer, or what stopped it."""
        with steelyard_trl.reward(recipe, workers=1, **reward or {}) as scoring:
            try:
                trainer = self.trainer(kind, scoring, groups, **settings)
                trainer.train()
            except Exception as error:  # noqa: BLE001 - it is told
                return error
        return trainer

    def referred(self, groups, skipped, words=by_word, *, voting=False, kind=Reference, **settings):
        """Train the reference; `skipped` says which of all rows are not trained on."""
        trainer = self.trainer(kind, words, groups, **settings)
        share = len(skipped) // 2
        trainer.skipped = skipped[self.rank * share : (self.rank + 1) * share]
        trainer.voting = voting
        trainer.train()
        return trainer


def compared(ours, reference):
    (one,), (other,) = ours.told.gradients, reference.told.gradients
    return {
        "same words": as_words(ours) == as_words(reference),
        "norm": norm(other),
        "apart": apart(one, other),
    }


def gradients(rank: Rank):
    """L1 against the reference, for each loss; and for one, TRL alone against it, which is to differ."""
    skipped, found = untrained(*GROUPS), {}
    for loss in ("dapo", "grpo", "dr_grpo"):
        told = {"loss_type": loss, "beta": 0.5}
        reference = rank.referred(GROUPS, skipped, **told)
        found[loss] = compared(rank.trained(scripted("code"), GROUPS, **told), reference)
        if loss == "dapo":
            plain = rank.referred(GROUPS, skipped, kind=GRPOTrainer, **told)
            found["TRL alone"] = compared(plain, reference)
    told = {"loss_type": "dapo", "beta": 0.5}
    ours = rank.trained(scripted("code"), GROUPS, keywords={"denominator": "voting"}, **told)
    found["voting"] = compared(ours, rank.referred(GROUPS, skipped, voting=True, **told))

    groups = [GROUPS[0]]  # of which each rank has one half
    half = partial(by_word, offset=2 * rank.rank)
    half.__name__ = "half"
    ours = rank.trained(scripted("code", offset=2 * rank.rank), groups, **told)
    found["a group on two ranks"] = compared(ours, rank.referred(groups, untrained(*groups), half, **told))
    found["a group on two ranks"]["advantages"] = list(ours._logs["advantages"])
    few = rank.trained(scripted("code", offset=2 * rank.rank), ["1 crash 0 crash"], **told)
    found["few votes on two ranks"] = norm(few.told.gradients[0])
    return found


@dataclass(frozen=True)
class Stopping(Scripted):
    """A reward under which the thread that scores ends."""

    async def __call__(self, rollout, context, /):
        asyncio.get_running_loop().stop()
        await asyncio.sleep(3600)


@dataclass(frozen=True)
class Killing(Scripted):
    """A reward under which the rank is killed."""

    async def __call__(self, rollout, context, /):
        os.kill(os.getpid(), signal.SIGKILL)


def told(outcome):
    if isinstance(outcome, Exception):
        return {"error": f"{type(outcome).__name__}: {outcome}", "ours": isinstance(outcome, RunStoppedError)}
    (gradient,) = outcome.told.gradients
    weights = torch.cat([one.detach().flatten() for one in outcome.model.parameters()])
    return {
        "norm": norm(gradient),
        "finite": bool(weights.isfinite().all()),
        "weights": hashlib.sha256(weights.numpy().tobytes()).hexdigest(),
        "verdicts": list(outcome._logs["extra"]["steelyard/verdict"]),
        "logged": outcome.state.log_history[0] if outcome.state.log_history else {},
    }


def goes_on(rank: Rank):
    """What fails on one rank alone, and stops nobody."""
    marker = rank.folder / "was-here"
    groups = [{"code": group, "marker": str(marker)} for group in WHOLE]
    if rank.rank == 0:
        killed = rank.trained([trl_functions.scored], groups, learning_rate=0.1)
    else:
        killed = rank.trained([trl_functions.dies_once], groups, learning_rate=0.1)
    unscored = rank.trained(
        scripted("code"), [WHOLE[0], "crash crash crash crash"], learning_rate=0.1, beta=0.5, loss_type="grpo"
    )
    nothing = rank.trained(scripted("code"), ["crash crash crash crash"] * 2, learning_rate=0.1, beta=0.5)
    return {
        "a worker is killed": told(killed),
        "one rank unscored": told(unscored),
        "all unscored": told(nothing),
        "was killed": marker.exists(),
    }


def stops(rank: Rank):
    """What stops one rank: the other stops with its reason, and both can begin again."""
    found = {}
    failing = {
        "raises": (trl_functions.always_raises, {}),
        "never answers": (Scripted(), {"deadline_s": 1.0}),
        "dies": (Stopping(), {}),
    }
    for name, (reward, settings) in failing.items():
        sound = Scripted() if rank.rank == 0 else reward
        groups = [WHOLE[0], "1 hang 0 0"] if name == "never answers" else WHOLE
        began = time.monotonic()
        found[name] = told(
            rank.trained(
                Recipe((Part(sound),)) if isinstance(sound, Scripted) else [sound], groups, reward=settings
            )
        )
        found[name]["took_s"] = time.monotonic() - began
    late = {"reward": {"deadline_s": 60.0}, "ddp_timeout": 50}
    found["a deadline after the group's"] = told(rank.trained(scripted("code"), WHOLE, **late))
    found["again"] = told(rank.trained(scripted("code"), WHOLE))
    return found


def killed(rank: Rank):
    return told(rank.trained(Recipe((Part(Scripted() if rank.rank == 0 else Killing()),)), WHOLE))


def raises_under_l0(rank: Rank):
    sound = scripted("code") if rank.rank == 0 else [trl_functions.always_raises]
    return told(rank.trained(sound, WHOLE, kind=GRPOTrainer))


SCENARIOS = {
    "gradients": gradients,
    "goes on": goes_on,
    "stops": stops,
    "killed": killed,
    "raises under L0": raises_under_l0,
}


# --- two processes for each


def play(scenario: str, folder: Path) -> dict[str, object]:
    """Fork two ranks; wait until both have ended, or for too long."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    began = time.monotonic()
    ranks = {}
    for rank in range(2):
        pid = os.fork()
        if pid == 0:
            be(rank, port, scenario, folder)
        ranks[pid] = rank
    running, ended_s = dict(ranks), {}
    while running and time.monotonic() < began + WAIT_S:
        pid, _ = os.waitpid(-1, os.WNOHANG)
        if pid in running:
            ended_s[running.pop(pid)] = time.monotonic() - began
        elif pid == 0:
            time.sleep(0.02)
    for pid in running:
        os.kill(pid, signal.SIGKILL)
    return {
        "hung": sorted(running.values()),
        "ended_s": [ended_s.get(rank) for rank in range(2)],
        "left": left(),
    }


def be(rank: int, port: int, scenario: str, folder: Path) -> None:
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE="2",
        LOCAL_WORLD_SIZE="2",
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
    )
    found = SCENARIOS[scenario](Rank(folder, rank))
    (folder / f"{scenario}.{rank}.json").write_text(json.dumps(found))
    if torch.distributed.is_initialized():
        with suppress(RuntimeError):  # the other may be gone
            torch.distributed.destroy_process_group()
    sys.exit(0)


def left() -> list[str]:
    """What still runs below this process two seconds after the ranks have ended; it is ended, too."""
    give_up = time.monotonic() + 2
    while (children := below()) and time.monotonic() < give_up:
        time.sleep(0.02)
    for child in children:
        os.kill(child, signal.SIGKILL)
    return [children[child] for child in children]


def below() -> dict[int, str]:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    found = {}
    for task in Path("/proc/self/task").iterdir():
        for child in (task / "children").read_text().split():
            with suppress(OSError):
                found[int(child)] = Path(f"/proc/{child}/cmdline").read_text().replace("\0", " ")
    return found


def main() -> None:
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: orphans of the ranks become ours
    folder = Path(sys.argv[1])
    save_model(folder / "model")
    for scenario in sys.argv[2:] or SCENARIOS:
        sys.stderr.write(f"== {scenario}\n")
        (folder / f"{scenario}.json").write_text(json.dumps(play(scenario, folder)))


if __name__ == "__main__":
    main()
