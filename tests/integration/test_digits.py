"""From two text files to translations: reversing digits must be learned, with and without syntax."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
import sys

import pytest
import torch
import yaml
from sacrebleu.metrics import BLEU, CHRF, TER
from safetensors.torch import load_file

KINDS = ("none", "sum_then_concat")


def _lines(path) -> list[str]:
    return path.read_text().splitlines()


@pytest.mark.parametrize("kind", KINDS)
def test_reversal_is_learned(digits, cli, kind):
    done = cli("translate", getattr(digits, kind), digits.corpus / "test.en")
    assert done.err == ""
    expected = _lines(digits.corpus / "test.de")
    found = done.out.splitlines()
    assert len(found) == len(expected)
    assert sum(map(str.__eq__, found, expected)) / len(expected) > 0.95


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_links_reverse_the_digits(digits, cli, tmp_path, kind):
    """Of the head that `train` chose, and of an export: digit i of n becomes digit n - 1 - i."""
    errors, found = [], []
    for folder, settings in (("model", ()), ("int8", ("--quantization", "int8"))):
        model = getattr(digits, kind)
        if settings:
            cli("export", model, model := tmp_path / folder, *settings).ok()
        links = tmp_path / f"{folder}.align"
        outputs = cli("translate", model, digits.corpus / "test.en", "--alignments", links).out.splitlines()
        found.append([set(line.split()) for line in _lines(links)])
        n_right = n_links = 0
        for output, target, line in zip(outputs, _lines(digits.corpus / "test.de"), found[-1], strict=True):
            n = len(target.split())
            if output == target:
                n_right += 2 * len(line & {f"{i}-{n - 1 - i}" for i in range(n)})
                n_links += len(line) + n
        errors.append(1 - n_right / n_links)
    assert max(errors) < 0.2
    n_both = sum(len(one & other) for one, other in zip(*found, strict=True))
    assert n_both >= 0.95 * max(sum(map(len, lines)) for lines in found)


def test_file_stdin_and_output_agree(digits, cli, tmp_path):
    source = digits.corpus / "test.en"
    from_file = cli("translate", digits.none, source).out
    from_stdin = cli("translate", digits.none, stdin=source.read_bytes()).out
    packed = tmp_path / "test.en.gz"
    packed.write_bytes(gzip.compress(source.read_bytes()))
    done = cli("translate", digits.none, packed, "-o", tmp_path / "new" / "out.de")
    assert (done.code, done.out) == (0, "")
    assert re.fullmatch(rf"translating {packed}: 103 of 103 lines, \S+ lines/s, done\n", done.err)
    assert from_file == from_stdin == (tmp_path / "new" / "out.de").read_text()


@pytest.mark.slow
def test_through_a_real_process(digits):
    """One line in, one line out, nothing on stderr: pipes, encodings and imports as a user has them."""
    command = [sys.executable, "-m", "syntaxformer.cli.main", "translate", digits.sum_then_concat, "-"]
    done = subprocess.run(command, input=b"3 1 7\n\n4 4 2 1\r\n", capture_output=True)
    assert done.stdout.decode().splitlines() == ["7 1 3", "", "1 2 4 4"]
    assert done.stderr.decode() == ""
    assert done.returncode == 0


def test_a_thousand_lines_with_empty_ones(digits, cli):
    lines = [f"{row % 10} {row // 10 % 10} {row // 100}" if row % 7 else "" for row in range(1000)]
    done = cli(
        "translate", digits.none, "--beam-size", "1", stdin="".join(f"{line}\n" for line in lines).encode()
    )
    found = done.out.split("\n")
    assert len(found) == 1001
    assert [bool(line) for line in found[:-1]] == [bool(line) for line in lines]
    assert sum(one == line[::-1] for one, line in zip(found, lines, strict=False)) > 950


def test_n_best(digits, cli):
    done = cli("translate", digits.none, "--n-best", "2", stdin=b"3 1 7\n\n")
    rows = [line.split("|||") for line in done.out.splitlines()]
    assert [row[0] for row in rows] == ["1", "1", "2", "2"]
    assert rows[0][1] == "7 1 3"
    assert float(rows[0][2]) > float(rows[1][2])
    assert rows[2][1:] == ["", "0.000000"]


def test_n_best_as_moses_writes_it(digits, cli):
    given = cli("translate", digits.none, "--n-best", "2", stdin=b"3 1 7\n\n").out.splitlines()
    done = cli("translate", digits.none, "--n-best", "2", "--moses", stdin=b"3 1 7\n\n")
    rows = [line.split(" ||| ") for line in done.out.splitlines()]
    assert [(str(int(row[0]) + 1), row[1], row[3]) for row in rows] == [
        tuple(one.split("|||")) for one in given
    ]
    assert [row[2] for row in rows] == [f"Score= {row[3]}" for row in rows]
    best = cli("translate", digits.none, "--moses", stdin=b"3 1 7\n").out
    assert best.startswith("0 ||| 7 1 3 ||| Score= -")


def test_evaluate_against_a_baseline(digits, cli, tmp_path):
    arguments = ("--src", digits.corpus / "test.en", "--ref", digits.corpus / "test.de")
    done = cli(
        "evaluate", digits.sum_then_concat, *arguments, "--baseline", digits.none, "-o", tmp_path / "out"
    ).ok()
    *progress, note = done.err.splitlines()
    names = [f"{digits.sum_then_concat}", f"{digits.none}"]
    for line, name in zip(progress, names, strict=True):
        assert line.startswith(f"translating with {name}: 103 of 103 lines, ")
    assert note == (
        f"{digits.none} shares its table of source words with the target side, {digits.sum_then_concat} has a "
        f"separate one, which may cause part of the difference. To find out, train {digits.none} with "
        "model.share_source_embedding=false."
    )
    found, references = _lines(tmp_path / "out"), _lines(digits.corpus / "test.de")
    metrics = {"BLEU": BLEU(), "chrF++": CHRF(word_order=2), "TER": TER(case_sensitive=True)}
    scores = {name: one.corpus_score(found, [references]) for name, one in metrics.items()}
    header, first, second, *differences, bleu, chrf, ter = done.out.splitlines()
    assert header.split() == ["BLEU", "chrF++", "TER", "length"]
    length = scores["BLEU"].sys_len / scores["BLEU"].ref_len
    values = [*(one.score for one in scores.values()), length]
    assert first.split() == [names[0], *(f"{one:.2f}" for one in values)]
    assert second.split()[0] == names[1]
    assert [one.split()[0] for one in differences] == list(metrics)
    for line in differences:
        assert re.search(
            rf" against {digits.none}, 95 % \S+ to \S+, p = [01]\.\d+ \(one-sided paired bootstrap\)$", line
        )
    for line, (name, metric) in zip((bleu, chrf, ter), metrics.items(), strict=True):
        assert line.split() == [name, str(metric.get_signature())]


@pytest.mark.slow
def test_evaluate_as_json(digits, cli):
    arguments = ("--src", digits.corpus / "test.en", "--ref", digits.corpus / "test.de")
    both = ("--baseline", digits.none, "--baseline", digits.sum_then_concat)
    report = json.loads(cli("evaluate", digits.none, *arguments, "--json", *both).out)
    assert report["model"] == str(digits.none)
    assert report["n_lines"] == 103
    assert (report["difference"], report["p_value"]) == (0.0, 1.0)
    assert report["note"].startswith(f"{digits.none} shares its table"), "said of any baseline"
    names = [f"{digits.none}", f"{digits.none} (again)", f"{digits.sum_then_concat}"]
    assert list(report["systems"]) == names
    bleu = [report["systems"][one]["BLEU"] for one in names]
    assert bleu[0] == bleu[1] == report["bleu"]
    found = report["systems"][names[2]]["against"]["BLEU"]
    assert found["difference"] == pytest.approx(bleu[0] - bleu[2])
    assert found["low"] <= found["difference"] <= found["high"]


def test_attend_draws_a_figure(digits, cli, tmp_path):
    figure = tmp_path / "figures" / "attention.png"
    done = cli("attend", digits.sum_then_concat, "3 1 7", "-o", figure, "--beside", digits.none).silent()
    assert done.out.splitlines() == [f"{digits.none}: 7 1 3", f"{digits.sum_then_concat}: 7 1 3", str(figure)]
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_the_model_folder_tells_how_it_came_to_be(digits):
    folder = digits.sum_then_concat
    report = json.loads((folder / "run.json").read_text())
    assert report["seed"] == 1
    assert report["last_step"] == 360
    assert set(report["versions"]) >= {"syntaxformer", "torch", "transformers", "spacy"}
    assert len(report["data_sha256"]["train"]) == 64
    info = json.loads((folder / "syntaxformer.json").read_text())
    assert (info["src"], info["tgt"], info["annotator"]) == ("en", "de", "en")
    assert [factor["name"] for factor in info["factors"]] == ["pos", "case", "subword"]
    assert yaml.safe_load((folder / "recipe.yaml").read_text())["model"]["d_model"] == 64
    assert json.loads((digits.none / "syntaxformer.json").read_text())["annotator"] is None


def test_nothing_in_a_model_folder_is_a_pickle(digits):
    magics = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"PK\x03\x04")
    for path in digits.none.rglob("*"):
        assert path.suffix not in (".bin", ".pt", ".pth", ".pkl")
        assert path.is_dir() or not path.read_bytes().startswith(magics)


def test_resuming_a_finished_run_changes_nothing(digits, cli, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(digits.none, run)
    before = (run / "model.safetensors").read_bytes()
    done = cli("--quiet", "train", run / "recipe.yaml", f"output={run}", "--resume")
    assert (done.code, done.err, done.out) == (0, "", f"{run}\n")
    assert (run / "model.safetensors").read_bytes() == before
    assert cli("translate", run, stdin=b"3 1 7\n").out == "7 1 3\n"


def test_what_a_trained_folder_costs(digits, cli):
    """Its file names the tables of factors in another order than the columns have."""
    sizes = json.loads((digits.sum_then_concat / "config.json").read_text())["factor_sizes"]
    assert list(sizes) == ["case", "pos", "subword"]
    done = cli("cost", digits.sum_then_concat, "--json").ok()
    assert json.loads(done.out)["parameters"]["source words and factors"] > 0


SMALL = (
    "data.dev=dev", "subwords.vocab_size=301", "infusion.kind=sum_then_concat", "infusion.width=5", "model.d_model=24",
    "model.d_ff=31", "model.n_heads=2", "model.dropout=0.2", "training.eval_every=10", "training.precision=fp32",
    "training.tensorboard=false",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "setting",
    [
        "data.on_disk=true",
        "subwords.dropout=0.5",
        "data.train=[{name: train, weight: 0.4}, {name: train, weight: 1.3, tag: <bt>}]",
        "data.augment={upper: 0.2, noise: 0.4}",
    ],
)
def test_stopped_and_resumed(digits, cli, tmp_path, setting):
    """With its pairs on the disk, cut by BPE-dropout, in shares or altered, it is the run that never stopped."""
    always = [] if "on_disk" in setting else [setting]

    def train(name: str, max_steps: int, *flags: str) -> None:
        where = (f"data.dir={digits.corpus}", f"data.cache={tmp_path / 'cache'}", f"output={tmp_path / name}")
        cli("--quiet", "train", "tiny", *where, *SMALL, f"training.max_steps={max_steps}", *flags).silent()

    train("unbroken", 30, *always)
    train("stopped", 17, setting)
    train("stopped", 30, setting, "--resume")
    weights = (load_file(tmp_path / name / "model.safetensors") for name in ("stopped", "unbroken"))
    torch.testing.assert_close(*weights, atol=1e-5, rtol=0)
    reports = [json.loads((tmp_path / name / "run.json").read_text()) for name in ("unbroken", "stopped")]
    assert abs(reports[0]["dev_loss"] - reports[1]["dev_loss"]) < 1e-5
    assert [report["last_step"] for report in reports] == [30, 30]
