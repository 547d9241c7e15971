"""Group normalisation that knows failures: verdicts in, advantages out; one function per scheme.

Only `Scored` rows vote. An `Abstained` total and an `Unscored` one are left out of every count, mean
and standard deviation, and get exactly 0.0, so a failure in a group changes none of its siblings'
advantages. That holds as long as enough members vote: two for the schemes that only subtract a
baseline, `max(3, ceil(G / 2))` of `G` members for those that divide by the group's own standard
deviation, since on two votes that division turns any gap into +-0.707. Below the minimum, and where
the voters do not differ, the whole group is zeros and `why` says which, for callers to count.

Leaving rows out is sound only if what is missing has nothing to do with the completion. The incentive
law (`blame`) sees to that; this module only does the arithmetic. It masks no token, counts no share,
stops no run.

With rows missing at random `rloo` is the scheme to take: a voter's baseline is made of other, independent
completions of its prompt, so the gradient is unbiased for every number of votes from 2 up (Kool et al.
2019, "Buy 4 REINFORCE samples, get a baseline for free!"; Ahmadian et al. 2024, arXiv:2402.14740).
Mean-centring includes the row itself and shrinks the gradient by (n - 1) / n, so groups that lost a row
weigh less; a standard deviation over fewer votes is a noisier divisor still.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import fsum, hypot, sqrt
from typing import Literal, NamedTuple, TypeAlias

from steelyard.errors import RewardError
from steelyard.outcome import Abstained, Scored, Unscored, Verdict

Why: TypeAlias = Literal["too_few_votes", "no_spread"]

EPS = 1e-4
"""Added to a sample standard deviation: TRL's, `grpo_trainer.py` in 1.16."""

EPS_POPULATION = 1e-8
"""Added to a population standard deviation: TRL's AsyncGRPO, `async_rollout_worker.py` in 1.16."""

LARGEST = 1e200
"""Bound on rewards and weights: far from where the sum over a batch of them overflows (1.8e308)."""

ROUNDING = 2.0**-46
"""A relative spread of 64 units in the last place: what summing parts in another order can make of
equal totals (0.1 + 0.2 against 0.3). It is no signal."""


class GroupAdvantages(NamedTuple):
    """What became of one group.

    Parameters
    ----------
    values
        One advantage per member, in input order; 0.0 for members that do not vote.
    votes
        How many members vote.
    signal
        Whether there is anything to learn: some value is not 0.
    why
        Why there is no signal: `too_few_votes`, `no_spread`; `None` where there is one.
    """

    values: tuple[float, ...]
    votes: int
    signal: bool
    why: Why | None


class VotingGroup(NamedTuple):
    """A group as the schemes over a whole batch read it.

    Parameters
    ----------
    totals
        One verdict per member: the weighted sum of its parts. It decides who votes.
    parts
        Per reward, one verdict per member in the same order. Only `gdpo` reads them.
    """

    totals: Sequence[Verdict]
    parts: Mapping[str, Sequence[Verdict]]


class Scheme(NamedTuple):
    """One scheme, under its name on the command line.

    Parameters
    ----------
    name
        The value of `--advantage`.
    summary
        One line for help texts.
    minimum
        From a group's size to the votes that it needs.
    by_batch
        From groups and weights to one `GroupAdvantages` each, in order. Every scheme has it.
    by_group
        The same for one group's totals; `None` where the scheme needs the whole batch.
    reads_parts
        Whether it sums the parts itself, so that it sees nothing of what a recipe makes of their sum.
    """

    name: str
    summary: str
    minimum: Callable[[int], int]
    by_batch: Callable[[Sequence[VotingGroup], Mapping[str, float]], list[GroupAdvantages]]
    by_group: Callable[[Sequence[Verdict]], GroupAdvantages] | None = None
    reads_parts: bool = False

    @property
    def scope(self) -> Literal["group", "batch"]:
        """What has to be in before the first advantage is known."""
        return "batch" if self.by_group is None else "group"


def grpo(verdicts: Sequence[Verdict]) -> GroupAdvantages:
    """`(r - mean) / (sample std + 1e-4)` over the voters.

    Parameters
    ----------
    verdicts
        The totals of one group, shape `(G,)`.

    Returns
    -------
    GroupAdvantages
        `values` of shape `(G,)`.

    Raises
    ------
    RewardError
        A reward that is not finite, or beyond 1e200. So in every scheme.

    Notes
    -----
    Shao et al. 2024, "DeepSeekMath", arXiv:2402.03300, 4.1; with n - 1 and the constant as TRL has them.

    Examples
    --------
    >>> from steelyard.outcome import Unscored
    >>> lost = Unscored("sandbox:bubblewrap", "spawn: no memory")
    >>> [round(value, 3) for value in grpo([Scored(1.0), lost, Scored(0.0), Scored(0.0)]).values]
    [1.155, 0.0, -0.577, -0.577]
    >>> grpo([Scored(1.0), Scored(1.0), Scored(1.0), lost])
    GroupAdvantages(values=(0.0, 0.0, 0.0, 0.0), votes=3, signal=False, why='no_spread')
    """
    return _within(verdicts, _half, _standardised)


def grpo_population(verdicts: Sequence[Verdict]) -> GroupAdvantages:
    """`(r - mean) / (population std + 1e-8)` over the voters, shapes as in `grpo`.

    Notes
    -----
    What TRL's AsyncGRPO does, and numpy by default (ddof = 0): sqrt(n / (n - 1)) times `grpo`'s values.

    Examples
    --------
    >>> passed, failed = Scored(1.0), Scored(0.0)
    >>> [round(value, 3) for value in grpo_population([passed, passed, failed, failed]).values]
    [1.0, 1.0, -1.0, -1.0]
    """
    return _within(verdicts, _half, _standardised_population)


def dr_grpo(verdicts: Sequence[Verdict]) -> GroupAdvantages:
    """`r - mean` over the voters, shapes as in `grpo`.

    Notes
    -----
    Liu et al. 2025, "Understanding R1-Zero-like training", arXiv:2503.20783: dividing by the standard
    deviation favours prompts that are nearly always or nearly never solved. TRL: `scale_rewards="none"`.

    Examples
    --------
    >>> from steelyard.outcome import Unscored
    >>> dr_grpo([Scored(1.0), Scored(3.0), Scored(2.0), Unscored("judge:tone", "503")]).values
    (-1.0, 1.0, 0.0, 0.0)
    """
    return _within(verdicts, _pair, list)


def rloo(verdicts: Sequence[Verdict]) -> GroupAdvantages:
    """`r` minus the mean of the other voters, shapes as in `grpo`; to be preferred where rows may be missing.

    Notes
    -----
    Kool et al. 2019; Ahmadian et al. 2024, arXiv:2402.14740. It is n / (n - 1) times `dr_grpo`, whose
    factor (n - 1) / n it undoes: unbiased for every n >= 2, as the module's text says.

    Examples
    --------
    >>> from steelyard.outcome import Unscored
    >>> lost = Unscored("judge:tone", "503")
    >>> [round(value, 3) for value in rloo([Scored(1.0), lost, Scored(0.0), Scored(0.0)]).values]
    [1.0, 0.0, -0.5, -0.5]
    """
    return _within(verdicts, _pair, _left_one_out)


def batch(groups: Sequence[VotingGroup], _weights: Mapping[str, float], /) -> list[GroupAdvantages]:
    """`(r - group mean) / (sample std over the voters of the whole batch + 1e-4)`.

    Parameters
    ----------
    groups
        The groups of one training step; sizes may differ, parts are not read.
    _weights
        Not read: there so that all schemes over a batch are called alike.

    Returns
    -------
    list of GroupAdvantages
        One per group, in order.

    Notes
    -----
    Liu et al. 2025, "Part I: Tricks or traps?", arXiv:2508.08221 ("Lite PPO"); TRL: `scale_rewards="batch"`.
    As there, a voter whose own group has no signal still counts in the batch's standard deviation.

    Examples
    --------
    >>> easy, hard = [Scored(1.0), Scored(1.0)], [Scored(1.0), Scored(0.0)]
    >>> [[round(v, 3) for v in g.values] for g in batch([VotingGroup(easy, {}), VotingGroup(hard, {})], {})]
    [[0.0, 0.0], [1.0, -1.0]]
    """
    polls = [_poll(group.totals, _pair(len(group.totals))) for group in groups]
    everyone = [total.value for group in groups for total in group.totals if isinstance(total, Scored)]
    divisor = _std(_centred(everyone)) + EPS

    def scaled(deviations: Sequence[float]) -> list[float]:
        return [deviation / divisor for deviation in deviations]

    return [_placed(group.totals, *poll, scaled) for group, poll in zip(groups, polls, strict=True)]


def gdpo(groups: Sequence[VotingGroup], weights: Mapping[str, float], /) -> list[GroupAdvantages]:
    """Each part as in `grpo`, their weighted sum, then divided by its standard deviation over the batch.

    Parameters
    ----------
    groups
        The groups of one training step, with parts; sizes may differ.
    weights
        Per part; every part needs one, 0 leaves it out.

    Returns
    -------
    list of GroupAdvantages
        One per group, in order.

    Raises
    ------
    RewardError
        Also for a part without a weight.

    Notes
    -----
    Liu et al. 2026, "GDPO", arXiv:2601.05242; TRL: `multi_objective_aggregation="normalize_then_sum"`.
    A member whose total does not vote leaves every part. A part that abstains for a member leaves only
    that part's statistics, and needs the votes of half the members that it was asked for (3 at least).
    Groups below their minimum leave the batch's standard deviation too, where TRL counts them as zeros.
    The batch's mean, which TRL subtracts, is 0 already: each part sums to 0 over each group.

    Examples
    --------
    >>> right, short = [Scored(1.0), Scored(0.0), Scored(0.0)], [Scored(0.0), Scored(0.0), Scored(9.0)]
    >>> totals = [Scored(1.0), Scored(0.0), Scored(9.0)]
    >>> [group] = gdpo([VotingGroup(totals, {"right": right, "short": short})], {"right": 1.0, "short": 1.0})
    >>> [round(value, 3) for value in group.values]
    [0.577, -1.155, 0.577]
    """
    for name in {name for group in groups for name in group.parts}:
        if not abs(weights.get(name, float("nan"))) <= LARGEST:
            raise RewardError(name, f"needs a finite weight, has {weights.get(name)}; 0 leaves it out")
    polls = [_poll_parts(group, weights) for group in groups]
    divisor = _std([total for totals, why in polls if why != "too_few_votes" for total in totals]) + EPS

    def scaled(totals: Sequence[float]) -> list[float]:
        return [total / divisor for total in totals]

    return [_placed(group.totals, *poll, scaled) for group, poll in zip(groups, polls, strict=True)]


def dead(verdicts: Sequence[Verdict]) -> bool:
    """Whether more than half of a group could not be judged: nothing is learnt from what is left."""
    return 2 * sum(isinstance(verdict, Unscored) for verdict in verdicts) > len(verdicts)


def _poll(verdicts: Sequence[Verdict], minimum: int, part: str = "total") -> tuple[list[float], Why | None]:
    """Deviations of the voters' rewards from their mean, and why they carry no signal if they do not."""
    rewards = [verdict.value for verdict in verdicts if isinstance(verdict, Scored)]
    norm = hypot(*rewards)
    if not norm <= LARGEST:  # so that NaN, which compares false, is caught as well
        worst = next((reward for reward in rewards if not abs(reward) <= LARGEST), norm)
        raise RewardError(part, f"rewards must be finite and within +-{LARGEST:g}, got {worst}; bound it")
    deviations = _centred(rewards)
    if len(rewards) < minimum or (len(rewards) < len(verdicts) and dead(verdicts)):
        return deviations, "too_few_votes"
    if hypot(*deviations) <= ROUNDING * norm:
        return deviations, "no_spread"
    return deviations, None


def _poll_parts(group: VotingGroup, weights: Mapping[str, float]) -> tuple[list[float], Why | None]:
    """`_poll` for `gdpo`: the voters' weighted sums of normalised parts."""
    voting = [isinstance(total, Scored) for total in group.totals]
    sums = [0.0] * sum(voting)
    if len(sums) < _half(len(voting)):
        return sums, "too_few_votes"
    reached = False
    size = 0.0
    for name, verdicts in group.parts.items():
        weight = weights[name]
        if weight == 0:
            continue
        heard = [verdict for verdict, votes in zip(verdicts, voting, strict=True) if votes]
        asked = sum(not isinstance(verdict, Abstained) for verdict in verdicts)
        part = _placed(heard, *_poll(heard, _half(asked), name), _standardised)
        reached |= part.why != "too_few_votes"
        if part.signal:
            size += abs(weight)
            sums = [so_far + weight * value for so_far, value in zip(sums, part.values, strict=True)]
    if not reached:
        return sums, "too_few_votes"
    return sums, "no_spread" if max(sums) - min(sums) <= ROUNDING * size else None


def _within(
    verdicts: Sequence[Verdict],
    minimum: Callable[[int], int],
    formula: Callable[[Sequence[float]], Sequence[float]],
) -> GroupAdvantages:
    return _placed(verdicts, *_poll(verdicts, minimum(len(verdicts))), formula)


def _placed(
    verdicts: Sequence[Verdict],
    deviations: Sequence[float],
    why: Why | None,
    formula: Callable[[Sequence[float]], Sequence[float]],
) -> GroupAdvantages:
    """Apply `formula` to the voters' deviations and put the values where the voters stand."""
    votes = len(deviations)
    if why is not None:
        return GroupAdvantages((0.0,) * len(verdicts), votes, False, why)
    values = formula(deviations)
    if votes < len(verdicts):
        queue = iter(values)
        values = [next(queue) if isinstance(verdict, Scored) else 0.0 for verdict in verdicts]
    return GroupAdvantages(tuple(values), votes, True, None)


def _centred(rewards: Sequence[float]) -> list[float]:
    mean = fsum(rewards) / (len(rewards) or 1)
    return [reward - mean for reward in rewards]


def _std(deviations: Sequence[float], ddof: int = 1) -> float:
    # hypot scales by the largest, so that no square overflows or vanishes
    return hypot(*deviations) / sqrt(max(1, len(deviations) - ddof))


def _standardised(deviations: Sequence[float]) -> list[float]:
    divisor = _std(deviations) + EPS
    return [deviation / divisor for deviation in deviations]


def _standardised_population(deviations: Sequence[float]) -> list[float]:
    divisor = _std(deviations, 0) + EPS_POPULATION
    return [deviation / divisor for deviation in deviations]


def _left_one_out(deviations: Sequence[float]) -> list[float]:
    factor = len(deviations) / (len(deviations) - 1)
    return [factor * deviation for deviation in deviations]


def _pair(_size: int) -> int:
    return 2


def _half(size: int) -> int:
    return max(3, (size + 1) // 2)


def _scheme(
    by_group: Callable[[Sequence[Verdict]], GroupAdvantages], minimum: Callable[[int], int], summary: str
) -> Scheme:
    def by_batch(groups: Sequence[VotingGroup], _weights: Mapping[str, float], /) -> list[GroupAdvantages]:
        return [by_group(group.totals) for group in groups]

    return Scheme(by_group.__name__, summary, minimum, by_batch, by_group)


SCHEMES: Mapping[str, Scheme] = {
    scheme.name: scheme
    for scheme in (
        _scheme(grpo, _half, "minus the group's mean, over its sample std + 1e-4 (TRL's default)"),
        _scheme(grpo_population, _half, "minus the group's mean, over its population std + 1e-8"),
        _scheme(dr_grpo, _pair, "minus the group's mean"),
        _scheme(rloo, _pair, "minus the mean of the others; unbiased however many rows are missing"),
        Scheme("batch", "minus the group's mean, over the batch's sample std + 1e-4", _pair, batch),
        Scheme(
            "gdpo",
            "each reward as in grpo, weighted, summed, over the batch's std + 1e-4",
            _half,
            gdpo,
            None,
            True,
        ),
    )
}
"""The schemes by their names on the command line; `grpo` is the default."""
