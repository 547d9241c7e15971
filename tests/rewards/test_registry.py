"""Rewards by the names they have on the command line."""

import pytest

from steelyard.errors import RefusedError
from steelyard.outcome import How, Takes
from steelyard.rewards import BUILTIN, FunctionReward, builtin, find


@pytest.mark.parametrize("name", list(BUILTIN))
def test_every_builtin_is_made_by_its_name_and_is_cheap_to_run(name):
    made = find(name)
    assert made.name == name
    assert (made.how, made.takes) == (How.INLINE, Takes.BATCH)
    assert made.floor == 0.0
    assert BUILTIN[name].summary


def test_the_names_that_others_rely_on_are_there():
    assert {"answer", "choice", "format", "gsm8k"} <= set(BUILTIN)


@pytest.mark.parametrize(
    "name", ["gsm8k:flexible", "format:think+answer", "format:think+answer:any", "format::any"]
)
def test_variants_are_named_after_a_colon_and_have_identities_of_their_own(name):
    plain = find(name.partition(":")[0])
    assert find(name).identity != plain.identity
    assert find(name).name.partition(":")[0] == plain.name


def test_variants_listed_for_people_can_be_made():
    for one in BUILTIN.values():
        for variant in filter(None, one.variants.split(" (")[0].split(", ")):
            assert builtin(variant).name.partition(":")[0] == one.name


@pytest.mark.parametrize("name", ["gsm8k:strictest", "answer:x", "choice:x", "format:a b", "format:a:b"])
def test_an_unknown_variant_is_refused_with_what_to_use(name):
    with pytest.raises(RefusedError, match=r"(?s)it has no variant.*next: (use|name)"):
        find(name)


def test_an_unknown_name_is_refused_with_the_nearest_and_all():
    with pytest.raises(
        RefusedError, match=r"(?s)no reward 'gsm8'; did you mean 'gsm8k'.*answer, choice, format, gsm8k"
    ):
        find("gsm8")
    with pytest.raises(RefusedError, match=r"(?s)no reward 'zzz'\n?.*path/to/file.py:function"):
        find("zzz")


def test_a_file_without_a_function_is_refused_with_how_to_name_one():
    with pytest.raises(RefusedError, match=r"path/to/file.py:function"):
        find("rewards.py")
    with pytest.raises(RefusedError, match=r"path/to/file.py:function"):
        find("rewards.py:")


def test_a_users_file_may_have_the_name_of_a_builtin(tmp_path):
    file = tmp_path / "answer.py"
    file.write_text("def judge(completion):\n    return 1.0\n")
    assert isinstance(find(f"{file}:judge"), FunctionReward)
