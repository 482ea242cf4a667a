"""Scripts of `benchmarks/` and `experiments/` run at their tiniest size."""

from __future__ import annotations

import gzip
import importlib
import inspect
import sys
from pathlib import Path

import pytest

from syntaxformer.demo.corpus import read_pairs
from tiny_hosts import write_bert

ROOT = Path(__file__).resolve().parents[2]
N_PAIRS, N_ROWS = 260, 257
SMALL = {"d_model": 64, "d_ff": 17, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 1}

SCRIPTS = {
    "benchmarks/annotation": ("{data}/multi30k/train.en.gz --lines 7 --rounds 1", {}),
    "benchmarks/classifier_export": ("{bert} --data {data}/CoLA", {"N_ROUNDS": 1}),
    "benchmarks/classifier_int8": ("{classifier} --data {data}/CoLA --rounds 1", {}),
    "benchmarks/export": ("{translator} --src {data}/s.en --ref {data}/s.de --rounds 1", {}),
    "benchmarks/hot_paths": (
        "--data {data} --lines 40 --model {translator}",
        {"UPDATES": 1, "BATCH_PIECES": 64},
    ),
    "benchmarks/infusion_cost": ("{bert} --infuse masks,lisa --pieces 7 --rounds 1 --device cpu", {}),
    "benchmarks/infusion_kinds": ("--small --rounds 1", {"SMALL": SMALL, "N_LINES": 2, "LENGTH": 3}),
    "benchmarks/kill_checkpoints": ("--kills 1", {}),
    "benchmarks/large_corpus": (
        "{out} {data}/multi30k/train.en.gz {data}/multi30k/train.de.gz --pairs 150 --distinct 50 --corpus-only",
        {},
    ),
    "benchmarks/mask_effect": ("{bert} --data {data}/CoLA --lines 2", {}),
    "benchmarks/relations": ("", {"N_SENTENCES": 5, "DATA": ROOT / "nowhere"}),
    "benchmarks/training": (
        "",
        {
            "WARM_UP": 1,
            "SHAPE": {**SMALL, "dropout": 0.1},
            "run.__defaults__": (None, 1, 2),
            "pairs_like_multi30k.__defaults__": (499,),
        },
    ),
    "experiments/terms": ("{data}/s en de {out}", {}),
}
"""Script → its arguments, and constants that make it small."""

ELSEWHERE = {
    "benchmarks/__main__": "the benchmarks above, in one run",
    "benchmarks/abuse": "takes a minute for each crowd of clients",
    "benchmarks/alignment": "trains subwords on 29,000 lines",
    "benchmarks/bare_loop": "imported by benchmarks/training",
    "benchmarks/compiled_training": "compiles for minutes",
    "benchmarks/gpu": "tests/integration/test_gpu_page.py",
    "benchmarks/phrase_structure": "parses two treebanks that are not in the repository",
    "benchmarks/same_models": "trains every kind of model, each in a process of its own",
    "benchmarks/screenshots": "needs a browser",
    "benchmarks/serve_load": "needs a running service",
    "benchmarks/syntax_attention": "takes a BERT of base width",
    "benchmarks/timing": "imported by the others",
    "experiments/gallery": "tests/unit/study/test_cases.py",
    "experiments/little_data": "tests/unit/study/experiments/test_scripts.py",
    "experiments/monolingual_tatoeba": "needs the pairs of Tatoeba",
    "experiments/pages": "tests/unit/study/experiments/test_pages.py",
    "experiments/pretrain_marian": "pretrains a translator",
    "experiments/recompute": "tests/unit/study/experiments/test_pages.py",
    "experiments/scratch_encoder": "tests/unit/encoders/test_scratch.py",
    "experiments/split_tatoeba": "tests/unit/study/experiments/test_scripts.py",
}
"""Script → where it runs, or why it does not run here."""


def test_every_script_is_run_or_has_a_reason():
    scripts = {
        f"{folder}/{path.stem}"
        for folder in ("benchmarks", "experiments")
        for path in ROOT.glob(f"{folder}/*.py")
    }
    assert scripts == {*SCRIPTS, *ELSEWHERE}


@pytest.fixture(scope="module")
def names(cli, tmp_path_factory):
    """What the arguments name: corpora, a checkpoint, a classifier and a translator, none of which has learned."""
    data = tmp_path_factory.mktemp("scripts")
    sides = dict(zip(("en", "de"), zip(*read_pairs()["train"][:N_PAIRS], strict=True), strict=True))
    (data / "multi30k").mkdir()
    for side, lines in sides.items():
        (data / f"s.{side}").write_text("".join(f"{line}\n" for line in lines[:7]), "utf-8")
        text = "".join(f"{line}\n" for line in lines)
        for split in ("train", "val", "test2016"):
            (data / "multi30k" / f"{split}.{side}.gz").write_bytes(gzip.compress(text.encode()))
    write_bert(bert := data / "bert", n_positions=128)
    (data / "CoLA").mkdir()
    for split in ("train", "dev"):
        rows = [f"gj04\t{n % 2}\t\tthe {'ab'[n % 2]} is fine\n" for n in range(N_ROWS)]
        (data / "CoLA" / f"{split}.tsv").write_text("".join(rows))
    commands = {
        "translator": ("train", "tiny", f"data.dir={data / 'multi30k'}", "data.train=train", "data.dev=val",
            "subwords.vocab_size=301", "infusion.kind=sum_then_concat", "infusion.width=8", "model.d_model=12",
            "model.d_ff=17", "model.n_heads=2", "model.encoder_layers=1", "model.decoder_layers=1",
            "training.max_steps=2", "training.eval_every=1", "training.tensorboard=false", f"output={data / 'translator'}"),
        "classifier": ("finetune", "--task", "cola", "--data", data / "CoLA", "--model", bert, "--epochs", 1,
            "--infuse", "masks", "-o", data / "classifier"),
    }  # fmt: skip
    for command in commands.values():
        cli("--quiet", *command).ok()
    return {"data": data, "bert": bert, **{name: data / name for name in commands}}


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_runs(script, names, monkeypatch, tmp_path, capsys):
    folder, name = script.split("/")
    arguments, constants = SCRIPTS[script]
    monkeypatch.syspath_prepend(ROOT / folder)
    module = importlib.import_module(name)
    for constant, value in constants.items():
        monkeypatch.setattr(f"{name}.{constant}", value)
    texts = arguments.format(**names, out=tmp_path / "out").split()
    monkeypatch.setattr(sys, "argv", [name, *texts])
    main = getattr(module, "main", None) or module.run
    n_parameters = len(inspect.signature(main).parameters)
    values = [Path(text) if "/" in text else int(text) if text.isdigit() else text for text in texts]
    main(*values) if n_parameters and values else main()
