"""Write down, judge, write down, hand on; users' functions in processes; runs that go on."""

import asyncio
import os
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path

import pytest

import user_rewards
from steelyard.errors import RefusedError, RunStoppedError, TooManyUnscoredError
from steelyard.ledger import Ledger
from steelyard.outcome import Abstained, End, How, Part, Scored, Takes, Unscored
from steelyard.rewards import Recipe, find, named, reward
from steelyard.rollout import Group, Rollout
from steelyard.runtime import CHUNK, Runtime
from steelyard.scheduling.groups import WINDOW


def groups_of(*completions, start=0, columns=None, **fields):
    """Groups from lists of completions."""
    ordinal, made = start, []
    for number, group in enumerate(completions, start=start):
        rows = []
        for index, completion in enumerate(group):
            row = Rollout(
                ordinal, "?", completion, columns or {}, (number, index), ordinal, f"r.jsonl:{ordinal + 1}"
            )
            rows.append(row._replace(**fields))
            ordinal += 1
        made.append(Group(f"g{number}", number, rows))
    return made


def scored(groups, *parts, combine=None, **settings):
    """Every scored group, in the order of leaving."""
    recipe = Recipe(tuple(p if isinstance(p, Part) else Part(p) for p in parts), combine)

    async def main():
        async with asyncio.timeout(60):
            return [one async for one in Runtime(recipe, workers=1, **settings).score(groups)]

    return asyncio.run(main())


def verdicts(groups, *parts, **settings):
    """By completion."""
    return {
        rollout.completion: total
        for one in scored(groups, *parts, **settings)
        for rollout, total in zip(one.group.rollouts, one.totals, strict=True)
    }


class Inline:
    """A reward of ours, as the runtime sees it."""

    how, takes, floor, depends_on, columns = How.INLINE, Takes.BATCH, 0.0, "content", ()

    def __init__(self, rule, name="inline"):
        self.rule, self.name, self.identity, self.asked = rule, name, f"{name}/1", []

    def lint(self, columns):
        return columns.get("fault")

    def applies(self, columns):
        return not columns.get("not for us")

    async def canary(self):
        return None

    def __call__(self, given, _context, /):
        self.asked += [rollout.ordinal for rollout in given]
        return [self.rule(rollout) for rollout in given]


def ones():
    return Inline(lambda _rollout: 1.0)


# --- the order of the record


class Recording:
    """A ledger that keeps the order of things, and nothing else."""

    def __init__(self, known=()):
        self.events, self.entered, self.said = [], set(), set()

    def next_attempt(self, _run):
        return 0

    def enter(self, _run, groups, *, steps):
        ordinals = [rollout.ordinal for group in groups for rollout in group.rollouts]
        self.entered.update(ordinals)
        self.events.append(("enter", ordinals))

    def leave(self, _run, *, attempts, scores, departures):
        self.said.update(score.ordinal for score in scores)
        self.events.append(("leave", [departure.group for departure in departures]))


class FreshRun:
    resumed = False
    parts = {"inline": 0}  # noqa: RUF012 - a double


def test_nothing_is_judged_before_it_is_entered_nor_handed_on_before_it_is_recorded():
    record = Recording()

    def rule(rollout):
        assert rollout.ordinal in record.entered
        return float(rollout.ordinal % 2)

    async def main():
        runtime = Runtime(Recipe((Part(Inline(rule)),)), ledger=record, run=FreshRun())
        async for one in runtime.score(groups_of(*[["a", "b"]] * CHUNK)):
            assert {rollout.ordinal for rollout in one.group.rollouts} <= record.said
            left = [group for name, groups in record.events if name == "leave" for group in groups]
            assert one.group.ordinal in left

    asyncio.run(main())
    entered = [len(ordinals) for name, ordinals in record.events if name == "enter"]
    assert entered == [CHUNK, CHUNK]


def test_a_chunk_is_judged_before_the_next_but_three_are_read():
    record = Recording()

    async def main():
        runtime = Runtime(Recipe((Part(ones()),)), ledger=record, run=FreshRun())
        groups = (groups_of(["a"] * 8, start=8 * n)[0] for n in range(10_000))
        async with aclosing(runtime.score(groups)) as handed_on:
            await anext(handed_on)
        assert len(record.entered) <= WINDOW

    asyncio.run(main())


def begun(path, recipe, *, resume=False):
    ledger = Ledger(path)
    identities = {part.reward.name: part.reward.identity for part in recipe.parts}
    run = ledger.begin("run", {"of": "this test"}, identities)
    assert run.resumed is resume
    return ledger, run


def run_some(path, recipe, groups, *, until=None, resume=False):
    """Score into a ledger; stop after `until` groups, as a killed run would."""

    async def main():
        ledger, run = begun(path, recipe, resume=resume)
        left = []
        with ledger:
            async with aclosing(
                Runtime(recipe, ledger=ledger, run=run, workers=1).score(groups)
            ) as handed_on:
                async for one in handed_on:
                    left.append((one.group.ordinal, list(map(float, one.totals)), one.advantages))
                    if until is not None and len(left) == until:
                        break
            assert ledger.verify() == []
        return left

    return asyncio.run(main())


def test_a_run_that_goes_on_judges_nothing_twice_and_ends_as_if_never_interrupted(tmp_path):
    groups = groups_of(*[["x" * (n % 3), "y"] for n in range(CHUNK)])
    recipe = Recipe(
        (Part(Inline(lambda r: len(r.completion) / 4)), Part(Inline(lambda _r: 0.5, "half"), weight=0.5))
    )
    whole = run_some(tmp_path / "whole", recipe, groups)
    first, again = recipe.parts[0].reward, tmp_path / "again"
    first.asked.clear()
    run_some(again, recipe, groups, until=1)
    judged = len(first.asked)
    assert 0 < judged < 2 * CHUNK
    assert sorted(run_some(again, recipe, groups, resume=True)) == sorted(whole)
    assert sorted(first.asked) == list(range(2 * CHUNK))
    assert run_some(again, recipe, groups, resume=True) == whole
    assert len(first.asked) == 2 * CHUNK


def test_a_resumed_run_whose_only_missing_row_fails_is_decided_by_a_row_of_the_record(tmp_path):
    fails = Inline(lambda r: 1 / len(r.completion))
    recipe = Recipe((Part(fails),))
    groups = groups_of(["x", "y"], ["z", ""])
    run_some(tmp_path / "ledger", recipe, groups[:1])
    left = run_some(tmp_path / "ledger", recipe, groups, resume=True)
    assert [totals for _, totals, _ in left] == [[1.0, 1.0], [1.0, 0.0]]


def test_attempts_of_a_resumed_run_have_ids_of_their_own(tmp_path):
    recipe = Recipe((Part(ones()),))
    groups = groups_of(["x"], ["y"])
    run_some(tmp_path / "ledger", recipe, groups[:1])
    run_some(tmp_path / "ledger", recipe, groups, resume=True)
    ledger, run = begun(tmp_path / "ledger", recipe, resume=True)
    with ledger:
        assert [attempt.id for attempt in ledger.attempts(run)] == [0, 1]


def test_a_ledger_that_cannot_be_written_stops_the_run_before_anything_is_handed_on():
    class Full(Recording):
        def leave(self, _run, **_what):
            raise RunStoppedError("the disk is full")

    async def main():
        runtime = Runtime(Recipe((Part(ones()),)), ledger=Full(), run=FreshRun())
        async for _ in runtime.score(groups_of(["a"])):
            pytest.fail("it was handed on")

    with pytest.raises(RunStoppedError, match="the disk is full"):
        asyncio.run(main())


# --- advantages


def value_of(rollout):
    return float(rollout.completion)


def test_a_group_has_the_same_advantages_alone_and_among_others():
    groups = groups_of(["1", "0", "0", "1"], ["0.5", "1", "0", "0"], ["1", "1"])
    for scheme in ("grpo", "grpo_population", "dr_grpo", "rloo"):
        together = {
            one.group.ordinal: one.advantages for one in scored(groups, Inline(value_of), advantage=scheme)
        }
        for group in groups:
            (alone,) = scored([group], Inline(value_of), advantage=scheme)
            assert alone.advantages == together[group.ordinal]


def test_schemes_over_the_batch_leave_advantages_to_the_batch():
    (one,) = scored(groups_of(["1", "0"]), Inline(value_of), advantage="batch")
    assert one.advantages is None


def test_equal_completions_stay_two_rows_with_two_scores():
    (one,) = scored(groups_of(["1", "1", "0"]), Inline(value_of), advantage="dr_grpo")
    assert [round(value, 3) for value in one.advantages] == [0.333, 0.333, -0.667]
    assert [score.ordinal for score in one.parts["inline"]] == [0, 1, 2]


# --- when a run stops


def faulty(rows, bad):
    """Groups of one row, of which those in `bad` have bad columns."""
    return [
        groups_of(["1"], start=n, columns={"fault": "bad gold"} if n in bad else {})[0] for n in range(rows)
    ]


def handed_on_until_stopped(groups, **settings):
    left = []

    async def main():
        runtime = Runtime(Recipe((Part(ones()),)), **settings)
        async for one in runtime.score(groups):
            left.append(one)  # noqa: PERF401 - what came before the error counts

    with pytest.raises(TooManyUnscoredError) as stopped:
        asyncio.run(main())
    return len(left), str(stopped.value)


def test_a_run_stops_when_more_than_5_percent_are_unscored_but_not_before_256_rollouts():
    left, message = handed_on_until_stopped(faulty(300, range(300)))
    assert left == 256
    assert "256 of the last 256 rollouts are unscored (at most 5.0%)" in message
    assert "next: " in message


def test_a_run_of_less_than_256_rollouts_does_not_stop_and_neither_does_one_at_the_share():
    assert len(scored(faulty(255, range(255)), ones())) == 255
    assert len(scored(faulty(400, range(0, 400, 20)), ones())) == 400


def test_the_share_is_taken_over_the_last_1024_rollouts():
    left, message = handed_on_until_stopped(faulty(3000, range(2000, 3000)))
    assert left == 2000 + 52  # 51 of 1,024 are 4.98 %
    assert "52 of the last 1024" in message


def test_a_run_stops_within_a_chunk_and_hands_on_no_more_of_it():
    left, _ = handed_on_until_stopped(faulty(1000, range(300, 400)))
    assert left == 900 + 48  # those with nothing to ask leave last; 48 of 948 are 5.06 %


def test_a_run_that_was_told_not_to_stop_hands_everything_on():
    assert len(scored(faulty(300, range(300)), ones(), stop=False)) == 300


def test_a_share_of_reward_errors_stops_a_run_also_when_the_sum_names_another_code():
    def fails(rollout):
        return 1 / (rollout.ordinal % 100)

    wrong = Inline(lambda _rollout: Scored(0.0, "wrong"), "wrong")
    recipe = Recipe((Part(wrong), Part(Inline(fails))))
    groups = [groups_of(["1"], start=n)[0] for n in range(300)]

    async def main():
        async for one in Runtime(recipe).score(groups):
            assert one.totals[0].code == "wrong"

    with pytest.raises(TooManyUnscoredError, match="failed in a reward for their content"):
        asyncio.run(main())


# --- settings that cannot work


@pytest.mark.parametrize(
    "setting", [{"workers": 0}, {"places": 0}, {"timeout_s": 0.0}, {"timeout_s": float("nan")}]
)
def test_a_setting_that_would_hang_or_do_nothing_is_refused(setting):
    with pytest.raises(RefusedError, match="it must be positive"):
        Runtime(Recipe((Part(ones()),)), **setting)


def test_an_unknown_scheme_is_refused_with_those_there_are():
    with pytest.raises(RefusedError, match=r"(?s)no scheme 'ppo'.*grpo, grpo_population"):
        Runtime(Recipe((Part(ones()),)), advantage="ppo")


def test_a_ledger_without_a_run_is_refused():
    with pytest.raises(RefusedError, match="a ledger needs a run"):
        Runtime(Recipe((Part(ones()),)), ledger=Recording())


def test_a_worker_reward_that_no_process_can_make_is_refused():
    whole = ones()
    whole.how = How.WORKER
    with pytest.raises(RefusedError, match="no worker process can be told what to run"):
        scored(groups_of(["a"]), whole)


def test_awaited_parts_of_one_resource_share_the_runtimes_places():
    async def main():
        running, most = 0, 0

        class Judge(Inline):
            how, takes, resource = How.ASYNC, Takes.ROLLOUT, "judge"

            async def __call__(self, _rollout, _context, /):
                nonlocal running, most
                running += 1
                most = max(most, running)
                for _ in range(3):
                    await asyncio.sleep(0)
                running -= 1
                return 1.0

        recipe = Recipe((Part(Judge(None, "first")), Part(Judge(None, "second"))))
        left = [one async for one in Runtime(recipe, places=3).score(groups_of(["a"] * 20))]
        return most, len(left)

    assert asyncio.run(main()) == (3, 1)


# --- users' functions


def test_a_plain_function_is_run_by_the_name_of_its_module():
    said = verdicts(groups_of(["4", "5"], columns={"answer": 4}), find("user_rewards:right"))
    assert said == {"4": Scored(1.0), "5": Scored(0.0)}


def test_a_function_is_run_by_the_path_of_its_file(tmp_path):
    (tmp_path / "beside.py").write_text("BONUS = 0.25\n")
    file = tmp_path / "mine.py"
    file.write_text("from beside import BONUS\ndef mine(completion):\n    return len(completion) + BONUS\n")
    assert verdicts(groups_of(["ab"]), find(f"{file}:mine")) == {"ab": Scored(2.25)}


@pytest.mark.parametrize("target", ["decorated", "with_settings", "half", "Judge.static"])
def test_decorated_wrapped_and_static_functions_are_found(target):
    (verdict,) = verdicts(groups_of(["a"]), named(f"user_rewards:{target}")).values()
    assert verdict == Scored(0.5 if target in {"half", "Judge.static"} else 1.0)


def test_a_reward_that_was_made_by_the_decorator_keeps_its_settings_in_the_worker():
    said = verdicts(groups_of(["bad", "good"]), user_rewards.with_settings)
    assert said == {"bad": Scored(-1.0), "good": Scored(1.0)}


def test_a_function_is_given_what_its_parameters_name():
    rows = groups_of(["four"], columns={"answer": 4, "other": 1, "tolerance": None})
    (verdict,) = verdicts(rows, named("user_rewards:everything")).values()
    assert verdict.reason == repr(("?", "four", 4, 0.25, 2.0, [], True, 0))
    rows = groups_of(["four"], columns={"answer": 4, "tolerance": 0.5, "scale": 3})
    (verdict,) = verdicts(rows, named("user_rewards:everything")).values()
    assert verdict.reason == repr(("?", "four", 4, 0.5, 3, [], True, 0))


def test_a_function_is_given_the_text_of_a_conversation():
    prompt = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "2 + 2?"}]
    said = [
        {"role": "assistant", "content": [{"type": "text", "text": "fo"}, {"type": "text", "text": "ur"}]}
    ]
    (one,) = scored(
        groups_of(["x"], columns={"answer": 4}, prompt=prompt, completion=said),
        named("user_rewards:everything"),
    )
    assert "('2 + 2?', 'four', 4" in one.totals[0].reason


def test_an_awaited_function_runs_in_this_process():
    assert verdicts(groups_of(["abc"]), find("user_rewards:awaited")) == {"abc": Scored(0.3)}


def test_whatever_a_completion_does_to_a_users_reward_is_the_floor_and_the_others_are_judged():
    deeds = ["spin", "die", "exit", "memory"]
    rows = groups_of(["fine", *deeds, "fine too"], ["last"])
    codes = {
        name: verdict.code
        for name, verdict in verdicts(rows, named("user_rewards:act"), timeout_s=0.3).items()
    }
    assert codes == {
        "fine": None, "spin": "cpu", "die": "reproduced", "exit": "reward_error", "memory": "memory",
        "fine too": None, "last": None,
    }  # fmt: skip


def test_a_reward_that_only_sleeps_is_cut_by_the_wall_twice_before_it_is_blamed():
    (one,) = scored(groups_of(["sleep", "fine"]), named("user_rewards:act"), timeout_s=0.04)
    assert [total.code for total in one.totals] == ["wall_reproduced", None]


def test_what_a_users_function_may_not_return_is_the_floor():
    names = ["nan", "none", "abstain", "unscored", "text", "code"]
    said = verdicts(groups_of([*names, "true", "reason"]), named("user_rewards:returns"))
    assert {said[name].code for name in names} == {"reward_error"}
    assert said["nan"].reason == "returned nan; a reward is a finite number, at most 1e+100"
    assert said["true"] == Scored(1.0)
    assert said["reason"] == Scored(0.5, "wrong", "\\ud800")


def test_a_completion_that_cannot_be_sent_to_a_worker_is_the_floor_not_a_way_out():
    class Deep(dict):  # nested a thousand times, which some Pythons can pickle and others cannot
        def __reduce__(self):
            raise RecursionError("maximum recursion depth exceeded while pickling an object")

    said = [{"role": "assistant", "content": "x", "tool_calls": Deep()}]
    rows = groups_of(["a", "b"])
    rows[0].rollouts[0] = rows[0].rollouts[0]._replace(completion=said)
    (one,) = scored(rows, named("user_rewards:whole"))
    assert [total.code for total in one.totals] == ["reward_error", None]


def test_a_training_step_of_which_every_rollout_fails_does_not_stop_a_run_whose_reward_worked_before():
    async def main():
        runtime = Runtime(Recipe((Part(named("user_rewards:raises")),)), workers=1)
        codes = []
        for step in (["fine"] * 4, ["raise"] * 4):
            async for one in runtime.score(groups_of(step)):
                codes += [total.code for total in one.totals]
        return codes

    assert asyncio.run(main()) == [None] * 4 + ["reward_error"] * 4


def test_columns_that_cannot_be_sent_to_a_worker_are_nobodys_fault():
    (one,) = scored(groups_of(["a"], columns={"x": lambda: None}), named("user_rewards:whole"))
    assert isinstance(one.totals[0], Unscored)
    assert "plain values" in one.totals[0].cause


def test_a_users_attempts_have_their_own_clocks(tmp_path):
    recipe = Recipe((Part(named("user_rewards:raises")),))
    run_some(tmp_path / "ledger", recipe, groups_of(["a", "raise", "b"]))
    ledger, run = begun(tmp_path / "ledger", recipe, resume=True)
    with ledger:
        attempts = list(ledger.attempts(run))
    assert sorted((a.first, a.ordinal, a.end) for a in attempts) == [
        (0, 0, End.FINISHED), (1, 0, End.RAISED), (1, 1, End.RAISED), (2, 0, End.FINISHED),
    ]  # fmt: skip
    assert all(a.clocks.service_s is not None for a in attempts)
    # reading a CPU clock would take as long as a short attempt
    assert all(a.clocks.cpu_s is not None or a.clocks.service_s < 0.001 for a in attempts)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda completion: 1.0, "a lambda or defined inside another function"),
        (user_rewards.by_lambda, "a lambda or defined inside another function"),
        (user_rewards.first_shadowed, "something else"),
    ],
    ids=["lambda", "named lambda", "shadowed"],
)
def test_a_function_that_a_worker_would_not_find_is_refused_with_the_remedy(function, why):
    with pytest.raises(RefusedError, match=rf"(?s){why}.*next: define it at the top level of a module"):
        Runtime(Recipe((Part(reward(function)),)))


def test_a_nested_function_is_refused_but_an_awaited_one_is_fine():
    def nested(completion):
        return 1.0

    async def waiting(completion):
        return 0.5

    with pytest.raises(RefusedError, match="defined inside another function"):
        Runtime(Recipe((Part(reward(nested)),)))
    assert verdicts(groups_of(["a"]), reward(waiting)) == {"a": Scored(0.5)}


def test_a_closed_run_leaves_no_process_and_no_descriptor():
    async def main():
        runtime = Runtime(Recipe((Part(named("user_rewards:act")),)), workers=2)
        async with aclosing(runtime.score(groups_of(["fine"], *[["spin"]] * 70))) as handed_on:
            before = _descriptors()
            task = asyncio.create_task(anext(handed_on))
            while not (children := _children()):  # noqa: ASYNC110 - a process tells no event of ours
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        return before, _descriptors(), children, _children()

    before, after, during, left = asyncio.run(main())
    assert during
    assert left == []
    assert after == before


def _descriptors():
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.exists() else None


def _children():
    told = subprocess.run(
        ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(os.getpid())],
        capture_output=True,
        text=True,
        check=False,
    )
    return [line for line in told.stdout.splitlines() if "child.py" in line]


# --- a script that holds its own reward


SCRIPT = """
import asyncio, os, sys
with open({log!r}, "a") as log:
    log.write(__name__ + "\\n")
import steelyard
from steelyard import Group, Part, Recipe, Rollout, Runtime

@steelyard.reward
def long_enough(completion: str) -> float:
    return 1.0 if len(completion) > 2 else 0.0

async def main():
    rollouts = [Rollout(i, "?", "x" * i, {{}}, (0, i), i, f"row {{i}}") for i in range(4)]
    runtime = Runtime(Recipe((Part(long_enough),)), workers=2)
    async for scored in runtime.score([Group("g", 0, rollouts)]):
        print([float(total) for total in scored.totals])

{guard}asyncio.run(main())
"""


def run_script(tmp_path, guard, *, as_module=False):
    """Run it by its path, or as a module of a package that imports a neighbour."""
    log, folder = tmp_path / "log", tmp_path / "pack"
    folder.mkdir()
    (folder / "__init__.py").touch()
    text = SCRIPT.format(log=str(log), guard=guard)
    (folder / "script.py").write_text("from . import __name__ as _\n" + text if as_module else text)
    command = ["-m", "pack.script"] if as_module else ["pack/script.py"]
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=60, cwd=tmp_path, check=False
    )
    return done, log.read_text().split()


GUARD = 'if __name__ == "__main__": '


@pytest.mark.parametrize("as_module", [False, True], ids=["script", "module"])
def test_a_script_may_hold_the_reward_that_it_runs(tmp_path, as_module):
    done, names = run_script(tmp_path, GUARD, as_module=as_module)
    assert done.stdout == "[0.0, 0.0, 0.0, 1.0]\n"
    assert done.stderr == ""
    assert names.count("__main__") == 1
    assert len(names) > 1


def test_a_script_without_the_guard_is_told_so_and_starts_no_workers_of_workers(tmp_path):
    done, names = run_script(tmp_path, "")
    assert done.returncode == 1
    assert 'if __name__ == "__main__":' in done.stderr
    assert "RunStoppedError" in done.stderr
    assert names.count("__main__") == 1
    assert len(names) <= 1 + 4 * 3  # in a worker, and in a fresh one, for each of four rollouts


def test_columns_alone_decide_that_a_total_abstains():
    (one,) = scored(groups_of(["a", "b"], columns={"not for us": 1}), ones())
    assert one.totals == [Abstained("does not apply to these columns")] * 2
    assert list(one.advantages) == [0.0, 0.0]


def test_a_runtime_that_is_entered_keeps_its_processes_from_step_to_step_and_leaves_none():
    recipe = Recipe((Part(find("user_rewards:process")),))

    async def steps(runtime):
        return {
            float(total)
            for step in range(3)
            async for one in runtime.score(groups_of(["a", "b"], start=2 * step))
            for total in one.totals
        }

    async def kept():
        async with Runtime(recipe, workers=1) as runtime:
            return await steps(runtime)

    (process,) = asyncio.run(kept())
    assert not Path(f"/proc/{process:.0f}").exists()
    assert len(asyncio.run(steps(Runtime(recipe, workers=1)))) == 3


def test_a_reward_whose_file_changes_while_a_run_is_on_stops_the_run_instead_of_judging_by_two_rules(
    tmp_path,
):
    file = tmp_path / "mine.py"
    file.write_text(
        "def judge(completion):\n    if completion == 'die': import os; os._exit(1)\n    return 1.0\n"
    )

    async def main():
        runtime = Runtime(Recipe((Part(named(f"{file}:judge")),)), workers=1)
        async with asyncio.timeout(60), runtime:
            first = [one async for one in runtime.score(groups_of(["a", "b"]))]
            file.write_text("def judge(completion):\n    return 0.0\n")
            again = [one async for one in runtime.score(groups_of(["a"], start=2))]
            with pytest.raises(RunStoppedError, match=r"(?s)changed while the run is on.*steelyard serve"):
                await anext(runtime.score(groups_of(["die"], start=4)))
            return [total.value for one in first + again for total in one.totals]

    assert asyncio.run(main()) == [1.0, 1.0, 1.0]
