"""Log-probabilities of chosen tokens, a chunk at a time: the same numbers, less memory."""

import pytest

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

from steelyard.integrations.logprobs import CHUNK, selective_log_softmax  # noqa: E402

TOKENS, WIDTH, WORDS = 37, 16, 101


def made(dtype, *, bias=False, tokens=TOKENS):
    drawn = torch.Generator().manual_seed(7)
    hidden = torch.randn(tokens, WIDTH, generator=drawn, dtype=torch.float64).to(dtype)
    weight = torch.randn(WORDS, WIDTH, generator=drawn, dtype=torch.float64).to(dtype)
    offset = torch.randn(WORDS, generator=drawn, dtype=torch.float64).to(dtype) if bias else None
    targets = torch.randint(WORDS, (tokens,), generator=drawn)
    leaves = [one.requires_grad_() for one in (hidden, weight, offset) if one is not None]
    return hidden, weight, offset, targets, leaves


def naive(hidden, weight, offset, targets, temperature):
    logits = hidden @ weight.T if offset is None else hidden @ weight.T + offset
    wide = logits if logits.dtype == torch.float64 else logits.float()
    table = torch.log_softmax(wide / temperature, dim=-1)
    return table.gather(-1, targets[:, None]).squeeze(-1), -(table.exp() * table).sum(-1)


def gradients(logps, leaves):
    pull = torch.linspace(-1.0, 2.0, len(logps), dtype=logps.dtype)
    return torch.autograd.grad((logps * pull).sum(), leaves)


def apart(one, other):
    one, other = one.detach().double(), other.detach().double()
    return float((one - other).norm() / other.norm())


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("chunk", [1, 8, TOKENS, 1_000, None])
def test_values_entropies_and_gradients_are_those_of_the_whole_log_softmax(chunk, temperature, bias):
    hidden, weight, offset, targets, leaves = made(torch.float32, bias=bias)
    logps, entropies = selective_log_softmax(
        hidden, weight, targets, bias=offset, temperature=temperature, chunk=chunk, entropy=True
    )
    whole, whole_entropies = naive(hidden, weight, offset, targets, temperature)
    assert apart(logps, whole) <= 1e-6
    assert apart(entropies, whole_entropies) <= 1e-6
    for ours, theirs in zip(gradients(logps, leaves), gradients(whole, leaves), strict=True):
        assert apart(ours, theirs) <= 1e-6


def test_in_bf16_it_is_as_near_to_the_truth_as_the_whole_log_softmax_is():
    hidden, weight, _, targets, leaves = made(torch.bfloat16)
    exact = [one.detach().double().requires_grad_() for one in leaves]
    true = naive(*exact, None, targets, 1.0)[0]
    logps, _ = selective_log_softmax(hidden, weight, targets, chunk=8)
    whole, _ = naive(hidden, weight, None, targets, 1.0)
    assert logps.dtype == torch.float32
    assert apart(logps, true) <= 1.5 * apart(whole, true)
    for ours, theirs, truth in zip(
        gradients(logps, leaves), gradients(whole, leaves), gradients(true, exact), strict=True
    ):
        assert ours.dtype == torch.bfloat16
        assert apart(ours, truth) <= max(1.5 * apart(theirs, truth), 2**-8)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kinds", [(torch.float32, torch.float32), (torch.bfloat16, torch.float32)])
def test_under_autocast_the_backward_is_in_the_forwards_dtype_wherever_it_is_called(kinds, bias):
    _, _, _, targets, leaves = made(torch.float32, bias=bias)
    leaves = [
        leaf.detach().to(kind).requires_grad_()
        for leaf, kind in zip(leaves, [*kinds, torch.float32], strict=False)
    ]
    offset = leaves[2] if bias else None
    narrow = [leaf.detach().bfloat16().requires_grad_() for leaf in leaves]
    with torch.autocast("cpu", torch.bfloat16):
        again, _ = selective_log_softmax(*leaves[:2], targets, bias=offset, chunk=8)
        logps, _ = selective_log_softmax(*leaves[:2], targets, bias=offset, chunk=8)
    with torch.autocast("cpu", torch.float16):
        inside = gradients(again, leaves)
    outside = gradients(logps, leaves)
    told = selective_log_softmax(*narrow[:2], targets, bias=narrow[2] if bias else None, chunk=8)[0]
    assert torch.equal(logps, told)
    for one, other, plain, leaf in zip(inside, outside, gradients(told, narrow), leaves, strict=True):
        assert one.dtype == leaf.dtype
        assert torch.equal(one, other)
        assert torch.equal(one.bfloat16(), plain)


@pytest.mark.parametrize("narrow", [0, 1])
def test_of_two_dtypes_the_wider_one_is_taken(narrow):
    _, _, _, targets, leaves = made(torch.float32)
    leaves[narrow] = leaves[narrow].detach().bfloat16().requires_grad_()
    wide = [leaf.detach().float().requires_grad_() for leaf in leaves]
    logps, _ = selective_log_softmax(*leaves, targets, chunk=8)
    whole, _ = naive(*wide, None, targets, 1.0)
    assert apart(logps, whole) <= 1e-6
    for ours, theirs, leaf in zip(gradients(logps, leaves), gradients(whole, wide), leaves, strict=True):
        assert ours.dtype == leaf.dtype
        assert apart(ours, theirs) <= (1e-6 if leaf.dtype == torch.float32 else 2**-8)


def test_the_gradient_is_the_derivative():
    *_, targets, leaves = made(torch.float64, bias=True, tokens=5)

    def asked(hidden, weight, offset):
        return selective_log_softmax(hidden, weight, targets, bias=offset, temperature=0.9, chunk=2)[0]

    assert torch.autograd.gradcheck(asked, tuple(leaves))


def test_shapes_are_the_targets_and_what_needs_no_gradient_gets_none():
    hidden, weight, _, targets, _ = made(torch.float32, tokens=6)
    frozen = hidden.detach().view(2, 3, WIDTH)
    logps, entropies = selective_log_softmax(frozen, weight, targets.view(2, 3), chunk=4)
    assert logps.shape == (2, 3)
    assert entropies is None
    logps.sum().backward()
    assert frozen.grad is None
    assert weight.grad.shape == weight.shape


def test_no_tokens_are_no_trouble():
    hidden, weight, _, targets, _ = made(torch.float32, tokens=0)
    logps, _ = selective_log_softmax(hidden, weight, targets)
    logps.sum().backward()
    assert logps.shape == (0,)
    assert not weight.grad.any()


class Largest(TorchDispatchMode):
    """Sees every tensor that any operation makes, those of a backward too."""

    elements = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        come = operation(*args, **(kwargs or {}))
        sizes = [one.numel() for one in tree_leaves(come) if isinstance(one, torch.Tensor)]
        self.elements = max([self.elements, *sizes])
        return come


@pytest.mark.parametrize("entropy", [False, True])
def test_no_tensor_ever_holds_the_logits_of_all_tokens(entropy):
    tokens, chunk = 4_000, 50
    hidden, weight, _, targets, leaves = made(torch.float32, tokens=tokens)
    with Largest() as ours:
        gradients(selective_log_softmax(hidden, weight, targets, chunk=chunk, entropy=entropy)[0], leaves)
    with Largest() as whole:
        gradients(naive(hidden, weight, None, targets, 1.0)[0], leaves)
    assert whole.elements == tokens * WORDS
    assert ours.elements == max(tokens * WIDTH, chunk * WORDS)


def test_without_a_word_a_chunk_is_as_many_tokens_as_fit_the_bound():
    hidden, weight = torch.zeros(3, 1, requires_grad=True), torch.zeros(CHUNK // 2, 1)
    with Largest() as seen:
        selective_log_softmax(hidden, weight, torch.zeros(3, dtype=torch.long))
    assert seen.elements == CHUNK


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"targets": torch.zeros(3, dtype=torch.long)}, "do not fit"),
        ({"weight": torch.zeros(WORDS, WIDTH + 1)}, "do not fit"),
        ({"temperature": 0.0}, "must be positive"),
        ({"temperature": float("inf")}, "must be positive"),
        ({"chunk": 0}, "must be positive"),
        ({"bias": torch.zeros(1)}, "does not fit"),
        ({"bias": torch.zeros(WORDS, 1)}, "does not fit"),
    ],
)
def test_what_does_not_fit_is_refused(changed, complaint):
    hidden, weight, _, targets, _ = made(torch.float32)
    with pytest.raises(ValueError, match=complaint):
        selective_log_softmax(**{"hidden": hidden, "weight": weight, "targets": targets, **changed})
