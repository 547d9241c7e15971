import pytest

from steelyard.errors import RefusedError
from steelyard.memory.cards import APPLE_SHARE, CARDS, SUSTAINED_SHARE, card, names, plain
from steelyard.memory.values import GIB


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("H100", "H100 80GB"),
        ("h100-80gb", "H100 80GB"),
        ("NVIDIA H100 80GB HBM3", "H100 80GB"),
        ("NVIDIA H100 PCIe", "H100 80GB PCIe"),
        ("NVIDIA H100 NVL", "H100 94GB NVL"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB"),
        ("NVIDIA A100 80GB PCIe", "A100 80GB PCIe"),
        ("NVIDIA A100-PCIE-40GB", "A100 40GB"),
        ("A6000", "RTX A6000 48GB"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada 48GB"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000 Blackwell Server 96GB"),
        ("rtx4090", "RTX 4090 24GB"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090 24GB"),
        ("Tesla V100-SXM2-16GB", "V100 16GB"),
        ("NVIDIA GH200 480GB", "GH200 96GB"),
        ("AMD Instinct MI250X/MI250", "MI250X 64GB"),
        ("NVIDIA GB10", "DGX Spark 128GB"),
        ("spark", "DGX Spark 128GB"),
        ("Apple M4 Max 128 GB", "M4 Max 128GB"),
    ],
)
def test_a_card_is_found_by_what_vendors_torch_and_people_call_it(said, meant):
    assert card(said).name == meant


@pytest.mark.parametrize("name", names())
def test_every_card_is_found_by_its_own_name_and_says_where_its_figures_are_from(name):
    found = card(name)
    assert found is CARDS[name]
    assert found.source.startswith(("named", "unnamed", "as ", "what Metal"))
    assert "quoted" in found.source or "recalled" in found.source
    assert 0 < found.sustained < found.bandwidth


@pytest.mark.parametrize("name", names())
def test_no_card_has_more_memory_than_its_label(name):
    label = next(int(word[:-2]) for word in name.split() if word.endswith("GB"))
    assert 0.7 * label * GIB < CARDS[name].bytes <= label * GIB


@pytest.mark.parametrize(
    ("said", "one_of"), [("A100", "A100 80GB PCIe"), ("V100", "V100 32GB"), ("M4 Max", "M4 Max 48GB")]
)
def test_an_ambiguous_name_is_refused_with_what_it_could_be(said, one_of):
    with pytest.raises(RefusedError, match=f"could be .*{one_of}"):
        card(said)


@pytest.mark.parametrize(("said", "near"), [("RTX 3090 Ti", "RTX 3090 24GB"), ("H1000", "H100 80GB")])
def test_an_unknown_name_is_refused_with_near_ones_and_the_way_out(said, near):
    with pytest.raises(RefusedError, match=f"near it: .*{near}") as refused:
        card(said)
    assert "--card-gib" in str(refused.value)


@pytest.mark.parametrize("said", ["", "RTX", "?"])
def test_a_name_that_tells_nothing_is_refused(said):
    with pytest.raises(RefusedError, match="no card known"):
        card(said)


@pytest.mark.parametrize("said", ["24GB", "24 gb", "24 GB class", "24GiB"])
def test_every_card_of_a_class_surpasses_the_class(said):
    least = card(said)
    members = [one for name, one in CARDS.items() if name.endswith(" 24GB") and not one.unified]
    assert len(members) >= 5
    for one in members:
        assert one.bytes >= least.bytes
        assert one.sustained >= least.sustained
        assert one.flops >= least.flops


def test_a_class_that_no_label_has_is_refused():
    with pytest.raises(RefusedError, match="there are 16, 24, 32"):
        card("17GB")


def test_the_spark_is_unified_and_reads_what_was_measured_of_it():
    spark = card("spark")
    assert spark.unified
    assert 180e9 <= spark.sustained <= 192e9
    assert spark.bandwidth == 273e9


def test_a_mac_gives_its_gpu_a_share_and_has_no_known_operations():
    mac = card("M3 Ultra 512GB")
    assert mac.unified
    assert mac.bytes == 512 * APPLE_SHARE * GIB
    assert mac.flops is None


def test_a_plain_card_is_what_it_is_told():
    told = plain(20 * GIB, bandwidth=500e9, flops=100e12, name="mine")
    assert (told.name, told.bytes, told.sustained) == ("mine", 20 * GIB, SUSTAINED_SHARE * 500e9)
    assert plain(20 * GIB).sustained == 0


@pytest.mark.parametrize("wrong", [{"size": 0}, {"size": float("nan")}, {"size": 1, "bandwidth": -1}])
def test_a_plain_card_of_nothing_is_refused(wrong):
    with pytest.raises(RefusedError, match="not above 0"):
        plain(**wrong)
