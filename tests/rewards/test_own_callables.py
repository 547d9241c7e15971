"""Callables that no name finds (partials, instances, bound methods): sent to worker processes, or refused."""

import asyncio
import copy
import functools
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from steelyard import Group, Part, Recipe, Rollout, Runtime
from steelyard.errors import RefusedError, RunStoppedError
from steelyard.outcome import Context, How, Takes
from steelyard.rewards import reward, serving
from steelyard.rewards.importing import resolve
from steelyard.rewards.own import refuse_unreachable
from steelyard.rewards.serving import serve

MATHS = [
    (r"so \boxed{\frac{1}{3}}", [1] * 50),
    (r"so \boxed{\frac{1}{2}}", [2] * 10),
    (r"<think>hm</think> \boxed{\frac13}", [1, 2, 3, 1, 2, 3]),
    ("", []),
]


def times(completion, factor=1.0, *, plus=0.0):
    return len(completion) * factor + plus


def many(completions, factor=1.0, **more):
    return [len(completion) * factor for completion in completions]


class Longer:
    def __init__(self, than, words=()):
        self.than = than
        self.words = set(words)

    def __call__(self, completion):
        return float(len(completion) > self.than)

    def by(self, completion):
        return float(len(completion) - self.than)

    @classmethod
    def always(cls, completion):
        return 1.0


class Named(Longer):
    __name__ = "its_own_name"


class Waits(Longer):
    async def __call__(self, completion):
        return 1.0


class Unloadable(Longer):
    def __reduce__(self):
        return resolve, ("no_such_module_here:anything",)


def group(completions, **columns):
    rollouts = [
        Rollout(place, "q", text, {**columns, "completion_ids": ids}, (0, place), place, f"row {place}")
        for place, (text, ids) in enumerate(completions)
    ]
    return Group("g", 0, rollouts)


def scored(function, completions, **columns):
    """What the runtime gives each completion, judged in worker processes."""

    async def run() -> list[float | None]:
        async with Runtime(Recipe((Part(reward(floor=-10.0)(function)),)), workers=1) as runtime:
            (done,) = [one async for one in runtime.score([group(completions, **columns)])]
            return [getattr(total, "value", None) for total in done.totals]

    return asyncio.run(run())


def texts(*completions):
    return [(completion, [1]) for completion in completions]


# --- what is sent


@pytest.mark.parametrize(
    ("function", "values"),
    [
        (functools.partial(times, factor=2.0), [2.0, 6.0]),
        (functools.partial(functools.partial(times, factor=2.0), plus=1.0), [3.0, 7.0]),
        (functools.partial(many, factor=3.0), [3.0, 9.0]),
        (Longer(2), [0.0, 1.0]),
        (Longer(0).by, [1.0, 3.0]),
        (Longer.always, [1.0, 1.0]),
        (functools.partial(Longer(1).by), [0.0, 2.0]),
    ],
    ids=["partial", "nested", "of several", "instance", "method", "class method", "of a method"],
)
def test_a_callable_with_settings_judges_in_a_worker_process_as_it_does_here(function, values):
    assert scored(function, texts("a", "abc")) == values


def test_a_worker_process_judges_by_the_settings_that_were_when_the_reward_was_made():
    judge = Longer(2)
    made = reward(judge)
    judge.than = 100
    assert serve_alone(made, "abc") == 1.0


def serve_alone(made, completion):
    judge = serve((made.spec, made.source))
    return judge((1, made.pack(Rollout(0, "q", completion, {}, (0, 0), 0, "r"))))


@pytest.fixture(autouse=True)
def _no_worker(monkeypatch):
    monkeypatch.setattr(serving, "_here", {"in_worker": False})


def test_a_callable_is_named_as_trainers_name_it():
    assert reward(functools.partial(times, factor=2.0)).name == "times"
    assert reward(Longer(1)).name == "Longer"
    assert reward(Named(1)).name == "its_own_name"
    assert reward(functools.partial(Named(1))).name == "its_own_name"


def test_a_partial_of_several_takes_groups_or_whole_batches():
    assert reward(functools.partial(many, factor=2.0)).takes is Takes.GROUP
    batch = reward(takes="batch")(functools.partial(many, factor=2.0))
    assert batch.takes is Takes.BATCH
    judge = serve((batch.spec, batch.source))
    assert judge((1, batch.pack([Rollout(0, "q", "abc", {}, (0, 0), 0, "r")]))) == [6.0]


def test_what_is_awaited_is_not_sent():
    made = reward(Waits(1))
    assert made.how is How.ASYNC
    assert made.carried is None
    lock = Waits(1)
    lock.lock = threading.Lock()
    assert reward(lock).identity == reward(lock).identity
    assert reward(functools.partial(Waits(1))).how is How.ASYNC


def test_a_script_s_own_class_is_found_in_its_file_by_a_worker(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import asyncio, functools\n"
        "from steelyard import Group, Part, Recipe, Rollout, Runtime, reward\n"
        "class Over:\n"
        "    def __init__(self, than): self.than = than\n"
        "    def __call__(self, completion): return float(len(completion) > self.than)\n"
        "def times(completion, by): return float(len(completion) * by)\n"
        "async def main():\n"
        "    parts = (Part(reward(Over(2))), Part(reward(functools.partial(times, by=10))))\n"
        "    row = Rollout(0, 'q', 'abc', {}, (0, 0), 0, 'r')\n"
        "    async with Runtime(Recipe(parts), workers=1) as runtime:\n"
        "        async for done in runtime.score([Group('g', 0, [row])]):\n"
        "            print(float(done.totals[0]))\n"
        "if __name__ == '__main__':\n"
        "    asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.stdout == "31.0\n", done.stderr


# --- what tells them apart


def test_an_identity_changes_with_every_setting():
    made = [
        functools.partial(times, factor=2.0),
        functools.partial(times, factor=3.0),
        functools.partial(times, plus=2.0),
        functools.partial(times, Longer(1)),
        functools.partial(times, Longer(2)),
        Longer(1),
        Longer(2),
        Longer(2, ["a"]),
        Longer(2).by,
        Longer(1).by,
    ]
    assert len({reward(one).identity for one in made}) == len(made)


def test_equal_settings_are_one_identity_whatever_the_order_or_the_sharing():
    words = ["a", "b", "c", "d"]
    assert reward(Longer(2, words)).identity == reward(Longer(2, reversed(words))).identity
    one = ["x"]
    twice = functools.partial(times, (one, one))
    assert reward(twice).identity == reward(functools.partial(times, (["x"], ["x"]))).identity
    again = copy.deepcopy(Longer(2, words))
    assert reward(again).identity == reward(Longer(2, words)).identity


def test_a_callable_that_holds_itself_has_an_identity():
    one, other = Longer(1), Longer(2)
    one.me, other.me = one, other
    assert reward(one).identity != reward(other).identity


def test_an_identity_is_the_same_in_another_process():
    text = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from test_own_callables import *\n"
        "print([reward(f).identity for f in (Longer(2, 'abcdef'), functools.partial(times, factor=2.0))])\n"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", text, str(Path(__file__).parent)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(told) == 1


def test_a_file_that_changed_since_the_reward_was_made_is_refused_in_a_worker():
    made = reward(Longer(2))
    with pytest.raises(RefusedError, match="its file was changed"):
        serve((made.spec, "another text"))


# --- what is refused


def closure(factor):
    def inner(completion):
        return factor

    return inner


@pytest.mark.parametrize(
    "make", [lambda: lambda completion: 1.0, lambda: closure(1.0)], ids=["lambda", "closure"]
)
def test_a_lambda_or_a_closure_is_refused_with_the_remedy(make):
    with pytest.raises(RefusedError, match=r"(?s)lambda or defined inside.*next: define it at the top level"):
        refuse_unreachable(reward(make()))


@pytest.mark.parametrize(
    "make", [lambda: lambda completion: 1.0, lambda: closure(1.0)], ids=["lambda", "closure"]
)
def test_a_partial_of_what_cannot_be_sent_is_refused_with_the_reason(make):
    with pytest.raises(
        RefusedError, match=r"(?s)(lambda|local).*cannot be sent.*next: let it hold functions"
    ):
        refuse_unreachable(reward(functools.partial(make())))


def test_an_instance_that_holds_what_cannot_be_sent_is_refused_with_the_reason():
    judge = Longer(1)
    judge.lock = threading.Lock()
    with pytest.raises(RefusedError, match=r"(?s)'Longer'.*cannot be pickled.*lock"):
        Runtime(Recipe((Part(reward(judge)),)))


def test_an_instance_of_a_class_inside_a_function_is_refused():
    class Local:
        def __call__(self, completion):
            return 1.0

    with pytest.raises(RefusedError, match=r"(?s)cannot be pickled.*Local"):
        refuse_unreachable(reward(Local()))


def test_what_cannot_be_made_again_in_a_worker_stops_the_run_with_the_reason():
    with pytest.raises(RunStoppedError, match=r"(?s)'Unloadable'.*cannot make it again.*no_such_module_here"):
        scored(Unloadable(1), texts("a", "b"))


# --- those of TRL


def as_messages(completions):
    return [([{"role": "assistant", "content": text}], ids) for text, ids in completions]


@pytest.mark.needs("trl")
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("accuracy_reward", None),
        ("reasoning_accuracy_reward", None),
        ("think_format_reward", None),
        ("get_cosine_scaled_reward", {"max_len": 100}),
        ("get_repetition_penalty_reward", {"ngram_size": 2}),
        ("get_soft_overlong_punishment", {"max_completion_len": 50, "soft_punish_cache": 45}),
    ],
)
def test_a_function_of_trl_s_gives_the_same_values_wrapped_as_called(name, settings):
    found = getattr(pytest.importorskip("trl.rewards"), name, None)
    if found is None:
        pytest.skip("not in this version")
    function = found if settings is None else found(**settings)
    completions = as_messages(MATHS)
    direct = function(
        prompts=["q"] * len(MATHS),
        completions=[said for said, _ in completions],
        completion_ids=[ids for _, ids in completions],
        solution=[r"$\frac{1}{3}$"] * len(MATHS),
    )
    assert scored(function, completions, solution=r"$\frac{1}{3}$") == direct


@pytest.mark.needs("trl")
def test_the_settings_of_trl_s_factories_are_in_the_identity():
    rewards = pytest.importorskip("trl.rewards")
    made = [rewards.get_soft_overlong_punishment(100, soft_punish_cache=size) for size in (10, 20)]
    assert reward(made[0]).name == "soft_overlong_punishment_reward"
    assert len({reward(one).identity for one in made}) == 2


def test_a_function_that_names_no_row_and_takes_all_the_rest_judges_several():
    def penalty(completion_ids, **more):
        return [float(len(ids)) for ids in completion_ids]

    made = reward(penalty)
    assert made.takes is Takes.GROUP
    assert made(group([("a", [1, 2]), ("b", [1])]).rollouts, Context()) == [2.0, 1.0]
