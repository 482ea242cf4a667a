"""Inside syntax attention: what each sub-network attends to in one sentence, and how much it counts.

Arrays only, from an infused classifier; `plots.draw_subnetwork` draws them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from syntaxformer.base.config import nearest
from syntaxformer.base.errors import ConfigError
from syntaxformer.encoders.classifier import Classifier, annotate_examples
from syntaxformer.encoders.tables import TextExample
from syntaxformer.study.attention import encoder_attention
from syntaxformer.syntax import n_relations, relation_name

FULL = "full"
"""Attention to all pieces, as one of the sub-networks (preset `preserving`)."""


@dataclass(frozen=True)
class SubnetworkView:
    """One sentence, or pair, in an infused encoder.

    Args:
        pieces: `[pieces]`.
        networks: Names, "dependency sibling 3", and "full" where it takes part.
        topical: α, `[layers, pieces, networks]`.
        logits: Scaled logits before masks, `[layers, heads, pieces, pieces]`; -inf outside a local layer's
            window.
        masks: Whether M_r is 1, `[networks, pieces, pieces]`.
        attention: What all sub-networks together attend to, `[layers, heads, pieces, pieces]`.
        layers: Numbers of the layers, as they run: ALBERT's parameters run several times.
        mode: "multiplicative" or "additive".
        on_empty_row: "full" or "zero", where the mode is additive.
        prediction: What the classifier says.
    """

    pieces: list[str]
    networks: list[str]
    topical: NDArray[np.float32]
    logits: NDArray[np.float32]
    masks: NDArray[np.bool_]
    attention: NDArray[np.float32]
    layers: list[int]
    mode: str
    on_empty_row: str
    prediction: str

    def network(self, name: str) -> int:
        """Number of a sub-network.

        Raises:
            ConfigError: There is none of that name.
        """
        if name not in self.networks:
            raise ConfigError(f"network: unknown sub-network {name!r}. {nearest(name, self.networks)}")
        return self.networks.index(name)

    def sub_attention(self, layer: int, network: int, head: int | None = None) -> NDArray[np.float32]:
        """A_r without its values, softmax(QKᵀ ⊙ M_r / √d), `[pieces, pieces]`; mean over heads or one head.

        Source: Bai et al. (2021), eq. 1.
        """
        logits = self.logits[layer]
        if self.networks[network] == FULL:
            return _mean(_softmax(logits), head)
        mask = self.masks[network] & ~np.isneginf(logits)  # beyond a window a relation counts as none
        if self.mode == "multiplicative":
            return _mean(_softmax(np.where(mask, logits, 0)), head)
        is_empty = ~mask.any(-1, keepdims=True)
        attention = _softmax(np.where(mask | is_empty, logits, -1e9))
        return _mean(attention if self.on_empty_row == "full" else attention * ~is_empty, head)

    def plain_attention(self, layer: int, head: int | None = None) -> NDArray[np.float32]:
        """What the layer's own logits attend to without masks, `[pieces, pieces]`.

        This is not the vanilla model of the paper's figure, which was trained without masks: see
        `plain_attention_beside`.
        """
        return _mean(_softmax(self.logits[layer]), head)

    def topical_weights(self) -> NDArray[np.float32]:
        """α by layer, mean over pieces, `[layers, networks]`."""
        return self.topical.mean(1)

    def strongest(self, n: int = 10) -> list[int]:
        """The sub-networks that count most over all layers, of those that link a pair; not the full one."""
        weights = self.topical_weights().mean(0)
        order = np.argsort(-weights, kind="stable").tolist()
        return [one for one in order if self.networks[one] != FULL and self.masks[one].any()][:n]


def subnetwork_view(classifier: Classifier, text: str | tuple[str, str]) -> SubnetworkView:
    """Run one text through an infused classifier and look inside.

    Args:
        classifier: A fine-tuned model with masks.
        text: A text, or a pair where the model was trained on pairs.

    Raises:
        ConfigError: The model has no masks.
        DataError: A text is empty, or single where pairs are expected.

    Source: Bai et al. (2021), section 5.2 and figure 2.
    """
    config = classifier.collator.config
    infusion = getattr(classifier.model, "infusion", None)
    if config.masks is None or infusion is None:
        raise ConfigError("model: expected one that was fine-tuned with masks, got one without.")
    with infusion.record(attention=True):
        found = classifier.predict([text])
    texts = (text,) if isinstance(text, str) else text
    example = TextExample(tuple(" ".join(one.split()) for one in texts))
    batch = classifier.collator(annotate_examples([example], classifier.annotator, False, cached=False))
    seen = infusion.seen
    passes = [(number, layer) for number, layer in enumerate(seen.passes) if layer in infusion.masked_layers]

    def of_passes(by_layer: dict[int, list[torch.Tensor]]) -> NDArray[np.float32]:
        shown = [by_layer[layer][seen.passes[:number].count(layer)][0] for number, layer in passes]
        return torch.stack(shown).float().cpu().numpy()

    topical, logits, attention = map(of_passes, (seen.weights, seen.logits, seen.attention))
    names, masks = _networks(batch["syntax"][0].numpy(), config.masks.used_trees, config.masks.max_distance)
    if topical.shape[-1] == len(names) + 1:
        names, masks = [*names, FULL], np.concatenate([masks, np.ones_like(masks[:1])])
    pieces = classifier.collator.tokenizer.convert_ids_to_tokens(batch["input_ids"][0].tolist())
    return SubnetworkView(
        pieces, names, topical, logits, masks, attention, [number for number, _ in passes],
        config.masks.mode, config.masks.on_empty_row, str(found.labels[0]),
    )  # fmt: skip


def plain_attention_beside(
    view: SubnetworkView,
    plain: Classifier,
    text: str | tuple[str, str],
    layer: int = -1,
    head: int | None = None,
) -> NDArray[np.float32]:
    """What a model without syntax attention attends to in the layer of a view, `[pieces, pieces]`.

    Args:
        view: From `subnetwork_view`.
        plain: A model that was fine-tuned without masks, relation_bias and lisa.
        text: That of the view.
        layer: Place in the view's layers, the last by default.
        head: One head; None for the mean over heads.

    Raises:
        ConfigError: The model's attention is not plain, it has no such layer or head, reads other pieces, or
            does not tell its attention.
        DataError: The text is single where the model expects pairs, or the reverse.

    Source: Bai et al. (2021), section 5.2 and figure 2.
    """
    infusion = getattr(plain.model, "infusion", None)
    if plain.backend == "onnx" or (infusion is not None and infusion.attends):
        got = "an exported one" if plain.backend == "onnx" else "one whose attention is infused"
        raise ConfigError(
            f"beside: expected a model fine-tuned without masks, relation_bias and lisa, got {got}. "
            "Fine-tune the checkpoint with --infuse none."
        )
    plain.predict([text])  # refuses what is no text for this model
    found, number = encoder_attention(plain, text), view.layers[layer]
    n_layers, n_heads = found.weights.shape[:2]
    if number >= n_layers or (head is not None and head >= n_heads):
        raise ConfigError(
            f"beside: expected a model with layer {number} and head {head or 0}, got {n_layers} layers of "
            f"{n_heads} heads. Choose another layer or head."
        )
    if found.pieces != view.pieces:
        raise ConfigError(
            f"beside: expected a model that reads the same {len(view.pieces)} pieces, got "
            f"{len(found.pieces)} others. Use one that was fine-tuned from the same checkpoint."
        )
    return _mean(found.weights[number], head)


def _networks(
    relations: NDArray[np.uint8], trees: tuple[str, ...], max_distance: int
) -> tuple[list[str], NDArray[np.bool_]]:
    """Names and masks of all sub-networks, tree by tree."""
    ids = range(1, n_relations(max_distance))
    names = [f"{tree} {relation_name(one, max_distance)}" for tree in trees for one in ids]
    return names, np.stack([of_tree == one for of_tree in relations for one in ids])


def _softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    exponentials = np.exp(logits - logits.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def _mean(weights: NDArray[np.float32], head: int | None) -> NDArray[np.float32]:
    return weights.mean(0) if head is None else weights[head]
