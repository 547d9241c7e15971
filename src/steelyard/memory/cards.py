"""Cards by name: what a program can have of their memory, and how fast it is read.

Memory is what torch says of an empty card (`total_memory`), which is less than the label: ECC, page tables
and firmware take theirs. Where drivers differ, it is the lowest that was seen. Each `source` begins with how
the figure is known:

| begins with | what was seen in public issues, logs and code |
|---|---|
| `named` | a figure beside the card's name: `_CudaDeviceProperties(name=...)`, an issue about that card |
| `unnamed` | an out-of-memory message ("GPU 0 has a total capacity of ... GiB") that names no card: |
|  | that it is this one's follows from the size alone |
| `as` | the figure of a card with the same memory |

Bandwidth and operations are the vendors' figures: bf16 tensor operations with fp32 accumulation and *without*
sparsity, which is half of what many sheets print largest. No data sheet was opened for this table. `quoted`
figures stand in public tables that quote one; `recalled` ones were written from memory and checked by nobody.

No card reaches its paper bandwidth: `sustained` is what a long read gets, `SUSTAINED_SHARE` of paper unless
the card was measured.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Final, NamedTuple

from steelyard.errors import RefusedError
from steelyard.memory.values import GIB, Card

SUSTAINED_SHARE: Final = 0.87
"""What a long read or copy gets of paper bandwidth. Measured by others: 0.87 H100 SXM
(aigatech/vpbenchmarking, 2,903 of 3,350 GB/s), 0.87 A100 40GB (PTsolvers/gpu-workshop-JuliaCon23#7, 1,355 of
1,555), 0.91 RTX 4090 (krrishnarraj/clpeak#106), 0.83 GH200 (UoB-HPC/BabelStream#194, triad, 3,315 of 4,000).
The middle of 0.83 and 0.91; Apple, AMD and Blackwell are not among them."""

APPLE_SHARE: Final = 0.74
"""Of unified memory, what Metal lets a GPU wire (`recommendedMaxWorkingSetSize`) while `iogpu.wired_limit_mb`
is 0: 11.84 of 16 GiB (AlexsJones/llmfit#754), 17.76 of 24 (sgl-project/sglang#29949), 0.75 of larger ones
(gpustack/gpustack#1375). Logs of llama.cpp on small Macs show two thirds, too: there this is too much."""

SPARK_SUSTAINED: Final = 185e9
"""180 to 192 GB/s were measured of 273 on paper (shared/design/memory.md); its roofline table takes 185."""

_QUOTED: Final = "bandwidth and operations quoted in public tables"
_RECALLED: Final = "bandwidth and operations recalled, not checked against a data sheet"


class _Row(NamedTuple):
    """One card: GB on its label, GiB that torch shows, GB/s, TFLOP/s, how the GiB are known, other names."""

    name: str
    label: int
    gib: float
    gb_s: float
    tflops: float | None
    known: str
    paper: str
    names: tuple[str, ...] = ()
    """Each finds this card, whatever others share its words."""
    words: str = ""
    """What more a device name may say of it: `SXM5 HBM3`."""
    unified: bool = False
    sustained: float | None = None


# fmt: off
_NVIDIA: Final = (
    _Row("T4 16GB", 16, 14.58, 320, 65,
         "named (14,930 to 15,109 MiB); no bf16, so fp16's peak", _QUOTED, ("T4",)),
    _Row("V100 16GB", 16, 15.75, 900, 125,
         "named (16,130 to 16,160 MiB); no bf16, so fp16's peak", _QUOTED, (), "sxm2 pcie"),
    _Row("V100 32GB", 32, 31.73, 900, 125,
         "unnamed (31.73 GiB); no bf16, so fp16's peak", _QUOTED, (), "sxm2 pcie"),
    _Row("L4 24GB", 24, 22.03, 300, 121,
         "unnamed (22.03 to 22.15 GiB)", _QUOTED, ("L4",)),
    _Row("A10G 24GB", 24, 22.05, 600, 70,
         "named (22,587 to 22,723 MiB)", _RECALLED, ("A10G",)),
    _Row("RTX A5000 24GB", 24, 23.54, 768, 111.1,
         "named (24,114 to 24,138 MiB)", _RECALLED, ("RTX A5000",)),
    _Row("RTX 3090 24GB", 24, 23.69, 936, 71,
         "named (24,259 MiB)", _RECALLED, ("RTX 3090",)),
    _Row("RTX 4090 24GB", 24, 23.61, 1008, 165.2,
         "named (23.61 to 23.65 GiB, pinokiofactory/flux-webui#11)", _QUOTED, ("RTX 4090",)),
    _Row("RTX 5090 32GB", 32, 31.36, 1792, 209.5,
         "unnamed (31.36 GiB)", _RECALLED, ("RTX 5090",)),
    _Row("A100 40GB", 40, 39.38, 1555, 312,
         "named (40,326 MiB)", _QUOTED, (), "sxm4 pcie sxm"),
    _Row("A100 80GB", 80, 79.10, 2039, 312,
         "unnamed (79.10 to 79.25 GiB)", _QUOTED, ("A100 80GB",), "sxm4 sxm"),
    _Row("A100 80GB PCIe", 80, 79.10, 1935, 312,
         "unnamed (79.10 to 79.25 GiB)", _QUOTED),
    _Row("RTX A6000 48GB", 48, 47.40, 768, 154.8,
         "named (48,676 MiB), and unnamed down to 47.40 GiB", _QUOTED, ("RTX A6000",)),
    _Row("L40S 48GB", 48, 44.39, 864, 362,
         "named (45,589 MiB), and unnamed down to 44.39 GiB", _QUOTED, ("L40S",)),
    _Row("RTX 6000 Ada 48GB", 48, 47.40, 960, 364.2,
         "named (48,622 MiB), and unnamed down to 47.40 GiB", _RECALLED, ("RTX 6000 Ada",), "generation"),
    _Row("RTX PRO 6000 Blackwell 96GB", 96, 94.96, 1792, 503.8,
         "named (94.97 GiB, antirez/ds4#431), and unnamed 94.96", _RECALLED,
         ("RTX PRO 6000",), "workstation edition max q"),
    _Row("RTX PRO 6000 Blackwell Server 96GB", 96, 94.96, 1597, 503.8,
         "as RTX PRO 6000 Blackwell", _RECALLED, (), "edition"),
    _Row("H100 80GB", 80, 79.11, 3350, 989.4,
         "named (79.11 GiB, vllm-project/vllm#27508; 81,082 MiB)", _QUOTED,
         ("H100", "H100 80GB", "H100 SXM"), "sxm sxm5 hbm3"),
    _Row("H100 80GB PCIe", 80, 79.10, 2039, 756.5,
         "named (81,008 MiB)", _RECALLED, (), "hbm2e"),
    _Row("H100 94GB NVL", 94, 93.00, 3938, 835.5,
         "named (93.00 GiB, ali-vilab/VACE#56)", _RECALLED, ("H100 NVL",)),
    _Row("H800 80GB", 80, 79.11, 3350, 989.4,
         "as H100 80GB", _QUOTED, ("H800",), "sxm sxm5 hbm3"),
    _Row("H20 96GB", 96, 95.00, 4000, 148,
         "named (97,285 MiB)", _QUOTED, ("H20",), "sxm sxm5 hbm3"),
    _Row("H200 141GB", 141, 139.80, 4800, 989.4,
         "named (139.80 GiB)", _QUOTED, ("H200",), "sxm sxm5 hbm3e"),
    _Row("GH200 96GB", 96, 95.00, 4000, 989.4,
         "named (97,280 MiB of `GH200 480GB`, whose 480 are the host's)", _QUOTED, ("GH200",), "480gb hbm3"),
    _Row("B200 180GB", 180, 178.35, 7672, 2250,
         "named (178.35 GiB and 7,680 bits x 3,996 MHz x 2, pytorch/ao#4002)", _QUOTED,
         ("B200",), "192gb sxm sxm6 hbm3e"),
    _Row("B300 288GB", 288, 267.69, 8000, 2250,
         "unnamed (267.69 GiB), beside `268 GB` of a B300 SXM6 AC", _RECALLED,
         ("B300",), "sxm sxm6 ac hbm3e"),
    _Row("GB200 186GB", 186, 184.31, 8000, 2500,
         "named (184.31 GiB)", _RECALLED, ("GB200",), "192gb nvl72"),
    _Row("GB300 288GB", 288, 276.50, 8000, 2500,
         "unnamed (276.50 GiB), on a DGX Station", _RECALLED, ("GB300",), "nvl72"),
    _Row("DGX Spark 128GB", 128, 119.61, 273, 125,
         "named (128,501,256,192 B, leptonai/gpud#1170), and unnamed down to 119.61 GiB, of which the host "
         "takes its own; bf16 as an eighth of 1 PFLOP/s, which is fp4 with sparsity",
         "bandwidth from shared/design/memory.md, operations recalled",
         ("DGX Spark", "Spark", "GB10"), unified=True, sustained=SPARK_SUSTAINED),
)

_AMD: Final = (
    _Row("MI250X 64GB", 64, 63.98, 1638.4, 191.5,
         "named (65,520 MiB): one of its two dies, each a device", _RECALLED,
         ("MI250X", "MI250X/MI250", "MI250"), "mi250 128gb"),
    _Row("MI300X 192GB", 192, 191.69, 5300, 1307.4,
         "named (196,592 MiB), and unnamed down to 191.69 GiB", _QUOTED, ("MI300X",), "oam"),
    _Row("MI325X 256GB", 256, 255.69, 6000, 1307.4,
         "unnamed (255.69 to 255.98 GiB)", _RECALLED, ("MI325X",), "oam"),
    _Row("MI355X 288GB", 288, 287.98, 8000, 2516.6,
         "unnamed (287.98 GiB)", _RECALLED, ("MI355X",), "oam"),
)
# fmt: on

_MACS: Final[dict[str, dict[int, float]]] = {
    "M1 Max": {32: 400, 64: 400},
    "M1 Ultra": {64: 800, 128: 800},
    "M2 Max": {32: 400, 64: 400, 96: 400},
    "M2 Ultra": {64: 800, 128: 800, 192: 800},
    "M3 Max": {36: 300, 48: 400, 64: 400, 96: 300, 128: 400},
    "M3 Ultra": {96: 819, 256: 819, 512: 819},
    "M4 Max": {36: 410, 48: 546, 64: 546, 128: 546},
}
"""GB/s by GB of unified memory, recalled: of M3 Max and M4 Max the chip with fewer GPU cores, which has fewer
channels, is sold with other sizes. There is no M4 Ultra."""

_APPLE: Final = tuple(
    _Row(
        f"{chip} {label}GB",
        label,
        label * APPLE_SHARE,
        gb_s,
        None,
        f"what Metal may wire, {APPLE_SHARE:.0%} of {label} GiB",
        "bandwidth recalled, not checked; no bf16 operations known",
        unified=True,
    )
    for chip, sizes in _MACS.items()
    for label, gb_s in sizes.items()
)

_NOISE: Final = frozenset(
    "nvidia geforce tesla rtx dgx amd instinct radeon apple corporation class gpu mcm".split()  # noqa: SIM905
)
_CLASS: Final = re.compile(r"(\d+)\s*-?\s*gi?b?(?:\W*class)?", re.IGNORECASE)
_SIZED: Final = re.compile(r"(\d+)\s*gi?b\b")


def _card(row: _Row) -> Card:
    measured = SUSTAINED_SHARE * row.gb_s * 1e9 if row.sustained is None else row.sustained
    return Card(
        name=row.name,
        bytes=row.gib * GIB,
        bandwidth=row.gb_s * 1e9,
        sustained=measured,
        flops=None if row.tflops is None else row.tflops * 1e12,
        unified=row.unified,
        cuda=row not in _APPLE,
        source=f"{row.known}; {row.paper}",
    )


_ROWS: Final = {row.name: row for row in (*_NVIDIA, *_AMD, *_APPLE)}
CARDS: Final = {name: _card(row) for name, row in _ROWS.items()}
"""All of them, by name."""


def names() -> tuple[str, ...]:
    """What `card` knows, in the order of vendors and memory.

    Examples
    --------
    >>> [name for name in names() if name.startswith("H100")]
    ['H100 80GB', 'H100 80GB PCIe', 'H100 94GB NVL']
    """
    return tuple(CARDS)


def card(name: str) -> Card:
    """The card of that name: a vendor's, torch's (`torch.cuda.get_device_name`), or a class (`24GB`).

    Parameters
    ----------
    name
        Any words that tell the card from the others; case and vendor do not matter. A class is a card that
        every discrete one with that label surpasses: the least memory, the lowest bandwidth, the fewest
        operations of them.

    Raises
    ------
    RefusedError
        If several cards could be meant, or none is known by it.

    Examples
    --------
    >>> card("NVIDIA H100 80GB HBM3").name, card("a6000").name, card("spark").name
    ('H100 80GB', 'RTX A6000 48GB', 'DGX Spark 128GB')
    >>> f"{card('24GB').bytes / GIB:.2f} GiB, {card('24GB').bandwidth / 1e9:.0f} GB/s"
    '22.03 GiB, 300 GB/s'
    """
    sized = _CLASS.fullmatch(name.strip())
    if sized:
        return _class(int(sized[1]))
    asked = _words(name)
    found = [row for row in _ROWS.values() if asked in (_words(known) for known in (row.name, *row.names))]
    if not found and asked:
        found = [row for row in _ROWS.values() if asked <= _all_words(row)]
    if len(found) == 1:
        return CARDS[found[0].name]
    if found:
        raise RefusedError(
            f"{name!r} could be {_several([row.name for row in found])}",
            where="card",
            remedy="name one of them in full",
        )
    raise RefusedError(
        f"{name!r} is no card known here; near it: {_several(_near(name, asked))}",
        where="card",
        remedy="name one of those, a class such as 24GB, or give the memory itself: --card-gib N",
    )


def plain(
    size: float,
    *,
    bandwidth: float | None = None,
    flops: float | None = None,
    unified: bool = False,
    name: str | None = None,
) -> Card:
    """A card from its numbers, for one that has no name here.

    Parameters
    ----------
    size
        Bytes that a program can have.
    bandwidth
        Bytes per second on paper; `SUSTAINED_SHARE` of it is taken for sustained. None: not known, so that
        memory can be planned, and speeds are refused.
    flops
        Dense bf16 operations per second, on paper.
    unified
        Memory is shared with the host.
    name
        What to call it; its size, if nothing else.

    Raises
    ------
    RefusedError
        If a number is not above 0.

    Examples
    --------
    >>> plain(20 * GIB).name, plain(20 * GIB, bandwidth=500e9).sustained
    ('20 GiB', 435000000000.0)
    """
    for option, value in (("bytes", size), ("bandwidth", bandwidth), ("flops", flops)):
        if value is not None and not 0 < value < float("inf"):
            raise RefusedError(
                f"{option} = {value!r} is not above 0", where="card", remedy="give what the card has"
            )
    return Card(
        name=name or f"{size / GIB:g} GiB",
        bytes=size,
        bandwidth=bandwidth or 0.0,
        sustained=SUSTAINED_SHARE * (bandwidth or 0.0),
        flops=flops,
        unified=unified,
        source="the numbers given",
    )


def _class(label: int) -> Card:
    rows = [row for row in _ROWS.values() if row.label == label and not row.unified]
    if not rows:
        labels = sorted({row.label for row in _ROWS.values() if not row.unified})
        raise RefusedError(
            f"no card here has {label} GB on its label; there are {', '.join(map(str, labels))}",
            where="card",
            remedy=f"give one of them, or the memory itself: --card-gib {label}",
        )
    cards = [CARDS[row.name] for row in rows]
    return Card(
        name=f"{label}GB class",
        bytes=min(one.bytes for one in cards),
        bandwidth=min(one.bandwidth for one in cards),
        sustained=min(one.sustained for one in cards),
        flops=min(one.flops for one in cards if one.flops),
        source=f"the least of {_several([one.name for one in cards])}",
    )


def _words(name: str) -> frozenset[str]:
    """The words that tell a card: `NVIDIA A100-SXM4-80GB` is a100, sxm4, 80gb."""
    sized = _SIZED.sub(r"\1gb", name.lower())
    parted = re.sub(r"\b(rtx|gtx)(?=\w)", r"\1 ", sized)
    return frozenset(re.findall(r"[a-z0-9]+", parted)) - _NOISE


def _all_words(row: _Row) -> frozenset[str]:
    return _words(f"{row.name} {row.words}")


def _near(name: str, asked: frozenset[str]) -> list[str]:
    alike = {row.name: len(asked & _all_words(row)) for row in _ROWS.values()}
    sharing = sorted((known for known, count in alike.items() if count), key=lambda known: -alike[known])
    spelt = {known.lower(): row.name for row in _ROWS.values() for known in (row.name, *row.names)}
    close = [spelt[known] for known in get_close_matches(name.lower(), spelt, n=5, cutoff=0.5)]
    return list(dict.fromkeys([*close, *sharing]))[:5] or ["H100 80GB", "RTX 4090 24GB", "24GB"]


def _several(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
