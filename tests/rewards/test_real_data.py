"""On real completions with labels: no error where the label is certain. The rows stay where they are."""

import json

import pytest

from steelyard.rewards.answers import judge_answer, judge_gsm8k
from steelyard.rewards.choice import committed_letter, judge_choice

pytestmark = pytest.mark.needs("data")

# A policy of ours that differs from the row's label: without a marker strict `gsm8k` pays nothing,
# for a format that costs nothing to leave out would not be learnt. `gsm8k:flexible` agrees.
STRICTER = {"answer/H40"}


def _rows(data_dir, name):
    path = data_dir / f"{name}.jsonl"
    if not path.exists():
        pytest.skip(f"{path} is absent")
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _errors(rows, judge):
    labelled = [row for row in rows if row["known_label"] is not None]
    return [
        row["id"] for row in labelled if (judge(row["completion"], row).value >= 1.0) != row["known_label"]
    ]


@pytest.mark.parametrize("name", ["gsm8k_openai_solutions", "mr_gsm8k_human_solution_labels"])
def test_gsm8k_makes_no_error_on_labelled_solutions(data_dir, name):
    assert _errors(_rows(data_dir, name), judge_gsm8k) == []


def test_flexible_makes_no_error_on_boxed_solutions(data_dir):
    rows = _rows(data_dir, "gsm8k_tora_boxed")
    assert _errors(rows, lambda text, row: judge_gsm8k(text, row, flexible=True)) == []


@pytest.mark.parametrize(("reward", "judge"), [("gsm8k", judge_gsm8k), ("answer", judge_answer)])
def test_every_edge_case_and_every_policy_row_but_the_named_one_is_met(data_dir, reward, judge):
    rows = [row for row in _rows(data_dir, "answers_cases") if row["reward"] == reward]
    assert set(_errors(rows, judge)) <= STRICTER


def test_the_row_that_strict_refuses_is_met_by_flexible(data_dir):
    rows = [row for row in _rows(data_dir, "answers_cases") if row["id"] in STRICTER]
    assert _errors(rows, lambda text, row: judge_gsm8k(text, row, flexible=True)) == []


def test_choice_agrees_with_every_labelled_row(data_dir):
    assert _errors(_rows(data_dir, "mcq_mmlu_pro"), judge_choice) == []


def test_choice_reads_few_letters_in_rows_that_state_none(data_dir):
    # Read by hand: of the rows without a label these five commit in other words, and 4773 closes on a letter.
    read = [row for row in _rows(data_dir, "mcq_mmlu_pro") if row["known_label"] is None]
    said = {row["id"]: committed_letter(row["completion"]) for row in read}
    letters = {id_.rsplit("/", 1)[1]: letter for id_, letter in said.items() if isinstance(letter, str)}
    known = {"4221": "J", "11703": "H", "4773": "D", "7727": "J", "453": "I", "5030": "J"}
    assert {id_: letter for id_, letter in letters.items() if id_ in known or len(read) == 120} == {
        id_: known[id_] for id_ in letters if id_ in known
    }
    assert len(letters) <= len(read) * 0.1
