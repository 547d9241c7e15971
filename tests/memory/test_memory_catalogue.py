import pytest

from steelyard.errors import RefusedError
from steelyard.memory.catalogue import names, shape_of, size_classes


@pytest.mark.parametrize("name", names())
def test_every_model_of_the_catalogue_is_found_by_its_whole_and_its_short_name(name):
    shape = shape_of(name)
    assert shape.name == name.split("/")[1]
    assert shape_of(shape.name.upper()) == shape
    assert shape.parameters > 1e8
    assert shape.positions is not None


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("qwen3-4b", "Qwen3-4B"),
        (" Qwen/Qwen3-4B ", "Qwen3-4B"),
        ("Llama-3.2-1B-Instruct", "Llama-3.2-1B"),
        ("unsloth/Llama-3.2-1B-Instruct", "Llama-3.2-1B"),
        ("meta-llama/Llama-2-7b-chat-hf", "Llama-2-7b"),
        ("Meta-Llama-3.1-8B-Instruct", "Llama-3.1-8B"),
        ("google/gemma-2-9b-it", "gemma-2-9b"),
        ("google/gemma-3-1b-pt", "gemma-3-1b"),
        ("Mistral-7B-Instruct-v0.3", "Mistral-7B-v0.3"),
        ("mistralai/Mistral-Small-24B-Instruct-2501", "Mistral-Small-24B-2501"),
        ("microsoft/Phi-3-mini-4k-instruct", "Phi-3-mini-4k"),
        ("deepseek-ai/DeepSeek-V3-Base", "DeepSeek-V3"),
        ("Qwen/Qwen2.5-Math-7B-Instruct", "Qwen2.5-Math-7B"),
        ("Qwen/Qwen3-4B-Instruct-2507", "Qwen3-4B-Instruct-2507"),
    ],
)
def test_a_name_may_leave_out_organisation_capitals_and_how_it_was_trained(asked, found):
    assert shape_of(asked).name == found


def test_a_variant_keeps_its_own_context_and_its_own_head():
    assert shape_of("Qwen3-4B").positions == 40_960
    assert shape_of("Qwen3-4B-Instruct-2507").positions == 262_144
    assert shape_of("Qwen2.5-1.5B").tied
    assert not shape_of("DeepSeek-R1-Distill-Qwen-1.5B").tied


@pytest.mark.parametrize("size", size_classes())
def test_a_size_class_is_a_public_dense_model_of_that_size(size):
    shape = shape_of(size.lower())
    assert shape.name.startswith(f"{size} class (")
    assert not shape.routed
    assert shape.parameters / 1e9 == pytest.approx(float(size[:-1]), rel=0.31)


def test_size_classes_go_up():
    counts = [shape_of(size).parameters for size in size_classes()]
    assert counts == sorted(counts)


@pytest.mark.parametrize("asked", ["8.0B", "8 b", "8B"])
def test_a_size_may_be_written_in_other_ways(asked):
    assert shape_of(asked).name == "8B class (Qwen3-8B)"


@pytest.mark.parametrize("asked", ["Qwen/Qwen3-8B-FP8", "Qwen3-8B-AWQ", "qwen4-8b", "", "/", "llama"])
def test_a_name_that_nearly_fits_is_refused_with_the_way_out(asked):
    with pytest.raises(RefusedError) as refused:
        shape_of(asked)
    assert repr(asked) in refused.value.reason
    assert "config.json" in refused.value.remedy


def test_near_names_and_near_sizes_are_told():
    with pytest.raises(RefusedError, match="near are Qwen3-8B"):
        shape_of("Qwen3-8B-FP8")
    with pytest.raises(RefusedError, match="near are 4B, "):
        shape_of("5B")
