"""What `lint` says of a trainer, of which version, and what it leaves unsaid."""

import functools
import inspect
import subprocess
import sys
from types import SimpleNamespace

import pytest

from steelyard import Part, Recipe, builtin
from steelyard.errors import RefusedError
from steelyard.integrations.trl import reward
from steelyard.integrations.trl.laundering import FEATURES, lint
from steelyard.integrations.trl.rules import OWN_ARITHMETIC
from steelyard.rewards import reward as of_function

OLDEST, NEWEST = "1.6.0", "1.16.0"


def right(completions, **columns):
    return [1.0] * len(completions)


def tidy(completions, log_metric=None, trainer_state=None, **columns):
    return [1.0] * len(completions)


class Waits:
    async def __call__(self, completions, **columns):
        return [1.0] * len(completions)


async def waits(completions, **columns):
    return [1.0] * len(completions)


def ours(*functions):
    return reward([*functions] or [right])


def config(**settings):
    """Arguments like those that TRL has of its own accord."""
    told = {
        "num_generations": 8,
        "scale_rewards": "group",
        "loss_type": "dapo",
        "beta": 0.0,
        "entropy_coef": 0.0,
        "multi_objective_aggregation": "sum_then_normalize",
        "steps_per_generation": 4,
        "gradient_accumulation_steps": 4,
        "per_device_train_batch_size": 8,
        "remove_unused_columns": False,
        "mask_truncated_completions": False,
        "ddp_timeout": 1800,
        "world_size": 1,
    }
    return SimpleNamespace(**told | settings)


def named(kind, **settings):
    """Arguments of a class of this name."""
    return type(kind, (SimpleNamespace,), {})(**vars(config(**settings)))


def found(args, functions, version=NEWEST):
    return {one.name: one for one in lint(args, functions, version=version)}


def trainer(functions, *, mixin=False, columns=(), **settings):
    """What `lint` reads of a trainer."""
    bases = (type("ScoringMixin", (), {}),) if mixin else ()
    made = type("GRPOTrainer", (*bases, SimpleNamespace), {})
    return made(
        args=config(**settings),
        reward_funcs=functions,
        train_dataset=SimpleNamespace(column_names=["prompt", *columns]),
    )


# --- nothing to say


def test_one_reward_function_of_ours_under_the_newest_version_needs_no_word():
    assert lint(config(), ours(), version=NEWEST) == []
    assert lint(trainer([ours()], mixin=True, beta=0.1), version=NEWEST) == []


def test_every_finding_says_what_happens_and_what_to_do():
    bad = config(
        num_generations=2, beta=0.1, steps_per_generation=8, mask_truncated_completions=True, world_size=2
    )
    said = lint(bad, [right, tidy, Waits()], version="1.5.0")
    assert {one.name for one in said} == {
        "unscorable", "several", "few_votes", "token_window", "still_trained", "truncated", "unguarded",
        "length_check", "async_instances", "log_union",
    }  # fmt: skip
    assert all(one.says and one.remedy for one in said)


# --- what versions laundered


@pytest.mark.parametrize(
    ("feature", "args", "functions"),
    [
        ("unscorable", {}, [right]),
        ("token_window", {"steps_per_generation": 8}, [right]),
        ("length_check", {}, [right]),
        ("async_instances", {}, [Waits()]),
        ("log_union", {"world_size": 2}, [tidy]),
    ],
)
def test_a_version_is_told_what_it_had_not_learnt_and_the_one_that_had_is_not(feature, args, functions):
    since = FEATURES[feature].since
    before = {"1.6.0": "1.5.1", "1.9.1": "1.9.0", "1.10.0": "1.9.2", "1.14.0": "1.13.0"}[since]
    said = found(config(**args), functions, version=before)[feature]
    assert since in said.remedy
    for later in (since, f"{since}.dev0", "2.0"):
        assert feature not in found(config(**args), functions, version=later)


def test_of_our_function_a_version_s_gaps_are_not_said_where_it_fills_them():
    assert set(found(config(world_size=2), ours(), version=OLDEST)) == set()


def test_the_gradient_that_an_old_version_mis_scales_is_told_as_a_share():
    said = found(config(steps_per_generation=8), [ours()], version="1.9.0")["token_window"]
    assert "0.5 of the right one" in said.says
    assert "token_window" not in found(config(steps_per_generation=8, loss_type="grpo"), [ours()], "1.9.0")


def test_what_older_versions_await_is_not_said_to_be_lost():
    assert "async_instances" not in found(config(), [waits, functools.partial(waits)], OLDEST)
    assert "async_instances" in found(config(), [functools.partial(Waits())], OLDEST)


# --- what is added up


def test_of_several_functions_a_missing_one_is_summed_as_nothing():
    said = found(config(), [right, tidy])
    assert "right, tidy" in said["several"].says
    assert said["several"].says.endswith("returned 0")
    gdpo = found(config(multi_objective_aggregation="normalize_then_sum"), [right, tidy])
    assert gdpo["several"].says.endswith("its group's mean")
    assert "several" in found(config(), [ours(), right])


def of_an_environment():
    def get_reward(environments, **columns):
        return [1.0]

    get_reward.__module__ = "trl.trainer.grpo_trainer"
    return get_reward


def test_an_environment_s_reward_beside_ours_is_said_unless_the_mixin_voids_the_row():
    functions = [ours(), of_an_environment()]
    assert "ScoringMixin" in found(config(), functions)["environment"].remedy
    assert lint(trainer(functions, mixin=True), version=NEWEST) == []


def test_gdpo_of_one_sum_is_not_gdpo():
    args = config(multi_objective_aggregation="normalize_then_sum")
    assert "gdpo" in found(args, ours())
    assert "gdpo" not in found(args, [right, tidy])


@pytest.mark.parametrize("kind", sorted(OWN_ARITHMETIC))
def test_trainers_with_arithmetic_of_their_own_are_known_by_their_name(kind):
    (said,) = lint(named(f"{kind}Config"), ours(), version=OLDEST)
    assert said.name == "own_arithmetic"
    assert said.says.startswith(f"{kind}: ")
    assert "own_arithmetic" not in found(named("GRPOConfig"), ours())


@pytest.mark.parametrize(
    ("size", "scale", "few"),
    [(2, "group", True), (3, "group", True), (4, "group", False), (2, "none", True), (3, "none", False)],
)
def test_groups_that_one_failure_kills_are_said(size, scale, few):
    said = found(config(num_generations=size, scale_rewards=scale), ours())
    assert ("few_votes" in said) is few
    if few:
        assert f"to {4 if scale == 'group' else 3} or more" in said["few_votes"].remedy


# --- what is trained all the same, and what is not


@pytest.mark.parametrize("pull", [{"beta": 0.1}, {"entropy_coef": 0.01}, {"use_adaptive_entropy": True}])
def test_what_pulls_at_rows_that_nothing_judged_is_named_without_the_mixin(pull):
    (name,) = pull
    assert name in found(config(**pull), ours())["still_trained"].says
    under = [one.name for one in lint(trainer([ours()], mixin=True, **pull), version=NEWEST)]
    assert under == (["still_seen"] if name == "use_adaptive_entropy" else [])  # which is a mean of all rows


def test_a_trainer_whose_reward_holds_the_kl_trains_nothing_on_such_rows():
    assert lint(config(loss_type=None, scale_rewards=None, beta=0.1), ours(), version=NEWEST) == []


def test_masked_truncation_and_liger_are_said():
    said = found(config(mask_truncated_completions=True, use_liger_kernel=True), ours())
    assert "learns to run on" in said["truncated"].says
    assert "ScoringMixin refuses it" in said["liger"].says


# --- functions of others


def test_a_function_that_is_not_ours_has_no_limit():
    assert "right: nothing ends one that hangs" in found(config(), right)["unguarded"].says
    assert "3 other ranks" in found(config(world_size=4), right)["unguarded"].says
    assert "unguarded" not in found(config(), [SimpleNamespace(forward=None), "some/model"])


def test_a_wrapped_function_is_said_to_log_and_to_see_no_state():
    said = found(config(), ours(tidy))
    assert "log_metric" in said["logs"].says
    assert "trainer_state" in said["trainer_state"].says
    assert not {"logs", "trainer_state"} & set(found(config(), ours(right)))


@pytest.mark.needs("trl")
def test_trl_s_verifiers_make_a_zero_of_a_timeout_wrapped_or_not():
    rewards = pytest.importorskip("trl.rewards")
    for functions in ([rewards.accuracy_reward], ours(rewards.accuracy_reward)):
        assert "accuracy_reward" in found(config(), functions)["verifier_timeouts"].says
    assert "verifier_timeouts" not in found(config(), ours(rewards.think_format_reward))


# --- where it runs


def test_a_deadline_at_which_other_ranks_have_given_up_is_said():
    scoring = reward([right], deadline_s=1800)
    assert "deadline_s=900" in found(config(world_size=2), scoring)["deadline"].remedy
    assert "deadline" not in found(config(world_size=1), scoring)
    assert "deadline" not in found(config(world_size=2, ddp_timeout=3600), scoring)


def test_groups_spread_over_ranks_are_said_where_a_part_takes_whole_groups():
    whole = reward(Recipe((Part(of_function(right)),)))
    spread = config(world_size=2, per_device_train_batch_size=2, steps_per_generation=2)
    assert "right takes a whole group" in found(spread, whole)["split_groups"].says
    assert "split_groups" not in found(spread, ours(right))  # it takes whatever comes
    assert "split_groups" not in found(config(world_size=2), whole)
    assert "split_groups" not in found(config(per_device_train_batch_size=2, steps_per_generation=2), whole)


def test_columns_whose_names_trl_takes_for_its_own_are_said():
    said = lint(trainer([ours()], columns=["prompts", "log_extra", "answer"]), version=NEWEST)
    assert [one.name for one in said] == ["columns", "columns"]
    assert "'prompts' ends the run" in said[0].says
    assert "no reward function sees the dataset's column 'log_extra'" in said[1].says


def test_a_column_that_is_not_there_or_would_be_dropped_is_said():
    graded = reward(Recipe((Part(builtin("gsm8k")),)))
    (absent,) = lint(trainer([graded], columns=["solution"]), version=NEWEST)
    assert "no column 'answer'" in absent.says
    dropped = found(config(remove_unused_columns=True), graded)["unused_columns"]
    assert "(answer)" in dropped.says
    assert "unused_columns" not in found(config(remove_unused_columns=True), reward("format:think+answer"))


# --- what it is given


def test_what_is_neither_a_trainer_nor_arguments_is_refused():
    with pytest.raises(RefusedError, match=r"(?s)object is neither a trainer.*next: give the trainer"):
        lint(object(), version=NEWEST)


def test_the_door_and_the_lint_need_no_trl():
    code = (
        "import sys, types\n"
        "sys.modules['trl'] = sys.modules['torch'] = None\n"
        "from steelyard.integrations.trl import lint\n"
        "print(lint(types.SimpleNamespace(num_generations=8), version='1.16.0'))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "[]\n", done.stderr


# --- the TRL that is installed


@pytest.mark.needs("trl")
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("kind", ["GRPO", "RLOO"])
def test_the_installed_source_and_its_number_say_the_same(kind, tmp_path):
    trl = pytest.importorskip("trl")
    args = getattr(trl, f"{kind}Config")(
        output_dir=str(tmp_path), use_cpu=True, bf16=False, num_generations=8, steps_per_generation=2
    )
    functions = [right, Waits(), tidy]
    assert lint(args, functions) == lint(args, functions, version=trl.__version__)


@pytest.mark.needs("trl")
def test_every_sign_stands_in_the_installed_source_if_its_number_says_so():
    trl = pytest.importorskip("trl")
    number = [int(part) for part in trl.__version__.split(".")[:3]]
    for feature in FEATURES.values():
        text = inspect.getsource(getattr(trl.GRPOTrainer, feature.method))
        assert (feature.sign in text) == (number >= [int(part) for part in feature.since.split(".")]), feature
