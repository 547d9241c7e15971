"""The boundaries of ours by name: how each is made, what it covers, and what not.

A name may carry an argument after a colon, the image of a container: `docker:python:3.12-slim`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from steelyard.errors import RefusedError
from steelyard.sandbox.boundary import Boundary

MODAL_PLACES: Final = 8
"""Sandboxes that are open at once, unless said otherwise: each costs money."""


class Kind(NamedTuple):
    """One kind of boundary.

    Parameters
    ----------
    make
        Makes one, of what stands behind the colon and of how many slots there may be.
    covers, lacks
        What it keeps a candidate from, and what not.
    argument
        What may stand behind the colon; empty if nothing may.
    """

    make: Callable[[str, int | None], Boundary]
    covers: Sequence[str]
    lacks: Sequence[str]
    argument: str = ""


_REMEDIES: Final = {
    "docker": "start Docker's daemon, or set DOCKER_HOST; docker pull IMAGE if it is the image",
    "podman": "see what podman run says by itself; podman pull IMAGE if it is the image",
}


def _bubblewrap(_argument: str, slots: int | None) -> Boundary:
    from steelyard.sandbox.bubblewrap import Bubblewrap  # noqa: PLC0415 - what it needs is only there on Linux

    return Bubblewrap(slots=slots)


def _bundle(program: str) -> Callable[[str, int | None], Boundary]:
    def make(_argument: str, slots: int | None) -> Boundary:
        from steelyard.sandbox.bundle import BundleSite  # noqa: PLC0415
        from steelyard.sandbox.remote import Remote  # noqa: PLC0415

        return Remote(BundleSite(program), slots=slots)

    return make


def _container(program: str) -> Callable[[str, int | None], Boundary]:
    def make(image: str, slots: int | None) -> Boundary:
        from steelyard.sandbox.container import CommandSite, container_command, default_image  # noqa: PLC0415
        from steelyard.sandbox.remote import Remote  # noqa: PLC0415

        words = container_command(program, image or default_image())
        return Remote(CommandSite(words, name=program, remedy=_REMEDIES[program]), slots=slots)

    return make


def _modal(_argument: str, slots: int | None) -> Boundary:
    from steelyard.sandbox.modal import ModalSite  # noqa: PLC0415
    from steelyard.sandbox.remote import Remote  # noqa: PLC0415

    slots = slots or MODAL_PLACES
    return Remote(ModalSite(), slots=slots, usual=slots)


_LIMITS: Final = "CPU, memory, processes, files and output: each has its limit"
_CALLS: Final = "system calls: those on a list; no capabilities, no other user's rights"
_SIDE: Final = "side channels, and how fast the host's disks and caches are for others"
_KERNEL: Final = (
    "the kernel, which is the host's, with its faults (gVisor or a virtual machine stand before it)"
)
_STARVED: Final = "a machine that starves it: from inside nobody can tell, so such an end stays suspect"
_LOST: Final = "its runner, which shares the container: a line that is lost while it runs is suspect"

_WRAPPED: Final = (
    "files: it sees the system and Python, read-only, and a folder of its own that goes with it",
    "the network: there is none",
    "processes: it sees its own, and none outlives its verdict",
    _CALLS,
    _LIMITS,
)
_CONTAINED: Final = (
    "files: it sees the image, writes nothing there that stays, and folders that are cleared after it",
    "the network: there is none",
    "processes: none outlives its verdict",
    _CALLS,
    _LIMITS,
)
_SEEN: Final = "how many files it makes; names of the container's other processes in /proc"

KINDS: Final[Mapping[str, Kind]] = {
    "bubblewrap": Kind(
        _bubblewrap,
        _WRAPPED,
        (_KERNEL, _SIDE),
    ),
    "runc": Kind(
        _bundle("runc"),
        _WRAPPED,
        (_KERNEL, _SIDE, _STARVED, _LOST),
    ),
    "gvisor": Kind(
        _bundle("runsc"),
        (
            "the kernel: it talks to gVisor's, which asks little of the host's",
            "files: it sees the system and Python, read-only, and folders that are cleared after it",
            "the network: there is none",
            "processes: none outlives its verdict",
            _CALLS,
            _LIMITS,
        ),
        (
            _SIDE,
            _STARVED,
            _LOST,
            "memory: each process has the limit, and the whole is ended beyond, with its runner",
            _SEEN,
        ),
    ),
    "docker": Kind(_container("docker"), _CONTAINED, (_KERNEL, _SIDE, _STARVED, _LOST, _SEEN), "IMAGE"),
    "podman": Kind(_container("podman"), _CONTAINED, (_KERNEL, _SIDE, _STARVED, _LOST, _SEEN), "IMAGE"),
    "modal": Kind(
        _modal,
        (
            "the kernel: it runs on gVisor, on a machine of Modal's",
            "files: it sees the image, and folders that are cleared after it",
            "the network: Modal blocks it, in and out",
            "processes: none outlives its verdict",
            _CALLS,
            _LIMITS,
        ),
        (
            _LOST,
            "the way there: what is lost on it while a program runs is suspect, and tried again",
            "memory: each process has the limit, and the whole is ended beyond, with its runner",
            "what Modal itself can see, and what an hour costs",
        ),
    ),
}
"""The kinds, the quickest first."""


def boundary_of(named: Boundary | str, *, slots: int | None = None) -> Boundary:
    """Take a boundary, or make the one of that name.

    Parameters
    ----------
    named
        A boundary; or a name, with an argument after a colon where its kind takes one.
    slots
        How many slots there may be.

    Raises
    ------
    RefusedError
        If there is none of that name, or what it needs is not there.
    """
    if not isinstance(named, str):
        return named
    name, colon, argument = named.partition(":")
    kind = KINDS.get(name)
    if kind is None or (colon and not (kind.argument and argument)):
        raise RefusedError(
            f"there is no boundary {named!r}",
            where="boundary",
            remedy=f"one of {', '.join(_forms())} (steelyard doctor says which hold here)",
        )
    return kind.make(argument, slots)


def _forms() -> list[str]:
    return [f"{name}[:{kind.argument}]" if kind.argument else name for name, kind in KINDS.items()]
