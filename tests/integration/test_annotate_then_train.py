"""A training whose lines were annotated before: by `annotate`, or elsewhere, with a parsed file for each split."""

import pytest

from parallel_files import write_sides
from syntaxformer.annotate import load_annotator
from syntaxformer.trees import write_conllu

SETTINGS = (
    "model.encoder_layers=1", "model.decoder_layers=1", "training.max_steps=4", "training.eval_every=2", "subwords.vocab_size=301",
    "training.max_batch_tokens=200", "infusion.kind=concat_pos", "infusion.width=10", "training.precision=fp32", "data.dev=dev",
    "data.src=en", "data.tgt=de",
)  # fmt: skip


@pytest.fixture
def splits(tmp_path):
    """Files of a small corpus; returns its English lines. Five of dev are in train."""
    lines = [f"The dog saw {number} cats." for number in range(60)]
    parts = {"train": lines[:45], "dev": lines[40:]}
    for split, english in parts.items():
        write_sides(tmp_path, english, [line.replace("The dog", "Der Hund") for line in english], split)
    return parts


@pytest.mark.slow
def test_lines_that_were_annotated_before_are_not_tagged_again(cli, splits, tmp_path, monkeypatch):
    monkeypatch.setenv("SYNTAXFORMER_CACHE", str(tmp_path / "cache"))
    where = (f"data.dir={tmp_path}", f"annotation.annotated=[{tmp_path / 'train.parquet'}]")
    monkeypatch.chdir(tmp_path)
    done = cli("annotate", "train.en", "-o", "train.parquet").ok()
    assert done.out.startswith("train.parquet: 45 lines, ")
    done = cli("train", "tiny", *where, f"output={tmp_path / 'run'}", *SETTINGS).ok()
    assert "annotation: 45 of 45 lines were annotated before" in done.err
    assert "annotation: 5 of 20 lines were annotated before" in done.err
    cli("train", "tiny", where[0], f"output={tmp_path / 'plain'}", *SETTINGS).ok()
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("run", "plain")]
    assert weights[0] == weights[1]


def test_a_file_of_another_annotator_is_refused(cli, splits, tmp_path):
    cli("annotate", tmp_path / "train.de", "-o", tmp_path / "a.parquet", "--annotator", "de").ok()
    where = (f"data.dir={tmp_path}", f"annotation.annotated=[{tmp_path / 'a.parquet'}]")
    done = cli("train", "tiny", *where, f"output={tmp_path / 'run'}", *SETTINGS).refused()
    (line,) = done.err.strip().splitlines()
    assert line.startswith("error: annotation.annotated: expected files by en ")


@pytest.mark.slow
def test_train_and_dev_have_their_own_parses(cli, splits, tmp_path):
    english = load_annotator("en")
    for split, lines in splits.items():
        write_conllu(tmp_path / f"{split}.conllu", english.annotate(lines))
    annotator = f"annotation.annotator=conllu:{tmp_path}/{{split}}.conllu"
    command = ("train", "tiny", f"data.dir={tmp_path}", *SETTINGS, annotator)
    cli(*command, f"output={tmp_path / 'run'}").ok()
    _use_on_other_text(cli, tmp_path)
    (tmp_path / "dev.conllu").unlink()
    done = cli(*command, f"output={tmp_path / 'other'}").refused()
    assert f"{tmp_path}/dev.conllu: expected the parsed file of the split 'dev'" in done.err


def _use_on_other_text(cli, folder):
    """Its annotator knows the lines of training alone: other text needs another."""
    model = folder / "run"
    write_sides(folder, ["The dog saw cats, en."], ["The dog saw cats, de."], "other")
    files = ("--src", folder / "other.en", "--ref", folder / "other.de")
    for verb, option, models in (
        ("evaluate", "--annotator", (model,)),
        ("compare", "--model-annotator", (model, folder / "other.de")),
    ):
        for more, told in (
            ((), f"got one that would read '{folder}/"),
            (("--trust-annotator",), "got 'conllu:"),
        ):
            refused = cli(verb, *models, *files, *more)
            assert (refused.code, refused.out) == (2, "")
            assert "annotator: expected one that " in refused.err
            assert told in refused.err
        cli(verb, *models, *files, option, "en").ok()
    refused = cli("serve", model, "--trust-annotator").refused()
    *_, line = refused.err.splitlines()  # after the log of what is loaded
    assert line.startswith(f"error: {model}: expected an annotator of any text, got one that fails on 'a': ")
