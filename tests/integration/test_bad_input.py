"""Everything that a user can get wrong: exit code 2, one clear line a problem, nothing half-written."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import own_process


def _refused(done, *places: object) -> None:
    """Exit code 2, nothing on stdout, and on stderr a line for each place that is named, and no other."""
    assert (done.code, done.out) == (2, ""), done
    lines = done.err.splitlines()
    assert len(lines) == len(places), lines
    for line, place in zip(lines, places, strict=True):
        assert line.startswith(f"error: {place}"), line


def _snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("files", "settings", "places"),
    [
        ({"train.de": None}, "", ["data: expected the file {tgt} or {tgt}.gz,"]),
        ({"train.de": b"a\nb\n"}, "", ["{src}: expected as many lines as {tgt}, got 3 and 2"]),
        ({"train.de": b"a\nb\xff\nc\n"}, "", ["{tgt}:2: expected UTF-8, got byte 0xff at byte 2 of the line (4 of the file)"]),
        ({"train.de": b"a\nb\nc\0\n"}, "", ["{tgt}:3: expected text, got a NUL at byte 2 of the line (6 of the file)"]),
        ({"train.de": "a\nb\nc\n".encode("utf-16")}, "", ["{tgt}:1: expected UTF-8, got UTF-16"]),
        ({"train.de": b"a\tx\nb\nc\n"}, "", ["{tgt}:1: expected one sentence, got a tab at character 2"]),
        ({"train.de": b"\n\n\n"}, "", ["{src}: expected at least one pair of lines with text, got 3"]),
        ({"train.en": b"", "train.de": b""}, "", ["{src}: expected at least one pair of lines with text, got 0"]),
        ({}, "training.lerning_rate=1 modle.d_ff=3",
         ["command line: training.lerning_rate: unknown key. Nearest: l", "command line: modle: unknown key"]),
        ({}, "infusion.kind=sum_then_concat infusion.word_width=11",
         ["command line: infusion widths: expected a word width of at least 1 and a sum of d_model = 12, got 11"]),
        ({}, "infusion.kind=add annotation.annotator=ne", ["annotator: expected de, de_lower, en, "]),
        ({}, "infusion.kind=add annotation.annotator=spacy:xx_none",
         ["the spaCy pipeline 'xx_none' is not installed. Run: python -m spacy download xx_none"]),
        ({}, "infusion.kind=add annotation.annotator=conllu:/none.conllu", ["/none.conllu: expected a readable file, "]),
        ({"trees.ptb": b"(S (NN The) (NN cat) (NN sat) (. .))\n"}, "infusion.kind=add annotation.annotator=ptb:{trees}",
         ["factor 'pos': expected upos, got none from ptb:{trees}."]),
    ],
)  # fmt: skip
def test_a_training_that_cannot_begin(train, corpus, tmp_path, files, settings, places):
    for name, content in files.items():
        (corpus / name).unlink() if content is None else (corpus / name).write_bytes(content)
    paths = {"src": corpus / "train.en", "tgt": corpus / "train.de", "trees": corpus / "trees.ptb"}
    result = train(*settings.format(**paths).split())
    _refused(result, *(place.format(**paths) for place in places))
    assert not (tmp_path / "run").exists()


def test_a_factor_file_that_slips_by_one_word(train, corpus, tmp_path):
    (corpus / "train.tone").write_text("h l h l\nh l h\nl h l\n")
    settings = ("infusion.kind=add", "infusion.factors=[pos, tone]", "data.factor_files={tone: tone}")
    done = train(*settings)
    assert done.code == 2
    *progress, line = done.err.splitlines()
    assert line.startswith(f"error: {corpus / 'train.tone'}:2: factor file: expected 4 values, ")
    assert not any(line.startswith("error") for line in progress)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_factor_of_ones_own_from_training_to_translation(train, corpus, cli, tmp_path):
    (corpus / "train.tone").write_text("h l h l\nh l h l\nl h l\n")
    settings = ("infusion.kind=concat", "infusion.factors=[pos, tone]", "data.factor_files={tone: tone}")
    widths = ("infusion.widths={pos: 3, tone: 2}", "infusion.min_count=1", "training.best_by=bleu")
    assert train(*settings, *widths).code == 0
    source, factors = corpus / "train.en", f"tone={corpus / 'train.tone'}"
    done = cli("translate", tmp_path / "run", source, "--factor", factors, "--beam-size", "1")
    assert (done.code, len(done.out.splitlines())) == (0, 3)
    assert all("repeat themselves" in line for line in done.err.splitlines())  # it is hardly trained
    arguments = ("evaluate", tmp_path / "run", "--src", source, "--ref", corpus / "train.de")
    assert cli(*arguments, "--factor", factors).code == 0
    _refused(cli("translate", tmp_path / "run", source), "user factors: expected values of tone ")
    (corpus / "train.tone").write_text("h l h l\nh l l\nl h l\n")
    done = cli("translate", tmp_path / "run", source, "--factor", factors, "-o", tmp_path / "out")
    _refused(done, f"{corpus / 'train.tone'}:2: column tone: expected 4 values, one per word, got 3")
    assert not (tmp_path / "out").exists()


def test_an_occupied_output_folder(train, tmp_path):
    assert train().code == 0
    before = _snapshot(tmp_path / "run")
    problem = f"output: expected a new or empty folder, got {tmp_path / 'run'}, which holds another run."
    _refused(train(), problem)
    problem = "resume: expected seed=1 as in the interrupted run, got 2."
    _refused(train("seed=2", flags=("--resume",)), problem)
    # Bad data is found before the old run is deleted.
    done = train("data.dev=none", flags=("--overwrite",))
    assert done.code == 2
    assert _snapshot(tmp_path / "run") == before
    assert train("seed=2", flags=("--overwrite",)).code == 0


def test_other_data_and_factors_are_not_resumed(train, corpus):
    settings = ("infusion.kind=add", "infusion.factors=[pos, tone]", "data.factor_files={tone: tone}")
    (corpus / "train.tone").write_text("a b c d\na b c d\na b c\n")
    done = train(*settings)
    assert done.code == 0, done.err

    def told():
        done = train(*settings, "training.max_steps=3", flags=("--resume",))
        assert done.code == 2
        return [line for line in done.err.splitlines() if line.startswith("error: ")]

    (corpus / "train.tone").write_text("a b c a\na b c d\na b c\n")
    (line,) = told()
    assert line.startswith("error: resume: expected the annotation ")
    (corpus / "train.en").write_text("The cat sat.\nA dog runs.\nCats eat.\n")
    for split, line in zip(("train", "dev"), told()[:2], strict=True):
        assert line.startswith(f"error: resume: expected the {split} text of the interrupted run,")


def test_a_run_killed_before_its_first_checkpoint_can_be_resumed(train, tmp_path):
    from syntaxformer.runs.run_folder import RECIPE

    assert train().code == 0
    for path in (tmp_path / "run").iterdir():
        if path.name != RECIPE:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    done = train(flags=("--resume",))
    assert done.code == 0
    assert "no complete checkpoint in" in done.err
    assert (tmp_path / "run" / "manifest.json").exists()


def test_tampered_checkpoints_are_skipped_with_a_word(train, tmp_path):
    assert train("training.average=2").code == 0
    checkpoints = tmp_path / "run" / "checkpoints"
    with (checkpoints / "checkpoint-2" / "optimizer.safetensors").open("r+b") as file:
        file.truncate(11)
    done = train("training.average=2", flags=("--resume",))
    assert done.code == 0
    assert "skipping a checkpoint: " in done.err
    assert "optimizer.safetensors: expected " in done.err
    assert f"resuming from {checkpoints / 'checkpoint-1'}" in done.err


@pytest.mark.slow
@pytest.mark.parametrize("limit", [9_000, 30_000])
def test_a_disk_that_fills_in_training(corpus, tmp_path, limit, full_disk, tiny):
    """No file may grow over a limit: with the lower one the subwords fail, with the higher the first checkpoint."""
    where = (f"data.dir={corpus}", f"output={tmp_path / 'run'}")
    done = own_process.run(full_disk, limit, "--quiet", "train", "tiny", *where, *tiny, "model.d_ff=2003")
    assert done.returncode == 2, done.stderr
    warning, line = done.stderr.splitlines()
    assert "100% of the pairs are also in train." in warning  # dev of `tiny` is train
    assert line.startswith(f"error: {tmp_path / 'run'}")
    assert "File too large" in line
    names = [path.name for path in (tmp_path / "run").rglob("*")]
    assert [name for name in names if "partial" in name or "checkpoint-" in name] == []
    assert "manifest.json" not in names


def test_a_disk_that_fills_under_the_translations(digits, tmp_path, full_disk):
    source, output = tmp_path / "in.en", tmp_path / "out.de"
    source.write_text("3 1 7\n" * 200)
    done = own_process.run(full_disk, 600, "translate", digits.none, source, "-o", output, "--beam-size", "1")
    assert done.returncode == 2, done.stderr
    line = done.stderr.splitlines()[-1]
    assert line.startswith(f"error: {output}: expected to write the file, got: File too large.")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.en"]


def _copy(folder: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "model"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("checkpoints", "logs"))
    return copy


def test_a_truncated_and_a_tampered_model(digits, cli, tmp_path):
    model, output = _copy(digits.none, tmp_path), ("-o", tmp_path / "out.png")
    source, reference = (digits.corpus / f"test.{side}" for side in ("en", "de"))
    weights = model / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-100])
    for arguments in (
        ("translate", model, source),
        ("evaluate", model, "--src", source, "--ref", reference),
        ("attend", model, "3 1 7"),
    ):
        done = cli(*arguments, *output)
        _refused(done, f"{weights}: expected {len(whole)} bytes, got {len(whole) - 100}. It is truncated.")
    weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    problem = f"{weights}: expected the content that was written, got another."
    _refused(cli("translate", model, source), problem)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_model_without_its_annotator(digits, cli, tmp_path):
    from syntaxformer.base.files import write_manifest

    model = _copy(digits.sum_then_concat, tmp_path)
    info = json.loads((model / "syntaxformer.json").read_text())
    (model / "syntaxformer.json").write_text(json.dumps({**info, "annotator": "spacy:xx_none_such"}))
    write_manifest(model)
    done = cli("translate", model, digits.corpus / "test.en", "-o", tmp_path / "out")
    _refused(done, "")
    assert "xx_none_such" in done.err
    assert " is not installed. Run: " in done.err
    assert not (tmp_path / "out").exists()
    # Another annotator may be given; that it is another is said.
    done = cli("translate", model, digits.corpus / "test.en", "--annotator", "en")
    assert done.code == 0
    assert done.out.splitlines()[0]


def test_an_unfinished_model(digits, cli, tmp_path):
    model = _copy(digits.none, tmp_path)
    (model / "manifest.json").unlink()
    done = cli("translate", model, digits.corpus / "test.en")
    _refused(done, f"{model}: expected a finished model, got a run that is not finished.")


def test_what_cannot_be_translated(digits, cli, tmp_path):
    done = cli("translate", digits.none, stdin=b"3 1\n2\xc3")
    _refused(done, "standard input:2: expected UTF-8, got byte 0xc3 at byte 2")
    bad = tmp_path / "bad.en"
    bad.write_bytes(b"3 1\n\xff\n")
    done = cli("translate", digits.none, bad, "-o", tmp_path / "out")
    _refused(done, f"{bad}:2: expected UTF-8, got byte 0xff at byte 1 of the line (5 of the file).")
    missing = tmp_path / "none"
    _refused(cli("translate", digits.none, missing), f"{missing}: expected a readable file, ")
    assert [path.name for path in tmp_path.iterdir()] == ["bad.en"]


def test_the_language_of_a_side_by_its_name(digits, cli, tmp_path):
    src, ref = digits.corpus / "test.en", digits.corpus / "test.de"
    done = cli("evaluate", digits.none, "--src", src, "--ref", src)
    assert (done.code, done.err) == (2, f"error: {src}: expected another text than in {src}, got the same.\n")
    for turned in (
        cli("evaluate", digits.none, "--src", ref, "--ref", src, "--device", "cpu"),
        cli("translate", digits.none, ref, "-o", tmp_path / "out.en"),
        cli("backtranslate", digits.none, ref, "-o", tmp_path / "pairs"),
    ):
        assert turned.code == 0
        assert f"{ref}: expected en, as of the model, got a file of de by its name" in turned.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("translate", "{model}", "{src}", "--n-best", "3"), "--n-best: expected at most the beam size, 2, got 3."),
        (("translate", "{model}", "{src}", "--factor", "tone"), "--factor: expected NAME=FILE, got tone."),
        (("translate", "{model}", "{src}", "--factor", "tone={src}"), "--factor: expected a factor of the model, got tone."),
        (("evaluate", "{model}", "--src", "{src}", "--ref", "{ref}", "--factor", "tone={src}"), "--factor: expected a factor of the model, got tone."),
        (("evaluate", "{model}", "--src", "{src}", "--ref", "{dev}"), "{dev}: expected as many lines as {src}, at least one; got 101 and 103."),
        (("translate", "{model}", "{src}", "--factor", "tone=/none"), "--factor: expected a factor of the model, got tone."),
        (("attend", "{model}", " "), "text: expected a sentence, got an empty one."),
        (("attend", "{model}", "3 1", "--head", "4"), "layer, head: expected below 2 and 4, got -1 and 4."),
        (("attend", "{model}", "3 1", "--network", "pair"), "--network: expected none with a translator, got pair. Leave it out."),
        (("attend", "{model}", "3 1", "--spread", "{src}"), "text: expected none with --spread, got 3 1. Leave it out."),
    ],
)  # fmt: skip
def test_options_that_do_not_fit(digits, cli, arguments, message):
    files = {"src": "test.en", "ref": "test.de", "dev": "dev.de"}
    files = {name: digits.corpus / file for name, file in files.items()} | {"model": digits.none}
    _refused(cli(*(argument.format(**files) for argument in arguments)), message.format(**files))


def test_a_picture_of_an_unknown_kind(digits, cli, tmp_path):
    done = cli("attend", digits.none, "3 1", "-o", tmp_path / "x.xyz")
    _refused(done, "figure: expected a file ending of ")
    assert list(tmp_path.iterdir()) == []


def test_the_demo_needs_an_empty_folder(cli, tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    (tmp_path / "corpus").mkdir()
    message = f"output: expected a new or empty folder, got {tmp_path}, which holds "
    for flags in ((), ("--overwrite",)):
        _refused(cli("demo", "-o", tmp_path, *flags), f"{message}corpus, thesis.tex. Choose another.")
    (tmp_path / "thesis.tex").unlink()
    _refused(cli("demo", "-o", tmp_path), f"{message}corpus. Choose another or give --overwrite.")
    assert [path.name for path in tmp_path.iterdir()] == ["corpus"]


def test_an_address_without_its_engine(cli):
    done = cli("annotate", "in.txt", "-o", "out.parquet", "--address", "auto")
    _refused(done, "--address: expected --engine ray with it, ")
