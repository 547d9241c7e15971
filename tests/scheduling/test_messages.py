"""How members of groups make calls, and calls make messages."""

import pytest
from doubles import Double, Scripted, by_completion, groups_of, judged
from hypothesis import given
from hypothesis import strategies as st

from steelyard.clock import Clocks
from steelyard.outcome import Called, End, Failure, How, Scored, Takes
from steelyard.scheduling.cells import (
    Members,
    Open,
    in_calls,
    in_messages,
    parted,
    rollouts_in,
    rollouts_of,
    whole_groups,
)


def asked_of(*sizes):
    return [
        Members(Open(group, [], {}), range(len(group.rollouts)), group.rollouts)
        for group in groups_of(*sizes)
    ]


def ordinals(calls):
    return [[rollout.ordinal for rollout in rollouts_of(call)] for call in calls]


SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=9)


@given(SIZES, st.integers(1, 20))
def test_calls_hold_the_same_rollouts_in_order_and_all_but_the_last_as_many_as_asked(sizes, each):
    calls = ordinals(in_calls(asked_of(*sizes), each))
    assert [ordinal for call in calls for ordinal in call] == list(range(sum(sizes)))
    assert {len(call) for call in calls[:-1]} <= {each}
    assert 0 < len(calls[-1]) <= each


@given(SIZES, st.data())
def test_parts_know_the_group_and_the_place_of_each_rollout(sizes, data):
    cuts = data.draw(st.lists(st.integers(1, 5), max_size=9))
    asked = asked_of(*sizes)
    left = sum(sizes)
    told = []
    for size in cuts:
        told.append(min(size, left))
        left -= told[-1]
    calls = list(parted(asked, [*(size for size in told if size), *([left] if left else [])]))
    for call in calls:
        for one, places, rollouts in call:
            assert [one.group.rollouts[place] for place in places] == list(rollouts)
    assert [n for call in ordinals(calls) for n in call] == list(range(sum(sizes)))


@given(SIZES, st.integers(1, 20))
def test_whole_groups_are_never_parted(sizes, least):
    calls = list(whole_groups(asked_of(*sizes), least))
    assert [len(one.places) for call in calls for one in call] == sizes
    assert all(rollouts_in(call) >= least for call in calls[:-1])


@given(SIZES, st.integers(1, 20))
def test_a_message_holds_calls_of_one_size_and_no_more_of_them_than_it_needs(sizes, least):
    calls = [[members] for members in asked_of(*sizes)]
    messages = list(in_messages(calls, least))
    assert [call for message in messages for call in message] == calls
    for message in messages:
        each = {rollouts_in(call) for call in message}
        assert len(each) == 1
        assert rollouts_in([one for call in message[:-1] for one in call]) < least


class ByMessage(Scripted):
    """A caller that sends several calls at once."""

    def __init__(self, end, *, room):
        super().__init__(end)
        self.room, self.sent = room, []

    async def call(self, rollouts, *, fresh=False):
        (called,) = self._said([rollouts])
        (self.fresh if fresh else self.messages).append([r.completion for r in rollouts])
        return [called]

    async def several(self, calls):
        self.sent.append([[rollout.completion for rollout in call] for call in calls])
        return self._said(calls)

    def _said(self, calls):
        return [Called(call, self._of(call), Clocks(service_s=1.0)) for call in calls]

    def _of(self, call):
        said = [self.end(rollout, 1) for rollout in call]
        failure = next((one for one in said if isinstance(one, Failure)), None)
        return said if failure is None else [failure] * len(call)


def one(_rollout, _context):
    return 1.0


@pytest.mark.parametrize(
    ("room", "sent"),
    [
        (1, [["a0", "a1"], ["b0", "b1"], ["c0", "c1"], ["d0", "d1"]]),
        (4, [["a0", "a1", "b0", "b1"], ["c0", "c1", "d0", "d1"]]),
        (100, [["a0", "a1", "b0", "b1", "c0", "c1", "d0", "d1"]]),
    ],
)
def test_groups_share_a_message_that_has_room_and_each_has_an_attempt_of_its_own(room, sent, monkeypatch):
    monkeypatch.setattr("steelyard.scheduling.groups.QUICK_EACH", 1)
    caller = ByMessage(by_completion(), room=room)
    reward = Double(one, how=How.WORKER, takes=Takes.GROUP)
    outcome = judged(groups_of(2, 2, 2, 2), reward, callers={"double": caller})
    assert [[name for call in message for name in call] for message in caller.sent] == sent
    assert [attempt.members for attempt in outcome.attempts] == [2] * 4
    assert set(outcome.values().values()) == {1.0}


def test_a_message_is_spread_over_the_processes_whatever_its_room(monkeypatch):
    monkeypatch.setattr("steelyard.scheduling.groups.QUICK_EACH", 2)
    caller = ByMessage(by_completion(), room=1_000)
    reward = Double(one, how=How.WORKER, takes=Takes.GROUP)
    judged(groups_of(*[2] * 8), reward, callers={"double": caller}, processes=2)
    assert [len(message) for message in caller.sent] == [2] * 4


def test_a_group_that_fails_in_a_shared_message_fails_alone(monkeypatch):
    monkeypatch.setattr("steelyard.scheduling.groups.QUICK_EACH", 1)
    caller = ByMessage(by_completion(b1=Failure(End.RAISED, "ValueError: b1")), room=100)
    reward = Double(one, how=How.WORKER, takes=Takes.GROUP)
    outcome = judged(groups_of(2, 2, 2), reward, callers={"double": caller})
    codes = outcome.codes()
    assert codes == {"a0": None, "a1": None, "b0": None, "b1": "reward_error", "c0": None, "c1": None}
    assert len(caller.sent) == 1


def test_a_batch_that_fails_in_a_shared_message_is_asked_for_by_its_groups_and_the_others_are_not(
    monkeypatch,
):
    monkeypatch.setattr("steelyard.scheduling.groups.QUICK_EACH", 1)
    monkeypatch.setattr("steelyard.scheduling.groups.MESSAGE", 4)
    caller = ByMessage(by_completion(b1=Failure(End.RAISED, "ValueError: b1")), room=100)
    reward = Double(one, how=How.WORKER, takes=Takes.BATCH)
    outcome = judged(groups_of(2, 2, 2, 2), reward, callers={"double": caller})
    assert caller.sent == [[["a0", "a1", "b0", "b1"], ["c0", "c1", "d0", "d1"]]]
    assert sorted(caller.messages) == [["a0", "a1"], ["b0"], ["b0", "b1"], ["b1"]]
    assert [name for name, code in outcome.codes().items() if code] == ["b1"]
    assert outcome.verdicts()["c0"] == Scored(1.0)
