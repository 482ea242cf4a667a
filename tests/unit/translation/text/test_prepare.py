"""Preparation: nested fractions, pairs left out, user columns, tokenizers by name."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pytest
from pydantic import ValidationError
from tokenizers import processors
from transformers import PreTrainedTokenizerFast

from parallel_files import tiny_recipe, write_sides
from syntaxformer.annotate import WordsAsGiven, load_annotator
from syntaxformer.base.errors import AlignmentError, ConfigError
from syntaxformer.syntax import WordColumns, build_vocabularies
from syntaxformer.translation.corpora import CorpusConfig, ParallelText, read_split
from syntaxformer.translation.prepare import PairEncoding, annotated_columns, get_tokenizers, nested_fraction
from syntaxformer.translation.source import SourceEncoder
from syntaxformer.translation.subwords import SubwordConfig, given_tokenizer, train_subwords
from syntaxformer.translation.training import prepare
from syntaxformer.trees import Sentence, write_conllu

SRC, TGT = ["the cat sat", "cats", "the cat"], ["die Katze", "Katzen", "die Katze"]


def _text(n: int) -> ParallelText:
    return ParallelText(*([f"{side}{row}" for row in range(n)] for side in "st"), Path("a"), Path("b"))


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    return train_subwords([*SRC, *TGT], SubwordConfig(vocab_size=307))


def _corpus(folder: Path, src=SRC, tgt=TGT, **settings) -> tuple[CorpusConfig, ParallelText]:
    write_sides(folder, src, tgt)
    config = CorpusConfig(dir=folder, cache=folder / "cache", **settings)
    return config, read_split(config, "train")


def test_one_percent_is_inside_five_percent_and_all_is_all():
    text = _text(1009)
    small, large = nested_fraction(text, 0.01), nested_fraction(text, 0.05)
    assert (len(small), len(large)) == (10, 50)
    assert set(small.src) < set(large.src)
    assert small.src == sorted(small.src, key=lambda line: int(line[1:]))
    assert [line[1:] for line in large.src] == [line[1:] for line in large.tgt]
    assert nested_fraction(text, 1.0) is text
    assert len(nested_fraction(text, 1e-9)) == 1


def test_long_and_empty_pairs_are_left_out_and_counted(tokenizer, tmp_path, caplog):
    src = ["the cat", "", "the cat " * 31, "cat", "sat"]
    tgt = ["die Katze", "leer", "die", "", "saß"]
    _, text = _corpus(tmp_path, src, tgt)
    encoder = SourceEncoder(tokenizer)
    with caplog.at_level("INFO"):
        pairs = PairEncoding(text, encoder, None, 29).in_memory()
    assert len(pairs) == 2
    expected = encoder.encode(["the cat", "sat"])
    assert pairs.src.pieces.tolist() == expected.pieces.tolist()
    assert pairs.src.splits.tolist() == expected.splits.tolist()
    assert caplog.messages == [f"{text.src_path}: left out 2 empty pairs and 1 of more than 29 pieces"]


def test_pairs_that_are_too_long_by_their_tags_are_named(tokenizer, tmp_path, caplog):
    """Each word has a tag before it: the third line has 3 pieces or more, and twice as many with tags."""
    src = ["cat", "sat", "the cat sat"]
    _, text = _corpus(tmp_path, src, ["Katze", "saß", "die"])
    sentences = [Sentence.from_words(line.split(), upos=["X"] * len(line.split())) for line in src]
    words = [WordColumns.from_sentences(sentences)]
    encoder = SourceEncoder(tokenizer, build_vocabularies([], ("pos",), 1), prepend="interleaved")
    bare = max(SourceEncoder(tokenizer).encode(src).lengths)
    with caplog.at_level("INFO"):
        assert len(PairEncoding(text, encoder, words, int(bare)).in_memory()) == 2
    assert caplog.messages == [
        f"{text.src_path}: left out 0 empty pairs and 1 of more than {bare} pieces, 1 of them for their tags alone"
    ]
    long = [WordColumns.from_sentences(sentences[2:] * 3)]
    with pytest.raises(ConfigError, match=r"data\.max_pieces: .* 3 of 3 pairs too long\. Raise it"):
        PairEncoding(text.select([2, 2, 2]), encoder, long, int(bare)).in_memory()


def test_a_user_column_reaches_every_piece(tokenizer, tmp_path, annotator):
    config, text = _corpus(tmp_path, factor_files={"animacy": "ani"})
    (tmp_path / "train.ani").write_text("no yes no\nyes\nno yes\n")
    factors = ("animacy",)
    columns = annotated_columns(text, annotator, config, "train", factors)
    encoder = SourceEncoder(tokenizer, build_vocabularies(columns, factors, 1))
    pairs = PairEncoding(text, encoder, columns, None).in_memory()
    values = encoder.vocabularies["animacy"].decode(pairs.src.factors[:, 0])
    first = [value for value in values[: pairs.src.splits[1]] if value != "<none>"]
    assert [value for value, _ in groupby(first)] == ["no", "yes", "no"]
    (tmp_path / "train.ani").write_text("no yes no\nyes no\nyes\n")  # slips by one word
    with pytest.raises(AlignmentError, match="2: factor file: expected 1 values, one per"):
        annotated_columns(text, annotator, config, "train", factors)


def test_a_user_column_and_a_fraction(tmp_path, annotator):
    """The file has a line for every line of the corpus, of which only some are used."""
    src = [f"w{row} x{row}" for row in range(50)]
    config, text = _corpus(tmp_path, src, src[::-1], factor_files={"number": "num"})
    (tmp_path / "train.num").write_text("".join(f"n{row} m{row}\n" for row in range(50)))
    share = nested_fraction(text, 0.1)
    (columns,) = annotated_columns(share, annotator, config, "train", ("number",))
    numbers = [line.split()[0][1:] for line in share.src]
    expected = [value for number in numbers for value in (f"n{number}", f"m{number}")]
    assert columns.user["number"].decode() == expected


def test_two_vocabularies_of_two_sizes():
    sides = ([f"{word}{row} ran{row}" for row in range(99)] for word in ("house", "haus"))
    text, corpus = ParallelText(*sides, Path("a"), Path("b")), CorpusConfig(dir=Path(), src="en", tgt="de")
    config = SubwordConfig(vocab_size=305, target_vocab_size=302, joint=False, min_frequency=1)
    source, target = get_tokenizers(text, config, corpus)
    assert target is not None
    assert (len(source), len(target)) == (305, 302)
    config = SubwordConfig(kind="unigram", joint=False, target_vocab_size=301)
    with pytest.raises(ConfigError, match=r"^subwords\.target_vocab_size: expected one that fits the text,"):
        get_tokenizers(replace(text, tgt=[chr(0x4E00 + row) for row in range(99)]), config, corpus)
    with pytest.raises(ValidationError, match="target_vocab_size: expected joint=false beside it, got true"):
        SubwordConfig(target_vocab_size=302)


def test_one_vocabulary_for_all_fractions(tmp_path):
    sides = ([f"{word}{row} in train{row % 9}" for row in range(60)] for word in ("house", "haus"))
    write_sides(tmp_path, *sides)
    settings = ("infusion.kind=none", "subwords.vocab_size=340")

    def pieces(fraction: float, of_all: str) -> dict[str, int]:
        shares = f"data.fraction={fraction}", f"subwords.of_all_pairs={of_all}"
        prepared = prepare(tiny_recipe(tmp_path, *settings, *shares))
        assert len(prepared.train) == round(60 * fraction)
        return prepared.encoder.tokenizer.get_vocab()

    assert pieces(0.1, "true") == pieces(1.0, "true") == pieces(1.0, "false") != pieces(0.1, "false")


def test_a_tokenizer_that_pads_with_its_end_is_refused(tokenizer, tmp_path):
    """A model could never end a line: its end piece would count as padding."""
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="expected different end and padding pieces"):
        given_tokenizer(str(tmp_path))


def test_a_tokenizer_of_a_folder_neither_cuts_nor_pads(tokenizer, tmp_path):
    whole = SourceEncoder(tokenizer).encode(SRC).pieces.tolist()
    tokenizer(SRC, truncation=True, max_length=3, padding="max_length")
    tokenizer.save_pretrained(tmp_path)
    again = given_tokenizer(str(tmp_path))
    assert SourceEncoder(again).encode(SRC).pieces.tolist() == whole


@pytest.mark.parametrize("template", [None, "<s> $A </s>", "$A", "</s> $A </s> <s>", "$A </s>"])
def test_a_line_is_ended_by_one_piece_whatever_the_template(tokenizer, tmp_path, template):
    ended = SourceEncoder(tokenizer).encode(SRC).pieces.tolist()
    added = processors.ByteLevel()
    if template is not None:
        specials = [("<s>", 1), ("</s>", 2)]
        added = processors.TemplateProcessing(single=template, special_tokens=specials)
    tokenizer.backend_tokenizer.post_processor = added
    tokenizer.save_pretrained(tmp_path / "given")
    again = given_tokenizer(str(tmp_path / "given"))
    assert SourceEncoder(again).encode(SRC).pieces.tolist() == ended
    again.save_pretrained(tmp_path / "model")
    stored = PreTrainedTokenizerFast.from_pretrained(tmp_path / "model")
    assert SourceEncoder(stored).encode(SRC).pieces.tolist() == ended
    specials = (stored.pad_token, stored.bos_token, stored.eos_token, stored.unk_token)
    assert specials == ("<pad>", "<s>", "</s>", "<unk>")


def test_parsed_files_of_several_training_splits_are_refused(tmp_path):
    config, text = _corpus(tmp_path, train=["train", "more"])
    cat = Sentence.from_words(["cats"], upos=("NOUN",))
    for split in ("train", "more", "dev"):
        write_conllu(tmp_path / f"{split}.conllu", [cat])
    name = f"conllu:{tmp_path}/{{split}}.conllu"
    with pytest.raises(ConfigError, match="annotator:"):
        annotated_columns(text, WordsAsGiven(load_annotator(name)), config, "train", ("pos",))
    dev = ParallelText(["cats"], ["Katzen"], Path("a"), Path("b"))
    (columns,) = annotated_columns(dev, load_annotator(name), config, "dev", ("pos",))
    assert columns.upos is not None
