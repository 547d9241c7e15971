"""Failures that do not vote: no second is saved, and no advantage is made of a failure."""

from __future__ import annotations

from steelyard.pricing.corruption import corruption
from steelyard.pricing.remedies.ground import Ground, refused, share
from steelyard.pricing.values import Remedy


def unscored(ground: Ground) -> Remedy:
    """Leave failed rollouts out of their group instead of writing a number down for them."""
    title = "leave failures unscored"
    if not ground.observed.tells_failures:
        return refused("unscored", title, "the source cannot tell a failure from a reward")
    found = corruption(ground.observed.rows, len(ground.observed.steps))
    groups, failed = int(found.groups.sum()), int(ground.observed.rows.failed.sum())
    if not groups:
        return refused("unscored", title, "no rollout says which group it belongs to")
    if not failed:
        return refused(
            "unscored", title, "no rollout got its value through a failure: nothing is to be left out"
        )
    corrupted, thin = (share(int(n.sum()), groups, "groups") for n in (found.corrupted, found.thin))
    return Remedy(
        "unscored",
        f"{title}: {corrupted} have a corrupted advantage, then none",
        None,
        costs=f"{found.voting.sum() / groups:.2f} votes per group, of {found.rows.sum() / groups:.2f}; "
        f"{thin} keep fewer than two",
        rests_on=f"{failed:,} failures, advantages computed with and without them; only for causes that no "
        "completion can bring about, for being left out is worth more than being wrong",
    )
