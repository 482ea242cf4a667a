"""Whether an export gives the log-probabilities of the trained network: asked each time, on random pieces.

A switch of the network that the export does not know of shows here, before anybody translates with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from syntaxformer.translation.collator import source_batch
from syntaxformer.translation.exported_folder import ExportInfo, SourceTokens, read_names
from syntaxformer.translation.model import SyntaxTransformer
from syntaxformer.translation.source import EncodedText, SourceEncoder

__all__ = ["difference_on", "largest_difference", "piece_log_probs"]

N_LINES, LONGEST = 11, 23
MAX_PIECES = 2048
"""Of a batch that is scored."""


def largest_difference(
    model: SyntaxTransformer, encoder: SourceEncoder, folder: Path, info: ExportInfo, n_pieces: int
) -> float:
    """The largest difference of a log-probability between a network and its export, over random lines.

    Args:
        model: The trained network, in evaluation mode.
        encoder: Its tokenizer and factor vocabularies.
        folder: CTranslate2's files, with weights in float32.
        info: What was exported.
        n_pieces: Source pieces, tags that are pieces included.
    """
    random = np.random.default_rng(1)
    source = _random_text(random, n_pieces, [len(encoder.vocabularies[name]) for name in encoder.columns])
    sizes = random.integers(1, LONGEST, N_LINES)
    targets = [random.integers(4, model.config.vocab_size, size).tolist() for size in sizes]
    return difference_on(source, targets, model, encoder, folder, info)


def difference_on(
    source: EncodedText,
    targets: Sequence[list[int]],
    model: SyntaxTransformer,
    encoder: SourceEncoder,
    folder: Path,
    info: ExportInfo,
) -> float:
    """As `largest_difference`, over given lines.

    Args:
        source: Encoded lines, none of them empty.
        targets: For each line the pieces of a translation, without the end.
        model: The trained network, in evaluation mode.
        encoder: Its tokenizer and factor vocabularies.
        folder: CTranslate2's files.
        info: What was exported.
    """
    import ctranslate2

    tokens = SourceTokens.read(folder, info, encoder)(source, range(len(targets)))
    names = read_names(folder, "target")
    exported = ctranslate2.Translator(str(folder), compute_type="float32").score_batch(
        tokens,
        [[names[piece] for piece in target] for target in targets],
        max_input_length=0,
        max_batch_size=MAX_PIECES,
        batch_type="tokens",
    )
    ours = [piece_log_probs(model, source, row, target) for row, target in enumerate(targets)]
    differences = [
        np.abs(one - np.array(other.log_probs)).max() for one, other in zip(ours, exported, strict=True)
    ]
    return float(max(differences))


@torch.inference_mode()
def piece_log_probs(
    model: SyntaxTransformer, source: EncodedText, row: int, target: list[int]
) -> NDArray[np.float32]:
    """The trained network's log-probability of each target piece and of the end, `[target + 1]`."""
    batch = {name: part.to(model.device) for name, part in source_batch(source, [row], 0).items()}
    labels = torch.tensor([[*target, model.config.eos_token_id]], device=model.device)
    logits = model(**batch, labels=labels).logits.float()
    return logits.log_softmax(-1).gather(-1, labels[..., None])[0, :, 0].cpu().numpy()


def _random_text(random: np.random.Generator, n_pieces: int, sizes: list[int]) -> EncodedText:
    lengths = random.integers(1, LONGEST, N_LINES)
    splits = np.concatenate([[0], np.cumsum(lengths)])
    pieces = random.integers(0, n_pieces, splits[-1]).astype(np.int32)
    factors = [random.integers(0, size, len(pieces)).astype(np.int32) for size in sizes]
    return EncodedText(
        pieces, splits, np.stack(factors, 1) if sizes else np.zeros((len(pieces), 0), np.int32)
    )
