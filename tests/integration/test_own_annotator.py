"""A tagger and parser of one's own: trained on a treebank, used by a recipe, and kept in the model's folder."""

from __future__ import annotations

import itertools
import json
import re
import shutil

import pytest
import spacy

from parallel_files import write_sides

NOUNS = {"Hund": "Masc", "Katze": "Fem", "Pferd": "Neut"}
ARTICLES = {"Masc": "Der", "Fem": "Die", "Neut": "Das"}
VERBS = {"schläft": "schlafen", "läuft": "laufen", "singt": "singen", "lacht": "lachen"}


def sentence(noun: str, verb: str) -> str:
    feats = f"Case=Nom|Gender={NOUNS[noun]}|Number=Sing"
    rows = [
        (ARTICLES[NOUNS[noun]], "der", "DET", feats, 2, "det"),
        (noun, noun, "NOUN", feats, 3, "nsubj"),
        (verb, VERBS[verb], "VERB", "Number=Sing|Person=3", 0, "root"),
        ("sehr", "sehr", "ADV", "_", 3, "advmod"),
        (".", ".", "PUNCT", "_", 3, "punct"),
    ]
    lines = [
        f"{number}\t{form}\t{lemma}\t{upos}\t_\t{feats}\t{head}\t{label}\t_\t_"
        for number, (form, lemma, upos, feats, head, label) in enumerate(rows, 1)
    ]
    return "\n".join(lines) + "\n\n"


@pytest.fixture(scope="module")
def own(cli, tmp_path_factory):
    """The folder of an annotator that is trained for a few updates, and what the command printed."""
    folder = tmp_path_factory.mktemp("own")
    pairs = list(itertools.product(NOUNS, VERBS))
    (folder / "de_toy-train.conllu").write_text("".join(sentence(*pair) for pair in pairs[:9]))
    (folder / "de_toy-dev.conllu").write_text("".join(sentence(*pair) for pair in pairs[9:]))
    files = (folder / "de_toy-train.conllu", "--dev", folder / "de_toy-dev.conllu")
    done = cli("annotator", "train", *files, "-o", folder / "ours", "--steps", 40, "--width", 32).ok()
    return folder, done


@pytest.mark.slow
def test_it_is_trained_scored_on_dev_and_timed(own):
    folder, done = own
    note, names, values, last = done.out.splitlines()
    assert "gold tokenisation" in note
    scores = dict(zip(names.split(), values.split(), strict=True))
    assert {"UPOS", "UAS", "LAS", "lemma", "feats", "minutes", "updates"} <= scores.keys()
    assert float(scores["UPOS"]) == float(scores["LAS"]) == 100
    assert last == f"wrote {folder / 'ours'}: use it as annotation.annotator={folder / 'ours'}"
    assert "learned: upos, lemmas, feats, governors, deprels" in done.err
    assert json.loads((folder / "ours" / "meta.json").read_text())["performance"]["updates"] == 40


def test_evaluate_prints_a_table_or_json_of_any_annotator(own, cli):
    folder, _ = own
    dev = folder / "de_toy-dev.conllu"
    done = cli("annotator", "evaluate", folder / "ours", dev).ok()
    note, names, values = done.out.splitlines()
    assert "gold tokenisation" in note
    assert names.split() == ["words", "UPOS", "UAS", "LAS", "lemma", "feats"]
    scores = json.loads(cli("annotator", "evaluate", folder / "ours", dev, "--json").out)
    assert [str(value) for value in scores.values()] == values.split()
    scores = json.loads(cli("annotator", "evaluate", "de_lower", dev, "--json").out)
    assert scores.keys() == {"words", "UPOS", "UAS", "LAS"}  # it has neither lemmas nor features
    with_phrases = json.loads(cli("annotator", "evaluate", "de_lower+phrases", dev, "--json").out)
    assert with_phrases == scores, "the same words, which a wrapped pipeline cuts, too"


TWO = sentence("Hund", "singt") * 2


@pytest.mark.parametrize(
    ("treebank", "dev", "message"),
    [
        ("Ein Satz.\nNoch einer.\n", None, "de_x.conllu:1: CoNLL-U: "),
        (sentence("Hund", "singt"), None, "expected two sentences or more, got 1."),
        (
            re.sub(r"\t[032]\t", "\t_\t", TWO),
            None,
            "'Der Hund singt sehr .' without, or with other tags: governors.",
        ),
        (TWO.replace("NOUN", "NN"), None, "with other tags: NN."),
        (sentence("Hund", "singt") + sentence("Katze", "lacht"), "same", "2 of 2 sentences of"),
    ],
)
def test_what_is_no_treebank_is_refused(cli, tmp_path, treebank, dev, message):
    file = tmp_path / "de_x.conllu"
    file.write_text(treebank)
    options = ("--dev", file) if dev else ()
    done = cli("annotator", "train", file, *options, "-o", tmp_path / "out").refused()
    assert message in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "out").exists()


def test_the_language_must_be_told_and_the_folder_be_new(cli, tmp_path):
    (tmp_path / "my.conllu").write_text(sentence("Hund", "singt") * 2)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    done = cli("annotator", "train", tmp_path / "my.conllu", "-o", tmp_path / "out").refused()
    first, second = done.err.splitlines()
    assert first.endswith("which holds other files.")
    assert second == "error: --language: expected a code, as my.conllu begins with none, got none."
    # Spelled as spaCy knows it: also the tokenizer for any language.
    done = cli("annotator", "train", tmp_path / "my.conllu", "--language", "xx", "-o", tmp_path / "out")
    assert done.err.splitlines() == [first]


@pytest.fixture(scope="module")
def model(own, cli, tiny, tmp_path_factory):
    """A translator with lemma and feats as factors, trained with the annotator, which is then deleted."""
    folder, work = own[0], tmp_path_factory.mktemp("model")
    ours = work / "ours"
    german = [f"{ARTICLES[NOUNS[noun]]} {noun} {verb} sehr ." for noun in NOUNS for verb in VERBS]
    corpus = write_sides(work / "corpus", [f"{line} x" for line in german], german)
    shutil.copytree(folder / "ours", ours)
    factors = (
        "infusion.kind=concat",
        "infusion.factors=[lemma,feats]",
        "infusion.widths={lemma: 4, feats: 3}",
    )
    sides = ("data.src=de", "data.tgt=en", f"data.dir={corpus}", f"data.cache={work / 'cache'}")
    where = (f"annotation.annotator={ours}", f"output={work / 'run'}")
    cli("train", "tiny", *tiny, *factors, *sides, *where).ok()
    shutil.rmtree(ours)
    return work / "run"


def test_a_model_keeps_its_annotator_and_lists_its_files(model, cli):
    info = json.loads((model / "syntaxformer.json").read_text())
    assert info["annotator"] == "spacy:annotator"
    values = {factor["name"]: factor["values"] for factor in info["factors"]}
    assert {"der", "Katze"} <= set(values["lemma"])
    assert "Case=Nom|Gender=Fem|Number=Sing" in values["feats"]
    files = json.loads((model / "manifest.json").read_text())["files"]
    assert {"annotator/meta.json", "annotator/parser/model"} <= files.keys()
    done = cli("translate", model, stdin=b"Die Katze lacht sehr .\n").ok()
    assert "warning" not in done.err


@pytest.mark.parametrize("change", ["altered", "added"])
def test_another_annotator_in_the_folder_is_refused(model, cli, tmp_path, change):
    shutil.copytree(model, tmp_path / "run")
    file = tmp_path / "run" / "annotator" / ("meta.json" if change == "altered" else "more.json")
    file.write_text("{}")
    done = cli("translate", tmp_path / "run", stdin=b"Die Katze lacht sehr .\n").refused()
    assert ("truncated" if change == "altered" else "got none for annotator/more.json") in done.err


def test_another_annotator_of_the_user_gives_a_warning(model, own, cli, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(own[0] / "ours", other)
    (other / "meta.json").write_text((other / "meta.json").read_text().replace("ours", "other"))
    done = cli("translate", model, "--annotator", other, stdin=b"Die Katze lacht sehr .\n").ok()
    assert "the model was trained with spacy:annotator" in done.err


CZECH = ["Pes spí .", "Kočka běží .", "Kůň stojí ."]


@pytest.fixture
def czech(tmp_path):
    corpus = tmp_path / "cs"
    corpus.mkdir()
    (corpus / "train.cs").write_text("".join(f"{line}\n" for line in CZECH))
    (corpus / "train.en").write_text("A dog sleeps.\nA cat runs.\nA horse stands.\n")
    (corpus / "train.ner").write_text("a b c\n" * 3)
    files = ("data.factor_files={ner: ner}", "infusion.kind=concat", "data.src=cs", "data.tgt=en")
    return (*files, f"data.dir={corpus}", f"data.cache={tmp_path / 'cache'}", f"output={tmp_path / 'run'}")


def test_no_annotator_is_asked_for_or_loaded_where_no_tag_is_needed(cli, tiny, czech, tmp_path, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a pipeline was loaded")

    monkeypatch.setattr(spacy, "load", refuse)
    factors = ("infusion.factors=[ner, case]", "infusion.widths={ner: 3, case: 2}")
    cli("train", "tiny", *tiny, *czech, *factors).ok()
    assert json.loads((tmp_path / "run" / "syntaxformer.json").read_text())["annotator"] == "spaces"
    (tmp_path / "new.ner").write_text("a b c\n")
    factor = f"ner={tmp_path / 'new.ner'}"
    cli("translate", tmp_path / "run", "--factor", factor, stdin="Pes běží .\n".encode()).ok()


def test_an_annotator_is_asked_for_where_a_tag_is_needed(cli, tiny, czech):
    factors = ("infusion.factors=[ner, pos]", "infusion.widths={ner: 3, pos: 2}")
    done = cli("train", "tiny", *tiny, *czech, *factors).refused()
    assert "annotation.annotator=stanza:cs" in done.err


def test_a_fine_tuned_model_keeps_it_too(own, cli, newcomer, monkeypatch):
    monkeypatch.chdir(newcomer)
    shutil.copytree(own[0] / "ours", newcomer / "ours")
    options = ("--task", "classify", "--train", "mine.tsv", "--model", "CHECKPOINT", "--infuse", "masks")
    small = ("--set", "training.epochs=1", "--set", "training.max_length=32")
    cli("finetune", *options, "-o", "out", *small, "--set", "annotation.annotator=ours+phrases").ok()
    shutil.rmtree(newcomer / "ours")
    info, manifest = (
        json.loads((newcomer / "out" / f"{name}.json").read_text()) for name in ("classifier", "manifest")
    )
    assert info["annotator"] == "spacy:annotator+phrases"
    assert "annotator/meta.json" in manifest["files"]
    done = cli("predict", "out", "-", stdin=b"the a is fine\n").ok()
    assert "warning" not in done.err
