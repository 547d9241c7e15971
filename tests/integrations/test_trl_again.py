"""What one trainer does again and several share: trainings, steps of a generation, rewards, environments."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

import steelyard  # noqa: E402
from steelyard import RunStoppedError, TooManyUnscoredError  # noqa: E402
from steelyard.integrations import trl as steelyard_trl  # noqa: E402
from steelyard.priced import read_run  # noqa: E402
from tiny_trainer import OUTAGE, norm, rows, save_model, scripted, trainer_of  # noqa: E402

pytestmark = [
    pytest.mark.needs("trl"),
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("model"))


def of_environment(completions, **_columns):
    """What an environment's own reward says: nothing of the last of each group."""
    return [0.25, 0.25, 0.25, None] * (len(completions) // 4)


of_environment.__module__ = "trl.trainer.grpo_trainer"  # as TRL's own wrapper of `get_reward`


def test_what_an_environment_could_not_score_has_no_sum(model, tmp_path):
    with steelyard_trl.reward(scripted("code")) as scoring:
        trainer = trainer_of(
            steelyard_trl.GRPOTrainer, [scoring, of_environment], rows("1 1 1 1", "1 1 0 0"), model, tmp_path
        )
        trainer.train()
    advantages = list(trainer._logs["advantages"])
    assert advantages[:4] == [0.0] * 4
    assert advantages[4:] == pytest.approx([0.577, 0.577, -1.154, 0.0], abs=1e-3)


def test_trainers_that_share_a_reward_keep_their_own_rule(model, tmp_path):
    group = "1 0 crash crash"  # two votes: too few for a standard deviation, enough for a mean
    with steelyard_trl.reward(scripted("code"), stop=False) as scoring:
        by_deviation, by_mean = (
            trainer_of(
                steelyard_trl.GRPOTrainer, scoring, rows(group), model, tmp_path / scale, scale_rewards=scale
            )
            for scale in ("group", "none")
        )
        by_deviation.train()
        by_mean.train()
    assert list(by_deviation._logs["advantages"]) == [0.0] * 4
    assert list(by_mean._logs["advantages"]) == pytest.approx([0.5, -0.5, 0.0, 0.0])
    assert by_deviation.state.log_history[0]["steelyard/untrained"] == 1.0
    assert by_mean.state.log_history[0]["steelyard/untrained"] == 0.5


def test_a_second_training_is_a_run_of_its_own_and_a_broken_step_no_step(model, tmp_path):
    ledger = tmp_path / "run.ledger"
    with steelyard_trl.reward(scripted("code"), ledger=ledger, deadline_s=1.0) as scoring:
        data = rows("1 1 0 0", "1 hang 0 0")
        trainer = trainer_of(steelyard_trl.GRPOTrainer, scoring, data, model, tmp_path, max_steps=2)
        with pytest.raises(RunStoppedError, match="1 of 2 groups"):
            trainer.train()
        trainer.train_dataset = rows("1 1 0 0", "0 0 0 1")
        trainer.train()
        trainer.train()
    found = read_run(ledger).observed
    assert list(found.steps.labels) == ["0", "1"]
    assert len(found.rows) == 16
    assert steelyard.price_file(ledger).step.value < 60


def test_steps_that_train_on_an_earlier_generation_are_steps_too(model, tmp_path):
    ledger = tmp_path / "run.ledger"
    with steelyard_trl.reward(scripted("code"), ledger=ledger) as scoring:
        trainer = trainer_of(
            steelyard_trl.GRPOTrainer,
            scoring,
            rows("1 1 0 0", "0 0 0 1"),
            model,
            tmp_path,
            max_steps=4,
            num_iterations=2,
            per_device_train_batch_size=8,
            steps_per_generation=1,
        )
        trainer.train()
    price = steelyard.price_file(ledger)
    assert price.step.basis.startswith("n = 4 steps")
    found = read_run(ledger).observed
    assert sorted(found.steps.generation_s > 0) == [False, False, True, True]


def test_after_too_many_failures_a_mended_reward_goes_on(model, tmp_path):
    with steelyard_trl.reward(scripted("code")) as scoring:
        bad = rows(*["crash crash crash crash"] * 64)
        with pytest.raises(TooManyUnscoredError):
            trainer_of(steelyard_trl.GRPOTrainer, scoring, bad, model, tmp_path).train()
        OUTAGE.clear()
        trainer = trainer_of(steelyard_trl.GRPOTrainer, scoring, rows("1 1 0 0"), model, tmp_path)
        trainer.train()
    assert norm(trainer.told.gradients[0]) > 0
