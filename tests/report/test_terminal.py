"""A price in a terminal of 80 columns."""

import io

from priced import HOSTILE, bare, priced
from rich.cells import cell_len
from rich.console import Console

from steelyard.pricing.values import Estimate, Price
from steelyard.report.terminal import print_price


def shown(price, width=80):
    out = io.StringIO()
    print_price(Console(file=out, width=width, highlight=False, emoji=False), price)
    return out.getvalue()


def flat(text):
    return "".join(text.split())


def test_every_remedy_doubt_suspicion_and_note_is_printed_and_fits():
    price = priced()
    text = shown(price)
    assert max(map(cell_len, text.splitlines())) <= 80
    told = flat(text)
    for remedy in price.remedies:
        for sentence in (remedy.title, remedy.costs, remedy.rests_on, remedy.refused or ""):
            assert flat(sentence) in told
    for doubt in price.doubts:
        assert flat(f"{doubt.kind.value}: {doubt.says}Do: {doubt.remedy}") in told
    for note in (*price.notes, *(one.says for one in price.suspicions)):
        assert flat(note) in told


def test_the_answer_comes_first_with_its_interval():
    first = flat(shown(priced()))
    assert first.startswith(
        flat(
            "A step takes 42.2 s: 24.5 s busy, 17.7 s waiting for rewards "
            "(42.0 %, 95 % interval 39.0 to 45.0 %)."
        )
    )


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


def test_a_saving_below_zero_is_a_loss():
    remedy = priced().remedies[0]._replace(saves=Estimate(-5.76, "s", -7.5, -4.0))
    text = shown(Price("a file", "n = 40 steps", 8, 8, measured=True, remedies=[remedy]))
    assert "5.76 s lost" in text
    assert "-7.50 to -4.00 s" in text


def test_a_policys_words_do_nothing_to_a_terminal():
    text = shown(priced(text=HOSTILE + "[bold red]x[/]"))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "[bold red]x[/]" in flat(text).replace("[boldred]", "[bold red]")
