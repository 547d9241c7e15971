"""A GRPO step of our own: small enough to learn from, exact enough to measure by.

One call of `Grpo.step` is one training step, top to bottom:

1. **generation**: `group_size` completions of each prompt, sampled from the policy;
2. **reward**: all groups are handed to a `Scorer`, which judges them in other processes;
3. **training**: rewards become advantages (`steelyard.advantages`), and each token of a completion is pushed
   up or down by its advantage, times what a token weighs (`estimators`); then one step of the optimizer.

The loss is a sum over tokens, and every weight in it is known once generation is over. So it does not matter
when its terms are added up, and `barrier` chooses what training waits for: `batch` for all verdicts, `group`
for those of the next group in the batch's order, `arrival` for those of any group. The gradient is the same,
to the rounding of the dtype that gradients are added up in: fp32 if weights are.

**A row that could not be judged** is in no mean, is not run through the model, and so has no gradient,
neither of the policy nor of KL. It stays in the denominators. Where too few of a group vote the whole group
is left out like that. A step in which nothing has a gradient makes no step of the optimizer: momentum and
weight decay would move the weights though nothing was learnt.

While a step runs its models are in evaluation mode, so that dropout is off: a token is trained under the
probability that it was sampled with. Gradient checkpointing is kept nevertheless, and the mode is put back
(`grpo_model.settled`). What this step leaves to others: sharded models, generation by a server, tools, packed
rows.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import GenerationConfig

from steelyard.advantages import GroupAdvantages, VotingGroup
from steelyard.clock import Seconds
from steelyard.errors import RunStoppedError
from steelyard.integrations.estimators import Estimator, estimator
from steelyard.integrations.grpo_model import ends_of, refuse_model, refuse_untrainable, settled
from steelyard.integrations.grpo_settings import Report, Settings, refused
from steelyard.integrations.logprobs import selective_log_softmax
from steelyard.integrations.scorer import Pending, Scorer
from steelyard.measure import Steps
from steelyard.outcome import Scored, ScoredGroup, Unscored
from steelyard.rollout import Group, Rollout
from steelyard.runtime import refuse_scheme

__all__ = ["Grpo", "Report", "Settings"]


class Batch(NamedTuple):
    """What was sampled: `N` rows, those of a prompt behind one another."""

    prompt: Tensor
    """Token ids, shape `(N, P)`, padded on the left."""
    asked: Tensor
    """Whether they are the prompt's, shape `(N, P)`."""
    completion: Tensor
    """Token ids, shape `(N, T)`, padded on the right."""
    said: Tensor
    """Whether they are the completion's, its end included, shape `(N, T)`."""
    weights: Tensor
    """What each token of a row weighs in the loss, shape `(N,)`."""


@dataclass
class Pass:
    """Rows that go through the model together, and what is known of them.

    Parameters
    ----------
    rows, advantages
        Which rows of the batch, and their advantages, shape `(R,)`.
    old, reference
        Log-probabilities of their `n` tokens when they were sampled, and under the reference, shape `(n,)`.
    """

    rows: Tensor
    advantages: Tensor
    old: Tensor | None = None
    reference: Tensor | None = None


@dataclass
class _Tally:
    rewards: list[float] = field(default_factory=list)
    unscored: int = 0
    without_signal: dict[str, int] = field(default_factory=dict)
    tokens: int = 0
    loss: float = 0.0
    kl: float = 0.0
    entropy: float = 0.0
    norms: list[float] = field(default_factory=list)

    def see(self, totals: Sequence[object], found: GroupAdvantages) -> None:
        self.rewards += [total.value for total in totals if isinstance(total, Scored)]
        self.unscored += sum(isinstance(total, Unscored) for total in totals)
        if found.why is not None:
            self.without_signal[found.why] = self.without_signal.get(found.why, 0) + 1


class Grpo:
    """A policy in training.

    Parameters
    ----------
    model, tokenizer
        A causal language model of `transformers`, and its tokenizer.
    optimizer
        Over the parameters to train: all of the model's, or some. A schedule of its learning rate is stepped
        by the caller.
    scorer
        Who judges, this policy alone; made with the estimator's advantage.
    settings
        How.
    steps
        Where phases are recorded (`steelyard.record_steps`), if anywhere.
    reference
        The model that `beta` holds the policy to: another one, since the policy would be no way off itself.
    seed
        Of the sampling.

    Raises
    ------
    RefusedError
        If these do not fit together, or the model's logits are not the product of its head.
    """

    def __init__(
        self,
        model: Any,  # noqa: ANN401 - no types are read of torch and transformers
        tokenizer: Any,  # noqa: ANN401
        optimizer: Any,  # noqa: ANN401
        scorer: Scorer,
        *,
        settings: Settings | None = None,
        steps: Steps | None = None,
        reference: Any = None,  # noqa: ANN401
        seed: int = 0,
    ) -> None:
        self.settings = settings or Settings()
        self.estimator: Estimator = estimator(self.settings.estimator)
        refuse_scheme(scorer.recipe, self.estimator.advantage)
        if scorer.advantage != self.estimator.advantage:  # the record would tell of other advantages
            raise refused(
                "scorer",
                f"its advantages are {scorer.advantage}, those of {self.estimator.name} are other ones",
                f"Scorer(..., advantage={self.estimator.advantage!r})",
            )
        if (reference is None) is not (self.settings.beta == 0):
            raise refused("reference", f"beta is {self.settings.beta:g}", "give both, or neither")
        if reference is model:
            raise refused("reference", "it is the model itself, so KL would be 0", "copy.deepcopy(model)")
        self._ends = torch.tensor(ends_of(model, tokenizer), device=model.device)
        refuse_untrainable(model, optimizer)
        refuse_model(model)
        if reference is not None:
            refuse_model(reference, "reference")
        self.model, self.tokenizer, self.optimizer, self.reference = model, tokenizer, optimizer, reference
        self._wide = torch.promote_types(model.dtype, torch.float32)
        self._scorer = scorer
        self._steps = steps or Steps(lambda _spans: None)
        self._generator = torch.Generator().manual_seed(seed)
        self._groups = 0
        self._seconds: dict[str, Seconds] = {}

    def step(self, prompts: Sequence[str], columns: Sequence[Mapping[str, Any]]) -> Report:
        """Sample, judge, train once.

        Parameters
        ----------
        prompts
            Texts, as the model is to read them, shape `(B,)`.
        columns
            Per prompt what rewards read beside it, shape `(B,)`: `{"answer": "4"}`. To them is added how many
            tokens each completion has, `completion_tokens`.

        Raises
        ------
        RefusedError
            If they are not as many, a prompt has no tokens, or a column's name is taken.
        TooManyUnscoredError, RunStoppedError
            What stopped the scoring: nothing was trained on then. Or a gradient that is not finite.
        """
        if len(prompts) != len(columns) or not prompts:
            raise refused(
                "step", f"{len(prompts)} prompts, {len(columns)} columns", "as many of each, one at least"
            )
        if any("completion_tokens" in beside for beside in columns):
            raise refused("step", "the column completion_tokens is made by the step", "rename yours")
        given = {"completion_tokens"}.union(*columns)
        absent = [name for name in self._scorer.recipe.needed if name not in given]
        if absent:
            raise refused("step", f"no prompt has a column {absent[0]!r}, which the reward needs", "give it")
        self._seconds = {}
        models = [one for one in (self.model, self.reference) if one is not None]
        with self._steps.step() as number, settled(*models):
            pending = None
            try:
                with self._phase("generation"):
                    self.model.zero_grad()
                    batch = self._sample(prompts)
                    groups = self._grouped(number, prompts, columns, batch)
                    pending = self._scorer.submit(groups, step=number)
                tally = self._train(batch, pending)
            except BaseException:
                self.model.zero_grad()
                if pending is not None:
                    pending.cancel()
                raise
        trained = tally.tokens or None
        return Report(
            step=number,
            rows=len(batch.said),
            tokens=int(batch.said.sum()),
            reward=sum(tally.rewards) / len(tally.rewards) if tally.rewards else None,
            unscored=tally.unscored,
            without_signal=tally.without_signal,
            updates=len(tally.norms),
            loss=tally.loss,
            kl=tally.kl / trained if trained and self.settings.beta else None,
            entropy=tally.entropy / trained if trained else None,
            grad_norm=tally.norms[0] if tally.norms else None,
            seconds=self._seconds,
        )

    # Generation

    def _sample(self, prompts: Sequence[str]) -> Batch:
        """Sample from the policy itself: nothing of what its `generation_config` may bend chances with."""
        model, settings = self.model, self.settings
        asked = [prompt for prompt in prompts for _ in range(settings.group_size)]
        told = self.tokenizer(asked, return_tensors="pt", padding=True, padding_side="left").to(model.device)
        if not bool(told["attention_mask"].any(1).all()):
            raise refused(
                "step", "a prompt has no tokens", "give each something that the model can go on from"
            )
        own, model.generation_config = model.generation_config, GenerationConfig()
        try:
            with torch.random.fork_rng([model.device] if model.device.type == "cuda" else []):
                torch.manual_seed(int(torch.randint(1 << 62, (), generator=self._generator)))
                made = model.generate(
                    input_ids=told["input_ids"],
                    attention_mask=told["attention_mask"],
                    do_sample=True,
                    temperature=settings.temperature,
                    top_k=0,
                    top_p=1.0,
                    max_new_tokens=settings.max_new_tokens,
                    eos_token_id=self._ends.tolist(),
                    pad_token_id=self.tokenizer.pad_token_id,
                )
        finally:
            model.generation_config = own
        completion = made[:, told["input_ids"].shape[1] :]
        ended = torch.isin(completion, self._ends).cumsum(1)
        said = (ended == 0) | ((ended == 1) & torch.isin(completion, self._ends))
        weights = self.estimator.token_weights(said.sum(1).tolist(), settings.max_new_tokens)
        return Batch(
            told["input_ids"],
            told["attention_mask"].bool(),
            completion,
            said,
            torch.tensor(weights, dtype=self._wide, device=completion.device),
        )

    def _grouped(
        self, step: int, prompts: Sequence[str], columns: Sequence[Mapping[str, Any]], batch: Batch
    ) -> list[Group]:
        """The same as rollouts; groups and rows count on through the run."""
        size, groups = self.settings.group_size, []
        lengths = batch.said.sum(1).tolist()
        spoken = [row[:length] for row, length in zip(batch.completion, lengths, strict=True)]
        texts = self.tokenizer.batch_decode(spoken, skip_special_tokens=True)
        for place, (prompt, beside) in enumerate(zip(prompts, columns, strict=True)):
            number, where = self._groups + place, f"step {step}, prompt {place}"
            rollouts = [
                Rollout(
                    id=f"{number}-{index}",
                    prompt=prompt,
                    completion=texts[place * size + index],
                    columns={**beside, "completion_tokens": lengths[place * size + index]},
                    key=(number, index),
                    ordinal=number * size + index,
                    where=where,
                )
                for index in range(size)
            ]
            groups.append(Group(where, number, rollouts))
        self._groups += len(groups)
        return groups

    # Training

    def _train(self, batch: Batch, pending: Pending) -> _Tally:
        tally, passes = _Tally(), list[Pass]()
        with closing(self._handed(pending)) as handed:
            for ready in handed:
                with self._phase("training"):
                    fresh = self._passes(batch, pending.groups[0].ordinal, ready, tally)
                    self._accumulate(batch, fresh, tally)
                    passes += fresh
        with self._phase("training"):
            if passes:
                self._update(tally)
                for _ in range(self.settings.epochs - 1):
                    self._accumulate(batch, passes, _Tally())
                    self._update(tally)
        return tally

    def _handed(self, pending: Pending) -> Generator[list[ScoredGroup]]:
        """Groups, when the barrier lets them be trained on.

        The reward's phase ends when the last verdict comes, though training may be at work and look later.
        """
        groups, barrier = pending.groups, self.settings.barrier
        waiting: dict[int, ScoredGroup] = {}
        due = heard = 0
        start = looked = self._steps.now()
        end: Seconds | None = None
        try:
            for heard, scored in enumerate(pending, 1):
                waiting[scored.group.ordinal] = scored
                if heard == len(groups):
                    end = self._steps.now()
                    if pending.came_s is not None and pending.came_s < looked:
                        end = max(start, pending.came_s)
                if barrier == "arrival":
                    yield [waiting.pop(scored.group.ordinal)]
                elif barrier == "batch" and heard == len(groups):
                    yield [waiting.pop(group.ordinal) for group in groups]
                while barrier == "group" and due < len(groups) and groups[due].ordinal in waiting:
                    yield [waiting.pop(groups[due].ordinal)]
                    due += 1
                looked = self._steps.now()
        finally:
            end = self._steps.now() if end is None else end
            self._steps.span("reward", start, end)
            self._took("reward", end - start)
        if heard < len(groups):
            raise RunStoppedError(f"{heard} of {len(groups)} groups came back from the scorer")

    def _passes(self, batch: Batch, first: int, ready: Sequence[ScoredGroup], tally: _Tally) -> list[Pass]:
        """From verdicts to advantages, and to the rows that have a gradient."""
        voting = [
            VotingGroup(one.totals, {name: [s.verdict for s in said] for name, said in one.parts.items()})
            for one in ready
        ]
        found = self.estimator.scheme.by_batch(voting, self._scorer.recipe.weights)
        kept: list[tuple[int, float]] = []
        passes = []
        for place, (scored, advantages) in enumerate(zip(ready, found, strict=True), 1):
            tally.see(scored.totals, advantages)
            row = (scored.group.ordinal - first) * self.settings.group_size
            for total, value in zip(scored.totals, advantages.values, strict=True):
                votes = isinstance(total, Scored) and advantages.why != "too_few_votes"
                if votes and (value != 0 or self.settings.beta > 0):
                    kept.append((row, value))
                row += 1
            if kept and (place == len(ready) or place % self.settings.groups_per_pass == 0):
                rows, values = zip(*kept, strict=True)
                at = torch.tensor(rows, device=batch.weights.device)
                passes.append(Pass(at, batch.weights.new_tensor(values)))
                kept = []
        return passes

    def _accumulate(self, batch: Batch, passes: Sequence[Pass], tally: _Tally) -> None:
        """Add the gradients of these rows: the loss is a sum over tokens, `weight x -min(...)`."""
        low, high = self.estimator.clip_low, self.estimator.clip_high
        for one in passes:
            row, logps, entropies = self._logps(self.model, batch, one.rows)
            if one.old is None:
                one.old = logps.detach()  # nothing was updated since they were sampled
            ratio = torch.exp(logps - one.old)
            advantage, weight = one.advantages[row], batch.weights[one.rows][row]
            gain = ratio * advantage
            if low is not None and high is not None:
                gain = torch.minimum(gain, ratio.clamp(1 - low, 1 + high) * advantage)
            loss = -(weight * gain).sum()
            if self.settings.beta > 0:
                if one.reference is None:
                    with torch.no_grad():
                        one.reference = self._logps(self.reference, batch, one.rows)[1]
                gap = one.reference - logps
                kl = torch.exp(gap) - gap - 1  # k3: never negative, and unbiased
                loss = loss + self.settings.beta * (weight * kl).sum()
                tally.kl += float(kl.detach().sum())
            loss.backward()
            tally.loss += float(loss.detach())
            tally.entropy += float(entropies.sum())
            tally.tokens += len(row)

    def _logps(self, model: Any, batch: Batch, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # noqa: ANN401
        """Of each token that these rows said: its row, log-probability and entropy, shape `(n,)` each."""
        asked, said = batch.asked[rows], batch.said[rows]
        before, after = int(asked.sum(1).max()), int(said.sum(1).max())  # no columns of mere padding
        asked, said = asked[:, -before:], said[:, :after]
        completion = batch.completion[rows][:, :after]
        mask = torch.cat([asked, said], dim=1)
        hidden = model.get_decoder()(
            input_ids=torch.cat([batch.prompt[rows][:, -before:], completion], dim=1),
            attention_mask=mask.long(),
            position_ids=(mask.cumsum(1) - 1).clamp(min=0),
            use_cache=False,
        ).last_hidden_state
        foretells = hidden[:, before - 1 : -1]  # what stands before a token says how likely it is
        head = model.get_output_embeddings()
        logps, entropies = selective_log_softmax(
            foretells[said],
            head.weight,
            completion[said],
            bias=head.bias,
            temperature=self.settings.temperature,
            entropy=True,
        )
        return said.nonzero()[:, 0], logps, entropies

    def _update(self, tally: _Tally) -> None:
        trained = [one for group in self.optimizer.param_groups for one in group["params"]]
        limit = self.settings.max_grad_norm
        norm = float(torch.nn.utils.clip_grad_norm_(trained, inf if limit is None else limit))
        if not isfinite(norm):
            raise RunStoppedError(
                f"the gradient's norm is {norm}, and nothing was made of it"
                "\n  next: a lower learning rate, or fp32 weights"
            )
        self.optimizer.step()
        self.model.zero_grad()  # of those, too, that the optimizer does not train
        tally.norms.append(norm)

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        start = self._steps.now()
        try:
            with self._steps.phase(name):
                yield
        finally:
            self._took(name, self._steps.now() - start)

    def _took(self, name: str, seconds: Seconds) -> None:
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds
