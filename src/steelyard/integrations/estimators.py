"""Which advantages and which loss GRPO, Dr.GRPO, RLOO, DAPO and GDPO mean.

An estimator of the policy gradient is two choices that names like GRPO mix up:

- **what a completion is worth**: its advantage, a scheme of `steelyard.advantages`;
- **what a token of it weighs**: the loss is the sum of `weight x -advantage x ratio` over the batch's tokens,
  and the weight is one over a denominator.

Everything known here is known once completions are sampled, before any of them is judged. That is why a row
that nobody could judge stays in the denominator (rule A of `docs/losses.md`): its advantage is 0, the weights
of all others are what they were, and a group can be trained on before the next one is judged.

Pure arithmetic: no torch, no trainer. `steelyard.integrations.grpo` is the step made of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from steelyard.advantages import SCHEMES, Scheme
from steelyard.errors import RefusedError

Denominator: TypeAlias = Literal["row", "rows", "constant", "tokens"]

DENOMINATORS: Final[Mapping[Denominator, str]] = MappingProxyType(
    {
        "row": "rows x the row's own tokens",
        "rows": "rows",
        "constant": "rows x max_new_tokens",
        "tokens": "tokens of the batch",
    }
)
"""What a token's part of the loss is divided by; rows and tokens are those of the whole batch."""


@dataclass(frozen=True, slots=True)
class Estimator:
    """One estimator of the policy gradient.

    Parameters
    ----------
    name, title
        Its name in settings, and in the field.
    advantage
        The scheme, a key of `steelyard.advantages.SCHEMES`.
    denominator
        What a token's part of the loss is divided by, a key of `DENOMINATORS`.
    clip_low, clip_high
        The ratio of new to old probability is clipped to `1 - clip_low` and `1 + clip_high`, as commonly
        quoted. `None` where it is not: then completions may be used for one update only.
    beta
        The coefficient of KL in the loss that goes by this name: as commonly quoted for GRPO, not checked
        against the paper's own runs; 0 for no such term. RLOO has KL in its reward.
    missing
        What a row without a verdict changes for the others of its batch, in words.
    source
        The paper.
    trl_config, trl
        The configuration of TRL that means the same, and its fields.
    trl_differs
        What TRL still does otherwise.
    """

    name: str
    title: str
    advantage: str
    denominator: Denominator
    clip_low: float | None
    clip_high: float | None
    beta: float
    missing: str
    source: str
    trl_config: Literal["GRPOConfig", "RLOOConfig"]
    trl: Mapping[str, Any] = field(default_factory=dict)
    trl_differs: str = ""

    @property
    def scheme(self) -> Scheme:
        """The advantages."""
        return SCHEMES[self.advantage]

    def token_weights(self, lengths: Sequence[int], max_new_tokens: int) -> list[float]:
        """What each token of each completion weighs in the loss.

        Parameters
        ----------
        lengths
            Tokens of each completion of the batch, the end's own included, shape `(N,)`.
        max_new_tokens
            The most tokens that a completion may have.

        Returns
        -------
        list of float
            Per completion, shape `(N,)`: `1 / denominator`, for each of its tokens; 0 of one without tokens.

        Examples
        --------
        >>> estimator("grpo").token_weights([1, 4], 8)
        [0.5, 0.125]
        >>> estimator("dapo").token_weights([1, 4], 8)
        [0.2, 0.2]
        """
        rows = len(lengths)
        whole = {"rows": rows, "constant": rows * max_new_tokens, "tokens": sum(lengths)}.get(
            self.denominator
        )
        return [1.0 / (whole or rows * tokens) if tokens else 0.0 for tokens in lengths]


_ALL: Final = (
    Estimator(
        name="grpo",
        title="GRPO",
        advantage="grpo",
        denominator="row",
        clip_low=0.2,
        clip_high=0.2,
        beta=0.04,
        missing="mean and standard deviation over fewer votes; needs max(3, half of the group)",
        source="Shao et al. 2024, arXiv:2402.03300",
        trl_config="GRPOConfig",
        trl={
            "loss_type": "grpo",
            "scale_rewards": "group",
            "beta": 0.04,
            "use_bias_correction_kl": False,
        },
        trl_differs="takes two votes for enough; adds KL for a row without a verdict (the mixin removes it)",
    ),
    Estimator(
        name="dr_grpo",
        title="Dr.GRPO",
        advantage="dr_grpo",
        denominator="constant",
        clip_low=0.2,
        clip_high=0.2,
        beta=0.0,
        missing="mean over fewer votes, which shrinks them by (n - 1) / n; needs two, and half of the group "
        "judged",
        source="Liu et al. 2025, arXiv:2503.20783",
        trl_config="GRPOConfig",
        trl={"loss_type": "dr_grpo", "scale_rewards": "none", "beta": 0.0},
        trl_differs="takes a group of which more than half is lost",
    ),
    Estimator(
        name="rloo",
        title="RLOO",
        advantage="rloo",
        denominator="rows",
        clip_low=None,
        clip_high=None,
        beta=0.0,
        missing="mean of fewer others: unbiased for every n >= 2, if rows are missing at random; "
        "needs two, and half of the group judged",
        source="Kool et al. 2019; Ahmadian et al. 2024, arXiv:2402.14740",
        trl_config="RLOOConfig",
        trl={"normalize_advantages": False, "beta": 0.0},
        trl_differs="clips the ratio of whole sequences at 0.2, takes KL off the reward, and takes a group "
        "of which more than half is lost",
    ),
    Estimator(
        name="dapo",
        title="DAPO",
        advantage="grpo",
        denominator="tokens",
        clip_low=0.2,
        clip_high=0.28,
        beta=0.0,
        missing="as GRPO; its tokens stay in the batch's count, so the step is no larger for it",
        source="Yu et al. 2025, arXiv:2503.14476",
        trl_config="GRPOConfig",
        trl={"loss_type": "dapo", "scale_rewards": "group", "beta": 0.0, "epsilon_high": 0.28},
        trl_differs="takes two votes for enough",
    ),
    Estimator(
        name="gdpo",
        title="GDPO",
        advantage="gdpo",
        denominator="row",
        clip_low=0.2,
        clip_high=0.2,
        beta=0.0,
        missing="leaves every part's mean and standard deviation, and the batch's; each needs max(3, half)",
        source="Liu et al. 2026, arXiv:2601.05242",
        trl_config="GRPOConfig",
        trl={"loss_type": "grpo", "multi_objective_aggregation": "normalize_then_sum", "beta": 0.0},
        trl_differs="normalises each reward function: one composite function is one column, and no GDPO",
    ),
)

ESTIMATORS: Final[Mapping[str, Estimator]] = MappingProxyType({one.name: one for one in _ALL})
"""By name."""


def estimator(name: str) -> Estimator:
    """Return the estimator of that name.

    Raises
    ------
    RefusedError
        If there is none.

    Examples
    --------
    >>> estimator("rloo").advantage, estimator("rloo").denominator
    ('rloo', 'rows')
    """
    found = ESTIMATORS.get(name)
    if found is None:
        raise RefusedError(
            f"there is no {name!r}",
            where="estimator",
            remedy=f"one of {', '.join(ESTIMATORS)} (docs/losses.md)",
        )
    return found
