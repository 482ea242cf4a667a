"""A translator with random weights: everything around the network is real."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from syntaxformer.base.files import write_manifest
from syntaxformer.nn import plan_widths
from syntaxformer.syntax import WordColumns, build_vocabularies
from syntaxformer.translation.decoding import DecodingConfig
from syntaxformer.translation.model import SyntaxTransformer, SyntaxTransformerConfig
from syntaxformer.translation.model_folder import FolderInfo, write_side_files
from syntaxformer.translation.source import SourceEncoder
from syntaxformer.translation.subwords import SubwordConfig, train_subwords
from syntaxformer.translation.translator import Translator
from table_annotator import TableAnnotator

LINES = ["the cat sat on the mat .", "cats sit .", "a dog and the cat run"]
SHAPE = {"d_model": 12, "d_ff": 17, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 2}


def make_translator(
    kind: str = "none",
    factors: tuple[str, ...] | None = None,
    user: dict[str, Any] | None = None,
    *,
    lines: Sequence[str] = LINES,
    n_pieces: int = 311,
    width: int = 5,
    shape: dict[str, Any] = SHAPE,
    symbols: Sequence[str] = (),
    **info: Any,
) -> Translator:
    """Make one; `symbols` are further special pieces, and `info` goes into its `syntaxformer.json`."""
    plan = plan_widths(kind, shape["d_model"], factors, None if kind == "onehot_concat" else width)
    names, annotator = [name for name, _ in plan.factors], TableAnnotator()
    tokenizer = train_subwords(list(lines) * 3, SubwordConfig(vocab_size=n_pieces))
    tokenizer.backend_tokenizer.add_special_tokens(list(symbols))
    columns = WordColumns.from_sentences(annotator.annotate(list(lines)), user)
    encoder = SourceEncoder(tokenizer, build_vocabularies([columns], names) if names else {})
    sizes = {name: len(vocabulary) for name, vocabulary in encoder.vocabularies.items()}
    torch.manual_seed(5)
    config = SyntaxTransformerConfig(
        vocab_size=len(tokenizer), infusion=plan.as_dict(), factor_sizes=sizes, **shape
    )
    model = SyntaxTransformer(config).eval()
    named = {"annotator": "table", "annotator_version": "3"}
    stored = {
        "src": "en", "tgt": "de", "factors": [values.to_dict() for values in encoder.vocabularies.values()],
        "decoding": DecodingConfig(beam_size=3, batch_size=7), **(named if names else dict.fromkeys(named)),
    }  # fmt: skip
    return Translator(model, encoder, FolderInfo(**{**stored, **info}), annotator if names else None)


def save_translator(translator: Translator, folder: Path) -> Path:
    """Write its folder."""
    folder.mkdir()
    write_side_files(folder, translator.info, translator.encoder.tokenizer)
    translator.model.save_pretrained(folder)
    write_manifest(folder)
    return folder
