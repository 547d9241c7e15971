"""What stands in the file: nothing that loads, nothing that runs but what its policy names."""

import json
import re
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser

import pytest
from priced import HOSTILE, bare, priced, scored

from steelyard.errors import RefusedError
from steelyard.pricing.values import Curve, Estimate
from steelyard.report import curve_charts, figures, page, reward_charts, step_charts, words
from steelyard.report.page import write_page

report = pytest.mark.needs("report")


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """A word in place of Vega, which is a megabyte; the browser's tests have it."""
    monkeypatch.setattr(page, "_vega", lambda where: "vega")


class Read(HTMLParser):
    """Tags with their attributes, scripts and texts as a browser has them."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self.said = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        within = self.tags[-1] if self.tags else ("", {})
        if within[0] == "script" and "type" not in within[1]:
            self.scripts.append(data)
        self.said.append(data)


def written(folder, price, run, title="a page"):
    path = folder / "page.html"
    write_page(path, price, run, title=title)
    return path.read_text(encoding="utf-8")


@report
def test_hostile_texts_make_no_tag_and_only_scripts_named_by_their_digest_may_run(tmp_path):
    plain = Read(written(tmp_path, priced(), scored()))
    text = written(tmp_path, priced(text=HOSTILE), scored(text=HOSTILE), HOSTILE)
    read = Read(text)
    assert [tag for tag, _ in read.tags] == [tag for tag, _ in plain.tags]
    policy = next(attrs["content"] for _, attrs in read.tags if "http-equiv" in attrs)
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    digests = [
        f"'sha256-{b64encode(sha256(one.encode()).digest()).decode()}'" for one in read.scripts if one.strip()
    ]
    assert re.findall(r"'sha256-[^']+'", policy) == digests
    assert len(digests) == 2
    assert "\x1b" not in text
    assert "\u202e" not in text
    for _, attrs in read.tags:
        assert not [name for name in attrs if name.startswith("on")]
        assert attrs.get("href", "#").startswith(("#", "data:"))
        assert "src" not in attrs


@report
def test_everything_that_a_price_says_is_on_the_page(tmp_path):
    price, run = priced(), scored()
    said = " ".join(" ".join(Read(written(tmp_path, price, run)).said).split())
    for doubt in price.doubts:
        assert doubt.says in said
        assert doubt.remedy in said
    for remedy in price.remedies:
        assert remedy.title in said
        assert remedy.costs in said
        assert (remedy.refused or "") in said
    assert all(note in said for note in (*price.says, *price.notes))
    assert words.why(price) in said
    assert all(one.says in said for one in price.suspicions)
    assert all(call.reason in said for call in run.failing)
    assert f"{run.zero_variance} of the groups teach nothing" in said


@report
def test_remedies_that_gain_nothing_are_folded_away(tmp_path):
    text = written(tmp_path, priced(), None)
    before, _, after = text.partition('<details class="others"><summary>')
    folded = after.partition("</details>")[0]
    for remedy in priced().remedies:
        noticed = remedy.name in {"timeout", "tail", "groups"}
        assert (f"<h3>{remedy.title[:12]}" in before) is noticed
        assert (f"<h3>{remedy.title[:12]}" in folded) is not noticed


@report
def test_a_step_of_which_no_call_was_seen_has_no_point_and_no_row(tmp_path):
    price = priced()
    unseen = [line._replace(slowest_s=None) for line in price.by_step[:5]]
    altair, _ = figures.drawing("a page")
    (drawn,) = step_charts.barrier(altair, replace(price, by_step=[*unseen, *price.by_step[5:]]))
    assert len(drawn.data["steps"]) == len(drawn.rows) == len(price.by_step) - 5
    assert drawn.rows[0][0] == price.by_step[5].label
    assert not [*step_charts.barrier(altair, replace(price, by_step=unseen))]
    assert "data-figure" in written(tmp_path, replace(price, by_step=unseen), None)


@report
def test_the_curve_of_rates_says_that_it_is_a_model_and_what_was_measured_stands_beside_it():
    altair, _ = figures.drawing("a page")

    def drawn(**changed):
        (one,) = curve_charts.knee(altair, replace(priced(), **changed))
        return one

    def title(one):
        return json.dumps(one.wide)

    correlated = drawn()
    assert correlated.data["here"][0]["label"] == "here and now: 0.94 %"
    assert correlated.data["measured"][0]["label"] == "measured: 42.2 s"
    assert correlated.data["measured"][0]["y"] == pytest.approx(priced().step.value, rel=1e-5)
    assert "expected step if calls were as correlated as measured, no queues, seconds" in title(correlated)
    alone = drawn(correlation=Estimate(0.004, "correlation"), busy=None, step=None, wait=Estimate(2.8, "s"))
    assert alone.data["measured"][0]["label"] == "measured: 2.80 s"
    assert "expected wait if calls were independent, no queues, seconds" in title(alone)
    assert alone.heads[1] == "a step waits"
    assert not drawn(measured=False).data["measured"]
    small = drawn(
        step=Estimate(0.054, "s"), busy=Estimate(0.027, "s"), knee_curve=Curve([1e-4, 0.1], [0.04, 0.07])
    )
    assert [one["y"] for one in small.data["curve"]] == [40.0, 70.0]
    assert "no queues, milliseconds" in title(small)


@report
def test_pictures_of_microseconds_have_points_that_differ():
    altair, _ = figures.drawing("a page")
    price = priced()

    def shrunk(estimate):
        return estimate._replace(value=estimate.value * 1e-6)

    small = replace(
        price,
        **{name: shrunk(getattr(price, name)) for name in ("busy", "observed", "independent", "correlated")},
        limit_s=3e-5,
        survival=price.survival._replace(
            x=[at * 1e-6 for at in price.survival.x], marks=[at * 1e-6 for at in price.survival.marks]
        ),
        by_step=[
            one._replace(
                generation_s=one.generation_s * 1e-6,
                training_s=one.training_s * 1e-6,
                wait_s=one.wait_s * 1e-6,
                slowest_s=one.slowest_s * 1e-6,
            )
            for one in price.by_step
        ],
    )
    for draw, name, key in (
        (step_charts.timeline, "phases", "y"),
        (step_charts.barrier, "steps", "y"),
        (curve_charts.survival, "curve", "x"),
    ):
        (told,), (expected,) = draw(altair, small), draw(altair, price)
        values = [one[key] for one in expected.data[name]]
        assert [one[key] for one in told.data[name]] == pytest.approx(values, rel=1e-4)
        assert len({round(value, 3) for value in values}) > 10
        assert "microseconds" in json.dumps(told.wide)


@report
def test_next_to_no_correlation_is_the_independent_line_alone():
    altair, _ = figures.drawing("a page")

    def seen(**changed):
        price = replace(priced(), **changed)
        (drawn,) = step_charts.barrier(altair, price)
        rows = {row.name for section in words.sections(price) for row in section.rows}
        assert ("correlated" in drawn.data) is ("as correlated" in rows)
        return "correlated" in drawn.data

    assert seen()
    assert not seen(correlation=Estimate(0.0049, "correlation"))
    assert not seen(correlation=None, correlated=Estimate(10.01, "s"), independent=Estimate(10.0, "s"))
    assert seen(correlation=None, correlated=Estimate(9.0, "s"), independent=Estimate(10.0, "s"))


@report
def test_the_words_above_the_groups_count_all_of_them(tmp_path):
    altair, _ = figures.drawing("a page")
    run = replace(scored(groups=200), groups=50_000, all_wrong=22_010, all_right=5_611, all_equal=0)
    drawn = next(reward_charts.groups(altair, run))
    assert [one["label"] for one in drawn.data["spans"]] == ["all wrong: 22,010", "all right: 5,611"]
    assert "200 of the 50,000 groups are shown; the numbers above them count all." in drawn.says
    shown = sum(line.zero_variance for line in run.by_group)
    assert f"Which groups ({shown} of 27,621 shown)" in written(tmp_path, None, run)
    whole = scored(groups=200)
    assert f"Which groups ({whole.zero_variance})" in written(tmp_path, None, whole)


@report
def test_a_price_of_which_little_is_known_is_a_page_without_a_script(tmp_path):
    text = written(tmp_path, bare(), None)
    assert "A step waits" in text
    assert "script-src 'none'" in text
    assert "<h2" in text
    assert "None" not in re.sub(r"'none'", "", text)
    assert "nan" not in re.findall(r"[a-z]+", text)


@report
@pytest.mark.parametrize("graded", [True, False])
def test_a_run_of_one_group_and_a_run_of_equal_rewards_are_drawn(tmp_path, graded):
    assert "data-figure" in written(tmp_path, None, scored(groups=1, graded=graded))


def test_without_altair_the_page_is_refused_and_says_what_to_install(tmp_path, monkeypatch):
    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr(figures, "import_module", absent)
    with pytest.raises(RefusedError, match=r"pip install 'steelyard\[report\]'"):
        write_page(tmp_path / "page.html", bare(), None, title="a page")
    assert list(tmp_path.iterdir()) == []


def test_a_page_of_nothing_is_refused(tmp_path):
    with pytest.raises(RefusedError, match="neither"):
        write_page(tmp_path / "page.html", None, None, title="a page")


@report
def test_a_file_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(RefusedError, match=r"absent.page\.html"):
        write_page(tmp_path / "absent" / "page.html", bare(), None, title="a page")
