"""L1's gradient is that of TRL's own trainer on a batch in which unscored rows weigh nothing, but count.

The reference (`tiny_trainer.Reference`) knows those rows from the script and has no code of ours in it.
"""

from dataclasses import fields

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from steelyard.errors import RefusedError  # noqa: E402
from steelyard.integrations import trl as steelyard_trl  # noqa: E402
from tiny_trainer import (  # noqa: E402
    LOSSES,
    GRPOConfig,
    GRPOTrainer,
    Reference,
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

pytestmark = [pytest.mark.needs("trl"), pytest.mark.filterwarnings("ignore::FutureWarning")]

GROUPS = [
    "1 0 1 crash",
    "1 1 0 0",
    "crash crash 0 1",
    "0 1 1 outage",
]
KNOWN = {field.name for field in fields(GRPOConfig)}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def train(model, tmp_path):
    """Train one kind of trainer on the scripted groups; return it, done."""

    def done(kind, *, groups=GROUPS, skipped=None, voting=False, keywords=None, **settings):
        with steelyard_trl.reward(scripted("code")) as scoring:
            ours = issubclass(kind, steelyard_trl.ScoringMixin)
            rewards = scoring if ours else by_word
            trainer = trainer_of(
                kind, rewards, rows(*groups), model, tmp_path, keywords=keywords or {}, **settings
            )
            if kind is Reference:
                trainer.skipped = untrained(*groups) if skipped is None else skipped
                trainer.voting = voting
            trainer.train()
        return trainer

    return done


def assert_same_gradients(ours, reference, share=1.0):
    assert as_words(ours) == as_words(reference)
    assert len(ours.told.gradients) == len(reference.told.gradients) > 0
    for one, other in zip(ours.told.gradients, reference.told.gradients, strict=True):
        assert norm(other) > 1e-4
        assert apart(one, {name: share * part for name, part in other.items()}) <= 1e-6


@pytest.mark.parametrize("loss", LOSSES)
def test_the_gradient_is_that_of_trl_with_those_rows_weighing_nothing(train, loss):
    settings = {"loss_type": loss, "beta": 0.5}
    ours, reference = train(steelyard_trl.GRPOTrainer, **settings), train(Reference, **settings)
    assert_same_gradients(ours, reference, reference.kept_share if loss == "bnpo" else 1.0)


@pytest.mark.parametrize("loss", ["dapo", "grpo"])
def test_trl_alone_trains_on_what_was_not_judged(train, loss):
    """So the comparison can fail: by the pull towards the reference model, and by the group of two votes."""
    settings = {"loss_type": loss, "beta": 0.5}
    plain, reference = train(GRPOTrainer, **settings), train(Reference, **settings)
    assert as_words(plain) == as_words(reference)
    assert apart(plain.told.gradients[0], reference.told.gradients[0]) > 1e-3


@pytest.mark.parametrize(
    "settings",
    [
        {"loss_type": "dapo", "per_device_train_batch_size": 4, "gradient_accumulation_steps": 4},
        {"loss_type": "grpo", "per_device_train_batch_size": 4, "gradient_accumulation_steps": 4},
        {"loss_type": "dapo", "num_iterations": 2, "max_steps": 2},
        {"loss_type": "dr_grpo", "per_device_train_batch_size": 8, "steps_per_generation": 2, "max_steps": 2},
        {"loss_type": "dapo", "importance_sampling_level": "sequence"},
        {"loss_type": "dapo", "scale_rewards": "batch"},
        {"loss_type": "dapo", "mask_truncated_completions": True},
    ],
    ids=lambda settings: " ".join(f"{name}={value}" for name, value in settings.items()),
)
def test_it_holds_however_the_batch_is_cut_and_weighed(train, settings):
    if settings.get("scale_rewards") == "batch":  # which takes groups of two votes, too
        settings = settings | {"skipped": untrained(*GROUPS, least=2)}
    told = {"beta": 0.5} | settings
    reference = train(Reference, **told)
    told.pop("skipped", None)
    assert_same_gradients(train(steelyard_trl.GRPOTrainer, **told), reference)


if "entropy_coef" in KNOWN:  # from 1.9 on

    @pytest.mark.parametrize("loss", ["grpo", "sapo"])
    def test_an_unscored_row_is_not_pulled_towards_entropy_either(train, loss):
        settings = {"loss_type": loss, "beta": 0.5, "entropy_coef": 0.3}
        assert_same_gradients(train(steelyard_trl.GRPOTrainer, **settings), train(Reference, **settings))


@pytest.mark.parametrize("loss", ["dapo", "cispo", "vespo"])
def test_rule_b_divides_by_the_tokens_of_rows_that_vote(train, loss):
    settings = {"loss_type": loss, "beta": 0.5}
    ours = train(steelyard_trl.GRPOTrainer, keywords={"denominator": "voting"}, **settings)
    assert_same_gradients(ours, train(Reference, voting=True, **settings))
    assert apart(ours.told.gradients[0], train(Reference, **settings).told.gradients[0]) > 0.01


def test_rule_b_is_refused_where_the_loss_counts_no_tokens_of_the_batch(train):
    with pytest.raises(RefusedError, match="dapo"):
        train(steelyard_trl.GRPOTrainer, keywords={"denominator": "voting"}, loss_type="grpo")


@pytest.mark.parametrize("denominator", ["full", "voting"])
def test_a_batch_without_any_verdict_has_no_gradient_at_all(train, denominator):
    settings = {"loss_type": "dapo", "beta": 0.5, "groups": ["crash crash crash crash"] * 2}
    ours = train(steelyard_trl.GRPOTrainer, keywords={"denominator": denominator}, **settings)
    assert norm(ours.told.gradients[0]) == 0
    assert norm(train(GRPOTrainer, **settings).told.gradients[0]) > 1e-4


def test_without_failures_it_is_trls_own_gradient(train):
    settings = {"beta": 0.5, "groups": ["1 0 1 0", "1 1 1 1"]}
    ours, plain = train(steelyard_trl.GRPOTrainer, **settings), train(GRPOTrainer, **settings)
    assert_same_gradients(ours, plain)
    assert list(ours._logs["advantages"]) == list(plain._logs["advantages"])
