#!/usr/bin/env python3
"""syntaxformer in the table: its own trainer, its own translator, with the harness's counters.

    ours.py train DATA OUT.json SECONDS WARM_SECONDS WARM_UPDATES [--factors] [--precision auto]
    ours.py model RAW_DIR FOLDER                       3-update model from raw text, and its int8 export
    ours.py translate FOLDER OUT.json STEPS            raw lines in, text out: tags and pieces are in the time

Training reads the harness's pieces and factors; nothing is patched but the counters. In translation every
sentence is forced to STEPS steps: see `forced` in each function.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import meter as M
import numpy as np
import torch
from transformers import TrainerCallback

from syntaxformer.base.files import read_lines
from syntaxformer.nn import plan_widths
from syntaxformer.runs.processes import pick_precision
from syntaxformer.translation.batches import EncodedPairs
from syntaxformer.translation.corpora import find_file
from syntaxformer.translation.model import SyntaxTransformer, SyntaxTransformerConfig
from syntaxformer.translation.recipe import Recipe
from syntaxformer.translation.source import EncodedText
from syntaxformer.translation.training import SyntaxTrainer

SHAPE = {
    "d_model": 512, "d_ff": 2048, "n_heads": 8, "encoder_layers": 3, "decoder_layers": 3, "norm": "pre",
    "dropout": 0.1, "attention_dropout": 0.1, "activation_dropout": 0.1,
}  # fmt: skip
WIDTHS = {"pos": 12, "case": 4, "subword": 4}
PAD, BOS, EOS = 1, 2, 3  # of vocab.joey; 0 is unk
BATCH_TOKENS = 2050
WARM, BATCH = 64, 32


# ------------------------------------------------------------------ training
def _text(lines: list[list[int]], factors: list[list[list[int]]] = ()) -> EncodedText:
    splits = np.cumsum([0, *map(len, lines)])
    columns = [np.concatenate(column) for column in factors]
    flat = np.stack(columns, 1) if columns else np.zeros((splits[-1], 0))
    return EncodedText(np.concatenate(lines).astype(np.int32), splits, flat.astype(np.int32))


def load(data: Path, factors: bool) -> tuple[EncodedPairs, int, dict[str, int]]:
    """The harness's training pairs, the rows of its table, the rows of each factor."""
    ids = {piece: row for row, piece in enumerate((data / "vocab.joey").read_text("utf-8").split("\n")[:-1])}

    def pieces(side: str) -> list[list[int]]:
        lines = (data / f"train.{side}").read_text("utf-8").splitlines()
        return [[ids.get(piece, 0) for piece in line.split(" ")] + [EOS] for line in lines]

    columns, sizes = [], {}
    for number, name in enumerate(WIDTHS if factors else ()):
        lines = [line.split(" ") for line in (data / f"train.en.f{number}").read_text().splitlines()]
        values = {v: row + 1 for row, v in enumerate(sorted({v for line in lines for v in line}))}
        columns.append([[values[v] for v in line] + [0] for line in lines])
        sizes[name] = len(values) + 1
    return EncodedPairs(_text(pieces("en"), columns), _text(pieces("de"))), len(ids), sizes


class Counted(SyntaxTrainer):
    """Our trainer with the harness's meter."""

    meter: M.TrainMeter

    def compute_loss(self, model: Any, inputs: dict[str, Any], *arguments: Any, **named: Any) -> Any:
        labels, mask = inputs["labels"], inputs.get("attention_mask")
        cells = inputs["input_ids"].numel()
        self.meter.batch(
            tgt=(labels != -100).sum(), tgt_cells=labels.numel(), sents=len(labels),
            src=cells if mask is None else mask.sum(), src_cells=cells,
        )  # fmt: skip
        return super().compute_loss(model, inputs, *arguments, **named)


class Boundary(TrainerCallback):
    """An update ends where the next one begins, with its data loading."""

    def __init__(self, meter: M.TrainMeter) -> None:
        self.meter = meter

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.meter.boundary()


def train(a: argparse.Namespace) -> None:
    pairs, rows, sizes = load(a.data, a.factors)
    plan = plan_widths("concat", 512, list(WIDTHS), widths=WIDTHS) if a.factors else plan_widths("none", 512)
    torch.manual_seed(1)
    config = SyntaxTransformerConfig(
        vocab_size=rows, infusion=plan.as_dict(), factor_sizes=sizes, label_smoothing=0.1, **SHAPE,
        pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS, decoder_start_token_id=BOS,
    )  # fmt: skip
    training = {
        "max_steps": 10**6, "max_batch_tokens": BATCH_TOKENS, "eval_every": 10**6, "log_every": 20,
        "precision": a.precision, "schedule": "constant", "learning_rate": 3e-4, "warmup_steps": 0,
        "tensorboard": False,
    }  # fmt: skip
    recipe = {"output": tempfile.mkdtemp(), "data": {"dir": "."}, "training": training}
    info = {
        "version": pick_precision(a.precision), "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }  # fmt: skip
    model = SyntaxTransformer(config)
    info["params"] = sum(parameter.numel() for parameter in model.parameters())
    trainer = Counted(model, Recipe.model_validate(recipe), pairs, pairs, PAD)
    trainer.meter = M.TrainMeter(a.out, a.seconds, a.warm_seconds, a.warm_updates, info)
    trainer.add_callback(Boundary(trainer.meter))
    trainer.train()


# --------------------------------------------------------------- translation
def make_model(a: argparse.Namespace) -> None:
    """A folder as `train` writes it after 3 updates, with tags, and its int8 export."""
    from syntaxformer.translation.export_ctranslate2 import export_translator
    from syntaxformer.translation.training import train_translator

    raw = a.folder / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    for split, name, n_lines in (("train", "train", 6000), ("val", "dev", 32), ("test2016",) * 2 + (None,)):
        for side in ("en", "de"):
            lines = list(read_lines(find_file(a.raw, split, side)))[:n_lines]
            (raw / f"{name}.{side}").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    recipe = Recipe.model_validate(
        {
            "output": a.folder / "pytorch", "data": {"dir": raw, "cache": a.folder / "cache"}, "model": SHAPE,
            "subwords": {"vocab_size": 7960}, "infusion": {"kind": "concat", "widths": WIDTHS},
            "training": {"max_steps": 3, "max_batch_tokens": 2048, "eval_every": 3, "tensorboard": False},
            "decoding": {"max_length_factor": 16},
        }
    )  # fmt: skip
    train_translator(recipe, overwrite=True)
    export_translator(a.folder / "pytorch", a.folder / "int8", "int8", overwrite=True)


def force_pytorch(decoder: Any, steps: int, calls: list[int]) -> None:
    """forced: `generate` gets min_new_tokens = max_new_tokens = STEPS and no other limit; its calls count."""
    generate, forward = decoder.model.generate, decoder.model.decoder.forward

    def counted(*arguments: Any, **named: Any) -> Any:
        calls.append(1)
        return forward(*arguments, **named)

    def forced(**named: Any) -> Any:
        named["logits_processor"] = []
        return generate(**named | {"min_new_tokens": steps, "max_new_tokens": steps})

    decoder.model.generate, decoder.model.decoder.forward = forced, counted


def force_ctranslate2(decoder: Any, steps: int, results: list[Any]) -> None:
    """forced: min_decoding_length = max_decoding_length = STEPS; the results are held."""
    translate = decoder.network.translate_batch

    class Network:
        num_translators = decoder.network.num_translators

        def translate_batch(self, *tokens: Any, **named: Any) -> Any:
            forced = {"min_decoding_length": steps, "max_decoding_length": steps}
            futures = translate(*tokens, **named | forced)
            results.extend(futures)
            return futures

    decoder.network = Network()


def translate(a: argparse.Namespace) -> None:
    from syntaxformer.translation.translator import Translator

    lines = (a.folder.parent / "raw" / "test2016.en").read_text("utf-8").splitlines()
    translator = Translator.load(a.folder)
    calls: list[int] = []
    results: list[Any] = []
    forcing = {"pytorch": (force_pytorch, calls), "ctranslate2": (force_ctranslate2, results)}
    force, seen = forcing[translator.info.backend]
    force(translator.decoder, a.steps, seen)
    list(translator.translate(lines[:WARM], beam_size=5, batch_size=BATCH))
    seen.clear()
    start = time.perf_counter()
    found = list(translator.translate(lines, beam_size=5, batch_size=BATCH))
    seconds = time.perf_counter() - start
    lengths = {len(result.result().hypotheses[0]) for result in results}
    wanted = {"pytorch": len(calls) == a.steps * -(-len(lines) // BATCH), "ctranslate2": lengths == {a.steps}}
    if not wanted[translator.info.backend]:
        raise SystemExit(
            f"{len(calls)} decoder calls, output lengths {lengths}: expected {a.steps} steps each"
        )
    M.translate_result(
        a.out, len(found), len(found) * a.steps, a.steps, seconds, version=translator.info.backend,
        torch=torch.__version__, threads=torch.get_num_threads(),
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("train")
    one.add_argument("data", type=Path)
    one.add_argument("out")
    one.add_argument("seconds", type=float)
    one.add_argument("warm_seconds", type=float)
    one.add_argument("warm_updates", type=int)
    one.add_argument("--factors", action="store_true")
    one.add_argument("--precision", default="auto")
    one.set_defaults(run=train)
    one = commands.add_parser("model")
    one.add_argument("raw", type=Path)
    one.add_argument("folder", type=Path)
    one.set_defaults(run=make_model)
    one = commands.add_parser("translate")
    one.add_argument("folder", type=Path)
    one.add_argument("out")
    one.add_argument("steps", type=int)
    one.set_defaults(run=translate)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
