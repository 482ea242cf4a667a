"""The task of similarity: each text of a pair is read by itself; the cosine of their vectors is the score."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from syntaxformer.base.errors import ConfigError
from syntaxformer.encoders.task_types import Score, Scorer, TaskType

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Similarity(Score):
    """How alike the texts of a pair are: the cosine of their vectors, on the scale of the table.

    The smallest score of training is the cosine 0 and the largest the cosine 1; `score_scale` holds the
    smallest one and the distance to the largest.
    """

    name: ClassVar[str] = "similarity"
    auto_class: ClassVar[str] = "AutoModel"
    single_pass: ClassVar[bool] = False
    separate: ClassVar[bool] = True
    head: ClassVar[dict[str, Any]] = {}  # type: ignore[misc]

    def for_head(self, head: str, has_decoder: Callable[[], bool], tokenizer: Any) -> TaskType:
        """Refuse another head than "auto", and an encoder-decoder."""
        if head != "auto" or has_decoder():
            got = head if head != "auto" else "one with a decoder"
            raise ConfigError(f"head: expected auto and an encoder alone for {self.name}, got {got}.")
        return self

    def fit(self, labels: Sequence[Any]) -> Similarity:
        """Take the scale from the training scores."""
        low, high = self.score_range or (min(labels), max(labels))
        return replace(self, score_scale=(low, high - low or 1.0))

    def scorer(self, tokenizer: Any) -> Scorer:
        """The cosine of each pair, `[pairs, 1]`, whose texts are neighbours in the batch.

        The vector of a text is the mean of the states of its pieces.

        Source: Reimers and Gurevych (2019), "Sentence-BERT", section 3.
        """
        from torch.nn.functional import cosine_similarity

        def score(model: Any, batch: dict[str, Tensor]) -> Tensor:
            mask = batch["attention_mask"][..., None]
            vectors = (model(**batch).last_hidden_state * mask).sum(1) / mask.sum(1)
            return cosine_similarity(vectors[0::2], vectors[1::2])[:, None]

        return score

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """CoSENT's loss of the cosines `[pairs, 1]`, which learns the order of `targets`, `[pairs]`.

        log(1 + Σ exp(20 (cos_i - cos_j))), over all i and j of which j has the larger target.

        Source: Huang et al. (2024), "CoSENT: Consistent Sentence Embedding via Similarity Ranking".
        """
        from torch import cat

        cosines = 20 * outputs.float()[:, 0]
        differences = cosines[:, None] - cosines[None, :]
        of_order = differences[targets[:, None] < targets[None, :]]
        return cat([of_order.new_zeros(1), of_order]).logsumexp(0)

    def answer(self, label: Any, probabilities: Sequence[float] | None) -> dict[str, Any]:
        """The score."""
        return {Score.name: label}
