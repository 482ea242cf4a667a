"""A training that takes what `annotate` made, not tagging a line of it again."""

import pytest

SETTINGS = (
    "model.encoder_layers=1", "model.decoder_layers=1", "training.max_steps=2", "training.eval_every=2", "subwords.vocab_size=301",
    "training.max_batch_tokens=200", "infusion.kind=concat_pos", "infusion.width=10", "training.precision=fp32", "data.dev=dev",
    "data.src=en", "data.tgt=de",
)  # fmt: skip


@pytest.mark.slow
def test_lines_that_were_annotated_before_are_not_tagged_again(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("SYNTAXFORMER_CACHE", str(tmp_path / "cache"))
    lines = [f"The dog saw {number} cats." for number in range(60)]
    for split, part in (("train", lines[:45]), ("dev", lines[40:])):
        for side in ("en", "de"):
            written = part if side == "en" else [line.replace("The dog", "Der Hund") for line in part]
            (tmp_path / f"{split}.{side}").write_text("\n".join(written) + "\n")
    where = (f"data.dir={tmp_path}", f"annotation.annotated=[{tmp_path / 'train.parquet'}]")
    monkeypatch.chdir(tmp_path)
    done = cli("annotate", "train.en", "-o", "train.parquet")
    assert done.code == 0, done.err
    assert done.out.startswith("train.parquet: 45 lines, ")
    done = cli("train", "tiny", *where, f"output={tmp_path / 'run'}", *SETTINGS)
    assert done.code == 0, done.err
    assert "annotation: 45 of 45 lines were annotated before" in done.err
    assert "annotation: 5 of 20 lines were annotated before" in done.err
    plain = cli("train", "tiny", where[0], f"output={tmp_path / 'plain'}", *SETTINGS)
    assert plain.code == 0, plain.err
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("run", "plain")]
    assert weights[0] == weights[1]


def test_a_file_of_another_annotator_is_refused(cli, tmp_path):
    for name in ("train.en", "train.de", "dev.en", "dev.de"):
        (tmp_path / name).write_text(f"The dog saw it.\nIt rains in {name}.\n")
    done = cli("annotate", tmp_path / "train.de", "-o", tmp_path / "a.parquet", "--annotator", "de")
    assert done.code == 0, done.err
    where = (f"data.dir={tmp_path}", f"annotation.annotated=[{tmp_path / 'a.parquet'}]")
    done = cli("train", "tiny", *where, f"output={tmp_path / 'run'}", *SETTINGS)
    assert done.code == 2
    (line,) = done.err.strip().splitlines()
    assert line.startswith("error: annotation.annotated: expected files by en ")
