"""Tasks with several answers for a text, each from the raw file to the answer: tags, questions, labels, scores."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import syntaxformer as sf
from subject_questions import questions
from syntaxformer.annotate import load_annotator
from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.encoders.classifier import Classifier, annotate_examples
from syntaxformer.encoders.collator import SyntaxCollator, SyntaxExample
from syntaxformer.encoders.examples import TextExample, TextSet
from syntaxformer.encoders.finetune_config import load_finetune
from syntaxformer.encoders.finetuning import _metrics, _write_rows
from syntaxformer.encoders.own_tables import read_own_table
from syntaxformer.encoders.prediction import predictions_beside, read_texts_for
from syntaxformer.encoders.pretrained import load_tokenizer
from syntaxformer.encoders.tables import TableColumns
from syntaxformer.encoders.task_data import read_finetune_data
from syntaxformer.encoders.task_types import (
    AnswerSpan,
    Predictions,
    SeveralLabels,
    SeveralScores,
    WordTags,
    spans_of,
)
from syntaxformer.encoders.tasks import OWN_TASKS
from syntaxformer.serve.engines import ClassifierEngine, load_engine
from syntaxformer.trees import Sentence

from .conftest import QUICK, info_of

BIO = {"cat": "B-ANIMAL", "dog": "B-ANIMAL", "house": "I-PLACE"}
TAGS = ("B-ANIMAL", "I-PLACE", "O")


def sentences(n):
    """A subject, a verb and mostly an object."""
    for i in range(n):
        subject, verb = ("cat", "dog")[i % 2], ("sees", "likes")[i // 2 % 2]
        yield ["the", subject, verb, *(["the", "house"] if i % 3 else []), "."]


def blocks(rows, tag=BIO.get):
    return "\n\n".join("\n".join(f"{word} _ {tag(word, 'O')}" for word in words) for words in rows) + "\n"


@pytest.fixture
def file(table):
    return lambda name, content: table(content, name)


def finetune(run, folder, *options):
    return run("finetune", "-o", folder, *(f"--set={setting}" for setting in QUICK), *map(str, options))


def read(path, kind, labelled=True, **columns):
    return read_own_table(path, kind, TableColumns(**columns), labelled=labelled)


# Tags of words.


@pytest.mark.slow
def test_tags_from_conll_to_answers(run, file, checkpoint, tmp_path, messages):
    train = file("x.conll", "-DOCSTART- -X- O\n\n" + blocks(sentences(40)))
    infused = ("--infuse", "masks,pos_add", "--task", "ner", "--model", checkpoint)
    result = finetune(run, tmp_path / "ner", "--train", train, *infused)
    assert result.code == 0, result.err
    assert "f1 1.0000\naccuracy 1.0000\nprecision 1.0000\nrecall 1.0000\n" in result.out
    assert "x.conll: 26 spans begin with I-, not B-; they count, as in seqeval" in result.err
    assert "f1 1.0000" in run("predict", tmp_path / "ner", train).out
    assert not (tmp_path / "ner" / "held_out.csv").exists()  # sentences are no rows of a table
    shuffled = run("predict", tmp_path / "ner", train, "--shuffle", "syntax")
    assert "the model as it is 1.0000 1.0000 1.0000 1.0000" in " ".join(shuffled.out.split())
    assert "no p: whether scores differ by chance is tested only for one label or score a row" in shuffled.err
    report = run("compare", tmp_path / "ner", tmp_path / "ner", "--data", train).out
    assert "The answers differ on 0 rows" in report
    texts = file("new.txt", "the cat  sees the house.\n")
    tagged = "the\tO\ncat\tB-ANIMAL\nsees\tO\nthe\tO\nhouse\tI-PLACE\n.\tO\n\n"
    assert run("predict", tmp_path / "ner", texts).out == tagged
    tagger = sf.pipeline(tmp_path / "ner")
    found = tagger("the cat  sees.")
    shown = [(word["entity"], word["start"], word["end"]) for word in found]
    assert shown[1:3] == [("B-ANIMAL", 4, 7), ("O", 9, 13)]
    (served,) = ClassifierEngine("ner", tagger.classifier).work(None, ["the cat  sees."])
    assert served.tags == found
    given = read_texts_for(tagger.classifier.info, str(file("new.jsonl", '{"tokens": ["the", "cat."]}\n')))
    words = [word["word"] for word in tagger.classifier.predict_set(given).labels[0]]
    assert words == ["the", "cat."]  # as given
    bad = file("bad.conll", "the _ O\ncat _ B-TREE\n")
    assert read_texts_for(tagger.classifier.info, str(bad)).examples[0].label == ("O", "B-TREE")
    told = "bad.conll: labels that training did not have count as missed: 'B-TREE' (1)"
    assert messages.text.count(told) == 1


@pytest.mark.parametrize(
    ("gold", "found", "f1"),
    [
        ("B-X I-X O", "B-X I-X O", 1),
        ("B-X I-X O", "B-X O O", 0),
        ("I-X I-X O B-Y", "I-X B-X O B-Y", 2 / 5),  # two spans, three found, one of them right
        ("I-X I-Y", "B-X B-Y", 1),  # a span begins where the kind changes
        ("B-X E-X S-X", "I-X I-X I-X", 0),
        ("B-X E-X I-X", "B-X I-X B-X", 1),  # E- ends a span
        ("O O", "O O", 0),
    ],
)
def test_f1_of_spans_as_seqeval_has_it(gold, found, f1):
    """Figures by seqeval 1.2.2, which is not installed here; 3,000 random pairs of sentences agree, too."""
    labels = tuple(f"{letter}-{kind}" for letter in "BIES" for kind in "XY")
    scores = WordTags(("O", *labels)).score((), [tuple(gold.split())], [tuple(found.split())])
    assert scores["f1"] == pytest.approx(f1)


def test_spans_and_labels_that_mark_none():
    spans = [("A", 0, 1), ("A", 2, 2), ("B", 4, 4), ("B", 5, 5)]
    assert spans_of(["I-A", "I-A", "B-A", "O", "S-B", "I-B"]) == spans
    assert WordTags(("NOUN", "VERB")).score((), [("NOUN", "VERB")], [("NOUN", "NOUN")]) == {"accuracy": 0.5}


CONLLU = """# sent_id = 1
# text = Zum U.S. Haus
1-2\tZum\t_\t_\t_\t_\t_\t_\t_\t_
1\tZu\tzu\tADP\tAPPR\t_\t4\tcase\t_\t_
2\tdem\tder\tDET\tART\t_\t4\tdet\t_\t_
3\tU.S.\tU.S.\tPROPN\tNE\t_\t4\tnmod\t_\t_
4\tHaus\tHaus\tNOUN\tNN\t_\t0\troot\t_\t_

"""


def test_columns_of_conllu_and_lists_of_json(file):
    texts, columns, kind = read(file("a.conllu", CONLLU), WordTags(()))
    assert (columns.text, columns.label) == ("form", "upos")
    (example,) = texts.examples
    assert (example.words, example.label) == (("Zu", "dem", "U.S.", "Haus"), ("ADP", "DET", "PROPN", "NOUN"))
    assert kind.labels == ("ADP", "DET", "NOUN", "PROPN")
    assert read(file("a.conllu", CONLLU), WordTags(()), label="xpos")[2].labels == ("APPR", "ART", "NE", "NN")
    for known in ((), ("0", "1")):  # an older model has numbers as names
        tags = "[1, 0]" if known else '["1", "0"]'
        path = file("a.jsonl", f'{{"words": ["a", "b"], "ner_tags": {tags}}}\n')
        texts, _, kind = read(path, WordTags(known))
        assert (texts.examples[0].label, kind.labels) == (("1", "0"), ("0", "1"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.conll", "a\tO\nb\n", r"a.conll:2: row: expected 2 cells, as in line 1, got 1: \['b'\]. Blank lines separate"),
        ("a.conll", "a\nb\n", r"a.conll:1: columns: expected two from 1 to 1 .* got 1 and 1. Name them for training with --text-column"),
        ("a.conll", "\n", r"a.conll: expected a word and its tag in each line, got an empty file"),
        ("a.conll", "-DOCSTART- O\n# id\n", r"a.conll: expected a word and its tag in each line, got an empty file"),
        ("a.jsonl", '{"tokens": ["a"], "tags": ["X"]}\n{"tokens": ["a", "b"], "tags": ["X"]}\n', r"a.jsonl:2: expected lists 'tokens' and 'tags' of as many"),
        ("a.jsonl", '{"tokens": "a b", "tags": ["X", "Y"]}\n', r"a.jsonl:1: expected lists 'tokens' and 'tags'"),
        ("a.jsonl", '{"tokens": ["a"]}\n', r"a.jsonl:1: expected lists 'tokens' and 'tags' of as many words as tags"),
        ("a.jsonl", '{"tokens": ["a", "b"], "tags": ["O", null]}\n', r"a.jsonl:1: tag of 'b': expected one of O, got none\."),
        ("a.jsonl", '{"tokens": ["a", "b"], "tags": ["O", " "]}\n', r"a.jsonl:1: tag of 'b': expected one of O, got none\."),
        ("a.conll", "a\tO\n \tO\n", r"a.conll:2: word: expected one in cell 1, got a blank"),
        ("a.jsonl", '{"tokens": ["a"], "ner_tags": [3]}\n', r"a.jsonl:1: ner_tags: expected names of tags, .* got the number 3"),
        ("a.conllu", "1-2\tam" + "\t_" * 8 + "\n", r"a.conllu:1: sentence: expected words, got multiword tokens"),
        ("a.conll", "a\tO\nb\t\n", r"a.conll:2: tag of 'b': expected one of O, got none\."),
    ],
)  # fmt: skip
def test_files_of_tags_that_are_refused(file, name, content, message):
    with pytest.raises(DataError, match=message):
        read(file(name, content), WordTags(()))


def test_a_tag_that_marks_no_span_among_those_that_do(file, caplog):
    """Spaces are no part of a tag; a typing error would turn F1 of spans into the share of right words."""
    _, _, spaced = read(file("a.conll", "a\tB-X \nb\tI-X\nc\tO\n"), WordTags(()))
    assert spaced.labels == ("B-X", "I-X", "O")
    assert spaced.is_bio
    assert not caplog.text
    _, _, wrong = read(file("a.conll", "a\tB-X\nb\tx-X\nc\tO\n"), WordTags(()))
    assert not wrong.is_bio
    assert "tags mark spans, except 'x-X'. So words are scored, not spans by F1." in caplog.text
    caplog.clear()
    for tags in ("NOUN VERB O", "O PER O O LOC", "O O KEY O"):  # no span is marked, whatever most words have
        rows = "".join(f"w\t{tag}\n" for tag in tags.split())
        read(file("a.conll", rows), WordTags(()))
    assert not caplog.text


@pytest.mark.parametrize("name", ["a.conllu", "a.conll"])
def test_free_comments_before_a_sentence(file, name):
    """Any line with # is a comment in CoNLL-U, and with tabs a line without one; else # may be a word."""
    content = f"# some words\n\n# more: of them\n#\n{CONLLU}# the end"
    texts, _, _ = read(file(name, content), WordTags(()))
    assert [example.words for example in texts.examples] == [("Zu", "dem", "U.S.", "Haus")]
    texts, _, _ = read(file(name, "# some words\n#\tO\nGo\tO\n"), WordTags(("O",)))
    assert [example.words for example in texts.examples] == [("#", "Go")]
    with pytest.raises(DataError, match=":1: row:"):
        read(file(name, "# some words\nGo O\n"), WordTags(("O",)))


def tagger(words, tags):
    return info_of("ner", ("ADP", "DET", "NOUN", "PROPN"), text_column=words, label_column=tags)


def test_columns_of_training_are_those_of_its_kind_of_file(file):
    """Those of CoNLL-U were numbers, by which tags in other files were read as words."""
    conllu, pairs = file("a.conllu", CONLLU), file("a.conll", "dem\tDET\nHaus\tNOUN\n")
    lists, named = (file(f"{key}.jsonl", json.dumps({key: ["dem"], "upos": ["DET"]})) for key in ("tokens", "form"))  # fmt: skip
    of_conllu, older, of_pairs = tagger("form", "upos"), tagger("2", "4"), tagger("1", "2")
    whole, short = (("Zu", "dem", "U.S.", "Haus"), ("ADP", "DET", "PROPN", "NOUN")), (("dem",), ("DET",))
    for info, path, expected in (
        (of_conllu, conllu, whole),
        (older, conllu, whole),
        (of_conllu, lists, short),
        (of_conllu, named, short),
        (of_pairs, pairs, (("dem", "Haus"), ("DET", "NOUN"))),
        (of_pairs, lists, short),
    ):
        (example,) = read_texts_for(info, str(path)).examples
        assert (example.words, example.label) == expected
    for info, path, told in (of_conllu, pairs, "1 to 2 .*form and upos"), (of_pairs, conllu, "1 to 10 .*1 and 2"):  # fmt: skip
        with pytest.raises(DataError, match=f"columns: expected two from {told}"):
            read_texts_for(info, str(path))


def test_a_column_whose_name_is_a_number_beside_one_whose_name_is_none(file):
    """As pandas names columns: no column is meant by its number."""
    info = info_of("classify", ("bad", "good"), text_column="1", label_column="label")
    csv, tsv = (f"1{separator}label\nthe cat{separator}good\n" for separator in ",\t")
    for name, content in (("a.csv", csv), ("a.tsv", tsv), ("a.jsonl", '{"1": "the cat", "label": "good"}\n')):
        (example,) = read_texts_for(info, str(file(name, content))).examples
        assert (example.texts, example.label) == (("the cat",), 1)


@pytest.mark.parametrize(
    "content", ["Two dogs play .\n\nTwo cats sleep .\n", "One two\nthree\n\nfour five six\n"]
)
def test_raw_text_with_blank_lines_is_no_file_of_columns(file, content):
    with pytest.raises(DataError, match=r"a.txt:"):
        read_texts_for(tagger("1", "2"), str(file("a.txt", content)))
    texts = read_texts_for(tagger("1", "2"), str(file("b.txt", "Two\ndogs\n\nGo\n")))
    assert [example.words for example in texts.examples] == [("Two", "dogs"), ("Go",)]
    for first in ("", "-DOCSTART- -X-\n\n"):
        path = file("eng.testb", f"{first}Two DET\ndogs NOUN\n\nGo NOUN\n")
        examples = [(each.words, each.label) for each in read_texts_for(tagger("1", "2"), str(path)).examples]
        assert examples == [(("Two", "dogs"), ("DET", "NOUN")), (("Go",), ("NOUN",))]


def test_syntax_is_that_of_the_given_words():
    words = ("The", "U.S.", "don't", "10 000", "run-up")
    example = TextExample((" ".join(words),), ("O",) * 5, words=words)
    (found,) = annotate_examples([example], load_annotator("en+phrases"), False, cached=False)
    (sentence,) = found.segments
    assert (sentence.words, len(sentence.upos), len(sentence.governors)) == (words, 5, 5)
    assert [sentence.text[start:end] for start, end in sentence.offsets] == list(words)


@pytest.mark.parametrize(("tagged", "expected"), [("first", [1, 2, -100, -100, 3]), ("all", [1, 2, 2, 2, 3])])
def test_pieces_that_learn_a_tag(checkpoint, tagged, expected):
    collator = SyntaxCollator(load_tokenizer(str(checkpoint), 11), "none", max_length=11, tags=tagged)
    raw = Sentence("the fox  runs", ("the", "fox", "runs"), ((0, 3), (4, 7), (9, 13)))
    batch = collator([SyntaxExample((raw,), (1, 2, 3))])
    assert batch["labels"].tolist() == [[-100, *expected, -100]]


def _tagged_in_windows(checkpoint, max_length, stride, words, label):
    """What the windows of a sentence learn, the probabilities of their outputs, and those of its words."""
    tokenizer = load_tokenizer(str(checkpoint), max_length)
    collator = SyntaxCollator(tokenizer, "none", max_length=max_length, tags="first", stride=stride)
    (windows,) = collator.windows([SyntaxExample((Sentence.from_words(words),), label)])
    kind, batch = WordTags(TAGS), collator(windows)
    outputs = torch.randn(*batch["input_ids"].shape, 3, generator=torch.manual_seed(3))
    (table,) = kind.joined([kind.per_window(outputs, windows, collator)])
    return batch["labels"].tolist(), outputs.softmax(-1), torch.from_numpy(table)


def test_a_long_sentence_is_tagged_in_windows(checkpoint):
    """11 words in windows of 5 pieces that share 2: each word is read, and has the mean of its windows."""
    rows, outputs, table = _tagged_in_windows(checkpoint, 7, 2, ["the", "cat"] * 5 + ["."], tuple(range(11)))
    learned = [label for row in rows for label in row if label >= 0]
    assert learned == [0, 1, 2, 3, 4, 3, 4, 5, 6, 7, 6, 7, 8, 9, 10]
    assert table[3] == pytest.approx((outputs[0, 4] + outputs[1, 1]) / 2, abs=1e-6)
    assert table.sum(1) == pytest.approx(torch.ones(11), abs=1e-6)


def test_a_word_that_begins_before_a_window_is_not_read_there(checkpoint):
    """f ##o ##x c | c ##o ##w ##s | ##s the the: windows of 4 pieces that share 1."""
    rows, outputs, table = _tagged_in_windows(checkpoint, 6, 1, ["fox", "cows", "the", "the"], (3, 5, 7, 11))
    assert [row[1:-1] for row in rows] == [[3, -100, -100, 5], [5, -100, -100, -100], [-100, 7, 11, -100]]
    assert table[1] == pytest.approx((outputs[0, 4] + outputs[1, 1]) / 2, abs=1e-6)
    assert table[2] == pytest.approx(outputs[2, 2], abs=1e-6)
    # The tokenizer may keep nothing of a word's first character; all the same it is read where it begins.
    assert _tagged_in_windows(checkpoint, 6, 1, ["\u200bthe", "cat"], (3, 5))[0] == [[-100, 3, 5, -100]]


def test_windows_are_those_of_the_words_with_spaces_between_them(checkpoint):
    """ "cat" is one piece, and "ca t", as it is read, is three: five pieces of the nine are in each window."""
    tokenizer = load_tokenizer(str(checkpoint), 7)
    collator = SyntaxCollator(tokenizer, "none", max_length=7, tags="first", stride=2)
    offsets = ((0, 2), (2, 3), (4, 6), (6, 7), (8, 10), (10, 11))
    (windows,) = collator.windows([SyntaxExample((Sentence("cat cat cat", ("ca", "t") * 3, offsets),))])
    words, is_read = collator.read_pieces(windows)
    assert len(windows) == 3
    assert {*words[is_read].tolist()} == {*range(6)}


def test_windows_without_room_and_a_word_without_pieces(checkpoint):
    with pytest.raises(ConfigError, match=r"^training\.stride: expected less than 5, got 5\."):
        _tagged_in_windows(checkpoint, 7, 5, ["the"], (0,))
    _, _, table = _tagged_in_windows(checkpoint, 11, 2, ["the", "\u2003"], (0, 1))
    assert (TAGS[table[1].argmax()], bool(table[1].max() < 1e-6)) == ("O", True)


# Questions.


@pytest.mark.slow
def test_questions_from_squads_json_to_answers(run, file, checkpoint, tmp_path):
    train = file("train.json", json.dumps(questions(sentences(200)), indent=1))
    assert len(json.loads(train.read_text())["data"]) == 200
    options = ("--task", "squad", "--train", train, "--dev", train, "--model", checkpoint)
    result = finetune(run, tmp_path / "qa", *options, "--epochs", "3")
    assert "f1 1.0000\nexact_match 1.0000\n" in result.out, result.err
    assert "exact_match 1.0000" in run("predict", tmp_path / "qa", train).out
    asked = {"id": "7", "question": "who sees ?", "context": "the  dog sees the house ."}
    content = {"data": [{"paragraphs": [{"context": asked["context"], "qas": [asked]}]}]}
    predicted = run("predict", tmp_path / "qa", file("new.json", json.dumps(content))).out
    assert json.loads(predicted) == {"7": "dog"}  # as SQuAD's script reads it
    found = sf.pipeline(tmp_path / "qa")({"question": "who sees ?", "context": asked["context"]})
    assert (found["answer"], found["start"], found["end"]) == ("dog", 5, 8)
    assert run("export", tmp_path / "qa", tmp_path / "graph").code == 0
    (served,) = load_engine("qa", tmp_path / "graph").work(None, [("who sees ?", asked["context"])])
    assert served.answer == pytest.approx(found, abs=1e-5)
    none = sf.pipeline(tmp_path / "qa")(("who runs ?", "the dog sees the house ."))
    assert none["answer"] == ""
    with pytest.raises(ValueError, match=r"^top_k:"):
        sf.pipeline(tmp_path / "qa")(("who runs ?", "the dog sees the house ."), top_k=3)


def test_questions_about_one_text_are_held_out_together(file, caplog):
    def held(context_of):
        asked = [{"id": str(n), "question": f"who ? {n}", "answers": [{"text": str(context_of(n)), "answer_start": 4}]} for n in range(60)]  # fmt: skip
        paragraphs = [{"context": f"the {context_of(n)} sees", "qas": [one]} for n, one in enumerate(asked)]
        train = file("s.json", json.dumps({"data": [{"paragraphs": paragraphs}]}))
        config = {"task": "squad", "model": "x", "output": "x", "data": {"train": str(train)}}
        found = read_finetune_data(load_finetune(config))
        assert (len(found.train), len(found.dev)) == (54, 6)
        train, dev = ({example.texts[1] for example in part.examples} for part in (found.train, found.dev))
        return train & dev

    assert held(lambda n: n % 20) == set()
    assert "equal texts" not in caplog.text
    told = "s.json: both parts have equal texts, which raises scores on dev. Give --dev."
    # 20 questions about each: no text could be spared, or in the second only that of a single question
    for context_of in (lambda n: n % 3, lambda n: 3 if n == 59 else n // 20):
        assert held(context_of)
        assert told in caplog.text
        caplog.clear()


@pytest.mark.parametrize(
    ("gold", "found", "f1", "same"),
    [
        ("the Cat.", "cat", 1, 1),
        ("a big cat", "big dog", 1 / 2, 0),
        ("cat cat", "cat", 2 / 3, 0),
        ("cat", "", 0, 0),
        (None, "", 1, 1),
        (None, "cat", 0, 0),
        ("the", "a", 1, 1),
    ],
)
def test_scores_of_answers_as_squads_script_has_them(gold, found, f1, same):
    label = () if gold is None else ((3, "house"), (0, gold))
    assert AnswerSpan().score((), [label], [found]) == {"f1": pytest.approx(f1), "exact_match": same}


def _squad(**changes):
    question = {"id": "q1", "question": "who ?", "answers": [{"text": "cat", "answer_start": 4}], **changes}
    return json.dumps({"data": [{"paragraphs": [{"context": "the cat", "qas": [question]}]}]}, indent=1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (_squad(answers=[{"text": "cat", "answer_start": 3}]), r"s.json:9: question 'q1': .*expected 'cat' at character 3 of the context, got ' ca'"),
        (_squad(answers=[{"text": "ca", "answer_start": -3}]), r"expected 'ca' at character -3 of the context"),
        (_squad(answers=[]), r"s.json:9: question 'q1': .*expected answers, or is_impossible, got neither"),
        (_squad(question=" "), r"question 'q1': .*expected an id of its own, a question and a context"),
        (_squad(answers=[{"text": "cat", "answer_start": math.inf}]), r"s.json:9: question 'q1': answers: expected text and"),
        ("[" * 100_000, r"s.json: expected SQuAD's format, got: RecursionError"),
        (_squad(answers=[1]).replace("1\n", "1" * 5000), r"s.json: expected SQuAD's format, got: ValueError"),
        ('{"data": [{}]}', r"s.json: expected SQuAD's format, got: KeyError\('paragraphs'\)"),
        ("[", r"s.json:1: expected one object of JSON .* got what is no JSON"),
        ('{"id": "1"}\n{"id": "2"}\n', r"s.json:2: expected one object of JSON .* got JSON lines"),
    ],
)  # fmt: skip
def test_questions_that_are_refused(file, content, message):
    with pytest.raises(DataError, match=message):
        read(file("s.json", content), AnswerSpan())


def test_an_answer_is_learned_in_the_windows_that_hold_it(checkpoint):
    collator = SyntaxCollator(load_tokenizer(str(checkpoint), 9), "none", max_length=9, stride=2)
    asked, text = Sentence("who", (), ()), Sentence("the cat sees the dog", (), ())
    dog, none = (SyntaxExample((asked, text), label) for label in (range(17, 20), range(0)))
    windows = collator.windows([dog, none])  # "who" has 3 pieces, so each holds 3 pieces of the text
    batch = collator([one for of_text in windows for one in of_text])
    assert batch["start_positions"].tolist() == batch["end_positions"].tolist() == [0, 0, 7, 0, 0, 0]
    shorter = SyntaxCollator(collator.tokenizer, "none", max_length=8, stride=2)
    with pytest.raises(DataError, match="question:"):
        shorter.windows([dog])


def test_the_best_window_answers_and_none_where_none_is_better(checkpoint):
    kind = AnswerSpan(longest_answer=7, unanswerable=True)
    text = SyntaxExample((Sentence("who", (), ()), Sentence("the cat sees", (), ())))
    windows = [[(3.0, 9.0, 0.0, 3.0, 9.0), (4.0, 1.0, 4.0, 7.0, 4.0 + math.log(4))]]
    expected = {"answer": "cat", "start": 4, "end": 7, "score": pytest.approx(0.25)}
    assert kind.decide(kind.joined(windows), [text]) == [expected]
    assert kind.decide(kind.joined([[(4.0, 4.5, 4.0, 7.0, 5.0)]]), [text])[0]["answer"] == ""
    kind = replace(kind, unanswerable=False)
    assert kind.decide(kind.joined([[(4.0, 4.5, 4.0, 7.0, 5.0)]]), [text])[0]["answer"] == "cat"


def test_the_score_of_an_answer_is_its_probability_among_those_of_the_text(checkpoint):
    """Whatever stands beside it in the batch, and whether the answer is empty; other pieces count for nothing."""
    collator = SyntaxCollator(load_tokenizer(str(checkpoint), 32), "none", max_length=32, stride=2)
    asked = Sentence("who", (), ())
    texts = (Sentence(text, (), ()) for text in ("the cat sees", "the cat sees a big dog"))
    short, long = (SyntaxExample((asked, text)) for text in texts)
    kind = AnswerSpan(longest_answer=7, unanswerable=True)
    logits = torch.randn(2, 12, 2, generator=torch.manual_seed(3))

    def score(rows, outputs):
        return kind.decide(kind.joined([[one] for one in kind.per_window(outputs, rows, collator)]), rows)[0]

    # [CLS] w h o [SEP] the cat sees [SEP]: no answer, or one of three pieces.
    assert collator([short])["input_ids"].shape == (1, 9)
    logits[0, 5] += 3
    alone, both = score([short], logits[:1, :9]), score([short, long], logits)
    starts, ends = logits[0, [0, 5, 6, 7]].softmax(0).unbind(1)
    score_of_the = pytest.approx(float(starts[1] * ends[1]))
    assert alone == both == {"answer": "the", "start": 0, "end": 3, "score": score_of_the}
    logits[0, 0] += 15
    logits[0, 1] += 20  # a piece of the question
    none = score([short, long], logits)
    assert (none["answer"], none["score"]) == ("", pytest.approx(1, abs=1e-3))


@pytest.mark.parametrize(
    ("task", "kind", "known"),
    [
        ("ner", WordTags(TAGS), "f1, accuracy, precision, recall"),
        ("ner", WordTags(("NOUN", "VERB")), "accuracy"),
        ("squad", AnswerSpan(), "f1, exact_match"),
        ("multilabel", SeveralLabels(("a", "b", "c")), "micro_f1, macro_f1, mean"),
        ("vector", SeveralScores(labels=("x", "y")), "pearson"),  # of mse, less is better
    ],
)
def test_scores_that_choose_the_best_epoch(task, kind, known):
    metrics = OWN_TASKS[task].metrics
    assert {_metrics(OWN_TASKS[task], kind, one) for one in (None, *known.split(", "))} == {metrics}
    with pytest.raises(ConfigError, match=f"training.best_by: expected one of {known}, got 'mse'"):
        _metrics(OWN_TASKS[task], kind, "mse")
    with pytest.raises(ConfigError, match=f"got the type '{kind.name}'. Leave it out"):
        kind.balanced_weights([])
    if kind.parts:
        with pytest.raises(ConfigError, match=f"model: .*{kind.parts}, got one with a decoder"):
            kind.for_head("auto", lambda: True, None)


# Several labels, several scores.


@pytest.mark.slow
def test_several_labels_from_lists_and_columns_to_answers(run, file, checkpoint, tmp_path):
    rows = [(" ".join(words), ["animal"] * (words[1] == "cat") + ["place"] * ("house" in words)) for words in sentences(40)]  # fmt: skip
    lists = file("m.jsonl", "\n".join(json.dumps({"text": text, "labels": labels}) for text, labels in rows))
    cells = (f"{text},{int('animal' in labels)},{int('place' in labels)}" for text, labels in rows)
    columns = file("m.csv", "text,animal,place\n" + "\n".join(cells))
    texts, _, kind = read(columns, SeveralLabels(()), label="animal,place")
    assert kind.labels == ("animal", "place")
    assert [example.label for example in texts.examples] == [tuple(labels) for _, labels in rows]
    options = ("--task", "multilabel", "--model", checkpoint, "--epochs", "8")
    named = ("--train", columns, "--dev", lists, "--label-column", "animal,place")
    refused = finetune(run, tmp_path / "m", *named, *options)
    assert "m.jsonl: --label-column: expected a column 'animal'" in refused.err
    result = finetune(run, tmp_path / "m", "--train", lists, "--dev", lists, "--seed", "2", *options)
    assert "micro_f1 1.0000\nmacro_f1 1.0000" in result.out, result.err
    assert "micro_f1 1.0000" in run("predict", tmp_path / "m", lists).out
    answers = sf.pipeline(tmp_path / "m")(["the cat sees the house .", "the dog sees ."])
    assert [[answer["label"] for answer in labels] for labels in answers] == [["animal", "place"], []]
    (every,) = sf.pipeline(tmp_path / "m")(["the dog sees ."], top_k=None)
    assert {one["label"] for one in every} == {"animal", "place"}
    assert every[0]["score"] >= every[1]["score"]
    (served,) = load_engine("m", tmp_path / "m").work(None, ["the cat sees ."])
    assert (served.labels, sorted(served.probabilities)) == (["animal"], ["animal", "place"])
    predicted = run("predict", tmp_path / "m", file("new.txt", "the cat sees .\n"))
    assert predicted.out.splitlines()[1].startswith('["animal"]\t')


@pytest.mark.parametrize(
    ("kind", "name", "content", "message"),
    [
        ("classify", "a.jsonl", '{"text": "a", "label": ["x", "y"]}\n', r"a.jsonl:1: column 'label': expected one label or score, got \['x', 'y'\]. Use --task multilabel"),
        ("regress", "a.jsonl", '{"text": "a", "label": [1, 2]}\n', r"a.jsonl:1: column 'label': .* vector for lists of numbers"),
        ("multilabel", "a.jsonl", '{"text": "a", "label": "x"}\n', r"""a.jsonl:1: label: expected a list as \["a", "b"\]"""),
        ("multilabel", "a.jsonl", '{"text": "a", "label": ["x", null]}\n', r"a.jsonl:1: labels: expected names, got an empty one in \['x', None\]"),
        ("multilabel", "a.tsv", "text\tlabel\na\t" + "[" * 100_000 + "\n", r"a.tsv:2: label: expected a list"),
        ("vector", "a.jsonl", '{"text": "a", "label": [1, 2]}\n{"text": "a", "label": [1]}\n', r"a.jsonl:2: scores: expected 2, got 1"),
        ("vector", "a.jsonl", '{"text": "a", "label": "x"}\n', r"""a.jsonl:1: label: expected a list as \["a", "b"\]"""),
        ("vector", "a.jsonl", '{"text": "a", "label": {"x": 1, "y": 2}}\n{"text": "a", "label": {"x": 1, "z": 2}}\n', r"a.jsonl:2: scores: expected those named x, y, got x, z. Name the same ones in every row"),
        ("vector", "a.jsonl", '{"text": "a", "label": [1, "x"]}\n', r"a.jsonl:1: score: expected a finite number, got 'x'"),
        ("vector", "a.jsonl", f'{{"text": "a", "label": [1, 1{"0" * 400}]}}\n', r"a.jsonl:1: score: expected a finite number, got 10+"),
    ],
)  # fmt: skip
def test_lists_that_are_refused(file, kind, name, content, message):
    with pytest.raises(DataError, match=message):
        read(file(name, content), OWN_TASKS[kind].task_type)


def test_labels_however_they_are_written(file):
    """Columns as pandas writes them, and names with spaces around."""
    with pytest.raises(DataError, match=r"a.csv:3: column 'y': expected 0 or 1, got '2'"):
        read(file("a.csv", "text,x,y\na,0,1\nb,1,2\n"), SeveralLabels(()), label="x,y")
    path = file("a.csv", "text,x,y\na,0.0,True\nb,1.0,False\n")
    texts, _, known = read(path, SeveralLabels(()), label="x,y")
    assert (known.labels, [example.label for example in texts.examples]) == (("x", "y"), [("y",), ("x",)])
    path = file("a.jsonl", '{"text": "a", "label": ["x"]}\n{"text": "b", "label": ["x ", "y"]}\n')
    _, _, known = read(path, SeveralLabels(()))
    assert known.labels == ("x", "y")
    assert SeveralLabels(("1", "2")).read([1.0]) == ("1",)


def test_scores_of_json_objects_are_taken_by_name(file):
    rows = '{"text": "a", "label": {"x": 1, "y": 2}}\n{"text": "b", "label": {"y": 3, "x": 4}}\n'
    texts, _, kind = read(file("a.jsonl", rows), SeveralScores())
    assert kind.labels == ("x", "y")
    assert [example.label for example in texts.examples] == [(1.0, 2.0), (4.0, 3.0)]


@pytest.mark.parametrize(
    ("kind", "labels"),
    [
        ("multilabel", [["sport", "war & peace"], ["news"], []]),
        ("multilabel", [{"sport": 1, "news": 0}, {"sport": 0, "news": 1}]),
        ("vector", [[1, 2.5], [3, 4]]),
        ("vector", [{"valence": 1, "arousal": 2.5}, {"arousal": 3, "valence": 4}]),
    ],
)
def test_rows_held_out_from_json_can_be_read_again(file, tmp_path, kind, labels):
    rows = [{"text": f"text {n}", "sure": True, "labels": labels[n % len(labels)]} for n in range(40)]
    train = file("m.jsonl", "\n".join(map(json.dumps, rows)))
    config = {"task": kind, "model": "x", "output": "x", "data": {"train": str(train)}}
    found = read_finetune_data(load_finetune(config))
    _write_rows(tmp_path, found)
    texts, _, again = read(tmp_path / "held_out.csv", OWN_TASKS[kind].task_type)
    assert again.names == found.task.task_type.names
    stored, held_out = ([(each.texts, each.label) for each in side.examples] for side in (texts, found.dev))
    assert stored == held_out
    assert "True" in (tmp_path / "held_out.csv").read_text()  # as a label of `classify` would be read


def test_models_whose_scores_have_another_order_are_compared_by_name(monkeypatch):
    first, other = (info_of("vector", names) for names in (("x", "y"), ("y", "x")))
    predicted = Predictions([(2.0, 1.0), (4.0, 3.0)], None, ids=("0", "1"))
    loaded = SimpleNamespace(info=other, task_type=other.task_type, predict_set=lambda texts: predicted)
    monkeypatch.setattr(Classifier, "from_folder", lambda *_: loaded)
    beside = predictions_beside(Path("other"), first, TextSet("texts", "texts", []), (None, None, False))
    assert beside == replace(predicted, labels=[(1.0, 2.0), (3.0, 4.0)])


@pytest.mark.slow
def test_several_scores_from_columns_to_answers(run, file, checkpoint, tmp_path):
    rows = (f"{' '.join(words)},{100 + 10 * (words[1] == 'cat')},{float('house' in words)}" for words in sentences(40))  # fmt: skip
    table = file("v.csv", "text,x,y\n" + "\n".join(rows))
    data = ("--train", table, "--dev", table, "--label-column", "x,y")
    options = ("--task", "vector", "--model", checkpoint, "--epochs", "8")
    result = finetune(run, tmp_path / "v", *data, *options)
    scores = dict(line.split() for line in result.out.splitlines() if line.startswith(("pearson", "mse")))
    assert float(scores["pearson"]) > 0.9, result.err
    (found,) = sf.pipeline(tmp_path / "v")(["the cat sees the house ."])
    assert [answer["label"] for answer in found] == ["x", "y"]
    assert found[0]["score"] == pytest.approx(110, abs=4)
    assert run("predict", tmp_path / "v", file("new.txt", "the cat sees .\n")).out.startswith("x\ty\n1")


def test_scales_of_several_scores():
    kind = SeveralScores(labels=("x", "y")).fit([(1.0, 5.0), (3.0, 5.0)])
    assert kind.target((3.0, 5.0)) == [1.0, 0.0]
    assert kind.score_scale == (2.0, 5.0, 1.0, 1.0)
    with pytest.raises(ValueError, match="score_scale: expected 6 numbers, got 4"):
        replace(kind, labels=("x", "y", "z"))
    assert kind.decide(torch.tensor([[1.0, 0.0]])) == [(3.0, 5.0)]
    assert kind.score((), [(1.0, 0.0), (2.0, 1.0)], [(1.0, 1.0), (3.0, 0.0)]) == {"pearson": 0.0, "mse": 0.75}
