"""The generator of sentences whose linear and structural rules part, against a parser written for the test."""

from __future__ import annotations

import random

import pytest
from structure import generate, wrong_edges

from syntaxformer.trees import ROOT, read_conllu
from syntaxformer.trees.constituency import leaves_of, parse_tree, spans_of

SIZES = {"train": 100, "dev": 20, "test": 50, "general": 100, "deep": 100}


@pytest.fixture(scope="module", params=["question", "tense"])
def task(request):
    return request.param


@pytest.fixture(scope="module")
def files(task):
    return generate.generate(task, 3, SIZES)


class Parser:
    """Reads a sentence from left to right; `edges` are word → governor and label."""

    def __init__(self, words):
        self.words, self.at, self.edges = words, 0, {}

    def next(self):
        self.at += 1
        return self.at - 1

    def noun_phrase(self):
        determiner, adjectives = self.next(), []
        while self.words[self.at] in generate.ADJECTIVES:
            adjectives.append(self.next())
        noun = self.next()
        self.edges |= {determiner: (noun, "det"), **dict.fromkeys(adjectives, (noun, "amod"))}
        if self.words[self.at] in generate.PREPOSITIONS:
            preposition, inner = self.next(), self.noun_phrase()
            self.edges |= {preposition: (inner, "case"), inner: (noun, "nmod")}
        elif self.words[self.at] == "who":
            who = self.next()
            if self.words[self.at] in generate.DETERMINERS:
                subject = self.noun_phrase()
                verb = self.verb_phrase(has_object=False)
                self.edges |= {who: (verb, "obj"), subject: (verb, "nsubj")}
            else:
                verb = self.verb_phrase()
                self.edges[who] = (verb, "nsubj")
            self.edges[verb] = (noun, "acl:relcl")
        return noun

    def verb_phrase(self, has_object=True):
        auxiliary = self.next() if self.words[self.at] in generate.AUXILIARIES else None
        verb = self.next()
        if auxiliary is not None:
            self.edges[auxiliary] = (verb, "aux")
        if has_object and self.words[self.at] in generate.DETERMINERS:
            self.edges[self.noun_phrase()] = (verb, "obj")
        return verb

    def sentence(self):
        subject = self.noun_phrase()
        self.main = self.at
        verb = self.verb_phrase()
        self.edges |= {subject: (verb, "nsubj"), verb: (-1, "root")}
        self.edges |= {self.next(): (verb, "punct"), self.next(): (verb, "dep")}
        self.subject = subject
        return self


def parsed(example):
    return Parser([word.form for word in example.words]).sentence()


def is_plural(noun):
    return noun.endswith("s")


def test_trees_are_those_of_a_second_parser(files):
    for example in [example for name in ("train", "deep") for example in files[name]]:
        sentence, parser = example.sentence, parsed(example)
        edges = [parser.edges[word] for word in range(len(sentence.words))]
        assert list(zip(sentence.governors, sentence.deprels, strict=True)) == edges
        tree = parse_tree(sentence.constituency)
        assert leaves_of(tree) == sentence.words
        phrases = {(span.start, span.end) for span in spans_of(tree) if span.label == "NP"}
        assert (0, parser.main) in phrases, "the subject is a phrase"


def test_no_source_stands_twice_and_all_is_drawn_by_the_seed(task, files):
    texts = [example.sentence.text for examples in files.values() for example in examples]
    assert len(texts) == len(set(texts)) == sum(SIZES.values())
    again, other = (generate.generate(task, seed, {"train": 20}) for seed in (3, 4))
    assert [e.target for e in again["train"]] == [e.target for e in files["train"]][:20]
    assert [e.target for e in other["train"]] != [e.target for e in again["train"]]


def test_targets_follow_the_structural_rule_and_training_the_linear_one_as_well(task, files):
    for split, examples in files.items():
        for example in examples:
            parser, symbol = parsed(example), example.words[-1].form
            words = parser.words[:-2]
            main, body = parser.words[parser.main], list(words)
            is_new, depth = split in ("general", "deep"), example.properties["depth"]
            assert depth <= 2 if split != "deep" else 3 <= depth <= 4
            if symbol in ("decl", "past"):
                assert example.target == [*words, "."]
                assert not is_new
            elif task == "question":
                body.pop(parser.main)
                assert example.target == [main, *body, "?"]
                first = next(word for word in words if word in generate.AUXILIARIES)
                assert (first != main) == is_new
            else:
                nouns = [word for word in words[: parser.main] if word.rstrip("s") in generate.NOUNS]
                subject, last = is_plural(words[parser.subject]), is_plural(nouns[-1])
                assert (subject != last) == is_new
                answer = example.target[parser.main]
                assert answer == example.properties["main"]
                assert is_plural(answer) != subject, "a verb of a plural subject has no s"


def test_files_are_read_back(task, files, tmp_path):
    generate.write(tmp_path, files)
    sentences = list(read_conllu(tmp_path / "deep.conllu"))
    assert sentences == [example.sentence for example in files["deep"]]
    head, *rows = (tmp_path / "deep.tsv").read_text().splitlines()
    assert head.split("\t") == list(generate.COLUMNS)
    assert len(rows) == 100
    for name in ("src", "tgt"):
        assert len((tmp_path / f"train.{name}").read_text().splitlines()) == 100


@pytest.mark.parametrize("share", [0.0, 0.2, 1.0])
def test_as_many_edges_are_wrong_as_asked_for_and_trees_stay_trees(files, share):
    draw, n_words, n_wrong = random.Random(5), 0, 0
    for example in files["train"]:
        right, wrong = example.sentence, wrong_edges.with_wrong_edges(example.sentence, share, draw)
        assert (wrong.words, wrong.upos, wrong.deprels) == (right.words, right.upos, right.deprels)
        assert wrong.constituency is None
        assert wrong.roots == right.roots
        for word in range(len(wrong)):
            above = word
            for _ in wrong:
                above = wrong.governors[above] if above != ROOT else ROOT
            assert above == ROOT, "each word reaches a root"
        n_words += len(wrong)
        n_wrong += sum(a != b for a, b in zip(right.governors, wrong.governors, strict=True))
    n_roots = len(files["train"])
    assert n_wrong / (n_words - n_roots) == pytest.approx(share, abs=0.1)
