from __future__ import annotations

import datetime as dt
import math
import time
from collections import Counter, OrderedDict, deque, namedtuple
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.sandbox.guest import codec, frames

HASHABLE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters())
    | st.binary()
    | st.fractions()
    | st.decimals(allow_nan=False, places=3)
    | st.complex_numbers(allow_nan=False)
    | st.datetimes().map(lambda moment: moment.replace(fold=0))
    | st.dates()
    | st.timedeltas()
    | st.builds(range, st.integers(-(2**63), 2**63), st.integers(-(2**63), 2**63), st.integers(1, 9)),
    lambda inner: st.lists(inner, max_size=4).map(tuple) | st.frozensets(inner, max_size=4),
    max_leaves=12,
)
VALUES = st.recursive(
    HASHABLE | st.binary().map(bytearray),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.lists(inner, max_size=5).map(tuple)
        | st.lists(inner, max_size=5).map(deque)
        | st.dictionaries(HASHABLE, inner, max_size=4)
        | st.sets(HASHABLE, max_size=4)
    ),
    max_leaves=15,
)


def typed(value: object) -> object:
    """A value with the types of all that is in it: 1, 1.0 and True are three."""
    kind = type(value).__name__
    if isinstance(value, list | tuple | deque):
        return kind, [typed(item) for item in value]
    if isinstance(value, set | frozenset):
        return kind, sorted(map(repr, map(typed, value)))
    if isinstance(value, dict):
        return kind, [(typed(key), typed(item)) for key, item in value.items()]
    return kind, repr(value)


@given(VALUES)
def test_a_value_arrives_as_it_left_with_all_its_types(value):
    text = codec.encode(value)
    assert text.isascii()
    assert typed(codec.decode(text)) == typed(value)


@given(st.binary() | st.text('[]{}"tsdiqDTnfobR0123456789x-.,: ae').map(str.encode))
def test_whatever_bytes_a_candidate_sends_are_a_value_or_a_value_error(data):
    try:
        codec.decode(data)
    except ValueError:
        return


TREES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=5)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(list("ifcbButszdrqDTQnoRhkx")), inner, max_size=2)
    ),
    max_leaves=12,
)


@given(TREES)
def test_whatever_tags_a_candidate_makes_up_are_a_value_or_a_value_error(tree):
    try:
        codec.decode(codec.dumps(tree))
    except ValueError:
        return


def test_the_text_is_the_contracts():
    said = {
        (1, 2.0, "x"): b'{"t":[1,2.0,"x"]}',
        -(2**53): b'{"i":"-0x20000000000000"}',
        math.inf: b'{"f":"inf"}',
        1e16: b"1e+16",
        Fraction(1, 3): b'{"q":["0x1","0x3"]}',
        Decimal("1.50"): b'{"D":"1.50"}',
        b"x": b'{"b":"eA=="}',
        dt.date(2020, 1, 2): b'{"T":["date","2020-01-02"]}',
        range(3): b'{"r":[0,3,1]}',
    }
    assert {value: codec.encode(value) for value in said} == said
    assert codec.encode({"a": [None]}) == b'{"d":[["a",[null]]]}'
    assert math.isnan(codec.decode(b'{"f":"nan"}'))


class Liar(int):
    def __eq__(self, other):
        return True

    __hash__ = int.__hash__

    def __add__(self, other):
        return 42

    def __index__(self):
        return 42


class Hiding(list):
    def __iter__(self):
        return iter([9])

    def __len__(self):
        return 1


class Colour(IntEnum):
    RED = 1


def test_a_subclass_is_flattened_with_the_methods_of_its_base():
    point = namedtuple("point", "x y")  # noqa: PYI024
    values = [Liar(7), Hiding([1, 2]), Colour.RED, point(1, 2), OrderedDict(a=1), Counter("a"), True]
    got = codec.decode(codec.encode(values))
    assert typed(got) == typed([7, [1, 2], 1, (1, 2), {"a": 1}, {"a": 1}, True])


class Pleasing:
    def __eq__(self, other):
        return True

    __hash__ = None


def test_an_object_is_opaque_and_equals_nothing_itself_included():
    got = codec.decode(codec.encode([Pleasing()]))[0]
    assert codec.encode(Pleasing()) == b'{"o":"Pleasing","h":null}'
    assert got != got  # noqa: PLR0124
    assert got != 9


def test_numpys_scalars_are_plain_and_arrays_keep_shape_and_type():
    np = pytest.importorskip("numpy")
    assert typed(
        codec.decode(codec.encode([np.int64(3), np.float32(0.5), np.bool_(True), np.str_("a")]))
    ) == typed([3, 0.5, True, "a"])
    array = np.arange(6, dtype="int16").reshape(2, 3)
    got = codec.decode(codec.encode(array))
    assert got.dtype == array.dtype
    assert (got == array).all()
    with pytest.raises(ValueError, match=r"no value|no array"):
        codec.decode(b'{"n":["<f9999999",[1],[1.0]]}')


@pytest.mark.parametrize(
    "held",
    [
        ["<U9", [300], ["x" * 1_000_000, *[""] * 299]],
        ["<U9", [1], [7]],
        ["<f8", [10**9], [{"r": [0, 10**9, 1]}]],
        ["<f8", [1], ["1.0"]],
        ["<f8", [2], [{"n": ["<f8", [1], [1.0]]}, {"n": ["<f8", [1], [1.0]]}]],
        ["<c16", [600_000], [0] * 600_000],
    ],
    ids=range(6),
)
def test_an_array_takes_no_more_memory_than_its_text_may(held):
    pytest.importorskip("numpy")
    with pytest.raises(ValueError, match="array"):
        codec.decode(codec.dumps({"n": held}))


def test_what_the_reader_would_refuse_leaves_as_an_opaque_value():
    np = pytest.importorskip("numpy")
    texts = np.broadcast_to(np.array("x" * 1_000_000), 300)
    for value in (texts, range(1 << 65), range(0, 9, 1 << 70), Decimal("1." + "1" * 70_000)):
        assert codec.encode([value]).startswith(b'[{"o":'), type(value)


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


def test_what_is_too_deep_or_too_long_is_opaque_as_a_whole_and_costs_little():
    circle: list[object] = []
    circle.append(circle)
    doubling: list[object] = [1]
    for _ in range(150):
        doubling = [doubling, doubling]
    began = time.process_time()
    for value in (nested(10_000), circle, doubling, "x" * 10_000_000, [0] * 10_000_000, 1 << 100_000_000):
        assert b"too deep or too long" in codec.encode(value, limit=1 << 20)
    assert time.process_time() - began < 5
    assert codec.decode(codec.encode(nested(150))) == nested(150)


PRIME = 2**61 - 1


@pytest.mark.parametrize(
    "text",
    [
        codec.encode({index * PRIME for index in range(300)}),
        codec.encode({index * PRIME: 1 for index in range(300)}),
        codec.encode({(index * PRIME,) for index in range(300)}),
        b"[" * 100_000,
        b"[" + b"[]," * 700_000 + b"[]]",
        b'{"q":["0x1' + b"1" * 100_000 + b'","0x3"]}',
        b'{"D":"1e999999999"}',
        b'{"D":"1.' + b"0" * 70_000 + b'1"}',
        b'{"r":[0,{"i":"0x' + b"f" * 2_000_000 + b'"},{"i":"0x' + b"7" * 1_000_000 + b'"}]}',
        b'{"r":[0,{"i":"0x1ffffffffffffffff"},1]}',
        b'{"r":[0,1]}',
        b'{"s":[[1]]}',
        b'{"R":1}',
        b"NaN",
        b"1 2",
        b'{"t":[1],"s":[2]}',
    ],
    ids=range(16),
)
def test_a_text_that_would_cost_or_mislead_is_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011
        codec.decode(text)


def test_sets_whose_members_collide_level_by_level_are_refused_in_time():
    level: object = {"z": [0, {"i": hex(PRIME)}]}
    other: object = {"z": [{"i": hex(PRIME)}, {"i": hex(2 * PRIME)}]}
    for _ in range(30):
        level, other = {"z": [level, other]}, {"z": [other, level]}
        if len(codec.dumps(level)) > 1_000_000:
            break
    began = time.process_time()
    with pytest.raises(ValueError):  # noqa: PT011
        codec.decode(codec.dumps({"s": [level, other]}))
    assert time.process_time() - began < 5


def test_minus_one_and_minus_two_collide_in_python_and_are_no_attack():
    grid = {(x, y) for x in range(-5, 5) for y in range(-5, 5)} | {frozenset({-1}), frozenset({-2})}
    assert codec.decode(codec.encode(grid)) == grid


@given(st.lists(st.binary(max_size=50), max_size=6), st.integers(1, 9))
def test_frames_arrive_whole_however_they_are_cut(parts, step):
    data = frames.pack(*parts)
    reader = frames.Reader(50)
    got = [frame for at in range(0, len(data), step) for frame in reader.feed(data[at : at + step])]
    assert got == parts == frames.unpack(data)
    assert reader.pending == 0


def test_a_frame_is_refused_by_its_length_before_it_has_arrived():
    with pytest.raises(ValueError, match="at most 10"):
        frames.Reader(10).feed((11).to_bytes(4, "little"))
    with pytest.raises(ValueError, match="cut short"):
        frames.unpack(frames.pack(b"abc")[:-1])
