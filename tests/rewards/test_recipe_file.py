"""A recipe written down is the recipe made in Python, and what is wrong with it is named by its entry."""

import pytest

from steelyard.errors import RefusedError
from steelyard.outcome import Part, Scored, Unscored
from steelyard.rewards import Recipe, builtin, load_recipe, read_recipe
from steelyard.rewards.gates import gate
from steelyard.rewards.shaping import cosine, length_penalty
from steelyard.rollout import Rollout


def test_a_file_says_what_python_says():
    text = """
        [[part]]
        reward = "answer"
        optional = true

        [[part]]
        reward = "format"
        settings = { tags = ["think", "answer"], around = "any" }
        weight = 0.5
        only_if = "answer >= 1"

        [[shape]]
        kind = "length_penalty"
        settings = { unit = "characters", target = 10, limit = 20 }
    """
    same = Recipe(
        (
            Part(builtin("answer"), optional=True),
            Part(builtin("format:think+answer:any"), 0.5, only_if=gate("answer >= 1")),
        ),
        shapes=(length_penalty(10, 20, unit="characters"),),
    )
    recipe = read_recipe(text)
    assert recipe.identity == same.identity
    assert (recipe.weights, recipe.shapes) == (same.weights, same.shapes)


CHANGES = {
    "weight": ("weight = 1", "weight = 2"),
    "gate": ("answer >= 1", "answer >= 0.5"),
    "setting": ("any", "whitespace"),
    "shape": ("target = 10", "target = 11"),
    "optional": ("optional = true", "optional = false"),
    "name": ('name = "form"', 'name = "shape"'),
}
TEXT = """
    [[part]]
    reward = "answer"
    optional = true
    weight = 1
    [[part]]
    reward = "format"
    name = "form"
    settings = { around = "any" }
    only_if = "answer >= 1"
    [[shape]]
    kind = "length_penalty"
    settings = { unit = "words", target = 10, limit = 20 }
"""


@pytest.mark.parametrize("what", CHANGES)
def test_whatever_changes_a_total_changes_the_identity(what):
    assert read_recipe(TEXT).identity != read_recipe(TEXT.replace(*CHANGES[what])).identity
    assert read_recipe(TEXT).identity == read_recipe(TEXT).identity


def test_functions_and_paths_start_at_the_recipes_folder(tmp_path, monkeypatch):
    folder = tmp_path / "recipes"
    folder.mkdir()
    (folder / "mine.py").write_text("def low(completion):\n    return -1.0\n")
    (folder / "recipe.toml").write_text('[[part]]\nreward = "mine.py:low"\nname = "mine"\nfloor = -2\n')
    monkeypatch.chdir(tmp_path)
    (part,) = load_recipe("recipes/recipe.toml").parts
    assert (part.reward.name, part.reward.floor) == ("mine", -2.0)
    assert part.reward.target == "recipes/mine.py:low"


def test_a_shape_that_reads_a_part_names_it():
    text = TEXT[: TEXT.index("    [[shape]]")].replace("only_if", "#")
    text += '[[shape]]\nkind = "cosine"\nsettings = { part = "%s", max_length = 100, unit = "words" }\n'
    recipe = read_recipe(text % "answer")
    row = Rollout(0, "?", "word " * 50, {}, (0, 0), 0, "r:1")
    assert recipe.total(row, {"answer": Scored(1.0), "form": Scored(1.0)}).value == pytest.approx(1.75)
    assert recipe.total(row, {"answer": Scored(0.0, "wrong"), "form": Scored(1.0)}).value == pytest.approx(
        0.25
    )
    with pytest.raises(RefusedError, match="shape 1: there is no part 'anwser'"):
        read_recipe(text % "anwser")


def test_a_shape_that_was_made_for_another_part_is_refused():
    part = Part(builtin("answer"))
    shape = cosine(part, 100, unit="words")
    assert Recipe((part,), shapes=(shape,)).floor == -1.0
    for other in (Part(builtin("answer"), weight=3.0), Part(builtin("choice"))):
        with pytest.raises(RefusedError, match=r"(?s)made for a part 'answer' with weight 1.*own Part"):
            Recipe((other,), shapes=(shape,))


def test_a_row_without_the_count_that_a_shape_reads_is_unscored_where_no_file_was_looked_over():
    text = '[[part]]\nreward = "format"\n[[shape]]\nkind = "length_penalty"\n'
    recipe = read_recipe(text + 'settings = { column = "completion_tokens", target = 3, limit = 5 }')
    row = Rollout(0, "?", "x", {"completion_tokens": 9}, (0, 0), 0, "r:1")
    assert recipe.total(row, {"format": Scored(1.0)}).value == 0.0
    verdict = recipe.total(row._replace(columns={}), {"format": Scored(1.0)})
    assert isinstance(verdict, Unscored)
    assert "completion_tokens" in verdict.cause


WRONG = {
    "not TOML": ("[[part]", "not TOML"),
    "nothing": ("", "it has no part"),
    "another word at the top": ("[parts]\nx = 1", "'parts' means nothing here; did you mean 'part'"),
    "no list of parts": ('part = "math"', "is not a list of tables"),
    "parts that are no tables": ("part = [1]", "it is 1, no table"),
    "no reward": ("[[part]]\nweight = 1", "part 1: it names no reward"),
    "an unknown reward": ('[[part]]\nreward = "anwser"', "part 1.*did you mean 'answer'"),
    "a misspelt word": ('[[part]]\nreward = "answer"\nwieght = 2', "did you mean 'weight'"),
    "a weight that is text": ('[[part]]\nreward = "answer"\nweight = "2"', "weight = '2' is not a number"),
    "a weight that is true": ('[[part]]\nreward = "answer"\nweight = true', "weight = True is not a number"),
    "a flag that is a number": (
        '[[part]]\nreward = "answer"\noptional = 1',
        "optional = 1 is not true or false",
    ),
    "an unknown setting": (
        '[[part]]\nreward = "format"\nsettings = { tag = ["a"] }',
        "part 1: reward format: there is no setting 'tag'; did you mean 'tags'",
    ),
    "a setting of another kind": (
        '[[part]]\nreward = "format"\nsettings = { tags = 3 }',
        "part 1: .*tags = 3",
    ),
    "a setting said twice": (
        '[[part]]\nreward = "gsm8k:flexible"\nsettings = { flexible = false }',
        "flexible is set twice",
    ),
    "settings of a function": ('[[part]]\nreward = "m.py:f"\nsettings = { a = 1 }', "takes no settings"),
    "a gate that cannot be read": ('[[part]]\nreward = "answer"\nonly_if = "format"', "cannot be read"),
    "a gate on nothing": (
        '[[part]]\nreward = "answer"\nonly_if = "format > 0"',
        "'format', which is no part",
    ),
    "a floor of ours": ('[[part]]\nreward = "answer"\nfloor = -1', "floor of a reward of ours is its own"),
    "an empty name": ('[[part]]\nreward = "answer"\nname = " "', "is no name that a gate could read"),
    "a name that no gate could read": ('[[part]]\nreward = "answer"\nname = "a b"', "'a b' is no name"),
    "a setting called name": ('[[part]]\nreward = "gsm8k"\nsettings = { name = "x" }', "no setting 'name'"),
    "a part that is a list": (
        '[[part]]\nreward = "answer"\n[[shape]]\nkind = "cosine"\nsettings = { part = ["answer"] }',
        "there is no part",
    ),
    "two of one name": ('[[part]]\nreward = "answer"\n[[part]]\nreward = "answer"', "named 2 times"),
    "an unknown shape": (
        '[[part]]\nreward = "answer"\n[[shape]]\nkind = "length"',
        "there is no shape 'length'",
    ),
    "a shape without a kind": ('[[part]]\nreward = "answer"\n[[shape]]\n', "it names no kind"),
    "a shape that lacks a setting": (
        '[[part]]\nreward = "answer"\n[[shape]]\nkind = "length_penalty"\nsettings = { target = 3 }',
        "shape 1: length_penalty: the setting limit must be given",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_named_by_its_entry(what):
    text, says = WRONG[what]
    with pytest.raises(RefusedError, match=f"(?s){says}") as refused:
        read_recipe(text, name="mine.toml")
    assert "\n  next: " in str(refused.value)


@pytest.mark.parametrize(("name", "text"), [("absent.toml", None), ("latin.toml", b"# \xe9")])
def test_a_file_that_cannot_be_read_is_refused(name, text, tmp_path):
    if text is not None:
        (tmp_path / name).write_bytes(text)
    with pytest.raises(RefusedError, match=name):
        load_recipe(tmp_path / name)


def test_shapes_bend_the_sum_and_the_floor():
    recipe = read_recipe(TEXT.replace("only_if", "#"))
    long = Rollout(0, "?", "word " * 15, {}, (0, 0), 0, "r:1")
    total = recipe.total(long, {"answer": Scored(1.0), "form": Scored(1.0)})
    assert total.value == 1.0  # half way from target to limit: half of the sum
    assert recipe.floor == 0.0
