"""A fit in a terminal of 80 columns, without colour, and as a page in a real browser."""

import io
import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from fake_fits import CARD, HOSTILE, fit, report
from rich.cells import cell_len
from rich.console import Console

from steelyard.memory.values import GIB
from steelyard.report import memory_words as words
from steelyard.report.memory_terminal import bars, print_comparison, print_fit

sys.path.append(str(Path(__file__).resolve().parents[1] / "report"))
from browser import launched

drawn = [pytest.mark.needs("chromium"), pytest.mark.needs("report")]


def shown(one, width=80, **console):
    out = io.StringIO()
    print_fit(Console(file=out, width=width, highlight=False, emoji=False, **console), one)
    return out.getvalue()


def flat(text):
    return "".join(text.split())


def test_the_first_lines_say_verdict_peak_range_card_phase_and_confidence():
    screen = flat("".join(shown(report()).splitlines()[:8]))
    assert screen.startswith(
        flat(
            "Qwen3-8B on 1 x H100 80GB does not fit: 97.7 GiB (88.0 to 108) of 79.2 GiB. "
            "As planned it will not run, or not as it says: expandable_segments (see below). "
            "The peak is in training (backward of the head): "
            "optimizer states 30.5, activations 24.2, weights 15.3 GiB. "
            "Confidence: high, ± 10 %: 25 peaks of dense models of two sizes were within 10 %."
        )
    )


@pytest.mark.parametrize(
    ("verdict", "words_of_it"),
    [
        ("fits", "on 1 x H100 80GB fits:"),
        ("tight", "H100 80GB is tight:"),
        ("does not fit", "H100 80GB does not fit:"),
    ],
)
def test_each_verdict_is_said_in_words(verdict, words_of_it):
    assert words_of_it in " ".join(shown(report(verdict=verdict)).split())


def test_what_fits_and_does_not_start_says_why_in_place_of_its_size():
    idle = replace(
        fit(growth=0.1), held=0, why="the engine's 30% of the card hold not one sequence: it does not start"
    )
    one = report()._replace(fit=idle)
    assert words.headline(one.fit) == (
        "Qwen3-8B on 1 x H100 80GB does not fit: "
        "the engine's 30% of the card hold not one sequence: it does not start."
    )
    assert "which fits" not in shown(one)


def test_the_answer_is_not_green_where_something_stops_it():
    one = report(verdict="fits")
    assert words.colour_of(one) == "tight"
    assert words.colour_of(one._replace(lints=())) == "fits"
    assert words.stopped(one._replace(lints=())) == ""


def test_of_packed_sequences_the_largest_is_in_tokens():
    one = fit()
    plan = replace(one.estimate.plan, micro_tokens=9000)
    packed = replace(
        one,
        estimate=replace(one.estimate, plan=plan),
        largest=replace(one.largest, micro_tokens=12000),
    )
    assert words.largest(packed)[0] == ("pass", "12,000 tokens", "planned: 9,000")


def test_of_several_gpus_it_says_that_it_is_each():
    assert "of 79.2 GiB of each GPU." in words.headline(fit(gpus=8))
    assert words.headline(fit(gpus=8)).startswith("Qwen3-8B on 8 x H100 80GB")


def test_every_resident_has_its_size_formula_owner_and_numbered_source():
    one = report()
    text = shown(one)
    told = flat(text)
    sources = dict(re.findall(r"^  \[(\d+)\]  (.*?)\s*$", text, re.MULTILINE))
    assert len(sources) == 6
    for phase in one.fit.estimate.phases:
        assert flat(f"{words.TITLES[phase.name]}, {phase.moment}: {words.gib(phase.bytes)} GiB") in told
    rows = re.findall(r"^  ([A-K])  (\S.*?) +(<?[\d.]+)  (.+?) +\[(\d+)\]  (\w+)", text, re.MULTILINE)
    residents = [
        r for phase in one.fit.estimate.phases for r in sorted(phase.residents, key=lambda r: -r.bytes)
    ]
    assert [name for _, name, *_ in rows] == [r.name for r in residents]
    for (_, _, size, formula, place, owner), resident in zip(rows, residents, strict=True):
        assert size == words.gib(resident.bytes)
        assert resident.formula.startswith(formula.strip())
        assert resident.source.startswith(sources[place].removesuffix("arXiv:").strip())
        assert owner == resident.owner


@pytest.mark.parametrize("width", [80, 60, 40])
def test_no_line_is_wider_than_the_terminal(width):
    assert max(map(cell_len, shown(report(), width).splitlines())) <= width


def test_a_bar_is_as_long_as_its_phase_and_the_card_is_at_one_place_in_all():
    one = fit()
    known = words.signs(one.estimate.phases)
    lines = [line.plain for line in bars(one, known, 80)]
    ends = {line.index("│") for line in lines[:3]}
    assert ends == {lines[3].index("┘")}
    (end,) = ends
    start = lines[0].index("A")
    column = (end - start) / one.card.bytes
    for line, phase in zip(lines, one.estimate.phases, strict=False):
        full = len(re.findall(r"[A-K▬│]", line[start : start + round(phase.bytes * column)]))
        assert full == pytest.approx(phase.bytes * column, abs=1.5)
        assert line.endswith(f"{words.gib(phase.bytes)} GiB")
    assert "·" in lines[2]  # room up to the card
    assert "·" not in lines[1]


def test_bars_are_read_without_colour_and_coloured_where_there_is_one():
    plain = shown(report(), no_color=True, force_terminal=True, color_system=None)
    coloured = shown(report(), force_terminal=True, color_system="truecolor")
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured).split() == plain.split()
    bar = next(line for line in coloured.splitlines() if "Training" in line and "│" in line)
    letters = set(re.findall(r"[A-K]", re.sub(r"\x1b\[[\d;]*m|GiB", "", bar)))
    assert len(set(re.findall(r"38;[\d;]+", bar))) == len(letters) > 5


def test_the_same_resident_has_the_same_letter_and_colour_in_all_phases():
    from steelyard.report.memory_terminal import colours

    one = fit()
    known = words.signs(one.estimate.phases)
    assert len(set(known.values())) == len(known)
    assert known["optimizer states"] == "A"
    assert len(set(colours(one).values())) == len(known)


def test_levers_are_sorted_by_what_they_buy_and_say_cost_option_and_what_is_left():
    text = " ".join(shown(report()).split())
    first = (
        "22.9 GiB: AdamW in 8 bits --optimizer adamw_8bit "
        "brings it to 74.8 of 79.2 GiB, which fits. Costs: states"
    )
    second = (
        "9.10 GiB: chunked log-probabilities --head chunked "
        "brings it to 88.6 of 79.2 GiB, which is still too much."
    )
    assert 0 < text.index(first) < text.index(second) < text.index(words.OTHERS)
    assert "a lower share for vLLM nothing --utilization 0.2" in text
    assert "single optimizer step 2.30 GiB more --step-kernel single" in text
    assert "cheapest that do together: --optimizer adamw_8bit. That is 74.8 GiB, and fits." in text


def test_without_a_lever_that_helps_it_says_so():
    none = replace(fit(), levers=fit().levers[2:])
    assert words.NO_LEVER in shown(report()._replace(fit=none))
    nothing = shown(report()._replace(fit=replace(fit(), levers=())))
    assert "What to change" not in nothing


def test_the_largest_that_fits_stands_beside_what_was_planned():
    text = " ".join(shown(report()).split())
    assert "micro-batch none fits planned: 8 context 4,096 tokens planned: 1,536 model Qwen3-4B" in text


def test_lints_and_speed_and_notes_are_said():
    text = " ".join(shown(report()._replace(notes=("vllm_mode was not set",))).split())
    assert "As planned it will not run, or not as it says: expandable_segments (see below)." in text
    assert (
        "stop, expandable_segments: expandable_segments:True with an engine that sleeps: "
        "it freed 0 of 63.15 GiB. Do: unset PYTORCH_CUDA_ALLOC_CONF." in text
    )
    assert "tokens/s 909 64 sequences" in text
    assert f"{words.NOTES} vllm_mode was not set" in text


def test_a_comparison_has_a_row_for_each_card():
    out = io.StringIO()
    larger = replace(CARD, name="B200 180GB", bytes=178 * GIB)
    console = Console(file=out, width=80, highlight=False, emoji=False)
    print_comparison(console, [report(), report(verdict="fits", card=larger)])
    text = out.getvalue()
    assert max(map(cell_len, text.splitlines())) <= 80
    assert re.search(r"H100 80GB +does not fit +97\.7 +88\.0 to 108 +79\.2 +none", text)
    assert re.search(r"B200 180GB +fits +97\.7 +88\.0 to 108 +178 +12", text)
    assert "$" not in text
    assert "B200 180GB: As planned it will not run, or not as it says: expandable_segments." in (
        " ".join(text.split())
    )


def running(verdict, name, step_s, dollars, **changes):
    made = report(verdict=verdict, card=replace(CARD, name=name), **changes)
    return made._replace(lints=(), step_s=step_s, dollars=dollars)


def compared(*reports, width=80):
    out = io.StringIO()
    print_comparison(Console(file=out, width=width, highlight=False, emoji=False), list(reports))
    assert max(map(cell_len, out.getvalue().splitlines())) <= width
    return out.getvalue()


@pytest.mark.parametrize("width", [80, 60])
def test_a_comparison_names_the_cheapest_card_that_fits_with_its_step_and_dollars(width):
    cheap = running("does not fit", "L4 24GB", 91.0, 0.01)
    dear, best = running("fits", "H100 80GB", 20.0, 0.9), running("tight", "L40S 48GB", 45.0, 0.5)
    text = compared(cheap, dear, best, width=width)
    assert flat("The cheapest that fits: L40S 48GB, $0.50 a step, which is tight.") in flat(text)
    if width == 80:
        assert re.search(r"H100 80GB +fits .* 12 +20\.0 s +\$0\.90", text)
        assert re.search(r"batch +step +\$ a step", text)
    stopped = report(verdict="fits")._replace(dollars=0.1)
    assert words.cheapest([stopped, dear]) == "The cheapest that fits: H100 80GB, $0.90 a step."
    assert words.cheapest([dear._replace(dollars=None), stopped]).startswith("Of none that fits")
    assert not words.cheapest([dear._replace(dollars=None)])


def test_where_no_card_fits_a_comparison_says_so_and_what_would_do():
    small, other = running("does not fit", "L4 24GB", 9.0, 0.1), running("does not fit", "A", 9.0, None)
    text = " ".join(compared(small, other).split())
    assert "None of them fits and runs as planned." in text
    assert "L4 24GB: The cheapest that do together: --optimizer adamw_8bit." in text


def test_one_prompt_is_no_prompts():
    plan = replace(report().fit.estimate.plan, prompts=1)
    assert "1 prompt x 8" in words.ground(plan)


def test_hostile_names_are_spelled_out_in_a_terminal():
    text = shown(report(HOSTILE))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert r"\x1b[31m" in flat(text)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    from steelyard.report.memory_page import write_memory_page

    folder = tmp_path_factory.mktemp("pages")
    larger = replace(CARD, name="B200 180GB", bytes=178 * GIB)
    write_memory_page(folder / "one.html", [report()])
    write_memory_page(folder / "hostile.html", [report(HOSTILE)])
    write_memory_page(folder / "fits.html", [report(verdict="fits", growth=0.1)])
    write_memory_page(folder / "two.html", [report(), report(verdict="fits", card=larger)])
    return folder


class TestPage:
    pytestmark = drawn

    @pytest.mark.parametrize("name", ["one", "hostile", "fits", "two"])
    def test_it_is_drawn_without_a_network_a_complaint_a_scroll_or_a_text_cut_off(
        self, pages, tmp_path, name
    ):
        with launched(tmp_path) as browser:
            page = browser.open(pages / f"{name}.html")
            for width in (1600, 700, 320):
                page.show(width=width)
                page.drawn(width)
                assert page.js("document.documentElement.scrollWidth <= innerWidth"), width
                bars_drawn = "document.querySelectorAll('[data-figure] svg .mark-rect path').length"
                assert page.js(bars_drawn) >= 15
                assert page.js("document.querySelectorAll('figure .keys li').length") % 11 == 0
                assert page.js(CUT_OFF) == [], width
            assert page.js("document.querySelectorAll('img').length") == 0
            assert page.asked_for() == [page.url]
            assert page.complaints() == []

    def test_it_says_what_the_terminal_says(self, pages, tmp_path):
        one = report()
        with launched(tmp_path) as browser:
            page = browser.open(pages / "one.html")
            page.drawn(1600)
            told = flat(page.js("document.body.innerText"))
            for sentence in (
                words.headline(one.fit),
                words.why(one.fit),
                words.ground(one.fit.estimate.plan),
            ):
                assert flat(sentence) in told
            for phase in one.fit.estimate.phases:
                for resident in phase.residents:
                    assert flat(resident.formula) in told
                    assert flat(resident.source) in told
            levers = page.js("[...document.querySelectorAll('.remedies li h3')].map(one => one.innerText)")
            assert levers[:2] == ["AdamW in 8 bits", "Chunked log-probabilities"]

    def test_the_card_s_line_stands_where_the_card_ends(self, pages, tmp_path):
        """A bar of the training phase ends to the right of it, one of the sync to the left."""
        place = (
            "(() => { const right = [...document.querySelectorAll('[data-figure] svg .mark-rect path')]"
            ".map(one => one.getBoundingClientRect()).reduce((most, r) => "
            "({...most, [Math.round(r.top)]: Math.max(most[Math.round(r.top)] ?? 0, r.right)}), {});"
            "const line = document.querySelector('[data-figure] svg .mark-rule.role-mark line')"
            ".getBoundingClientRect(); const rows = Object.keys(right).sort((a, b) => a - b);"
            "return [line.left, ...rows.map(key => right[key])]; })()"
        )
        with launched(tmp_path) as browser:
            page = browser.open(pages / "one.html")
            page.drawn(1600)
            line, generation, training, sync = page.js(place)
            assert sync < line < generation < training

    def test_colours_follow_the_scheme(self, pages, tmp_path):
        colour = "getComputedStyle(document.querySelector('[data-figure] .mark-rect path')).fill"
        with launched(tmp_path) as browser:
            page = browser.open(pages / "one.html")
            page.drawn(1600)
            light = page.js(colour)
            page.show(width=1600, dark=True)
            assert page.js(colour) != light


CUT_OFF = """(() => [...document.querySelectorAll("[data-figure] svg")].flatMap(svg => {
  const edge = svg.getBoundingClientRect();
  return [...svg.querySelectorAll("text")]
    .filter(one => one.textContent.trim() && +getComputedStyle(one).opacity)
    .map(one => [one.textContent, one.getBoundingClientRect()])
    .filter(([, at]) => at.right > edge.right + 1 || at.left < edge.left - 1)
    .map(([text]) => text);
}))()"""


@pytest.mark.needs("report")
def test_the_data_of_the_picture_are_those_of_the_fit():
    import altair as alt

    from steelyard.report.memory_charts import phases

    one = fit()
    drawing = phases(alt, one)
    residents = drawing.data["phases-residents"]
    for phase in one.estimate.phases:
        mine = [row for row in residents if row["phase"] == words.TITLES[phase.name]]
        assert max(row["end"] for row in mine) == pytest.approx(phase.bytes / GIB)
        assert sum(row["end"] - row["start"] for row in mine) == pytest.approx(phase.bytes / GIB)
    assert drawing.data["phases-card"][0]["x"] == pytest.approx(79.2)
    assert json.dumps(drawing.document(), allow_nan=False)
