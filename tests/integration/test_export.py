"""A trained model on the command line: exported, it says what it said before."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time

import pytest

pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed")


@pytest.fixture(scope="module")
def exported(cli, digits, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    for quantization in ("float32", "int8"):
        done = cli(
            "--quiet", "export", digits.sum_then_concat, folder / quantization, "--quantization", quantization
        )
        assert (done.code, done.out, done.err) == (0, f"{folder / quantization}\n", "")
    return folder


@pytest.mark.slow
def test_translate(cli, digits, exported, tmp_path):
    source = digits.corpus / "test.en"
    outputs = {}
    for model in (digits.sum_then_concat, exported / "float32", exported / "int8"):
        cli("--quiet", "translate", model, source, "-o", tmp_path / "out.de").silent()
        outputs[model.name] = (tmp_path / "out.de").read_text().splitlines()
    trained = outputs["sum_then_concat"]
    assert len(trained) == 103
    assert sum(one == other for one, other in zip(trained, outputs["float32"], strict=True)) >= 102
    assert sum(one == other for one, other in zip(trained, outputs["int8"], strict=True)) >= 95


@pytest.mark.slow
def test_evaluate_against_the_trained_model(cli, digits, exported):
    files = ("--src", digits.corpus / "test.en", "--ref", digits.corpus / "test.de", "--json")
    done = cli(
        "--quiet", "evaluate", exported / "float32", *files, "--baseline", digits.sum_then_concat
    ).silent()
    assert abs(json.loads(done.out)["difference"]) < 0.3


def test_attend_asks_for_the_trained_folder(cli, exported, tmp_path):
    done = cli("attend", exported / "int8", "one two three", "-o", tmp_path / "figure.png").refused()
    assert "got one exported to ctranslate2, which gives no attention" in done.err
    assert not (tmp_path / "figure.png").exists()


def test_an_older_export_is_kept(cli, digits, exported):
    done = cli("export", digits.none, exported / "int8").refused()
    assert done.err.endswith("an older export. Give --overwrite.\n")


def test_serve_wants_models(cli, tmp_path):
    pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
    done = cli("serve", tmp_path / "none")
    assert (done.code, done.err) == (2, f"error: {tmp_path / 'none'}: expected a folder, found none.\n")
    (tmp_path / "key").write_text("\n")
    done = cli("serve", tmp_path, "--api-key-file", tmp_path / "key").refused()
    assert "--api-key-file: expected a key in" in done.err
    done = cli("serve", tmp_path / "a" / "sit", tmp_path / "b" / "sit").refused()
    assert done.err.startswith("error: models: expected folders of different names, got ")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["trained", "float32"])
def test_a_line_is_answered_while_the_next_is_not_there(digits, exported, name):
    """Within a second of its coming; only the first waits for the start."""
    folder = digits.sum_then_concat if name == "trained" else exported / name
    command = [sys.executable, "-m", "syntaxformer", "translate", str(folder)]
    found = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as child:
        for line in ("3 1 7", "4 4 0 9", "2 6 5"):
            child.stdin.write(f"{line}\n".encode())
            ready, *_ = select.select([child.stdout], [], [], 1.0 if found else 300.0)
            assert ready, f"no answer to {line}"
            found.append(child.stdout.readline().decode())
            time.sleep(0.7)
        child.stdin.close()
        assert child.wait() == 0
    assert found == ["7 1 3\n", "9 0 4 4\n", "5 6 2\n"]


@pytest.mark.slow
def test_an_export_with_factors_translates_without_torch(cli, digits, exported):
    """Neither this package nor thinc, below spaCy, imports it, and the tags are the same."""
    source = digits.corpus / "test.en"
    script = (
        "import sys, atexit\nfrom syntaxformer.cli.main import main\n"
        f"sys.argv = ['syntaxformer', 'translate', {str(exported / 'float32')!r}, {str(source)!r}]\n"
        "slow = {'torch', 'transformers'}\n"
        "atexit.register(lambda: print(sorted(slow & set(sys.modules)), file=sys.stderr))\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"
    assert done.stdout == cli("translate", exported / "float32", source).out
