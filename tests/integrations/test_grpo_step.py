"""The GRPO step: the gradient it promises, whatever it waits for, and nothing learnt from failures."""

import itertools
import math
import re
import statistics
from functools import cache

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from transformers import (  # noqa: E402
    Gemma2Config,
    Gemma2ForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    OPTConfig,
    OPTForCausalLM,
)

import steelyard  # noqa: E402
from steelyard.errors import RefusedError, RunStoppedError, SandboxError  # noqa: E402
from steelyard.integrations.estimators import estimator  # noqa: E402
from steelyard.integrations.grpo import Grpo, Settings  # noqa: E402
from steelyard.integrations.scorer import Scorer  # noqa: E402
from steelyard.measure import Steps  # noqa: E402
from steelyard.measure.timeline import check_coverage  # noqa: E402
from steelyard.outcome import Abstained, Part, Score, Scored, ScoredGroup, Unscored  # noqa: E402
from steelyard.rewards import Recipe  # noqa: E402
from steelyard.testing import FakeClock  # noqa: E402
from tiny_model import tiny_model, tiny_tokenizer  # noqa: E402

LOST = None
"""A row that could not be judged."""

PROMPTS = ["1 + 1 ?", "what is the answer to 2 + 3 ?", "yes"]
MIXED = [[1.0, LOST, 0.0, 0.5], [LOST, 2.0, -1.0, 2.0], [0.0, 1.0, 1.0, 0.0]]
"""Two groups that lost a row, one that lost none."""

ENDS = range(1, 50)
"""A sixth of the vocabulary: completions of these models, which know nothing, differ in length."""

tokenizer = cache(tiny_tokenizer)


@steelyard.reward
async def asked(completion):
    return float(len(completion))


def verdict(value):
    if value is LOST:
        return Unscored("judge:tone", "503")
    return Scored(value) if isinstance(value, float) else Abstained(value)


class Came:
    """Groups that were judged, in an order; an exception in it is raised there."""

    came_s = None

    def __init__(self, groups, rewards, order):
        self.groups, self.rewards, self.order, self.cancelled = groups, rewards, order, False

    def __iter__(self):
        for place in self.order:
            if isinstance(place, Exception):
                raise place
            group = self.groups[place]
            totals = [verdict(value) for value in self.rewards[place]]
            scores = [
                Score(rollout.key, rollout.ordinal, "asked", "asked", total, None)
                for rollout, total in zip(group.rollouts, totals, strict=True)
            ]
            yield ScoredGroup(group, totals, {"asked": scores})

    def cancel(self):
        self.cancelled = True


class Told:
    """A scorer that says what it is told to."""

    def __init__(self, rewards, order=None, advantage="grpo"):
        self.recipe, self.advantage = Recipe((Part(asked),)), advantage
        self.rewards, self.order = rewards, order or range(len(rewards))
        self.submitted = []

    def submit(self, groups, *, step):
        self.submitted.append((step, Came(groups, self.rewards, self.order)))
        return self.submitted[-1][1]


def begun(scorer, *, optimizer=None, reference=None, steps=None, seed=3, dtype=None, **settings):
    """A policy in training, and what its first update was made of."""
    model = tiny_model(tokenizer()).to(dtype)
    model.generation_config.eos_token_id = list(ENDS)
    made = optimizer(model) if optimizer else torch.optim.SGD(model.parameters(), lr=0.0)
    found = {}

    def keep(*_):
        found.setdefault("gradient", flat(model, "grad"))

    made.register_step_pre_hook(keep)
    if settings.get("beta") and reference is None:
        reference = tiny_model(tokenizer(), seed=9).to(dtype)
    chosen = Settings(**{"group_size": 4, "max_new_tokens": 9, "max_grad_norm": None} | settings)
    loop = Grpo(
        model, tokenizer(), made, scorer, settings=chosen, reference=reference, steps=steps, seed=seed
    )
    return loop, found


def flat(model, what):
    return torch.cat(
        [(one.grad if what == "grad" else one.detach()).flatten().clone() for one in model.parameters()]
    )


def told(rewards, order=None, **settings):
    means = estimator(settings.get("estimator", "grpo"))
    return begun(Told(rewards, order, means.advantage), **settings)


def gradient(rewards, order=None, **settings):
    loop, found = told(rewards, order, **settings)
    report = loop.step(PROMPTS[: len(rewards)], [{}] * len(rewards))
    return found.get("gradient"), report


def apart(one, other):
    return float((one.double() - other.double()).norm() / other.double().norm())


# --- The same from scratch: row by row, without padding, with the whole log-softmax


def by_hand(rewards, name):
    """Advantages from their formulas; 0 of whom does not vote."""
    groups = []
    for group in rewards:
        votes = [value for value in group if isinstance(value, float)]
        mean = statistics.fmean(votes)
        divisor = {"rloo": (len(votes) - 1) / len(votes), "dr_grpo": 1.0}.get(
            name, statistics.stdev(votes) + 1e-4
        )
        groups.append([(value - mean) / divisor if isinstance(value, float) else 0.0 for value in group])
    if name == "gdpo":
        voting = [
            value
            for group, row in zip(groups, rewards, strict=True)
            for value, reward in zip(group, row, strict=True)
            if isinstance(reward, float)
        ]
        divisor = statistics.stdev(voting) + 1e-4
        groups = [[value / divisor for value in group] for group in groups]
    return list(itertools.chain(*groups))


def spoken(batch, row):
    return batch.prompt[row][batch.asked[row]], batch.completion[row][batch.said[row]]


def chances(model, batch, row, temperature):
    prompt, completion = spoken(batch, row)
    logits = model(torch.cat([prompt, completion])[None]).logits[0, len(prompt) - 1 : -1]
    return torch.log_softmax(logits / temperature, -1)[range(len(completion)), completion]


def from_scratch(batch, advantages, voting, name, *, model=None, old=None, beta=0.0, temperature=1.0, most=9):
    """The loss, from the papers' formulas; unscored rows count in every denominator."""
    model = model or tiny_model(tokenizer()).double()
    reference = tiny_model(tokenizer(), seed=9).double()
    lengths = batch.said.sum(1).tolist()
    high = {"dapo": 0.28, "rloo": math.inf}.get(name, 0.2)
    low = math.inf if name == "rloo" else 0.2
    loss = 0.0
    for row, (advantage, length) in enumerate(zip(advantages, lengths, strict=True)):
        if not voting[row]:
            continue
        logps = chances(model, batch, row, temperature)
        ratio = torch.exp(logps - (logps.detach() if old is None else old[row]))
        terms = -torch.minimum(ratio * advantage, ratio.clamp(1 - low, 1 + high) * advantage)
        if beta:
            gap = chances(reference, batch, row, temperature).detach() - logps
            terms = terms + beta * (gap.exp() - gap - 1)
        rows = len(lengths)
        loss = (
            loss
            + terms.sum()
            / {
                "grpo": rows * length,
                "gdpo": rows * length,
                "dr_grpo": rows * most,
                "rloo": rows,
                "dapo": sum(lengths),
            }[name]
        )
    return model, loss


def sampled(rewards, **settings):
    """What a policy of the same seed samples first."""
    return told(rewards, **settings)[0]._sample(PROMPTS[: len(rewards)])


NAMES = ["grpo", "dr_grpo", "rloo", "dapo", "gdpo"]


@pytest.mark.parametrize("beta", [0.0, 0.3])
@pytest.mark.parametrize("name", NAMES)
def test_the_gradient_is_that_of_the_formulas_with_unscored_rows_in_the_denominator_only(name, beta):
    how = {"estimator": name, "beta": beta, "temperature": 0.9, "dtype": torch.float64}
    found, report = gradient(MIXED, **how)
    batch = sampled(MIXED, **how)
    voting = [value is not LOST for group in MIXED for value in group]
    model, loss = from_scratch(batch, by_hand(MIXED, name), voting, name, beta=beta, temperature=0.9)
    loss.backward()
    assert apart(found, flat(model, "grad")) <= 1e-12
    assert report.loss == pytest.approx(float(loss.detach()), abs=1e-12)
    assert report.grad_norm == pytest.approx(float(found.norm()), rel=1e-12)
    assert report.unscored == 2
    assert report.reward == pytest.approx(0.65)
    assert len({*batch.said.sum(1).tolist()}) > 1  # lengths differ, or denominators would not


@pytest.mark.parametrize("name", NAMES)
def test_in_fp32_the_gradient_is_the_naive_one_to_a_millionth(name):
    found, _ = gradient(MIXED, estimator=name)
    batch = sampled(MIXED, estimator=name)
    voting = [value is not LOST for group in MIXED for value in group]
    model, loss = from_scratch(batch, by_hand(MIXED, name), voting, name, model=tiny_model(tokenizer()))
    loss.backward()
    assert apart(found, flat(model, "grad")) <= 1e-6


@pytest.mark.parametrize("beta", [0.0, 0.3])
@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo", "dapo"])
def test_the_gradient_is_the_same_whatever_training_waits_for_and_whoever_comes_first(name, beta):
    whole, _ = gradient(MIXED, estimator=name, beta=beta)
    orders = [("arrival", order) for order in itertools.permutations(range(3))]
    for barrier, order in [("batch", (2, 1, 0)), ("group", (2, 1, 0)), *orders]:
        found, report = gradient(MIXED, order, estimator=name, beta=beta, barrier=barrier)
        assert apart(found, whole) <= 1e-6
        assert report.updates == 1


@pytest.mark.parametrize("groups", [2, 3, 7])
def test_the_gradient_is_the_same_however_many_groups_go_through_the_model_together(groups):
    whole, _ = gradient(MIXED)
    found, _ = gradient(MIXED, groups_per_pass=groups)
    assert apart(found, whole) <= 1e-6


def test_groups_are_trained_on_in_the_order_that_the_barrier_says(monkeypatch):
    order = (2, 0, 1)
    trained = {}
    for barrier in ("batch", "group", "arrival"):
        loop, _ = told(MIXED, order, barrier=barrier)
        seen = trained[barrier] = []
        passes = loop._passes

        def watched(batch, first, ready, *more, passes=passes, seen=seen):
            seen.append([one.group.ordinal for one in ready])
            return passes(batch, first, ready, *more)

        monkeypatch.setattr(loop, "_passes", watched)
        loop.step(PROMPTS, [{}] * 3)
    assert trained == {"batch": [[0, 1, 2]], "group": [[0], [1], [2]], "arrival": [[2], [0], [1]]}


# --- Golden groups


@pytest.mark.parametrize(
    ("name", "rewards", "advantages"),
    [
        ("dr_grpo", [1.0, LOST, 0.0, 0.0], [0.6667, 0, -0.3333, -0.3333]),
        ("grpo", [1.0, LOST, 0.0, 0.0], [1.1545, 0, -0.5773, -0.5773]),
        ("dapo", [1.0, LOST, 0.0, 0.0], [1.1545, 0, -0.5773, -0.5773]),
        ("rloo", [1.0, LOST, 0.0, 0.0], [1.0, 0, -0.5, -0.5]),
        ("dr_grpo", [1.0, 3.0, 2.0, LOST], [-1.0, 1.0, 0.0, 0.0]),
    ],
)
def test_a_golden_group_is_pushed_by_its_voters_alone(name, rewards, advantages):
    found, _ = gradient([rewards], estimator=name)
    batch = sampled([rewards], estimator=name)
    voting = [value is not LOST for value in rewards]
    model, loss = from_scratch(batch, advantages, voting, name)
    loss.backward()
    assert apart(found, flat(model, "grad")) <= 1e-4  # the golden values have four digits


@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_a_row_that_was_lost_has_no_gradient_at_all(beta):
    """Whatever it said: another completion in its place changes nothing, but through its length."""
    loop, found = told(MIXED, beta=beta)
    batch = loop._sample(PROMPTS)
    other = batch.completion.clone()
    other[1] = (other[1].flip(0) + 2) % len(tokenizer())  # the row that MIXED loses of its first group
    gradients = []
    for completion in (batch.completion, other):
        loop._sample = lambda _prompts, completion=completion: batch._replace(completion=completion)
        found.clear()
        loop.step(PROMPTS, [{}] * 3)
        gradients.append(found["gradient"])
    assert torch.equal(*gradients)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("rewards", "why"),
    [
        ([[1.0, 1.0, 1.0, LOST]], {"no_spread": 1}),
        ([[1.0, 1.0, 1.0, 1.0]], {"no_spread": 1}),
        ([[LOST] * 4], {"too_few_votes": 1}),
        ([[LOST] * 4] * 3, {"too_few_votes": 3}),
        ([[1.0, LOST, LOST, LOST]], {"too_few_votes": 1}),
        ([["not for this row"] * 4], {"too_few_votes": 1}),
    ],
)
def test_where_nothing_can_be_learnt_no_weight_moves(name, rewards, why):
    loop, found = told(
        rewards,
        estimator=name,
        optimizer=lambda model: torch.optim.AdamW(model.parameters(), weight_decay=0.5),
    )
    before = flat(loop.model, "data")
    report = loop.step(PROMPTS[: len(rewards)], [{}] * len(rewards))
    assert report.without_signal == why
    assert report.updates == 0
    assert report.grad_norm is report.entropy is None
    assert torch.equal(flat(loop.model, "data"), before)
    assert not found
    assert not loop.optimizer.state


def test_momentum_does_not_move_weights_in_a_step_that_teaches_nothing():
    loop, _ = told(
        MIXED, optimizer=lambda model: torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
    )
    assert loop.step(PROMPTS, [{}] * 3).updates == 1
    before = flat(loop.model, "data")
    loop._scorer.rewards = [[LOST] * 4] * 3
    report = loop.step(PROMPTS, [{}] * 3)
    assert (report.updates, report.reward, report.unscored) == (0, None, 12)
    assert torch.equal(flat(loop.model, "data"), before)


def test_a_dead_group_takes_part_in_no_term_not_even_in_kl():
    """Of the group's one voter, too, nothing is learnt, and it is held to no reference."""
    dead = [[1.0, LOST, LOST, LOST], *MIXED[1:]]
    found, report = gradient(dead, beta=0.3, dtype=torch.float64)
    batch = sampled(dead, beta=0.3, dtype=torch.float64)
    advantages = [0.0] * 4 + by_hand(MIXED, "grpo")[4:]
    voting = [False] * 4 + [value is not LOST for group in MIXED[1:] for value in group]
    model, loss = from_scratch(batch, advantages, voting, "grpo", beta=0.3)
    loss.backward()
    assert apart(found, flat(model, "grad")) <= 1e-12
    assert report.without_signal == {"too_few_votes": 1}


def test_a_group_without_spread_is_still_held_to_the_reference():
    found, report = gradient([[1.0] * 4], beta=0.3, dtype=torch.float64)
    batch = sampled([[1.0] * 4], beta=0.3, dtype=torch.float64)
    model, loss = from_scratch(batch, [0.0] * 4, [True] * 4, "grpo", beta=0.3)
    loss.backward()
    assert apart(found, flat(model, "grad")) <= 1e-12
    assert (report.updates, report.without_signal) == (1, {"no_spread": 1})
    assert report.kl > 0


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "dapo", "gdpo"])
def test_several_epochs_clip_the_ratio_to_where_the_rows_were_sampled(name):
    def fast(model):
        return torch.optim.SGD(model.parameters(), lr=3.0)

    loop, _ = told(MIXED, estimator=name, epochs=3, optimizer=fast, dtype=torch.float64)
    batch = sampled(MIXED, estimator=name, dtype=torch.float64)
    report = loop.step(PROMPTS, [{}] * 3)
    voting = [value is not LOST for group in MIXED for value in group]
    model = tiny_model(tokenizer()).double()
    optimizer = fast(model)
    with torch.no_grad():
        old = [chances(model, batch, row, 1.0) for row in range(12)]
    for _ in range(3):
        optimizer.zero_grad()
        from_scratch(batch, by_hand(MIXED, name), voting, name, model=model, old=old)[1].backward()
        optimizer.step()
    with torch.no_grad():
        ratios = [torch.exp(chances(model, batch, row, 1.0) - old[row]) for row in range(12)]
    assert torch.cat(ratios).max() > 1.28  # the clip acts
    start = flat(tiny_model(tokenizer()).double(), "data")
    assert apart(flat(loop.model, "data") - start, flat(model, "data") - start) <= 1e-10
    assert report.updates == 3


# --- Sampling


def test_a_completion_ends_with_its_end_and_what_follows_is_no_part_of_it():
    batch = sampled(MIXED, max_new_tokens=60)
    lengths = batch.said.sum(1).tolist()
    assert len(set(lengths)) > 3
    for row, length in enumerate(lengths):
        tokens = batch.completion[row].tolist()
        assert not set(tokens[: length - 1]) & set(ENDS)
        assert tokens[length - 1] in ENDS or length == batch.completion.shape[1]
        assert batch.said[row].tolist() == [True] * length + [False] * (len(tokens) - length)


def test_prompts_are_padded_on_the_left_and_stand_behind_one_another():
    batch = sampled(MIXED)
    for row in range(12):
        prompt, _ = spoken(batch, row)
        assert tokenizer().decode(prompt) == PROMPTS[row // 4]
        assert batch.asked[row].tolist() == sorted(batch.asked[row].tolist())


def test_what_a_model_ships_to_bend_its_chances_with_is_not_used():
    loop, _ = told(MIXED)
    loop.model.generation_config.top_k = 1
    loop.model.generation_config.repetition_penalty = 5.0
    assert torch.equal(loop._sample(PROMPTS).completion, sampled(MIXED).completion)
    assert loop.model.generation_config.top_k == 1


def test_sampling_depends_on_its_seed_and_on_nothing_else():
    first = sampled(MIXED).completion
    torch.manual_seed(1)
    state = torch.random.get_rng_state()
    assert torch.equal(sampled(MIXED).completion, first)
    assert torch.equal(torch.random.get_rng_state(), state)
    other = sampled(MIXED, seed=4).completion
    assert other.shape != first.shape or not torch.equal(other, first)


def test_groups_and_rows_count_on_from_step_to_step():
    scorer = Told(MIXED)
    loop, _ = begun(scorer)
    for _ in range(2):
        loop.step(PROMPTS, [{"answer": str(place)} for place in range(3)])
    (one, first), (other, second) = scorer.submitted
    assert (one, other) == (0, 1)
    groups = [*first.groups, *second.groups]
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    assert [group.ordinal for group in groups] == list(range(6))
    assert [rollout.ordinal for rollout in rollouts] == list(range(24))
    assert [rollout.key for rollout in rollouts] == [divmod(number, 4) for number in range(24)]
    assert [rollout.columns["answer"] for rollout in rollouts[::4]] == ["0", "1", "2"] * 2
    assert rollouts[13].where == "step 1, prompt 0"
    assert rollouts[13].prompt == PROMPTS[0]
    assert len({rollout.id for rollout in rollouts}) == 24


# --- What goes wrong


@pytest.mark.parametrize("barrier", ["batch", "group", "arrival"])
def test_when_scoring_stops_nothing_is_trained_on_and_the_next_step_begins_clean(barrier):
    stop = RunStoppedError("half of the rows could not be judged")
    scorer = Told(MIXED, (0, 1, stop))
    loop, found = begun(scorer, barrier=barrier)
    before = flat(loop.model, "data")
    with pytest.raises(RunStoppedError, match="half of the rows"):
        loop.step(PROMPTS, [{}] * 3)
    assert scorer.submitted[0][1].cancelled
    assert not found
    assert all(one.grad is None for one in loop.model.parameters())
    assert torch.equal(flat(loop.model, "data"), before)
    scorer.order = (2, 1, 0)
    assert loop.step(PROMPTS, [{}] * 3).updates == 1


def test_a_scorer_that_leaves_a_group_out_stops_the_run():
    loop, _ = begun(Told(MIXED, (0, 2)), barrier="arrival")
    with pytest.raises(RunStoppedError, match="2 of 3 groups"):
        loop.step(PROMPTS, [{}] * 3)


def test_a_gradient_that_is_not_finite_makes_no_update():
    loop, found = told(MIXED)
    next(loop.model.parameters()).register_hook(lambda gradient: gradient * math.nan)
    before = flat(loop.model, "data")
    with pytest.raises(RunStoppedError, match="the gradient's norm is nan"):
        loop.step(PROMPTS, [{}] * 3)
    assert torch.equal(flat(loop.model, "data"), before)
    assert not found


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"estimator": "ppo"}, "there is no 'ppo'"),
        ({"barrier": "none"}, "there is no 'none'"),
        ({"group_size": 1}, "grpo needs 3 votes, a group has 1"),
        ({"group_size": 2}, "grpo needs 3 votes, a group has 2"),
        ({"group_size": 1, "estimator": "rloo"}, "rloo needs 2 votes, a group has 1"),
        *[
            ({name: value}, f"{name}: it must be a whole number")
            for name in ("group_size", "max_new_tokens", "groups_per_pass", "epochs")
            for value in (0, 3.5, 0.5, math.nan, True, "4", None)
        ],
        *[({"temperature": value}, "must be positive") for value in (0.0, math.nan, math.inf, "1")],
        *[({"beta": value}, "must be 0 or more") for value in (-0.1, math.nan, math.inf, None)],
        *[({"max_grad_norm": value}, "must be positive") for value in (0.0, -1.0, math.nan, "1", True)],
        ({"barrier": ["batch"]}, "there is no ['batch']"),
        ({"estimator": "rloo", "epochs": 2}, "no clipped ratio"),
        ({"estimator": "gdpo", "barrier": "group"}, "the whole batch's rewards"),
        ({"estimator": "gdpo", "barrier": "arrival"}, "the whole batch's rewards"),
        ({"epochs": 2, "barrier": "arrival"}, "need all groups"),
        ({"groups_per_pass": 2, "barrier": "group"}, "need all groups"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, complaint):
    with pytest.raises(RefusedError, match=re.escape(complaint)):
        Settings(**settings)


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"settings": Settings(beta=0.1)}, "beta is 0.1"),
        ({"reference": "some model"}, "beta is 0"),
        ({"settings": Settings(estimator="rloo")}, "its advantages are grpo"),
        ({"tokenizer": "without padding"}, "no padding token"),
    ],
)
def test_what_does_not_fit_together_is_refused(changed, complaint):
    model = tiny_model(tokenizer())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    given = changed.pop("tokenizer", None)
    words = tiny_tokenizer() if given else tokenizer()
    if given:
        words.pad_token = None
    with pytest.raises(RefusedError, match=complaint):
        Grpo(model, words, optimizer, Told(MIXED), **changed)


def trained(model, parameters=None, **more):
    optimizer = torch.optim.SGD([*(parameters or model.parameters())], lr=0.1)
    return Grpo(
        model, tokenizer(), optimizer, Told(MIXED), settings=Settings(group_size=4, max_new_tokens=9), **more
    )


SMALL = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": 1,
}


@pytest.mark.parametrize("head", ["drawn", "zero"])
def test_a_model_that_scales_its_logits_behind_the_head_is_refused_whatever_its_head_holds(head):
    words = len(tokenizer())
    model = GraniteForCausalLM(
        GraniteConfig(vocab_size=words, logits_scaling=4.0, tie_word_embeddings=False, **SMALL)
    )
    if head == "zero":
        torch.nn.init.zeros_(model.lm_head.weight)
    with pytest.raises(RefusedError, match="its logits are not its head times its hidden states"):
        trained(model)
    unscaled = GraniteForCausalLM(GraniteConfig(vocab_size=words, logits_scaling=1.0, **SMALL))
    assert trained(unscaled).step(PROMPTS, [{}] * 3).updates == 1


def test_a_model_that_caps_its_logits_is_refused_while_they_are_too_small_to_be_capped():
    config = Gemma2Config(vocab_size=len(tokenizer()), head_dim=8, initializer_range=0.002, **SMALL)
    with pytest.raises(RefusedError, match="its logits are not its head times its hidden states"):
        trained(Gemma2ForCausalLM(config))


class Adapted(torch.nn.Module):
    """What PEFT puts around a head; at first it changes nothing."""

    def __init__(self, base):
        super().__init__()
        self.base, self.bias = base, None
        self.down = torch.nn.Parameter(torch.randn(4, base.in_features))
        self.up = torch.nn.Parameter(torch.zeros(base.out_features, 4))

    @property
    def weight(self):
        return self.base.weight

    def forward(self, hidden):
        return self.base(hidden) + hidden @ self.down.T @ self.up.T


def test_an_adapter_around_the_head_is_refused_since_it_would_be_passed_by():
    model = tiny_model(tokenizer())
    model.set_output_embeddings(Adapted(model.get_output_embeddings()))
    with pytest.raises(RefusedError, match="its head is a Adapted"):
        trained(model)


def test_a_head_that_does_more_than_its_product_is_refused():
    model = tiny_model(tokenizer())
    model.lm_head.register_forward_hook(lambda _module, _given, found: found * 2)
    with pytest.raises(RefusedError, match="its logits are not its head times its hidden states"):
        trained(model)


def test_a_model_that_scales_what_it_hands_its_head_is_refused():
    model = tiny_model(tokenizer())
    model.lm_head.register_forward_pre_hook(lambda _module, given: (given[0] / 2,))
    with pytest.raises(RefusedError, match="its logits are not its head times its hidden states"):
        trained(model)


def test_a_policy_that_is_its_own_reference_is_refused():
    model = tiny_model(tokenizer())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(RefusedError, match="it is the model itself"):
        Grpo(model, tokenizer(), optimizer, Told(MIXED), settings=Settings(beta=0.1), reference=model)


def test_an_optimizer_that_can_never_move_the_model_is_refused():
    model = tiny_model(tokenizer())
    with pytest.raises(RefusedError, match="none of its parameters"):
        trained(model, tiny_model(tokenizer()).parameters())
    with pytest.raises(RefusedError, match="none of its parameters"):
        trained(model.requires_grad_(False))


def test_what_the_optimizer_does_not_train_keeps_no_gradient_from_step_to_step():
    model = tiny_model(tokenizer())
    loop = trained(model, model.model.norm.parameters())
    assert loop.step(PROMPTS, [{}] * 3).updates == 1
    assert all(one.grad is None for one in model.parameters())


@pytest.mark.parametrize(
    ("ends", "read"),
    [(None, [1]), (7, [1, 7]), ([7, 8], [1, 7, 8]), ((7, 8), [1, 7, 8]), (torch.tensor([7, 8]), [1, 7, 8])],
)
def test_a_models_own_ends_are_read_however_they_are_written(ends, read):
    model = tiny_model(tokenizer())
    model.generation_config.eos_token_id = ends
    assert trained(model)._ends.tolist() == read


def test_a_column_that_the_step_makes_itself_is_refused_by_name():
    loop, _ = told(MIXED)
    with pytest.raises(RefusedError, match="completion_tokens is made by the step"):
        loop.step(PROMPTS, [{}, {"completion_tokens": 7}, {}])


# --- Modes


def dropping():
    """A model that drops out half of everything, in its layers' own code, too."""
    config = OPTConfig(
        vocab_size=len(tokenizer()),
        hidden_size=32,
        word_embed_proj_dim=32,
        ffn_dim=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        dropout=0.5,
        attention_dropout=0.5,
        layerdrop=0.5,
        init_std=0.2,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=1,
    )
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return OPTForCausalLM(config)


def learnt(model):
    """The gradient of a step, and how often a layer was run with a gradient."""
    loop, found, runs = trained(model), {}, []
    loop.optimizer.register_step_pre_hook(lambda *_: found.update(gradient=flat(model, "grad")))
    inner = model.get_decoder().layers[0].self_attn
    inner.register_forward_hook(lambda *_: runs.append(1) if torch.is_grad_enabled() else None)
    model.train()
    model.lm_head.eval()
    loop.step(PROMPTS, [{}] * 3)
    return found["gradient"], len(runs)


def test_dropout_is_off_though_the_caller_trains_and_each_module_is_left_in_its_mode():
    model = dropping()
    found, _ = learnt(model)
    assert [name for name, one in model.named_modules() if not one.training] == ["lm_head"]
    assert torch.equal(found, learnt(dropping().eval())[0])


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing_recomputes_layers_without_their_dropout(reentrant):
    plain, once = learnt(dropping())
    model = dropping()
    model._set_gradient_checkpointing(
        gradient_checkpointing_func=lambda *given: torch.utils.checkpoint.checkpoint(
            *given, use_reentrant=reentrant
        )
    )
    forward = model.get_decoder().layers[0].forward
    found, twice = learnt(model)
    assert apart(found, plain) <= 1e-6
    assert twice == (once if reentrant else 2 * once)  # of a reentrant one the first has no gradient
    assert model.get_decoder().layers[0].forward == forward


def test_checkpointing_that_would_silently_be_off_is_refused():
    model = tiny_model(tokenizer())
    model.model.gradient_checkpointing = True
    with pytest.raises(RefusedError, match="its gradient checkpointing is its own"):
        trained(model)


# --- Phases


class Late(Came):
    """The last group's verdicts come a second after the first ones; who trains looks much later."""

    def __init__(self, groups, rewards, order, clock):
        super().__init__(groups, rewards, order)
        self.clock = clock

    def __iter__(self):
        for place, scored in enumerate(super().__iter__()):
            if place == 0:
                self.clock.tick(4.0)
            elif self.came_s is None:
                self.came_s = 5.0
            yield scored


def phases(order, barrier):
    clock, spans = FakeClock(), []
    loop, _ = told(MIXED, order, barrier=barrier, steps=Steps(spans.extend, clock=clock))
    loop._scorer.submit = lambda groups, *, step: Late(groups, MIXED, order, clock)
    accumulate = loop._accumulate

    def slowly(*given):
        clock.tick(10.0)
        accumulate(*given)

    loop._accumulate = slowly
    return loop, spans


@pytest.mark.parametrize("barrier", ["group", "arrival"])
def test_the_rewards_phase_ends_with_the_last_verdict_though_training_looks_later(barrier):
    loop, spans = phases((0, 1, 2), barrier)
    report = loop.step(PROMPTS, [{}] * 3)
    loop._steps.flush()
    assert [span[3:5] for span in spans if span.phase == "reward"] == [(0.0, 5.0)]
    assert [span[3:5] for span in spans if span.phase == "training" and span.end > span.start] == [
        (4.0, 14.0),
        (14.0, 24.0),
        (24.0, 34.0),
    ]
    assert report.seconds == {"generation": 0.0, "reward": 5.0, "training": 30.0}


def test_the_rewards_phase_of_a_step_that_fails_is_recorded():
    loop, spans = phases((0, RunStoppedError("too many")), "batch")
    with pytest.raises(RunStoppedError, match="too many"):
        loop.step(PROMPTS, [{}] * 3)
    loop._steps.flush()
    assert [span[3:5] for span in spans if span.phase == "reward"] == [(0.0, 4.0)]


@pytest.mark.parametrize(("prompts", "columns"), [([], []), (["a", "b"], [{}]), (["a", ""], [{}, {}])])
def test_a_step_without_prompts_or_with_too_few_columns_is_refused(prompts, columns):
    loop, _ = told(MIXED)
    with pytest.raises(RefusedError, match=r"prompts, |a prompt has no tokens"):
        loop.step(prompts, columns)


# --- With a scorer, and a record


@steelyard.reward
async def judged(completion, words):
    if completion in words["lost"]:
        raise SandboxError("sandbox:tone", "no slot could be started")
    return float(len(completion) % 5)


@pytest.mark.parametrize("barrier", ["batch", "group", "arrival"])
def test_a_row_whose_sandbox_never_started_is_lost_in_a_real_run_too(barrier):
    texts = tokenizer().batch_decode(
        [spoken(sampled(MIXED), row)[1] for row in range(12)], skip_special_tokens=True
    )
    lost = [text if place in {1, 4} else None for place, text in enumerate(texts)]
    rewards = [
        [LOST if lost[row] is not None else float(len(texts[row]) % 5) for row in range(first, first + 4)]
        for first in (0, 4, 8)
    ]
    whole, expected = gradient(rewards)
    spans = []
    with Scorer(Recipe((Part(judged),)), stop=False) as scorer, Steps(spans.extend) as steps:
        loop, found = begun(scorer, barrier=barrier, steps=steps)
        report = loop.step(PROMPTS, [{"words": {"lost": [text for text in lost if text]}}] * 3)
    assert report.unscored == expected.unscored == 2
    assert report.reward == pytest.approx(expected.reward)
    assert apart(found["gradient"], whole) <= 1e-6
    check_coverage(spans)
    assert {span.phase for span in spans} == {"step", "generation", "reward", "training"}
    assert report.seconds.keys() == {"generation", "reward", "training"}
    wall = next(span for span in spans if span.phase == "step")
    assert max(report.seconds.values()) <= wall.end - wall.start


# --- TRL's own loss, on the same completions


@pytest.mark.needs("trl")
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(
    ("name", "beta"),  # RLOOTrainer has no KL in its loss: it takes it off the reward
    [(name, beta) for name in NAMES for beta in (0.0, 0.3) if not (name == "rloo" and beta)],
)
def test_the_gradient_is_that_of_trl_told_the_same(name, beta, tmp_path):
    """On a batch in which TRL is told by its own means that the lost rows have no weight."""
    import trl

    from tiny_trainer import by_word, rows, trainer_of

    means = estimator(name)
    tiny_model(tokenizer()).save_pretrained(tmp_path / "model")
    tokenizer().save_pretrained(tmp_path / "model")
    kind = getattr(trl, means.trl_config.replace("Config", "Trainer"))
    config = getattr(trl, means.trl_config)
    told_trl = {**means.trl, "beta": beta, "max_completion_length": 9, "away": 0.0, "config": config}
    if beta:
        told_trl["use_bias_correction_kl"] = False
    trainer = trainer_of(kind, by_word, rows("1 0 1 0"), tmp_path / "model", tmp_path / "out", **told_trl)
    found, _ = gradient(MIXED, estimator=name, beta=beta)
    batch = sampled(MIXED, estimator=name, beta=beta)
    model = trainer.model.eval()
    mask = batch.said.long()
    voting = torch.tensor([[value is not LOST] for group in MIXED for value in group])
    inputs = {
        "prompt_ids": batch.prompt,
        "prompt_mask": batch.asked.long(),
        "completion_ids": batch.completion,
        "completion_mask": mask,
        "tool_mask": voting.long().expand_as(mask),
        "advantages": torch.tensor(by_hand(MIXED, name)),
        "num_items_in_batch": mask.sum(),
    }
    with torch.no_grad():
        reference = tiny_model(tokenizer(), seed=9)
        logps = [
            torch.nn.functional.pad(chances(one, batch, row, 1.0), (0, mask.shape[1]))[: mask.shape[1]]
            for one in (reference, model)
            for row in range(12)
        ]
    inputs["ref_per_token_logps"] = torch.stack(logps[:12])
    inputs["old_logps"] = torch.stack(logps[12:]).sum(1)
    trainer.current_gradient_accumulation_steps = 1
    trainer._compute_loss(model.train(), inputs).backward()
    rounded = (
        beta or name == "rloo"
    )  # by exp(gap), and by the sum that TRL takes the ratio of a whole row from
    assert apart(found, flat(model, "grad")) <= (1e-5 if rounded else 1e-6)
