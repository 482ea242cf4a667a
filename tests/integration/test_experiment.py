"""One cell of an experiment for real: trained, translated, scored, reported; and the figure gallery."""

from __future__ import annotations

import json
import sys

import pytest
import yaml
from sacrebleu import corpus_chrf
from sacrebleu.metrics import TER

from syntaxformer.study.experiments.cell import HYPOTHESES, run_cell, unpacked, write_cell
from syntaxformer.study.experiments.report import write_report
from syntaxformer.study.experiments.runner import run_experiment
from syntaxformer.study.experiments.spec import load_spec
from syntaxformer.study.experiments.store import RunStore
from syntaxformer.translation.scoring import score_translations
from syntaxformer.trees import Sentence, write_conllu

pytestmark = pytest.mark.slow
SETTINGS = {
    "subwords.vocab_size": 301, "model.d_model": 32, "model.d_ff": 37, "model.n_heads": 2, "training.max_steps": 6,
    "training.max_batch_tokens": 521, "training.eval_every": 3, "training.precision": "fp32", "decoding.beam_size": 1,
    "training.tensorboard": False, "data.dev": "dev",
}  # fmt: skip


def test_a_cell_and_its_report(digits, tmp_path):
    path = tmp_path / "spec.yaml"
    content = {
        "name": "digits", "verb": "train", "recipe": "tiny",
        "settings": {**SETTINGS, "data.dir": str(digits.corpus), "data.fraction": 0.1},
        "axes": {"seed": [1]},
        "test": {"src": str(digits.corpus / "dev.en"), "ref": str(digits.corpus / "dev.de")},
    }  # fmt: skip
    path.write_text(yaml.safe_dump(content))
    spec, store = load_spec(path), RunStore(tmp_path / "store")
    (cell,) = spec.cells()
    store.add([cell])
    folder = store.cell_folder(cell)
    folder.mkdir(parents=True)
    write_cell(cell, folder, spec)
    result = run_cell(folder)
    hypotheses = (folder / HYPOTHESES).read_text().splitlines()
    references = (digits.corpus / "dev.de").read_text().splitlines()
    assert result["metrics"]["bleu"] == score_translations(hypotheses, references).bleu
    chrf = corpus_chrf(hypotheses, [references], word_order=2).score
    ter = TER(case_sensitive=True).corpus_score(hypotheses, [references]).score
    assert result["metrics"]["chrf++"] == pytest.approx(chrf)
    assert result["metrics"]["ter"] == pytest.approx(ter)
    assert "nw:2" in result["signatures"]["chrf++"]
    assert [point["step"] for point in result["curve"]] == [3, 6]
    assert result["metrics"]["dev_loss"] == min(point["value"] for point in result["curve"])
    assert result["n_parameters"] > 10_000
    assert result["source_table"] == "shared"
    assert (result["recipe"]["data.fraction"], result["recipe"]["model.d_ff"]) == (0.1, 37)
    assert not (folder / "model" / "checkpoints").exists()
    assert run_cell(folder) == json.loads((folder / "result.json").read_text())  # done: nothing runs again
    store.finish(cell.key, 1.0, result)
    text = write_report(spec, store, tmp_path / "report").read_text()
    scores = [f"{result['metrics'][name]:.2f}" for name in ("bleu", "chrf++", "ter")]
    assert f"| 1 of 1 | {' | '.join(scores)} |" in text
    assert "A lower ter is better." in text


def test_the_gallery(digits, gallery, tmp_path, monkeypatch):
    test = digits.corpus / "test.en", digits.corpus / "test.de"
    texts = ["--src", test[0], "--ref", test[1], "--lines", "7"]
    arguments = [digits.none, digits.sum_then_concat, *texts, "-o", tmp_path]
    monkeypatch.setattr(sys, "argv", ["gallery", *map(str, arguments)])
    gallery.main()
    text = (tmp_path / "gallery.md").read_text()
    assert "| entropy |" in text
    assert "| blank | pos, case, subword |" in text
    assert "7 sentences; chrF" in (tmp_path / "cases.md").read_text()
    assert (tmp_path / "attention_1.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    "syntax",
    [{"infusion.preset": "paper", "masks.max_distance": 2}, {"lisa.weight": 0.1}],
    ids=["masks", "LISA"],
)
def test_named_tests_along_a_training_of_a_share(syntax, digits, tmp_path):
    """Gold trees of all lines serve the share; each evaluation and the end are scored line by line.

    LISA needs trees in training alone.
    """
    folder = tmp_path / "data"
    folder.mkdir()
    for split, new in (("train", "train"), ("dev", "dev"), ("test", "unseen")):
        sides = [(digits.corpus / f"{split}.{side}").read_text().splitlines()[:60] for side in ("en", "de")]
        for side, lines in zip(("en", "de"), sides, strict=True):
            (folder / f"{new}.{side}").write_text("".join(f"{line}\n" for line in lines))
        write_conllu(folder / f"{new}.conllu", [chain(line.split()) for line in sides[0]])
        rows = ["length", *(str(len(line.split())) for line in sides[0])]
        (folder / f"{new}.tsv").write_text("".join(f"{row}\n" for row in rows))
    (tmp_path / "own.py").write_text(
        "def longer(s, h, r, row): return len(s.split()) > 3 and row['length'] > '3'\n"
    )
    content = {
        "name": "digits", "verb": "train", "recipe": "tiny",
        "settings": {**SETTINGS, "data.dir": str(folder), "data.fraction": 0.5, **syntax,
                     "annotation.annotator": f"conllu:{folder}/{{split}}.conllu",
                     "decoding.max_length_factor": 0.1},
        "axes": {"seed": [1, 2]},
        "tests": {"unseen": {"src": str(folder / "unseen.en"), "ref": str(folder / "unseen.de"), "along": True,
                             "columns": str(folder / "unseen.tsv"), "metrics": ["exact_match", "bleu", "own.py:longer"]}},
        "report": {"metrics": ["unseen_longer_last"], "by": {"unseen_longer": "length"}},
    }  # fmt: skip
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(content))
    spec, store = load_spec(path), RunStore(tmp_path / "store")
    assert run_experiment(spec, store, only={"seed": {"1"}}) == {"done": 1}
    (run,) = [run for run in store.runs().values() if run.state == "done"]
    lengths = [len(line.split()) for line in (folder / "unseen.en").read_text().splitlines()]
    share = sum(length > 3 for length in lengths) / len(lengths)
    assert run.metrics["unseen_longer"] == run.metrics["unseen_longer_last"] == pytest.approx(share, abs=1e-6)
    assert list(run.result["along"]) == ["3", "6"]
    assert set(run.result["along"]["3"]) == {"unseen_exact_match", "unseen_bleu", "unseen_longer"}
    assert unpacked(run.result["lines"]["unseen_longer"]) == [length > 3 for length in lengths]
    table = run.result["by_column"]["unseen_longer"]["length"]
    assert {int(value): mean for value, (mean, _) in table.items()} == {n: float(n > 3) for n in set(lengths)}
    text = write_report(spec, store, tmp_path / "report").read_text()
    assert f"| 1 of 2 | {share:.2f} |" in text
    assert (tmp_path / "report" / "along_unseen_longer.png").exists()


def chain(words):
    """A sentence whose words hang on the ones before them."""
    return Sentence.from_words(
        words,
        upos=("NUM",) * len(words),
        governors=tuple(range(-1, len(words) - 1)),
        deprels=("root", *["dep"] * (len(words) - 1)),
        constituency=f"(S {' '.join(f'(CD {word})' for word in words)})",
    )
