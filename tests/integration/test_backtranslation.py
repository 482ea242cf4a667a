"""Back-translation on the command line: from a raw text to a run that is trained on its synthetic pairs."""

from __future__ import annotations

import json

import pytest
from transformers import PreTrainedTokenizerFast

from syntaxformer.translation import backtranslation, translator
from syntaxformer.translation.torch_decoder import TorchDecoder


@pytest.mark.slow
def test_from_a_raw_text_to_a_trained_run(cli, digits, tiny, tmp_path, monkeypatch):
    """The model reads `en`, so it is the reverse one of a translator of de → en."""
    for module, name in ((translator, "CHUNK_LINES"), (backtranslation, "PART_LINES")):
        monkeypatch.setattr(module, name, 5)
    mono, pairs = tmp_path / "mono.en", tmp_path / "pairs"
    lines = ["1 2 3", "4\t5 6", "", *(f"{n} {n + 1} {n + 2} {n}" for n in range(1, 8)), "7 8 9 7", "3 1 2"]
    mono.write_text("".join(f"{line}\n" for line in lines))
    command = ["backtranslate", digits.none, mono, "-o", pairs, "--temperature", "0.5", "--seed", "3"]

    decode, calls = TorchDecoder.decode, []

    def killed(self, *args):
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return decode(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(TorchDecoder, "decode", killed)
        done = cli(*command)
    assert done.code == 130
    assert "interrupted: the same command continues the work" in done.err
    done = cli(*command[:-1], "4")
    assert (done.code, done.out) == (2, "")
    assert "with another seed. Choose another folder" in done.err
    done = cli(*command[:3], "-o", tmp_path / "own", "--factor", f"topic={mono}")
    assert (done.code, done.out) == (2, "")
    assert "user factors: expected none, as in training, got topic." in done.err
    done = cli(*command).ok()
    assert "continued after line 5" in done.err
    assert done.out == f"{pairs}: 11 pairs of 12 lines, left out 1 with an empty side\n"
    again = cli(*command[:3], "-o", tmp_path / "unbroken", *command[5:])
    assert again.out == done.out.replace("pairs:", "unbroken:", 1)
    for file in ("train.de", "train.en"):
        assert (pairs / file).read_bytes() == (tmp_path / "unbroken" / file).read_bytes()
    targets = [line.replace("\t", " ") for line in lines if line]
    assert (pairs / "train.en").read_text().splitlines() == targets

    places = (f"data.dir={digits.corpus}", f"data.synthetic={pairs}", f"data.cache={tmp_path / 'cache'}")
    languages, run = ("data.src=de", "data.tgt=en", "data.dev=dev"), tmp_path / "run"
    settings = *languages, "data.fraction=0.02", "infusion.kind=sum_then_concat", f"output={run}"
    trained = cli("train", "tiny", *tiny, *places, *settings).ok()
    assert "data.synthetic: the last 11 of 55 pairs, tag: <bt>." in json.loads((run / "data_report.json").read_text())["notes"]  # fmt: skip
    assert "55 pairs" in trained.err
    tokenizer = PreTrainedTokenizerFast.from_pretrained(run)
    assert tokenizer.convert_tokens_to_ids("<bt>") == len(tokenizer) - 1
    cli("train", "tiny", *tiny, *places, *settings, "training.max_steps=3", "--resume").ok()
    with (pairs / "train.en").open("a") as sources, (pairs / "train.de").open("a") as targets:
        sources.write("1\n")
        targets.write("2\n")
    changed = cli("train", "tiny", *tiny, *places, *settings, "training.max_steps=4", "--resume")
    assert "expected the train text of the interrupted run" in changed.err
    text = b"3 4 <bt> 5\n"
    assert cli("translate", run, stdin=text).code == 0
    both = cli("translate", run, run, stdin=text)
    assert both.out == cli("translate", run, stdin=text).out


@pytest.mark.slow
def test_an_ensemble_of_trained_models(cli, digits):
    """Each model reads a line with its own factors, and both write the subwords of one corpus."""
    lines, references = (
        (digits.corpus / f"test.{side}").read_text().splitlines()[:20] for side in ("en", "de")
    )
    text = "".join(f"{line}\n" for line in lines).encode()
    members = (digits.sum_then_concat,), (digits.none,), (digits.sum_then_concat, digits.none)
    outputs = [cli("translate", *folders, stdin=text).out.splitlines() for folders in members]
    right = [sum(map(str.__eq__, translations, references)) for translations in outputs]
    assert right[2] >= min(right[:2])
