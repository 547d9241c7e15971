"""A step without a GPU: real operators on fake tensors, and every storage's birth and death written down.

Under torch's `FakeTensorMode` an operator works out shapes and allocates nothing, so a model of any size
takes a step in seconds. A dispatch mode sees each operator's results, and weak references tell when a storage
dies. The log is replayed afterwards: the peak is the most that lived at a time, and what lived then is told
by kind, with what a storage became known as later (a gradient, a state of the optimizer).

It counts as `torch.cuda.max_memory_allocated` does: live tensors, each rounded up to 512 bytes
(`c10/cuda/CUDACachingAllocator.cpp`, kMinBlockSize). What operators allocate inside and give back is seen
only where it is known: flash attention's backward, cuBLAS's workspace. It knows nothing of reserved memory.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.optim import adam
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import masking_utils

from steelyard.integrations.allocation.attention import ATEN, attention_of_cuda, flash_workspace
from steelyard.integrations.allocation.training import prepared, run
from steelyard.memory.plan import Plan

LABEL: Final = "tracked without a GPU: real operators, no real memory"
BLOCK: Final = 512
"""Bytes that every allocation is a multiple of."""
CUBLAS: Final = 8_519_680
"""Bytes of cuBLAS's workspace: 2 x 4 MiB + 8 x 16 KiB up to Ampere; Hopper's is 32 MiB
(`aten/src/ATen/cuda/CublasHandlePool.cpp`, parseChosenWorkspaceSize)."""
OTHERS: Final = "activations and others"
_BACKWARD: Final = ATEN._scaled_dot_product_flash_attention_backward.default  # noqa: SLF001 - no public names


@dataclass(slots=True)
class Storage:
    """Bytes of one, what it is, and the phase it was born in."""

    bytes: int
    kind: str
    phase: str


@dataclass(frozen=True, slots=True)
class Tracked:
    """The most that lived at a time: bytes, the phase, and bytes by kind; the most of each phase, too."""

    bytes: int
    phase: str
    residents: Mapping[str, int]
    phases: Mapping[str, int]


class Ledger(TorchDispatchMode):  # type: ignore[misc]  # torch's types are not read
    """Writes down storages while it is entered.

    Parameters
    ----------
    words
        Entries of the vocabulary: a tensor that ends in so many is logits.
    """

    def __init__(self, words: int | None = None) -> None:
        super().__init__()
        self._words = words
        self._phase = "build"
        self._storages: list[Storage] = []
        self._events: list[tuple[int, int, str]] = []
        self._living: dict[int, tuple[int, weakref.ref[Any]]] = {}

    def phase(self, name: str) -> None:
        """A phase begins."""
        self._phase = name

    def name(self, tensor: Tensor, kind: str) -> None:
        """Say what a tensor is, now or before."""
        if (number := self._see(tensor)) is not None:
            self._storages[number].kind = kind

    def passing(self, size: int, kind: str) -> None:
        """Something is allocated and given back at once."""
        number = self._born(size, kind)
        self._events.append((number, -self._storages[number].bytes, self._phase))

    def lasting(self, size: int, kind: str) -> None:
        """Something is allocated that no tensor shows, and stays."""
        self._born(size, kind)

    def tracked(self) -> Tracked:
        """Replay what was written down."""
        now, peak, last = 0, 0, 0
        phases: dict[str, int] = {}
        for place, (_, size, phase) in enumerate(self._events, 1):
            now += size
            phases[phase] = max(now, phases.get(phase, 0))
            if now > peak:
                peak, last = now, place
        alive: Counter[int] = Counter()
        for number, size, _ in self._events[:last]:
            alive[number] += size
        kinds: Counter[str] = Counter()
        for number, size in alive.items():
            kinds[self._storages[number].kind] += size
        at = self._events[last - 1][2] if last else "build"
        return Tracked(peak, at, {kind: size for kind, size in kinds.most_common() if size}, phases)

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 - torch gives it no type of use
        types: Any,  # noqa: ANN401 - torch's own signature
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        said = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(said):
            if isinstance(tensor, Tensor):
                self._see(tensor)
        if func is _BACKWARD:
            self.passing(flash_workspace(args[1], args[2]), "workspace")
        return said

    def _see(self, tensor: Tensor) -> int | None:
        storage = tensor.untyped_storage()
        key = id(storage)
        if key in self._living:
            return self._living[key][0]
        if not storage.nbytes():
            return None
        logits = self._words is not None and tensor.dim() > 1 and tensor.shape[-1] == self._words
        number = self._born(storage.nbytes(), "logits" if logits else OTHERS)
        self._living[key] = (number, weakref.ref(storage, lambda _: self._died(key, number)))
        return number

    def _born(self, size: int, kind: str) -> int:
        number = len(self._storages)
        self._storages.append(Storage(-(-size // BLOCK) * BLOCK, kind, self._phase))
        self._events.append((number, self._storages[number].bytes, self._phase))
        return number

    def _died(self, key: int, number: int) -> None:
        if self._living.get(key, (None,))[0] == number:
            del self._living[key]
        self._events.append((number, -self._storages[number].bytes, self._phase))


def track(config: Mapping[str, Any], plan: Plan) -> Tracked:
    """Take a plan's step on fake tensors.

    Parameters
    ----------
    config
        The parsed `config.json`.
    plan
        Of one GPU; `asked.not_run` says nothing against it.
    """
    attention = "eager" if plan.attention == "eager" else "sdpa"
    ledger = Ledger(plan.model.vocabulary)
    with ExitStack() as stack:
        for mode in (FakeTensorMode(), _values_of_no_tensor(), attention_of_cuda()):
            stack.enter_context(mode)
        trainee = prepared(config, plan, device="cpu", attention=attention)
        stack.enter_context(ledger)
        ledger.lasting(CUBLAS, "workspace")
        for tensor in trainee.model.buffers():
            ledger.name(tensor, "buffers")
        for parameter in trainee.model.parameters():
            ledger.name(parameter, "weights")
        for parameter in trainee.parameters:
            parameter.register_post_accumulate_grad_hook(lambda p: ledger.name(p.grad, "gradients"))
        run(trainee, plan, ledger.phase)
        states = trainee.optimizer.state.values() if trainee.optimizer else ()
        for tensor in tree_leaves([dict(state) for state in states]):
            if isinstance(tensor, Tensor):
                ledger.name(tensor, "optimizer states")
        return ledger.tracked()


@contextmanager
def _values_of_no_tensor() -> Iterator[None]:
    """Answer for values that fake tensors have not: whether sequences are packed, and which step it is.

    A model asks whether positions start anew within a row, and would build a mask of all tokens if it
    could not know. They do not; on a GPU it finds that out. AdamW reads its count of steps.
    """
    answers: tuple[tuple[Any, str, Any], ...] = (
        (masking_utils, "find_packed_sequence_indices", lambda position_ids: None),  # noqa: ARG005
        (masking_utils, "is_tracing", lambda tensor=None: False),  # noqa: ARG005
        (adam, "_get_value", lambda value: 1.0),  # noqa: ARG005
    )
    usual = [(module, name, getattr(module, name)) for module, name, _ in answers]
    for module, name, answer in answers:
        setattr(module, name, answer)
    try:
        yield
    finally:
        for module, name, answer in usual:
            setattr(module, name, answer)
