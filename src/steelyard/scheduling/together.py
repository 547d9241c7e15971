"""After a call that judged several rollouts, but not all of them: who is to blame, and who is not.

Members of a group share a call, so a member can make its siblings fail. If it kept its own verdict, or
if they all got the floor while it did, it would have gained by that. So culprits are searched: first
each suspect is asked for alone, then the group without each of the others. Where neither tells, the
whole group gets the floor, which is no gradient.

A group that is left out as a whole (`None` for every member) abstains only if its columns decide that:
it is left out with empty completions, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from steelyard.blame import Next, verdict_on
from steelyard.outcome import NOTHING, Abstained, Called, End, Failure, Said, Scored, Unscored
from steelyard.rollout import Rollout
from steelyard.scheduling.suspects import LEFT_OUT, Witness, asked_again, said_again, settle

Note = Callable[[Called], None]


async def settle_group(
    rollouts: Sequence[Rollout], said: Sequence[Said], witness: Witness, note: Note
) -> Sequence[Scored | Abstained | Unscored]:
    """Find verdicts for a group whose one call did not judge all of it.

    Parameters
    ----------
    rollouts
        The group.
    said
        What its first attempt said of each.
    witness, note
        As in `settle`.
    """
    if all(one is NOTHING for one in said) and await by_columns_alone(rollouts, witness):
        return [NOTHING] * len(rollouts)
    failed = {place: _failure(one) for place, one in enumerate(said) if not isinstance(one, Scored)}
    if len(failed) < len(rollouts):
        return await _settle_some(rollouts, said, failed, witness, note)
    verdicts = await settle(rollouts, failed[0], witness, note)
    blamed = all(isinstance(one, Scored) and one.code is not None for one in verdicts)
    if blamed and len(rollouts) > 1 and len({id(one) for one in verdicts}) == 1:
        return await _culprits(rollouts, verdicts, witness, note)
    return verdicts


async def settle_left_out(
    rollouts: Sequence[Rollout], witness: Witness, note: Note
) -> Sequence[Scored | Abstained | Unscored]:
    """Find verdicts for a group of which a batch's call said nothing: by its columns, or each alone."""
    if await by_columns_alone(rollouts, witness):
        return [NOTHING] * len(rollouts)
    return [(await settle([one], LEFT_OUT, witness, note))[0] for one in rollouts]


async def by_columns_alone(rollouts: Sequence[Rollout], witness: Witness) -> bool:
    """Whether a group is left out whatever its completions say: with empty ones, none is judged either."""
    empty = [one._replace(completion=_empty(one), raw=None) for one in rollouts]
    answers = await witness.caller.call(empty)
    return not any(isinstance(one, Scored) for called in answers for one in called.said)


def _empty(rollout: Rollout) -> str | list[dict[str, str]]:
    return "" if isinstance(rollout.completion, str) else [{"role": "assistant", "content": ""}]


def _failure(said: Said) -> Failure:
    return said if isinstance(said, Failure) else LEFT_OUT


async def _settle_some(
    rollouts: Sequence[Rollout],
    said: Sequence[Said],
    failed: dict[int, Failure],
    witness: Witness,
    note: Note,
) -> Sequence[Scored | Unscored]:
    """Find verdicts for a group of which some were judged: what is said of one may depend on all."""
    again = await said_again(rollouts, witness, note)
    verdicts: list[Scored | Unscored] = [one if isinstance(one, Scored) else _UNDECIDED for one in said]
    sound: bool | None = None
    for place, first in failed.items():
        second = again[place]
        if isinstance(second, Scored):
            verdicts[place] = second
            continue
        sound = await witness.sound() if sound is None else sound
        verdict = verdict_on(
            [first, second], reward=witness.reward.name, floor=witness.reward.floor, canary=sound
        )
        if isinstance(verdict, Next):  # pragma: no cover - the law decides once the canary was asked
            raise TypeError(verdict)
        verdicts[place] = verdict
    floored = [place for place in failed if not isinstance(again[place], Scored)]
    if sound is False or not floored:
        return verdicts
    return await _saboteur(rollouts, verdicts, floored, witness, note)


_UNDECIDED = Unscored("scheduler", "not decided yet")


async def _saboteur(
    rollouts: Sequence[Rollout],
    verdicts: list[Scored | Unscored],
    floored: Sequence[int],
    witness: Witness,
    note: Note,
) -> Sequence[Scored | Unscored]:
    """Judge a group without the judged member, if there is one, that makes its siblings fail.

    A member that fails alone, too, fails for what it says itself.
    """
    victims = [
        place
        for place in floored
        if not isinstance(await asked_again([rollouts[place]], witness, note), Failure)
    ]
    if not victims:
        return verdicts
    floor = verdicts[victims[0]]
    for place in range(len(rollouts)):
        if place in floored:
            continue
        others = [other for other in range(len(rollouts)) if other != place]
        said = dict(
            zip(others, await said_again([rollouts[other] for other in others], witness, note), strict=True)
        )
        if all(isinstance(said[victim], Scored) for victim in victims):
            without: list[Scored | Unscored] = list(verdicts)
            for other, one in said.items():
                if isinstance(one, Scored):
                    without[other] = one
            without[place] = floor
            return without
    return [floor] * len(rollouts)


async def _culprits(
    rollouts: Sequence[Rollout],
    floored: Sequence[Scored | Unscored],
    witness: Witness,
    note: Note,
) -> Sequence[Scored | Unscored]:
    """Judge a group without the members on which its reward fails, who alone get the floor.

    If all of it got the floor, nobody would stand out: a member that fails could lift its advantage
    to 0 by making its siblings fail too. First each is asked for alone; a reward that judges nobody alone
    is asked about the group without each. Where neither tells, the whole group gets the floor.
    """
    everyone = range(len(rollouts))
    fails: dict[int, Failure] = {}
    for place in everyone:
        said = await asked_again([rollouts[place]], witness, note)
        if isinstance(said, Failure):
            fails[place] = said
    suspects = [list(fails)]
    if len(fails) == len(rollouts) and not any(one.end is End.CUT for one in fails.values()):
        suspects = [[place] for place in everyone]
    for some in suspects:
        others = [place for place in everyone if place not in some]
        if not some or not others:
            continue
        said = await asked_again([rollouts[place] for place in others], witness, note)
        if not isinstance(said, Failure):
            verdicts = list(floored)
            for place, one in zip(others, said, strict=True):
                verdicts[place] = one
            return verdicts
    return floored
