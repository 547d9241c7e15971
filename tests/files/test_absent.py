"""What a recipe reads and no row has is named at once, before anything is judged."""

from types import SimpleNamespace

from steelyard.files import Survey
from steelyard.files.absent import absent

STATE = SimpleNamespace(needed=["answer"], fields=["state"])


def lacking(*fields, **names):
    found = absent(Survey("rows.jsonl", names, fields=set(fields)), STATE)
    return None if found is None else found.columns


def test_everything_that_is_lacking_is_named_by_our_words_and_told_by_the_files():
    found = absent(Survey("rows.jsonl", {"answer": "gold"}, fields={"prompt", "b", "a"}), STATE)
    assert found.columns == ("completion", "answer", "state")
    assert found.reason == "the columns 'completion', 'gold', 'state' are in no row; there are a, b, prompt"


def test_what_has_another_name_in_the_file_is_there():
    assert lacking("prompt", "completion", "gold", "end", answer="gold", state="end") is None
    assert lacking("prompt", "completion", "answer", "state", answer="gold") == ("answer",)


def test_rows_that_name_their_group_need_no_prompt():
    assert lacking("completion", "answer", "state") == ("prompt",)
    assert lacking("g", "completion", "answer", "state", group="g") is None


def test_a_file_without_a_row_lacks_nothing():
    assert lacking() is None
