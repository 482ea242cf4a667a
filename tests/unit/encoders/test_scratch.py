"""An encoder from scratch: its words, its vectors, right and wrong, and that it is a checkpoint like any other."""

import gzip

import numpy as np
import pytest
from scratch_encoder import EncoderShape, build_scratch_encoder, count_words, main, read_word_vectors
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from syntaxformer.base.errors import ConfigError, DataError

SHAPE = EncoderShape(layers=2, width=22, heads=2, feed_forward=13, max_length=17)
GLOVE = "the 1 2 3 4 5\nDog 5 4 3 2 1\ndo 0 0 0 0 1\nn't 0 0 0 1 0\nbark -1 0 0 0 0\n. 0 1 0 0 0\n"


@pytest.fixture
def files(tmp_path):
    (tmp_path / "train.txt").write_text("The Dog barks.\nThe DOG doesn’t bark , don't (it's) !\n", "utf-8")
    (tmp_path / "glove.txt").write_text(GLOVE)
    return tmp_path


def build(files, **options):
    options = {"vectors": files / "glove.txt", "shape": SHAPE, **options}
    return build_scratch_encoder([files / "train.txt"], files / "out", **options)


def test_words_are_cut_as_glove_has_them():
    counts = count_words(["I don't can't isn’t it's we'll O'Neil 3.5 x-y\u00a0(a)"], lowercase=False)
    assert " ".join(counts) == "I do n't ca is n’t it 's we 'll O ' Neil 3 . 5 x - y ( a )"
    assert counts["n't"] == 2
    assert list(count_words(["The THE"], lowercase=True)) == ["the"]


def test_of_trees_only_the_words_are_taken(files):
    (files / "train.txt").write_text("(3 (2 The) (2 (1 Dog) (2 bark)))\n\n(2 (2 -LRB-) (2 .))\n")
    report = build(files)
    # Of The, Dog, bark, ( and . only the bracket has no vector.
    assert "5 words of 5 in the text, 4 of them with a vector" in report
    assert report.endswith("80.0% of the running words")
    (files / "train.txt").write_text("(The dog (it barks) sleeps.)\n")
    report = build_scratch_encoder([files / "train.txt"], files / "prose", None, SHAPE)
    assert "8 words of 10 in the text" in report


def test_an_encoder_of_gloves_words_and_vectors(files):
    build(files)
    tokenizer = AutoTokenizer.from_pretrained(files / "out")
    model = AutoModelForSequenceClassification.from_pretrained(files / "out", num_labels=3)
    table = model.get_input_embeddings().weight.detach().numpy()
    assert table.shape == (len(tokenizer), 5)

    def row(word):
        return table[tokenizer.convert_tokens_to_ids(word)]

    np.testing.assert_array_equal(row("The"), [1, 2, 3, 4, 5])  # by its lower case
    np.testing.assert_array_equal(row("Dog"), [5, 4, 3, 2, 1])
    np.testing.assert_array_equal(row("n’t"), [0, 0, 0, 1, 0])  # by a straight apostrophe
    np.testing.assert_array_equal(row("bark"), [-1, 0, 0, 0, 0])
    np.testing.assert_array_equal(row("[PAD]"), 0)
    assert np.abs(row("barks")).sum() > 0  # no vector: random, of the vectors' spread
    assert 0.3 < np.std([row(word) for word in ("barks", "it", "'s", "(", ")", "!", ",", "es")]) < 4
    # Pieces are words at their places.
    assert tokenizer.is_fast
    assert tokenizer.model_max_length == 17
    encoded = tokenizer("The dog don't", "bark .", return_offsets_mapping=True)
    assert tokenizer.convert_ids_to_tokens(encoded["input_ids"]) == [
        *("[CLS]", "The", "[UNK]", "do", "n't", "[SEP]", "bark", ".", "[SEP]")
    ]
    assert encoded["token_type_ids"] == [0] * 6 + [1] * 3
    assert encoded["offset_mapping"][1:5] == [(0, 3), (4, 7), (8, 10), (10, 13)]
    # The same seed gives the same encoder.
    build_scratch_encoder([files / "train.txt"], files / "again", files / "glove.txt", SHAPE)
    first, again = ((files / name / "model.safetensors").read_bytes() for name in ("out", "again"))
    assert first == again
    assert sorted(path.name for path in (files / "out").iterdir()) == [
        *("config.json", "manifest.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
    ]


def test_without_vectors_and_with_rare_words_left_out(files):
    build(files, vectors=None, shape=EncoderShape(1, 22, 2, 13, embedding_width=7), min_count=2)
    tokenizer = AutoTokenizer.from_pretrained(files / "out")
    assert set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens) == {"The"}
    with pytest.raises(DataError, match="expected words that occur 9 times or more, got none"):
        build_scratch_encoder([files / "train.txt"], files / "rare", shape=SHAPE, min_count=9)


def test_all_that_does_not_fit_is_said(files):
    (files / "glove.txt").write_text("собака 1 2\n")  # of another language
    with pytest.raises(DataError, match="word vectors:"):
        build(files)
    assert not (files / "out").exists()
    (files / "out").mkdir()
    (files / "out" / "mine").touch()
    with pytest.raises(ConfigError) as caught:
        build(files, shape=EncoderShape(layers=1, width=10, heads=3, dropout=1.0))
    assert caught.value.problems == [
        "heads: expected a divisor of the width 10, got 3.",
        "dropout: expected 0 to 1, below 1, got 1.0.",
        f"output: expected a new or empty folder, got {files / 'out'}. Give another, or delete it.",
    ]
    with pytest.raises(ConfigError, match=r"^layers: expected at least 1, got 0\."):
        build(files, shape=EncoderShape(layers=0), vectors=None)


def test_on_the_command_line(files, capsys):
    sizes = "--layers 1 --width 22 --heads 2 --feed-forward 13 --max-length 17 --lowercase"
    paths = f"--train {files / 'train.txt'} --glove {files / 'glove.txt'} -o {files / 'out'}"
    arguments = f"{paths} {sizes}".split()
    main(arguments)
    assert capsys.readouterr().out.startswith(f"{files / 'out'}: 0.0M parameters, ")
    assert AutoTokenizer.from_pretrained(files / "out").tokenize("THE dog") == ["the", "dog"]
    with pytest.raises(SystemExit, match=r"^error: output: "):
        main(arguments)


TEXT = ", 0.5 -1 2e-1\nThe 1 2 3\n. . . 4 5 6\nthe 7 8 9\r\nname@a.com b 1 1 1\ndog 1.5 0 -0.25\nthe 0 0 0\n\ncafé 3 2 1\n"


def test_only_the_words_wanted_are_kept(table, messages):
    """The first of duplicates counts, and they are reported; a header of word2vec is skipped."""
    vectors = read_word_vectors(table(TEXT, "glove.txt"), ["dog", "the", "cat", "café", ". . ."])
    assert vectors.keys() == {"dog", "the", "café", ". . ."}
    assert {vector.dtype for vector in vectors.values()} == {np.dtype(np.float32)}
    np.testing.assert_array_equal(vectors["dog"], [1.5, 0, -0.25])
    np.testing.assert_array_equal(vectors["café"], [3, 2, 1])
    np.testing.assert_array_equal(vectors[". . ."], [4, 5, 6])
    np.testing.assert_array_equal(vectors["the"], [7, 8, 9])
    assert "glove.txt: 1 lines repeat a word; the first vector of a word counts" in messages.text
    vectors = read_word_vectors(table("2 3\ndog 1 2 3\n2 4 5 6"), ["2", "dog"])
    np.testing.assert_array_equal(vectors["2"], [4, 5, 6])
    assert len(vectors) == 2


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("a 1 2 3\ndog 1 2\n", 2), ("a 1 2 3\nother 1 2\n", 2), ("a 1 2 3\ndog 1 2 3 4\n", 2), ("a 1 2 3\ndog 1 x 3\n", 2),
        ("dog nan 2 3\n", 1), ("dog 1e999 2 3\n", 1), ("dog 1e39 2 3\n", 1), ("just some text\n", 1), ("word\n", 1),
        ("\n\n", None), ("2 3\n", None),
    ],
)  # fmt: skip
def test_wrong_files_are_refused_with_their_line(table, content, line):
    with pytest.raises(DataError, match=f"glove.txt:{line}: word vectors:" if line else "word vectors:"):
        read_word_vectors(table(content, "glove.txt"), ["dog"])


def test_files_that_cannot_be_read(table, tmp_path):
    with pytest.raises(DataError, match=r"none\.txt:"):
        read_word_vectors(tmp_path / "none.txt", [])
    with pytest.raises(DataError, match=r"a\.zip: word vectors:"):
        read_word_vectors(table("dog 1 2", "a.zip"), [])
    cut = gzip.compress(TEXT.encode() * 200)[:-20]
    with pytest.raises(DataError, match=r"b\.gz: expected a whole file, got: .* Copy or pack it again\."):
        read_word_vectors(table(cut, "b.gz"), [])
