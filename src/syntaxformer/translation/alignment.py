"""Which source word became which target word: links from the cross-attention of one head of a translator.

`choose_head` finds the head that agrees best with IBM model 1 on parallel text, once, at the end of training.
An export averages no heads either: it is written so that CTranslate2 returns the attention of this one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field
from tokenizers import Regex, pre_tokenizers

from syntaxformer.base.errors import AlignmentError
from syntaxformer.base.files import write_manifest, write_text
from syntaxformer.runs.config import Section
from syntaxformer.runs.loading import TRANSLATOR
from syntaxformer.syntax import word_of_piece
from syntaxformer.syntax.ragged import splits_of

if TYPE_CHECKING:
    from syntaxformer.translation.batches import EncodedPairs

Span = tuple[int, int]
"""Start and end of a word in its text, end exclusive."""


class AlignmentHead(Section):
    """The head whose cross-attention aligns, by its number.

    Source: Chen et al. (2020), "Accurate Word Alignment Induction from NMT", for `shift`.
    """

    layer: int = Field(ge=0, le=999, description="layer of the decoder")
    head: int = Field(ge=0, le=999, description="head of the layer")
    shift: bool = Field(False, description="attention while a piece is read, not while it is written")


@dataclass(frozen=True)
class Alignment:
    """Links between the words of a line and of its translation.

    Args:
        src: Characters of each source word in the line.
        tgt: Characters of each target word in the translation.
        links: Numbers of a source and of a target word; each target word has one link or none.
    """

    src: list[Span]
    tgt: list[Span]
    links: list[tuple[int, int]]

    def __str__(self) -> str:
        """The links as Pharaoh wrote them, "0-0 1-2"."""
        return " ".join(f"{src}-{tgt}" for src, tgt in self.links)


@dataclass(frozen=True)
class PieceAttention:
    """Attention of the aligning head.

    Args:
        weights: `[tgt, src]`.
        src: Characters of each source piece in the line, `[src, 2]`; the same of `tgt` in the translation.
    """

    weights: NDArray[np.float32]
    src: ArrayLike = ()
    tgt: ArrayLike = ()

    def links(self, src_words: Sequence[Span], tgt_words: Sequence[Span]) -> list[tuple[int, int]]:
        """Link each target word to the source word that its pieces attend to most.

        A word that attends most to what is no word, such as the end piece, has no link.
        """
        if not (src_words and tgt_words and self.weights.size):
            return []
        owners = word_of_piece(self.tgt, tgt_words), word_of_piece(self.src, src_words)
        of_words = np.zeros((len(tgt_words) + 1, len(src_words) + 1))  # the last are for pieces of no word
        np.add.at(of_words, np.ix_(*owners), self.weights)
        best, totals = of_words.argmax(1), of_words.sum(1)
        return sorted(
            (int(best[word]), word)
            for word in range(len(tgt_words))
            if totals[word] > 0 and best[word] < len(src_words)
        )


_ALONE = r"[\p{Han}\p{Hiragana}\p{Katakana}]"
_LETTERS = rf"(?:(?!{_ALONE})[\p{{L}}\p{{M}}\p{{N}}])+"
_CUT = pre_tokenizers.Split(Regex(rf"{_ALONE}|{_LETTERS}(?:['’]{_LETTERS})*|\S"), "removed", invert=True)


def word_spans(text: str) -> list[Span]:
    """Cut a text into runs of letters and digits, with apostrophes in them; every other sign is a word.

    So is each Chinese or Japanese character.
    """
    return [span for _, span in _CUT.pre_tokenize_str(text)]


def lexical_probabilities(
    pairs: Sequence[tuple[NDArray[Any], NDArray[Any]]], n_rounds: int = 5
) -> list[NDArray[np.float64]]:
    """Train IBM model 1 on pairs of piece ids and return p(target | source) for each pair, `[src, tgt]`.

    The end piece of a source is in the place of the paper's empty word.

    Source: Brown et al. (1993), model 1.
    """
    sizes = [len(src) * len(tgt) for src, tgt in pairs]
    src = np.concatenate([np.repeat(src, len(tgt)) for src, tgt in pairs]).astype(np.int64)
    tgt = np.concatenate([np.tile(tgt, len(src)) for src, tgt in pairs])
    starts = splits_of([len(tgt) for _, tgt in pairs]).tolist()
    positions = [
        np.tile(np.arange(len(t)), len(s)) + start for (s, t), start in zip(pairs, starts, strict=False)
    ]
    position, stride = np.concatenate(positions), int(tgt.max()) + 1
    cells, cell = np.unique(src * stride + tgt, return_inverse=True)
    probabilities = np.ones(len(cells))
    for _ in range(n_rounds):
        posteriors = probabilities[cell]
        posteriors /= np.bincount(position, posteriors)[position]
        counts = np.bincount(cell, posteriors)
        probabilities = counts / np.bincount(cells // stride, counts)[cells // stride]
    by_pair = np.split(probabilities[cell], np.cumsum(sizes)[:-1])
    return [values.reshape(len(src), len(tgt)) for values, (src, tgt) in zip(by_pair, pairs, strict=True)]


MAX_DEV_LINES, MAX_TRAIN_LINES, MAX_CELLS = 200, 20_000, 2_000_000
"""Lines whose attention is compared, and lines, and pairs of pieces, of which model 1 is learned."""


def choose_head(model: Any, dev: EncodedPairs, train: EncodedPairs) -> AlignmentHead | None:
    """The head whose most attended pieces are the likeliest by IBM model 1, learned on these pairs.

    A target piece counts p(piece | attended piece) / max p(piece | any piece of the line); its line's end
    piece does not count. None if every line is as long as the network has positions.
    """
    import torch

    from syntaxformer.runs.loading import longest_input
    from syntaxformer.translation.decoding import source_pad_id
    from syntaxformer.translation.source import source_batch
    from syntaxformer.translation.torch_decoder import cross_attentions

    def pieces(pairs: EncodedPairs, row: int) -> tuple[NDArray[Any], NDArray[Any]]:
        src, tgt = (side.pieces[side.splits[row] : side.splits[row + 1]] for side in (pairs.src, pairs.tgt))
        return src, tgt

    n_lines, longest = min(MAX_DEV_LINES, len(dev)), longest_input(model)
    rows = [row for row in range(n_lines) if max(map(len, pieces(dev, row))) < longest]
    if not rows:
        return None
    compared = [pieces(dev, row) for row in rows]
    drawn = np.random.default_rng(0).choice(len(train), min(MAX_TRAIN_LINES, len(train)), replace=False)
    learned = [pieces(train, int(row)) for row in drawn]
    n_cells = np.cumsum([len(src) * len(tgt) for src, tgt in learned])
    tables = lexical_probabilities([*compared, *learned[: int(np.searchsorted(n_cells, MAX_CELLS))]])
    shares: Any = 0.0
    for start in range(0, len(rows), 32):
        batch = source_batch(dev.src, rows[start : start + 32], source_pad_id(model))
        targets = [tgt.tolist() for _, tgt in compared[start : start + 32]]
        width, pad = max(map(len, targets)), model.config.pad_token_id
        first = model.config.decoder_start_token_id
        sequences = torch.tensor([[first, *tgt] + [pad] * (width - len(tgt)) for tgt in targets])
        layers = torch.stack(cross_attentions(model, batch, sequences)).float().cpu().numpy()
        for row, table in enumerate(tables[start : start + len(targets)]):
            n_src, last = table.shape[0], table.shape[1] - 1
            attended = layers[:, row, :, : last + 1, :n_src].argmax(-1)  # [layers, heads, tgt + 1]
            scores = (table / table.max(0))[:, :last]
            by_shift = [attended[..., shift : shift + last] for shift in (0, 1)]
            shares = shares + np.stack([scores[at, np.arange(last)].sum(-1) for at in by_shift], -1)
    layer, head, shift = np.unravel_index(int(np.argmax(shares)), np.shape(shares))
    return AlignmentHead(layer=int(layer), head=int(head), shift=bool(shift))


def add_head(
    folder: str | Path,
    sources: Sequence[str],
    targets: Sequence[str],
    trust_annotator: bool = False,
    user_factors: Mapping[str, Sequence[Sequence[str]]] | None = None,
) -> AlignmentHead | None:
    """Choose the head that aligns on parallel lines and write it into the folder of an older model.

    Args:
        folder: What `train` wrote; an export must be made again.
        sources: Lines of text, at best those of training and a few hundred others before them.
        targets: Their translations.
        trust_annotator: As in `Translator.load`.
        user_factors: As in `Translator.translate`.

    Raises:
        AlignmentError: There are no pairs with text, or lines without a partner.
        ConfigError: The folder is an export, or as `Translator.load`.
    """
    from syntaxformer.translation.batches import EncodedPairs
    from syntaxformer.translation.source import EncodedText
    from syntaxformer.translation.translator import Translator

    if len(sources) != len(targets) or not any(map(str.strip, sources)):
        raise AlignmentError(
            f"targets: expected one for each source, at least one, got {len(targets)} of {len(sources)}."
        )
    translator = Translator.load(folder, trust_annotator=trust_annotator)
    preparation = translator.info.preparation(translator.info.tgt)
    rows = translator.target_pieces(sources, [preparation.clean(line) for line in targets])
    pieces = np.concatenate(rows).astype(np.int32)
    tgt = EncodedText(pieces, splits_of([*map(len, rows)]), np.zeros((len(pieces), 0), np.int32))
    pairs = EncodedPairs(translator.encode(sources, user_factors), tgt)
    chosen = choose_head(translator.model, pairs, pairs)
    info = translator.info.model_copy(update={"alignment": chosen})
    write_text(Path(folder) / TRANSLATOR, info.model_dump_json(indent=1))
    write_manifest(Path(folder))
    return chosen
