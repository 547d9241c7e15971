"""What goes in and what is left: users' functions give what TRL sums, TRL's table prices the run."""

import threading
from functools import partial

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

import trl.rewards  # noqa: E402

import steelyard  # noqa: E402
import trl_functions  # noqa: E402
from steelyard import Part, Recipe  # noqa: E402
from steelyard.files.foreign import read_foreign  # noqa: E402
from steelyard.integrations import trl as steelyard_trl  # noqa: E402
from steelyard.pricing.observed import SCORED, UNSCORED  # noqa: E402
from tiny_trainer import GRPOTrainer, Scripted, rows, save_model, scripted, trainer_of  # noqa: E402

pytestmark = [
    pytest.mark.needs("trl"),
    pytest.mark.needs("parquet"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

INJECTED = [
    "1 1 1 crash",
    "1 1 0 0@0.3",
    "1 0 0 0",
    "0 0 1 raise",
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize("kind", [GRPOTrainer, steelyard_trl.GRPOTrainer], ids=["L0", "L1"])
def test_trls_table_of_completions_says_what_was_injected(model, tmp_path, kind):
    with steelyard_trl.reward(scripted("code")) as scoring:
        trainer = trainer_of(
            kind, scoring, rows(*INJECTED), model, tmp_path, log_completions=True, max_steps=2
        )
        trainer.train()
    observed = read_foreign(tmp_path).observed
    assert observed.tells_failures
    verdicts = [[SCORED] * 3 + [UNSCORED], *[[SCORED] * 4] * 3]
    assert observed.rows.verdict.reshape(2, 4, 4).tolist() == [verdicts] * 2
    assert observed.calls.service_s.reshape(2, 16)[:, 7].min() >= 0.3
    assert {"sandbox:code", "wrong", "reward_error"} <= set(observed.causes)

    price = steelyard.price_file(tmp_path)
    assert (price.batch, price.group) == (16, 4)
    assert price.wait.value >= 0.3  # the slowest of each step
    assert price.group_hit.value == 0.25
    assert price.corrupted.value == 0  # as this run voted
    assert price.zeroed.value == 0.25  # had the crash been a zero


def test_with_a_ledger_the_steps_of_the_trainer_are_recorded_and_priced(model, tmp_path):
    ledger = tmp_path / "run.ledger"
    with steelyard_trl.reward(scripted("code"), ledger=ledger) as scoring:
        trainer = trainer_of(
            steelyard_trl.GRPOTrainer, scoring, rows(*INJECTED), model, tmp_path, max_steps=3
        )
        trainer.train()
    price = steelyard.price_file(ledger)
    assert (price.batch, price.group) == (16, 4)
    assert price.busy.value > 0
    assert price.wait.value > 0.1
    assert price.step.value == pytest.approx(price.busy.value + price.wait.value, rel=0.05)
    assert price.zeroed.value == 0.25


class Announced(Scripted):
    """A reward that says when it begins."""

    begun = threading.Event()

    async def __call__(self, rollout, context, /):
        self.begun.set()
        return await super().__call__(rollout, context)


@pytest.mark.parametrize("level", ["L0", "L1"])
def test_under_l1_scoring_begins_while_the_trainer_still_computes(model, tmp_path, level):
    base = GRPOTrainer if level == "L0" else steelyard_trl.GRPOTrainer
    order = []
    Announced.begun.clear()

    class Watched(base):
        def _get_per_token_logps_and_entropies(self, *args, **kwargs):
            if not order:  # of the reference model, between generation and rewards
                begun = Announced.begun.wait(20 if level == "L1" else 0.2)
                order.append(f"reference, scoring begun: {begun}")
            return super()._get_per_token_logps_and_entropies(*args, **kwargs)

        def _calculate_rewards(self, *args):
            order.append("rewards asked for")
            return super()._calculate_rewards(*args)

    with steelyard_trl.reward(Recipe((Part(Announced()),))) as scoring:
        trainer = trainer_of(Watched, scoring, rows(*INJECTED), model, tmp_path, beta=0.5)
        trainer.train()
    assert order == [f"reference, scoring begun: {level == 'L1'}", "rewards asked for"]
    assert Announced.begun.is_set()


def named(function):
    """The same with a name, without which TRL takes none before 1.9."""
    if not isinstance(function, partial):
        return function
    again = partial(function.func, *function.args, **function.keywords)
    again.__name__ = "partial"
    return again


def both_ways(model, tmp_path, functions, weights, data, **settings):
    """The same batch, its functions summed by TRL and by us: (advantages, mean reward) of each."""
    told = []
    floors = [-10.0] * len(functions)
    with steelyard_trl.reward(functions, weights=weights, floors=floors, workers=1) as scoring:
        trls = [named(function) for function in functions]
        for rewards, own in ((trls, {"reward_weights": weights}), (scoring, {})):
            trainer = trainer_of(GRPOTrainer, rewards, data, model, tmp_path, **own, **settings)
            trainer.train()
            told.append((list(trainer._logs["advantages"]), trainer.state.log_history[0]["reward"]))
            assert len({round(one, 3) for one in told[-1][0]}) > 2
    return told


def test_a_users_list_of_functions_gives_what_trl_makes_of_it(model, tmp_path):
    functions = [
        trl_functions.length,
        trl_functions.awaited,
        trl_functions.of_columns,
        trl_functions.halved,
        trl_functions.counting,
    ]
    weights = [1.0, 0.5, 2.0, 0.1, 1.0]
    trls, ours = both_ways(model, tmp_path, functions, weights, rows("1 0 1 0", "1 1 0 0"))
    assert ours[0] == pytest.approx(trls[0], abs=1e-4)
    assert ours[1] == pytest.approx(trls[1], abs=1e-5)


FACTORIES = [
    ("get_soft_overlong_punishment", {"max_completion_len": 8, "soft_punish_cache": 6}),
    ("get_repetition_penalty_reward", {"ngram_size": 1}),
]


def test_trls_own_rewards_give_what_trl_makes_of_them(model, tmp_path):
    made = [getattr(trl.rewards, name)(**how) for name, how in FACTORIES if hasattr(trl.rewards, name)]
    functions = [trl.rewards.think_format_reward, *made]
    data = rows("1 0 1 0", "1 1 0 0")
    data = data.map(lambda row: {"prompt": [{"role": "user", "content": row["prompt"]}]})
    trls, ours = both_ways(model, tmp_path, functions, [1.0] * len(functions), data)
    assert ours[0] == pytest.approx(trls[0], abs=1e-4)
    assert ours[1] == pytest.approx(trls[1], abs=1e-5)
