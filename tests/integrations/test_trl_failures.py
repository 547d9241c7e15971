"""What goes wrong while a trainer waits: it goes on or stops with the reason; nothing hangs or stays."""

import asyncio
import math
from dataclasses import dataclass

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

import trl_functions  # noqa: E402
from steelyard import Part, Recipe, RunStoppedError  # noqa: E402
from steelyard.integrations import trl as steelyard_trl  # noqa: E402
from tiny_trainer import GRPOTrainer, Scripted, norm, rows, save_model, scripted, trainer_of  # noqa: E402

pytestmark = [pytest.mark.needs("trl"), pytest.mark.filterwarnings("ignore::FutureWarning")]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(params=["L0", "L1"])
def train(request, model, tmp_path):
    """Train one step with a reward, close it; return the trainer."""
    kind = GRPOTrainer if request.param == "L0" else steelyard_trl.GRPOTrainer

    def done(recipe, *groups, act=None, reward=None, **settings):
        data = rows(*groups or ["1 0 1 0", "1 1 0 0"])
        with steelyard_trl.reward(recipe, workers=1, **reward or {}) as scoring:
            trainer = trainer_of(kind, scoring, data, model, tmp_path, **settings)
            (act or type(trainer).train)(trainer)
        return trainer

    return done


def extra(trainer, name):
    return list(trainer._logs["extra"][f"steelyard/{name}"])


def test_a_worker_process_that_is_killed_is_replaced_and_the_run_goes_on(train, tmp_path):
    marker = str(tmp_path / "was-here")
    groups = [{"code": words, "marker": marker} for words in ("1 0 1 0", "1 1 0 0")]
    trainer = train([trl_functions.dies_once], *groups)
    assert (tmp_path / "was-here").exists()
    assert extra(trainer, "verdict") == ["scored"] * 8
    assert list(trainer._logs["rewards"]["steelyard"]) == [1, 0, 1, 0, 1, 1, 0, 0]
    assert norm(trainer.told.gradients[0]) > 0


@dataclass(frozen=True)
class Stopping(Scripted):
    """A reward under which the thread that scores ends."""

    async def __call__(self, rollout, context, /):
        asyncio.get_running_loop().stop()
        await asyncio.sleep(3600)


def test_a_scorer_that_dies_stops_the_run(train):
    with pytest.raises(RunStoppedError, match="scorer's thread has ended"):
        train(Recipe((Part(Stopping()),)))


def test_a_reward_that_always_raises_stops_the_run_with_what_it_raised(train):
    with pytest.raises(
        RunStoppedError, match=r"always_raises(?s:.*)ConnectionError: the checker is not there"
    ):
        train([trl_functions.always_raises], "1 0", num_generations=2)


def test_a_reward_that_returns_the_wrong_number_of_values_stops_the_run_and_says_so(train):
    with pytest.raises(RunStoppedError, match="returned more values for 1 rollouts"):
        train([trl_functions.one_too_many], "1 0", num_generations=2)


@pytest.mark.slow
def test_an_awaited_reward_that_never_answers_is_cut_and_if_it_does_it_again_is_the_floor(train):
    trainer = train(scripted("code"), "1 1 1 hang", reward={"timeout_s": 0.2})
    assert extra(trainer, "code") == [None, None, None, "wall_reproduced"]
    assert extra(trainer, "censored") == [False, False, False, True]
    assert list(trainer._logs["advantages"])[3] < -1


def test_a_reward_that_spins_is_cut_by_its_cpu_time_at_once(train):
    trainer = train([trl_functions.spins], "1 1", num_generations=2, reward={"timeout_s": 0.3, "stop": False})
    assert extra(trainer, "code") == ["cpu", "cpu"]
    assert norm(trainer.told.gradients[0]) == 0


def test_a_batch_that_is_not_scored_by_its_deadline_stops_the_run_and_says_what_was_under_way(train):
    groups = ["1 1 0 0", "1 hang 0 0"]
    with pytest.raises(RunStoppedError, match=r"1 of 2 groups(?s:.*)deadline_s(?s:.*)step 0, row 4"):
        train(scripted("code"), *groups, reward={"deadline_s": 0.5})


def test_in_a_group_of_one_a_row_is_evaluated_and_a_failed_one_breaks_no_number(train):
    def evaluate(trainer):
        trainer.eval_dataset = rows("1", "crash", "0")
        trainer.told.evaluated = trainer.evaluate()

    trainer = train(
        scripted("code"),
        act=evaluate,
        num_generations_eval=1,
        per_device_eval_batch_size=3,
        eval_strategy="no",
        beta=0.5,
    )
    told = trainer.told.evaluated
    assert told["eval_rewards/steelyard/mean"] == pytest.approx(0.5)
    assert told["eval_steelyard/unscored"] == pytest.approx(1 / 3)
    assert math.isfinite(told["eval_loss"])
    assert [round(value, 3) for value in trainer._logs["advantages"]] == [0, 0, 0]


def test_training_and_evaluation_take_turns(train):
    groups = ["1 0 1 crash", "1 1 0 0"]
    trainer = train(
        scripted("code"),
        *groups,
        max_steps=2,
        eval_strategy="steps",
        eval_steps=1,
        per_device_eval_batch_size=8,
        keywords={"eval_dataset": rows(*groups)},
    )
    assert [norm(one) > 0 for one in trainer.told.gradients] == [True, True]
    told = [one["eval_steelyard/unscored"] for one in trainer.state.log_history if "eval_loss" in one]
    assert told == [pytest.approx(1 / 8)] * 2


def test_a_run_that_stopped_can_be_begun_again(train):
    groups = ["1 1 0 0", "1 hang 0 0"]

    def twice(trainer):
        with pytest.raises(RunStoppedError, match="deadline_s"):
            trainer.train()
        trainer.train_dataset = rows("1 1 0 0", "0 0 0 1")
        trainer.train()

    trainer = train(scripted("code"), *groups, act=twice, reward={"deadline_s": 0.5})
    assert list(trainer._logs["rewards"]["steelyard"]) == [1, 1, 0, 0, 0, 0, 0, 1]
