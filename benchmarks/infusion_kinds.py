"""Translation speed and size of every infusion kind, of lisa, masks and relation_bias, against the baseline.

    OMP_NUM_THREADS=1 python benchmarks/infusion_kinds.py [--small]

Random weights, the same sentences of the demo's corpus, translations forced to one length, beam 5. From
encoded sentences to pieces, relations included, annotation not. Processor time, systems in turn.
"""

from __future__ import annotations

import argparse
import statistics
from functools import partial
from typing import Any

import numpy as np
import torch
from timing import turns

from syntaxformer.annotate import load_annotator
from syntaxformer.demo.corpus import read_pairs
from syntaxformer.nn import INFUSION_KINDS, plan_widths
from syntaxformer.syntax import SyntaxInputs, TreeOptions, WordColumns, build_vocabularies
from syntaxformer.translation.model import SyntaxTransformer, SyntaxTransformerConfig, TranslationCache
from syntaxformer.translation.source import SourceEncoder, source_batch
from syntaxformer.translation.subwords import SubwordConfig, train_subwords

SYSTEMS: dict[str, dict[str, Any]] = {
    **{kind: {"kind": kind} for kind in INFUSION_KINDS},
    "lisa": {"lisa": {}},
    "masks (both trees)": {"masks": {}},
    "masks (dependency)": {"masks": {"trees": ["dependency"]}},
    "relation_bias": {"relation_bias": {}},
}
IWSLT = {"d_model": 512, "d_ff": 1024, "n_heads": 4, "encoder_layers": 6, "decoder_layers": 6}
SMALL = {"d_model": 256, "d_ff": 1024, "n_heads": 4, "encoder_layers": 3, "decoder_layers": 3}
N_LINES, LENGTH, BEAM = 8, 24, 5


def build(shape: dict[str, int], settings: dict[str, Any]) -> tuple[SyntaxTransformer, Any]:
    """A model and its encoded text."""
    lines = [source for source, _ in read_pairs()["train"][:2000]]
    tokenizer = train_subwords(lines, SubwordConfig(vocab_size=2000))
    kind = settings.get("kind", "none")
    plan = plan_widths(kind, shape["d_model"])
    words = WordColumns.from_sentences(load_annotator("en+phrases").annotate(lines[:N_LINES]))
    names = [name for name, _ in plan.factors]
    section = settings.get("masks", settings.get("relation_bias"))
    encoder = SourceEncoder(
        tokenizer,
        build_vocabularies([words], names) if names else {},
        prepend="interleaved" if kind == "prepend" else None,
        syntax=SyntaxInputs(trees=None if section is None else TreeOptions(**section)),
    )
    sections = {name: settings[name] for name in ("lisa", "masks", "relation_bias") if name in settings}
    torch.manual_seed(1)
    config = SyntaxTransformerConfig(
        **shape,
        vocab_size=10_000,
        infusion=plan.as_dict(),
        factor_sizes={name: len(vocabulary) for name, vocabulary in encoder.vocabularies.items()},
        **sections,
    )
    encoded = encoder.encode(lines[:N_LINES], words if encoder.needs_words else None)
    if kind == "prepend":  # its tags stand behind the vocabulary of the model
        encoded.pieces[encoded.pieces >= len(tokenizer)] += 10_000 - len(tokenizer)
    return SyntaxTransformer(config).eval(), encoded


@torch.inference_mode()
def translate(model: SyntaxTransformer, text: Any) -> None:
    """One batch, every translation of the same length."""
    model.generate(
        **source_batch(text, range(N_LINES), 0),
        num_beams=BEAM,
        min_new_tokens=LENGTH,
        max_new_tokens=LENGTH,
        past_key_values=TranslationCache(),
    )


def run(small: bool = False, rounds: int = 5) -> dict[str, dict[str, float]]:
    """Parameters, seconds of processor time, and both against the baseline."""
    shape = SMALL if small else IWSLT
    built = {name: build(shape, settings) for name, settings in SYSTEMS.items()}
    times = turns(
        {name: partial(translate, *model_and_text) for name, model_and_text in built.items()}, rounds
    )
    base = np.array(times["none"])
    report = {}
    for name, (model, _) in built.items():
        n_parameters = sum(parameter.numel() for parameter in model.parameters())
        report[name] = {
            "parameters": n_parameters,
            "seconds": round(statistics.median(times[name]), 3),
            "speed_ratio": round(float(np.median(base / np.array(times[name]))), 3),
        }
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="d 256, 3+3 layers; default: 512, 6+6")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    report = run(arguments.small, arguments.rounds)
    base = report["none"]["parameters"]
    for name, row in report.items():
        more = row["parameters"] - base
        print(
            f"{name:<20} {row['parameters']:>12,} {more:>+12,} {row['seconds']:>8} s {row['speed_ratio']:>7}x"
        )


if __name__ == "__main__":
    main()
