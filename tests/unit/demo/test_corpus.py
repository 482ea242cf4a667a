"""The corpus as a whole: valid trees, German word order, splits, ambiguity, determinism."""

from __future__ import annotations

from collections import Counter

import pytest

from syntaxformer.demo.generated import DemoPair, demo_corpus, split, write_demo
from syntaxformer.demo.generated.lexicon import READINGS
from syntaxformer.trees import Sentence, check_governors, is_projective, parse_tree, read_conllu

FINITE = ("VVFIN", "VAFIN", "VMFIN")
CLAUSES = ("advcl", "ccomp", "acl:relcl")
BELOW = (*CLAUSES, "xcomp", "conj")


@pytest.fixture(scope="module")
def pairs() -> list[DemoPair]:
    return demo_corpus(8000, seed=1)


@pytest.fixture(scope="module")
def splits(pairs):
    return split(pairs)


def both_sides(pairs) -> list[Sentence]:
    return [side for pair in pairs for side in (pair.en, pair.de)]


def test_english_sides_are_distinct_and_of_bounded_length(pairs):
    assert len({pair.en.text for pair in pairs}) == len(pairs) == 8000
    assert {len(pair.en) for pair in pairs} == set(range(4, 21))


def test_offsets_slice_back_to_words(pairs):
    for sentence in both_sides(pairs):
        assert tuple(sentence.text[start:end] for start, end in sentence.offsets) == sentence.words
        assert sentence.text[0].isupper()
        assert sentence.text[-1] in ".?"
        assert "  " not in sentence.text
        assert " ," not in sentence.text


def test_every_tree_has_one_root_and_no_cycle(pairs):
    for sentence in both_sides(pairs):
        check_governors(sentence.governors, sentence.words)
        assert len(sentence.roots) == 1
        assert sentence.deprels[sentence.roots[0]] == "root"


def test_only_extraposed_relative_clauses_are_not_projective(pairs):
    assert all(is_projective(pair.en.governors) for pair in pairs)
    crossing = [pair.de for pair in pairs if not is_projective(pair.de.governors)]
    assert 0 < len(crossing) < 0.05 * len(pairs)
    for sentence in crossing:
        relatives = [i for i, relation in enumerate(sentence.deprels) if relation == "acl:relcl"]
        bracket_between = [
            word
            for i in relatives
            for word in range(sentence.governors[i], i)
            if sentence.xpos[word][:2] in BRACKET
        ]
        assert bracket_between, sentence.text


BRACKET = ("VV", "VA", "VM", "PT", "AD")


def test_constituency_covers_the_words(pairs):
    for pair in pairs[:500]:
        assert parse_tree(pair.en.constituency) is not None
        leaves = [piece.rstrip(")") for piece in pair.en.constituency.split() if not piece.startswith("(")]
        assert tuple(leaves) == pair.en.words
        assert pair.de.constituency is None


def finite_verb(sentence: Sentence, head: int) -> int | None:
    """Position of the finite verb of the clause that `head` governs."""
    group = [head] + [
        word
        for word, governor in enumerate(sentence.governors)
        if governor == head and sentence.deprels[word] in ("aux", "aux:pass", "cop")
    ]
    return next((word for word in group if sentence.xpos[word] in FINITE), None)


def path(sentence: Sentence, word: int) -> list[int]:
    """The word and its ancestors, up to the root."""
    found = [word]
    while sentence.governors[found[-1]] >= 0:
        found.append(sentence.governors[found[-1]])
    return found


def test_finite_verb_is_second_in_main_clauses(pairs):
    fronted = 0
    for sentence in (pair.de for pair in pairs):
        root = sentence.roots[0]
        verb = finite_verb(sentence, root)
        if verb is None:  # a command
            assert sentence.xpos[0] == "VVIMP"
            continue
        constituents = {path(sentence, word)[-2] for word in range(verb) if word != root}
        assert root >= verb, sentence.text
        expected = (0, 1) if sentence.text.endswith("?") else (1,)
        assert len(constituents) in expected, sentence.text
        fronted += any(sentence.deprels[word] in ("obl", "advmod", "advcl") for word in constituents)
    assert fronted > 0.1 * len(pairs)


def test_finite_verb_is_last_in_subordinate_clauses(pairs):
    seen = Counter()
    for sentence in (pair.de for pair in pairs):
        for head, relation in enumerate(sentence.deprels):
            verb = finite_verb(sentence, head) if relation in CLAUSES else None
            if verb is None:
                continue
            seen[relation] += 1
            for word in range(verb + 1, len(sentence)):
                way = path(sentence, word)
                inside = head in way and not any(
                    sentence.deprels[step] in BELOW for step in way[: way.index(head)]
                )
                assert not inside or sentence.upos[word] == "PUNCT", sentence.text
    assert min(seen[relation] for relation in CLAUSES) > 300


def test_subject_and_verb_agree_in_number(pairs):
    """In German, where the form shows it: a plural article with a singular verb is a mistake."""
    for sentence in (pair.de for pair in pairs):
        for word, relation in enumerate(sentence.deprels):
            if relation == "nsubj" and sentence.upos[word] == "NUM":
                raise AssertionError(sentence.text)
            verb = (
                finite_verb(sentence, sentence.governors[word])
                if relation in ("nsubj", "nsubj:pass")
                else None
            )
            children = [c for c, governor in enumerate(sentence.governors) if governor == word]
            numbers = [
                c for c in children if sentence.lemmas[c] in ("zwei", "drei", "alle", "aller", "einiger")
            ]
            if verb is not None and numbers:
                assert sentence.words[verb].lower().endswith(("n", "sind")), sentence.text


def test_ambiguous_words_have_their_readings_in_train_and_test(splits):
    for name, part in (("train", splits.train), ("test", splits.test)):
        seen = {reading for pair in part for reading in pair.readings}
        for form, readings in READINGS.items():
            assert len({upos for _, upos in readings & seen}) >= 2, (name, form)
            assert readings <= seen, (name, form, readings - seen)


def test_ambiguity_is_what_the_corpus_is_about(pairs):
    assert len(READINGS) > 100
    assert sum(bool(pair.readings) for pair in pairs) > 0.7 * len(pairs)
    for word in [
        "watch",
        "book",
        "play",
        "water",
        "plant",
        "light",
        "can",
        "saw",
        "duck",
        "rose",
        "sink",
        "bear",
        "fly",
        "iron",
        "left",
        "back",
        "that",
        "her",
    ]:
        assert word in READINGS or word == "her"


def test_splits_share_no_sentence(splits):
    assert (len(splits.valid), len(splits.test)) == (300, 500)
    assert 6500 < len(splits.train) <= 7200
    texts = [pair.en.text for _, part in splits.parts() for pair in part]
    assert len(set(texts)) == len(texts)


def test_held_out_combinations_are_only_in_test(splits):
    assert splits.held_out
    for part in (splits.train, splits.valid):
        assert not any(pair.combinations & splits.held_out for pair in part)
    novel = sum(bool(pair.combinations & splits.held_out) for pair in splits.test)
    assert 100 <= novel <= 150


def test_corpus_depends_on_the_seed_alone():
    first, again, other = demo_corpus(50, seed=3), demo_corpus(50, seed=3), demo_corpus(50, seed=5)
    assert first == again
    assert {pair.en.text for pair in first} != {pair.en.text for pair in other}
    assert [pair.en.text for pair in demo_corpus(20, seed=3)] == [pair.en.text for pair in first[:20]]


def test_written_files_hold_the_corpus(tmp_path):
    splits = write_demo(tmp_path / "demo", n_pairs=900, seed=2)
    assert len(list((tmp_path / "demo").iterdir())) == 12
    for name, part in splits.parts():
        for language in ("en", "de"):
            sentences = [getattr(pair, language) for pair in part]
            lines = (tmp_path / "demo" / f"{name}.{language}").read_text(encoding="utf-8").splitlines()
            assert lines == [sentence.text for sentence in sentences]
            assert list(read_conllu(tmp_path / "demo" / f"{name}.{language}.conllu")) == sentences


def test_a_corpus_has_pairs():
    with pytest.raises(ValueError, match=r"^n_pairs: expected an integer >= 1, got 0\.$"):
        demo_corpus(0)


def test_split_needs_more_pairs_than_it_takes_away():
    message = (
        r"^pairs: expected more than n_valid \+ n_test = 800, got 9\. Generate more pairs or ask for smaller"
    )
    with pytest.raises(ValueError, match=message):
        split(demo_corpus(9))
