"""The step is a real one, and what it keeps is written down as real tensors keep it."""

import csv
import gc
import json
import subprocess
import sys
from dataclasses import asdict, replace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from torch.nn import functional  # noqa: E402

from steelyard.errors import RefusedError  # noqa: E402
from steelyard.integrations.allocation import gpu, meta, selective, tracked, training  # noqa: E402
from steelyard.integrations.allocation.answer import answered  # noqa: E402
from steelyard.integrations.allocation.asked import Asked  # noqa: E402
from steelyard.integrations.allocation.attention import attention_of_cuda  # noqa: E402
from steelyard.memory.families import read_config  # noqa: E402
from steelyard.memory.plan import Lora, Plan  # noqa: E402
from steelyard.memory.values import Card  # noqa: E402

CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 128,
    "vocab_size": 256,
    "tie_word_embeddings": True,
    "max_position_embeddings": 512,
}
PLAN = Plan(
    model=read_config(CONFIG, name="tiny"),
    task="sft",
    prompt=64,
    completion=64,
    micro_batch=2,
    precision="autocast",
    attention="eager",
    checkpointing="none",
    head="naive",
    head_tokens="all",
    engine=None,
)
CARD = Card(name="card", bytes=8e10, bandwidth=3e12, sustained=2e12, flops=None)


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Counted:
    """Stands in for CUDA's counters: a ledger of a CPU's real tensors."""

    name, device = "a CPU", "cpu"

    def __init__(self, *, room=None):
        self.room = room
        self.starts = 0

    def start(self):
        self.starts += 1

    def peaks(self):
        return 3 << 30, 4 << 30

    def beyond(self):
        return 5 << 20


class Full(Counted):
    """Has no room for what comes after the first forward pass."""

    def start(self):
        super().start()
        if self.starts == 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")


def asked(plan=PLAN, **changes):
    return Asked(**({"plan": plan, "card": CARD, "config": CONFIG, "points": None, "gpu": True} | changes))


def tracked_for_real(plan):
    """The same bookkeeping around the same step of real tensors."""
    trainee = training.prepared(CONFIG, plan, device="cpu", attention=plan.attention)
    ledger = tracked.Ledger()
    with ledger:
        ledger.lasting(tracked.CUBLAS, "workspace")
        for tensor in (*trainee.model.buffers(), *trainee.model.parameters(), trainee.ids):
            ledger.name(tensor, "weights")
        training.run(trainee, plan, ledger.phase)
        return ledger.tracked()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"checkpointing": "recompute"},
        {"precision": "bf16"},
        {"lora": Lora(rank=4)},
        {"head": "selective"},
        {"head": "chunked", "chunk": 32},
        {"optimizer": "sgd", "step_kernel": "single"},
        {"step_kernel": "foreach"},
        {"task": "inference"},
        {"head_tokens": "completion"},
        {"micro_tokens": 192},
    ],
    ids=str,
)
def test_a_fake_step_keeps_what_a_real_one_keeps(changes):
    plan = replace(PLAN, **changes)
    gc.collect()
    fake, real = tracked.track(CONFIG, plan), tracked_for_real(plan)
    assert fake.phase == real.phase
    assert fake.bytes == pytest.approx(real.bytes, rel=0.002)  # ids, and a few scalars


def test_states_are_what_they_are_by_arithmetic():
    fake = tracked.track(CONFIG, replace(PLAN, micro_batch=1, prompt=1, completion=1, step_kernel="foreach"))
    count = PLAN.model.parameters
    assert fake.phase == "step"
    assert fake.residents["weights"] == pytest.approx(4 * count, rel=0.02)  # each rounded up to 512 bytes
    assert fake.residents["gradients"] == pytest.approx(4 * count, rel=0.02)
    assert fake.residents["optimizer states"] == pytest.approx(
        8 * count, rel=0.2
    )  # and a count of steps each


def test_a_step_of_adapters_has_no_gradients_of_the_base():
    fake = tracked.track(CONFIG, replace(PLAN, lora=Lora(rank=4)))
    full = tracked.track(CONFIG, PLAN)
    assert fake.residents["gradients"] < full.residents["gradients"] / 4


def test_recomputing_keeps_less_and_flash_attention_less_than_scores():
    eager, flash = (tracked.track(CONFIG, replace(PLAN, attention=kernel)) for kernel in ("eager", "sdpa"))
    anew = tracked.track(CONFIG, replace(PLAN, checkpointing="recompute"))
    assert flash.bytes < eager.bytes
    assert anew.bytes < eager.bytes


def test_logits_are_told_apart():
    config = CONFIG | {"vocab_size": 4096}
    plan = replace(PLAN, model=read_config(config, name="wordy"), checkpointing="recompute", precision="bf16")
    fake = tracked.track(config, plan)
    # in bf16, its log-softmax in fp32, and the gradients of both fp32 copies
    assert fake.residents["logits"] == pytest.approx(14 * plan.step_tokens * 4096, rel=0.01)


def test_a_selective_head_keeps_logits_and_their_gradient_and_is_right():
    config = CONFIG | {"vocab_size": 4096}
    plan = replace(PLAN, model=read_config(config, name="wordy"), checkpointing="recompute", precision="bf16")
    fake = tracked.track(config, replace(plan, head="selective", micro_batch=4))
    whole = 4 * plan.tokens * 4096 * 2
    assert 2 * whole < fake.residents["logits"] < 2.3 * whole
    logits = torch.randn(3, 30, 50, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).float()
    targets = torch.arange(90).remainder(50).view(3, 30)
    mine, usual = (logits.clone().requires_grad_() for _ in range(2))
    said = selective.gathered(mine, targets)
    expected = functional.log_softmax(usual, dim=-1).gather(-1, targets[..., None])[..., 0]
    torch.testing.assert_close(said, expected)
    weights = torch.linspace(-1, 1, 90).view(3, 30)
    (said * weights).sum().backward()
    (expected * weights).sum().backward()
    torch.testing.assert_close(mine.grad, usual.grad)
    assert torch.equal(mine.detach(), logits)


def test_a_ledger_counts_the_most_that_lived_at_a_time():
    with (ledger := tracked.Ledger()):
        ledger.phase("first")
        a = torch.zeros(1024)
        del a
        ledger.phase("second")
        b = torch.zeros(1000)
        view = b[10:]
        ledger.name(b, "kept")
        del b
        ledger.passing(100, "passing")
        ledger.phase("third")
        del view
        found = ledger.tracked()
    assert (found.bytes, found.phase) == (4096 + 512, "second")
    assert found.residents == {"kept": 4096, "passing": 512}
    assert found.phases == {"first": 4096, "second": 4096 + 512, "third": 0}


def test_the_attention_of_a_gpu_is_there_only_as_long_as_asked():
    usual = functional.scaled_dot_product_attention
    with attention_of_cuda():
        assert functional.scaled_dot_product_attention is not usual
    assert functional.scaled_dot_product_attention is usual


@pytest.mark.parametrize("window", [None, 32])
def test_a_sliding_window_takes_the_kernel_that_takes_a_mask(window):
    config = CONFIG | {"model_type": "mistral", "sliding_window": window}
    plan = replace(PLAN, model=read_config(config, name="windowed"), attention="sdpa", precision="bf16")
    fake = tracked.track(config, plan)
    assert fake.bytes > 0
    assert fake.phase in ("loss", "backward", "step")


@pytest.mark.parametrize("lora", [None, Lora(rank=4), Lora(rank=4, targets=("q_proj", "v_proj"))])
def test_the_real_model_has_the_parameters_of_its_shape(lora):
    found = meta.compared(asked(), replace(PLAN, lora=lora, head_tokens="completion"))
    assert found["agrees"], found
    assert found["logits"] == [2, 64, 256]
    assert {count["what"] for count in found["counts"]} >= {"parameters", "logits"}


def test_modules_that_differ_are_named():
    config = CONFIG | {"intermediate_size": 160, "vocab_size": 300}
    found = meta.compared(asked(config=config), PLAN)
    assert not found["agrees"]
    assert [one["module"] for one in found["differences"]] == [
        "down_proj",
        "embedding",
        "gate_proj",
        "up_proj",
    ]
    assert found["differences"][0] == {"module": "down_proj", "planned": 2 * 64 * 128, "built": 2 * 64 * 160}


def test_without_a_gpu_the_step_is_tracked_and_compared():
    answer = answered(asked(), None)
    found = answer["tracked"]["allocated"]
    assert answer["tracked"]["outcome"] == "measured"
    assert found["error"] == pytest.approx(found["planned"] / found["measured"] - 1)
    assert answer["gpu"]["outcome"] == "not run"
    assert answer["gpu"]["reason"] == "no GPU is here"
    assert answer["stored"] is None


def test_on_a_device_the_same_step_runs_and_allocated_and_reserved_stay_apart(tmp_path):
    file = tmp_path / "points.csv"
    counter = Counted()
    answer = answered(asked(points=file), counter)
    found = answer["gpu"]
    assert (found["outcome"], found["device"], found["context"]) == ("measured", "a CPU", 5 << 20)
    assert (found["allocated"]["measured"], found["reserved"]["measured"]) == (3 << 30, 4 << 30)
    assert found["allocated"]["planned"] < found["reserved"]["planned"]
    assert counter.starts == 2, "peaks of building the model are forgotten"
    assert answer["stored"] == {"file": str(file), "rows": 2}
    with file.open(newline="") as text:
        kinds = {row["kind"]: row["peak_gib"] for row in csv.DictReader(text)}
    assert kinds == {"max_memory_allocated": "3.0000", "max_memory_reserved": "4.0000"}


def test_running_out_of_memory_is_an_outcome_and_no_point(tmp_path):
    file = tmp_path / "points.csv"
    answer = answered(asked(points=file), Full())
    found = answer["gpu"]
    assert (found["outcome"], found["phase"]) == ("out of memory", "build")
    assert "Tried to allocate 20.00 MiB" in found["reason"]
    assert found["allocated"]["measured"] == 3 << 30
    assert found["allocated"]["error"] is None
    assert answer["stored"] is None
    assert len(file.read_text().splitlines()) == 1


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("full"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)"),
        RuntimeError("CUDA error: out of memory"),
    ],
    ids=str,
)
def test_the_phase_where_memory_ran_out_is_told(monkeypatch, error):
    def run(trainee, plan, phase):
        phase("backward")
        raise error

    monkeypatch.setattr(gpu, "run", run)
    found = gpu.measure(CONFIG, PLAN, Counted())
    assert (found.phase, found.allocated) == ("backward", 3 << 30)


def test_what_is_no_lack_of_memory_is_a_failure(monkeypatch):
    def run(trainee, plan, phase):
        raise RuntimeError("an illegal memory access was encountered")

    monkeypatch.setattr(gpu, "run", run)
    found = answered(asked(), Counted())["gpu"]
    assert (found["outcome"], found["allocated"]) == ("failed", None)
    assert "illegal memory access" in found["reason"]


def test_a_gpu_that_is_not_to_be_used_is_not_touched():
    counter = Counted()
    assert answered(asked(gpu=False), counter)["gpu"]["reason"] == "no GPU was to be used"
    assert not counter.starts


def test_what_is_not_run_has_its_reason_and_the_model_is_compared_all_the_same():
    answer = answered(asked(replace(PLAN, optimizer="adafactor", gpus=2)), Counted())
    assert answer["model"]["agrees"]
    assert answer["changes"] == ["gpus: 2 -> 1"]
    for part in ("tracked", "gpu"):
        assert answer[part]["outcome"] == "not run"
        assert "adafactor" in answer[part]["reason"]


def test_a_models_own_error_is_its_reason():
    config = CONFIG | {"model_type": "gemma2", "query_pre_attn_scalar": 16, "sliding_window": 64}
    plan = replace(PLAN, model=read_config(config, name="capped"), attention="sdpa")
    found = answered(asked(plan, config=config), None)["tracked"]
    assert found["outcome"] == "failed"
    assert "attention" in found["reason"]


def test_a_file_that_cannot_be_appended_to_is_refused_before_anything_runs(tmp_path):
    (tmp_path / "points.csv").write_text("a\n")
    with pytest.raises(RefusedError, match="its columns are a"):
        answered(asked(points=tmp_path / "points.csv"), Counted())


def child(request):
    return subprocess.run(
        [sys.executable, "-m", "steelyard.integrations.allocation"],
        input=request,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_a_child_answers_on_stdout_and_with_nothing_else():
    plan = {"task": "sft", "prompt": 0, "completion": 32, "micro_batch": 1, "engine": None, "head": "naive"}
    document = {"protocol": 1, "name": "tiny", "config": CONFIG, "plan": plan, "card": asdict(CARD)}
    done = child(json.dumps(document | {"device": "none"}))
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["protocol"] == 1
    assert answer["model"]["agrees"]
    assert answer["tracked"]["outcome"] == "measured"
    assert "no real memory" in answer["tracked"]["label"]


@pytest.mark.parametrize(
    "request_", ["", "{}", '{"protocol": 1, "config": {"model_type": "nobody"}, "card": {}}']
)
def test_a_child_refuses_in_its_answer(request_):
    done = child(request_)
    assert done.returncode == 2
    assert json.loads(done.stdout)["refused"].keys() == {"reason", "where", "remedy"}
