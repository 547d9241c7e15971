"""`steelyard score --recipe`: several rewards, gates and shapes from a file, as a user runs them."""

import json

import pytest
from as_a_user import steelyard

RECIPE = """
[[part]]
reward = "answer"

[[part]]
reward = "format"
weight = 0.5
only_if = "answer >= 1"

[[part]]
reward = "mine.py:calm"
floor = -1

[[shape]]
kind = "length_penalty"
settings = { unit = "words", target = 5, limit = 9 }
"""
ROWS = [
    ("<reasoning>easy</reasoning><answer>4</answer>", 1.5),
    ("<answer>4</answer>", 1.0),
    ("<answer>5</answer>", 0.0),
    ("<reasoning>easy</reasoning><answer>4</answer>!", 0.0),
    ("<reasoning>" + "so " * 6 + "</reasoning><answer>4</answer>", 0.75),
    ("<reasoning>" + "so " * 20 + "</reasoning><answer>4</answer>", 0.0),
    ("<reasoning>" + "so " * 20 + "</reasoning><answer>5</answer>!", -1.0),
]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "mine.py").write_text(
        "def calm(completion):\n    return -1.0 if '!' in completion else 0.0\n"
    )
    (tmp_path / "recipe.toml").write_text(RECIPE)
    with (tmp_path / "rows.jsonl").open("w") as file:
        for text, _ in ROWS:
            file.write(json.dumps({"prompt": "2 + 2?", "completion": text, "answer": "4"}) + "\n")
    return tmp_path


def score(folder, *words):
    return steelyard("score", "rows.jsonl", "--out", "out.jsonl", "--quiet", *words, cwd=folder)


def scored(folder):
    return [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]


def test_a_recipe_scores_a_file(folder):
    done = score(folder, "--recipe", "recipe.toml")
    assert done.code == 0, done
    rows = scored(folder)
    assert [row["value"] for row in rows] == pytest.approx([value for _, value in ROWS])
    assert rows[2]["parts"]["format"]["verdict"] == "abstained"  # its gate was closed
    assert sum(row["advantage"] for row in rows) == pytest.approx(0.0)


def test_the_same_recipe_goes_on_and_another_one_is_another_run(folder):
    assert score(folder, "--recipe", "recipe.toml").code == 0
    assert score(folder, "--recipe", "recipe.toml").code == 0
    (folder / "recipe.toml").write_text(RECIPE.replace("target = 5", "target = 6"))
    done = score(folder, "--recipe", "recipe.toml")
    assert done.code == 2
    assert "--new-run" in done.err
    assert score(folder, "--recipe", "recipe.toml", "--new-run").code == 0


REFUSED = {
    "both": (("--recipe", "recipe.toml", "--reward", "answer"), "both --reward and --recipe"),
    "neither": ((), "no reward was named"),
    "no file": (("--recipe", "absent.toml"), "there is no such file"),
    "a scheme that sees no shape": (
        ("--recipe", "recipe.toml", "--advantage", "gdpo"),
        "shapes would have no effect",
    ),
    "a setting of schema in a recipe": (("--recipe", "recipe.toml", "--formats"), "a recipe says it itself"),
    "a setting of schema for another": (("--reward", "answer", "--schema-draft", "7"), "for --reward schema"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_question_that_is_none_is_refused_before_anything_is_written(folder, what):
    words, says = REFUSED[what]
    done = score(folder, *words)
    assert done.code == 2
    assert says in done.err
    assert "\n  next: " in done.err
    assert not list(folder.glob("out*"))


def test_a_file_in_which_no_row_has_an_end_state_asks_for_another_reward(folder):
    with (folder / "rows.jsonl").open("w") as file:
        file.write(json.dumps({"prompt": "?", "completion": "x", "expected_state": {"a": 1}}) + "\n")
    done = score(folder, "--reward", "state")
    assert done.code == 2
    assert "the column 'state' is in no row" in done.err
    assert "--column state=FIELD" in done.err


def test_rows_that_differ_in_a_column_that_a_reward_reads_where_it_is_there_are_no_group(folder):
    schema = {"type": "integer"}
    rows = [
        {"prompt": "?", "completion": "3", "schema": schema, "draft": draft} for draft in ("draft4", "draft7")
    ]
    rows += [{"prompt": "?", "completion": "x", "schema": schema, "draft": "draft7"}]
    with (folder / "rows.jsonl").open("w") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    assert score(folder, "--reward", "schema", "--schema-draft", "draft6", "--formats").code == 0
    assert [(row["group"], row["index"], row["value"]) for row in scored(folder)] == [
        (1, 0, 1.0), (2, 0, 1.0), (2, 1, 0.0),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["part", "shape"])
def test_a_count_that_only_a_later_row_of_a_group_lacks_is_found_before_anything_is_judged(folder, kind):
    settings = 'column = "completion_tokens"'
    text = {
        "part": f'[[part]]\nreward = "overlong"\nsettings = {{ max_length = 9, buffer = 2, {settings} }}\n',
        "shape": '[[part]]\nreward = "format"\n[[shape]]\nkind = "length_penalty"\n'
        f"settings = {{ target = 3, limit = 9, {settings} }}\n",
    }[kind]
    (folder / "recipe.toml").write_text(text)
    rows = [{"prompt": "?", "completion": f"{n}", "completion_tokens": n} for n in (3, 8)]
    rows += [{"prompt": "?", "completion": "x", "completion_tokens": wrong} for wrong in ("many", None)]
    with (folder / "rows.jsonl").open("w") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    done = score(folder, "--recipe", "recipe.toml")
    assert done.code == 2
    assert "2 bad rows" in done.err
    assert "rows.jsonl:3" in done.err
    assert "rows.jsonl:4" in done.err
