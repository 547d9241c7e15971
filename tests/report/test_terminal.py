"""A price in a terminal of 80 columns."""

import io
from dataclasses import replace

from priced import HOSTILE, bare, priced, sparse
from rich.cells import cell_len
from rich.console import Console

from steelyard.pricing.values import Estimate, Price
from steelyard.report import words
from steelyard.report.terminal import print_price


def shown(price, width=80):
    out = io.StringIO()
    print_price(Console(file=out, width=width, highlight=False, emoji=False), price)
    return out.getvalue()


def flat(text):
    return "".join(text.split())


def told_of(text, title):
    """What stands under a heading."""
    return next(part for part in text.split("\n\n") if part.startswith(title))


def test_every_remedy_doubt_suspicion_and_note_is_printed_and_fits():
    price = priced()
    text = shown(price)
    assert max(map(cell_len, text.splitlines())) <= 80
    told = flat(text)
    for remedy in price.remedies:
        assert flat(remedy.title) in told
        assert flat(remedy.refused or "") in told
    for doubt in price.doubts:
        assert flat(f"{doubt.kind.value}: {doubt.says}Do: {doubt.remedy}") in told
    for note in (*price.says, *price.notes, *(one.says for one in price.suspicions)):
        assert flat(note) in told


def test_the_first_screen_says_what_it_costs_why_and_what_to_change_first():
    price = priced()
    screen = shown(price).splitlines()[:24]
    assert flat("".join(screen)).startswith(
        flat(
            "A step takes 42.2 s: 24.5 s busy, 17.7 s waiting for rewards "
            "(42.0 % idle, 95 % interval 39.0 to 45.0 %). "
            "Why: 0.94 % of calls time out at 30 s, and 52.5 % of steps wait for one (are hit); "
            "the slowest reward of a step (its barrier) takes 17.7 s, half of all calls 2.04 s. "
            "runs/code-rl.ledger. Measured: n = 40 steps"
        )
    )
    assert any("13.1 s (11.2 to 15.0 s): lower the timeout from 30 s to 8 s" in line for line in screen)
    assert flat("Saves $14.37 per 1,000 steps ($12.30 to $16.50). Costs: 0.2 %") in flat("".join(screen))
    for line in shown(price).splitlines():
        assert not line.strip().startswith(("% interval", "s waiting"))


def test_only_what_saves_something_noticeable_is_told_in_full():
    text = shown(priced())
    first, others = told_of(text, "What to change first"), told_of(text, words.OTHERS)
    for remedy in priced().remedies:
        noticed = remedy.name in {"timeout", "tail", "groups"}
        assert (flat(remedy.title) in flat(first)) is noticed
        assert (flat(remedy.title) in flat(others)) is not noticed
        if noticed:
            assert flat(f"Costs: {remedy.costs}. Rests on: {remedy.rests_on}.") in flat(first)
    lines = others.splitlines()
    for outcome, title in (
        ("saves 0.020 s", "keep a warm pool"),
        ("loses 5.76 s", "halve the batch"),
        ("saves 0 ", "serve twice"),
        ("no time", "do not score"),
        ("not known", "start a second attempt"),
    ):
        assert any(line.strip().startswith(outcome) and title in line for line in lines), outcome


def test_where_nothing_pays_the_first_line_says_so():
    price = replace(priced(), remedies=[one for one in priced().remedies if one.saves is None])
    assert "Nothing that can be computed here saves a part that one would notice." in shown(price)


def test_a_narrow_terminal_loses_no_word():
    assert flat(priced().doubts[0].says) in flat(shown(priced(), 60))
    assert max(map(cell_len, shown(priced(), 60).splitlines())) <= 60


def test_nothing_is_printed_of_what_is_not_known():
    text = shown(bare())
    assert "A step waits 21.5 s for rewards." in text
    for word in (
        "None",
        "nan",
        "idle",
        "knee",
        "Money",
        "Doubts",
        "Not measured",
        "quantile",
        "change first",
    ):
        assert word not in text


def test_a_price_without_any_number_prints_what_it_is_and_no_more():
    text = shown(Price("a file", "n = 0 steps", 8, 8, measured=True))
    assert text.split("\n")[0].startswith("a file.")
    assert len(text.splitlines()) <= 2


def why(**changed):
    return words.why(replace(priced(), **changed))


def test_why_a_step_waits_is_said_from_what_is_known():
    share = Estimate(0.01, "share")
    assert why(rate=share._replace(value=0.0), hit=None) == (
        "Why: no call timed out; the slowest reward of a step (its barrier) takes 17.7 s, half of all calls "
        "2.04 s."
    )
    assert "; queues and the loop add 4.00 s." in why(
        wait=Estimate(20.0, "s"), observed=Estimate(16.0, "s"), rate=share
    )
    assert why(observed=None, correlated=None, quantiles=(), limit_s=None, rate=share) == (
        "Why: 1.00 % of calls time out, and 52.5 % of steps wait for one (are hit); the slowest reward of a "
        "step (its barrier) is expected to take 21.6 s."
    )
    assert words.why(bare()) == words.why(sparse()) == ""


def test_a_hit_and_a_barrier_are_explained_before_they_are_used():
    text = " ".join(shown(priced()).split())
    for word, explained in (("hit", "wait for one (are hit)"), ("barrier", "of a step (its barrier)")):
        assert text.index(word) == text.index(explained) + explained.index(word)


def test_what_was_priced_is_said_once_and_only_as_far_as_it_is_known():
    numbers = replace(bare(), source="numbers alone", basis="from numbers alone: nothing was measured")
    assert words.ground(numbers) == (
        "From numbers alone: nothing was measured; 128 completions a step in groups of 8."
    )
    assert words.ground(replace(numbers, batch=0, group=0)) == "From numbers alone: nothing was measured."
    assert words.ground(replace(numbers, batch=1, group=0)).endswith("; 1 completion a step.")
    rewards = Price("rows.parquet", "n = 3 steps (24 rollouts)", 8, 0, measured=True)
    assert words.ground(rewards) == "rows.parquet. n = 3 steps (24 rollouts); 8 completions a step."
    correlated = replace(bare(), correlated=Estimate(20.0, "s"))
    assert "measured" not in shown(correlated).replace("not measured", "")


def test_what_is_not_the_slowest_reward_is_told_apart_and_nothing_twice():
    def names(**changed):
        return [row.name for row in words.sections(replace(priced(), **changed))[0].rows]

    some, more = Estimate(16.0, "s"), Estimate(16.3, "s")
    assert "of it queues and loop" in names(wait=Estimate(20.0, "s"), observed=some)
    assert "of it queues and loop" not in names(wait=more, observed=some)
    assert "exposed" not in names(wait=some, exposed=Estimate(16.1, "s"))
    assert "exposed" in names(wait=some, exposed=more)
    assert "exposed" in names(wait=None, exposed=more)


def test_only_with_sandboxes_the_bill_has_two_parts():
    alone, both = (
        shown(replace(bare(), idle=Estimate(0.46, "share"), money={"idle_share": Estimate(part, "share")}))
        for part in (0.46, 0.359)
    )
    assert "sandboxes" not in alone
    assert flat("35.9 %  of the bill: accelerators that wait; sandboxes work then") in flat(both)


def test_a_saving_below_zero_is_a_loss():
    remedy = priced().remedies[0]._replace(saves=Estimate(-0.0156, "s", -0.0184, -0.0129), dollars=None)
    assert words.saves(remedy) == "15.6 ms lost"
    assert words.range_of(remedy) == "12.9 to 18.4 ms lost"
    costly = remedy._replace(dollars=Estimate(-2.5, "$ per 1,000 steps", -3.0, -2.0))
    assert "Costs $2.50 per 1,000 steps ($2.00 to $3.00)." in words.details(costly)


def test_a_policys_words_do_nothing_to_a_terminal():
    text = shown(priced(text=HOSTILE + "[bold red]x[/]"))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "[bold red]x[/]" in flat(text).replace("[boldred]", "[bold red]")
