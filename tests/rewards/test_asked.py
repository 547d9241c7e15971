"""One word says which recipe is meant, for every command that takes one."""

from pathlib import Path

import pytest

from steelyard.errors import RefusedError
from steelyard.rewards.asked import recipe_file_of, recipe_of


def test_names_are_parts_of_equal_weight():
    assert recipe_of("gsm8k:flexible, format,").weights == {"gsm8k:flexible": 1.0, "format": 1.0}
    assert recipe_file_of("gsm8k") is None


def test_a_toml_file_is_read(tmp_path):
    file = tmp_path / "r.toml"
    file.write_text('[[part]]\nreward = "gsm8k"\nweight = 2.0\n')
    assert recipe_of(str(file)).weights == {"gsm8k": 2.0}
    assert recipe_file_of(str(file)) == Path(file)


@pytest.mark.parametrize("text", ["", " , ", "gsm9k", "no/such.toml"])
def test_what_there_is_not_is_refused(text):
    with pytest.raises(RefusedError):
        recipe_of(text)
