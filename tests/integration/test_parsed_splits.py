"""A recipe whose train and dev are parsed elsewhere, under one name with `{split}`."""

import pytest

from syntaxformer.annotate import load_annotator
from syntaxformer.trees import write_conllu

SETTINGS = (
    "model.encoder_layers=1", "model.decoder_layers=1", "training.max_steps=4", "training.eval_every=2", "subwords.vocab_size=301",
    "training.max_batch_tokens=200", "infusion.kind=concat_pos", "infusion.width=10", "training.precision=fp32", "data.dev=dev",
)  # fmt: skip


@pytest.mark.slow
def test_train_and_dev_have_their_own_parses(cli, tmp_path):
    lines = [f"The dog saw {number} cats." for number in range(60)]
    english = load_annotator("en")
    for split, part in (("train", lines[:45]), ("dev", lines[45:])):
        for side in ("en", "de"):
            written = part if side == "en" else [line.replace("The dog", "Der Hund") for line in part]
            (tmp_path / f"{split}.{side}").write_text("\n".join(written) + "\n")
        write_conllu(tmp_path / f"{split}.conllu", english.annotate(part))
    settings = [*SETTINGS, f"annotation.annotator=conllu:{tmp_path}/{{split}}.conllu"]
    done = cli(
        "train",
        "tiny",
        f"data.dir={tmp_path}",
        "data.src=en",
        "data.tgt=de",
        f"output={tmp_path / 'run'}",
        *settings,
    )
    assert done.code == 0, done.err
    _use_on_other_text(cli, tmp_path)
    (tmp_path / "dev.conllu").unlink()
    done = cli(
        "train",
        "tiny",
        f"data.dir={tmp_path}",
        "data.src=en",
        "data.tgt=de",
        f"output={tmp_path / 'other'}",
        *settings,
    )
    assert done.code == 2
    assert done.err.strip().endswith(
        f"{tmp_path}/dev.conllu: expected the parsed file of the split 'dev', found none."
    )


def _use_on_other_text(cli, folder):
    """Its annotator knows the lines of training alone: other text needs another."""
    model = folder / "run"
    for side in ("en", "de"):
        (folder / f"other.{side}").write_text(f"The dog saw cats, {side}.\n")
    files = ("--src", folder / "other.en", "--ref", folder / "other.de")
    for verb, option, models in (
        ("evaluate", "--annotator", (model,)),
        ("compare", "--model-annotator", (model, folder / "other.de")),
    ):
        refused = cli(verb, *models, *files)
        assert (refused.code, refused.out) == (2, "")
        assert (
            f"annotator: expected one that is installed or in it, got one that would read '{folder}/"
            in refused.err
        )
        refused = cli(verb, *models, *files, "--trust-annotator")
        assert (refused.code, refused.out) == (2, "")
        assert "annotator: expected one that can annotate any text, got 'conllu:" in refused.err
        done = cli(verb, *models, *files, option, "en")
        assert done.code == 0, done.err
    refused = cli("serve", model, "--trust-annotator")
    assert refused.code == 2
    (line,) = refused.err.splitlines()
    assert line.startswith(f"error: {model}: expected an annotator of any text, got one that fails on 'a': ")
