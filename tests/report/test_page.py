"""The page in a real browser, which has no network and would say if it were asked for one."""

from dataclasses import replace

import pytest
from browser import launched
from priced import HOSTILE, priced, scored, sparse

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.needs("report")]

FIGURES = ["groups", "histogram", "timeline", "barrier", "survival", "knee"]


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """One page whose every text of a run is hostile, and one of a long run."""
    from steelyard.report.page import write_page

    folder = tmp_path_factory.mktemp("pages")
    write_page(folder / "hostile.html", priced(text=HOSTILE), scored(text=HOSTILE), title=HOSTILE)
    write_page(folder / "long.html", priced(steps=400), scored(groups=200), title="long")
    write_page(folder / "plain.html", priced(), scored(), title="plain")
    run = scored()
    named = [one._replace(id="rollout-" * 14, group="group-" * 14, code="raise/d") for one in run.failing]
    write_page(folder / "ids.html", None, replace(run, failing=named), title="ids")
    write_page(folder / "sparse.html", sparse(), scored(groups=1, graded=False), title="sparse")
    return folder


def lines_of(page, selector):
    return page.js(f"document.querySelectorAll({selector!r}).length")


def test_a_page_of_hostile_texts_is_drawn_without_a_network_a_complaint_or_a_scroll(pages, tmp_path):
    with launched(tmp_path) as browser:
        page = browser.open(pages / "hostile.html")
        for width in (1600, 400, 1600):
            page.show(width=width)
            page.drawn(width)
            assert page.js("document.documentElement.scrollWidth <= innerWidth"), width
            for figure in FIGURES:
                box = f"[data-figure={figure}] svg"
                assert lines_of(page, f"{box} .mark-group path, {box} .mark-rule line") > 3, (figure, width)
                wide = page.js(f"document.querySelector('{box}').getBoundingClientRect().width")
                assert 0.55 * width * (0.5 if width == 1600 else 1) < wide <= width, (figure, width)
        hovered = page.js(
            "(() => { const bar = document.querySelector('[data-figure=timeline] .mark-rect path');"
            "const { left, top, width, height } = bar.getBoundingClientRect();"
            "return [left + width / 2, top + height / 2, scrollY]; })()"
        )
        page.js(f"scrollTo(0, {hovered[1]} - 300)")
        y = hovered[1] - page.js("scrollY")
        page.ask("Input.dispatchMouseEvent", type="mouseMoved", x=hovered[0], y=y)
        page.wait("document.querySelector('#vg-tooltip-element.visible')?.innerText.includes('onerror')")
        assert lines_of(page, "img") == 0
        assert lines_of(page, "script") == 3  # the data, Vega, ours
        assert page.asked_for() == [page.url]
        assert page.complaints() == []


CLASHES = """(() => {
  const found = [];
  for (const svg of document.querySelectorAll("[data-figure] svg")) {
    const edge = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll("text")].filter(
      one => one.textContent.trim() && +getComputedStyle(one).opacity);
    const told = texts.map(one => [one.textContent, one.getBoundingClientRect()]);
    told.forEach(([text, a], place) => {
      if (a.right > edge.right + 1 || a.left < edge.left - 1) found.push("cut off: " + text);
      for (const [other, b] of told.slice(place + 1)) {
        const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (other !== text && across > 1 && down > 3) found.push(`${text} | ${other}`);
      }
    });
  }
  return found;
})()"""


@pytest.mark.parametrize("name", ["plain", "long", "sparse"])
def test_no_text_of_a_picture_is_cut_off_or_lies_on_another(pages, tmp_path, name):
    with launched(tmp_path) as browser:
        page = browser.open(pages / f"{name}.html", width=320)
        for width in (320, 400, 1100):
            page.show(width=width)
            page.drawn(width)
            assert page.js(CLASHES) == [], width
        page.js(
            "document.querySelector('[data-figure=knee] svg .mark-text text').textContent = 'x'.repeat(400)"
        )
        assert any(one.startswith("cut off: xxx") for one in page.js(CLASHES))


def test_a_code_and_seconds_are_not_parted_beside_long_ids(pages, tmp_path):
    lines = (
        "(() => [...document.querySelectorAll('.calls [data-head=code], .calls [data-head=seconds]')]"
        ".filter(one => one.textContent).map(one => {"
        "const text = document.createRange(); text.selectNodeContents(one);"
        "return new Set([...text.getClientRects()].map(rect => rect.top)).size; }))()"
    )
    with launched(tmp_path) as browser:
        page = browser.open(pages / "ids.html", width=1100)
        page.drawn(1100)
        assert set(page.js(lines)) == {1}
        assert page.js("document.documentElement.scrollWidth <= innerWidth")
        narrow = "document.querySelector('.calls [data-head=rollout]').getBoundingClientRect().width"
        page.show(width=320)
        page.drawn(320)
        assert page.js(narrow) > 200


def test_colours_follow_the_scheme_without_drawing_anew_and_paper_is_light(pages, tmp_path):
    colour = "getComputedStyle(document.querySelector('[data-figure=timeline] .mark-rect path')).fill"
    ground = "getComputedStyle(document.body).backgroundColor"
    with launched(tmp_path) as browser:
        page = browser.open(pages / "long.html")
        page.drawn(1600)
        seen = {}
        page.js("document.querySelector('[data-figure=timeline] svg').id = 'first'")
        for dark in (False, True):
            page.show(width=1600, dark=dark)
            seen[dark] = (page.js(colour), page.js(ground))
        page.show(width=1600, dark=True, media="print")
        assert seen[False][0] != seen[True][0]
        assert seen[False][1] == "rgb(246, 247, 249)"
        assert seen[True][1] == "rgb(15, 19, 25)"
        assert page.js(colour) == seen[False][0]
        assert page.js(ground) == "rgb(255, 255, 255)"
        assert page.js("[...document.querySelectorAll('summary')].every(one => !one.offsetParent)")
        paper = page.pdf()
        assert paper.startswith(b"%PDF")
        assert len(paper) > 50_000
        assert lines_of(page, "#first") == 1
        assert page.complaints() == []


def test_a_long_run_stays_below_three_megabytes(pages):
    assert 900_000 < (pages / "long.html").stat().st_size < 3_000_000


def test_each_picture_has_words_and_a_table_for_who_does_not_see_it(pages, tmp_path):
    with launched(tmp_path) as browser:
        page = browser.open(pages / "long.html", width=400)
        page.drawn(400)
        boxes = "[...document.querySelectorAll('[data-figure]')]"
        assert page.js(f"{boxes}.map(box => box.dataset.figure)") == FIGURES
        assert page.js(f"{boxes}.every(box => box.role === 'img' && box.ariaLabel.length > 40)")
        rows = page.js(f"{boxes}.map(box => box.parentElement.querySelectorAll('details tbody tr').length)")
        assert rows[2] == rows[3] == 400
        assert min(rows) > 1
        assert page.js("document.title") == "long"
        assert page.js("document.documentElement.lang") == "en"
        assert page.js("document.documentElement.scrollWidth <= innerWidth")


def test_a_price_without_timeout_cuts_and_busy_time_is_drawn_without_a_complaint(pages, tmp_path):
    with launched(tmp_path) as browser:
        page = browser.open(pages / "sparse.html")
        page.drawn(1600)
        assert page.js("[...document.querySelectorAll('[data-figure] svg')].length") == len(FIGURES)
        assert page.complaints() == []


def test_a_browser_that_is_watched_tells_of_a_network_and_of_a_complaint(tmp_path):
    bad = tmp_path / "bad.html"
    bad.write_text("<!DOCTYPE html><img src='http://steelyard.invalid/x.png'><script>undefined.x</script>")
    with launched(tmp_path) as browser:
        page = browser.open(bad)
        assert "http://steelyard.invalid/x.png" in page.asked_for()
        assert any("TypeError" in one for one in page.complaints())
