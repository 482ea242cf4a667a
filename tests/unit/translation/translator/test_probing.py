"""Word vectors out of every kind of encoder, and probes that find trees where there are some."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel, BertTokenizerFast

from syntaxformer.base.errors import CheckpointError, ConfigError
from syntaxformer.study.probing import ProbeConfig, linear_chain, probe_model, probe_states, probe_treebank
from syntaxformer.study.word_states import (
    cache_states,
    huggingface_words,
    load_word_encoder,
    translator_words,
    word_means,
)
from syntaxformer.translation.source import TextPreparation
from syntaxformer.trees import Sentence, write_conllu

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "sat", "run", "##ning", "."]


def _tree(words: str, *governors: int) -> Sentence:
    return Sentence.from_words(words.split(), governors=governors)


SENTENCES = [
    _tree("the cats sat .", 1, 2, -1, 2),
    _tree("running cat", 1, -1),
    _tree("cats run the cats .", 1, -1, 3, 1, 1),
]


@pytest.fixture(scope="module")
def tokenizer():
    vocabulary = {piece: number for number, piece in enumerate(VOCABULARY)}
    return BertTokenizerFast(vocab=vocabulary, do_lower_case=True, model_max_length=17)


@pytest.fixture(scope="module")
def bert():
    torch.manual_seed(2)
    return BertModel(
        BertConfig(vocab_size=len(VOCABULARY), hidden_size=22, num_hidden_layers=3, num_attention_heads=2, intermediate_size=23,
                   max_position_embeddings=19)
    ).eval()  # fmt: skip


def test_word_means_by_hand():
    states = torch.arange(12.0).reshape(2, 3, 2)  # two sentences of three pieces
    owners = np.array([[-1, 0, 0], [1, -1, 0]])
    means, counts = word_means(states, owners, [1, 3])
    # sentence 1: the mean of (2,3) and (4,5); sentence 2: word 0 = (10,11), word 1 = (6,7), word 2 nothing
    assert means.tolist() == [[3.0, 4.0], [10.0, 11.0], [6.0, 7.0], [0.0, 0.0]]
    assert counts.tolist() == [2, 1, 1, 0]


def test_states_of_a_hugging_face_encoder_whatever_the_batch(bert, tokenizer, tmp_path):
    encoder = huggingface_words(bert, tokenizer)
    assert (encoder.n_states, encoder.longest) == (4, 17)
    assert encoder.owners(SENTENCES).lengths.tolist() == [7, 5, 9]
    cached = cache_states(encoder, SENTENCES, [0, 3], tmp_path)
    assert cached.n_uncovered == 0
    ids = tokenizer("the cats sat .", return_tensors="pt")
    states = bert(**ids, output_hidden_states=True).hidden_states
    for layer in (0, 3):
        one = states[layer][0]
        expected = torch.stack([one[1], (one[2] + one[3]) / 2, one[4], one[5]])
        torch.testing.assert_close(cached.layer(layer)[:4], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["plain", "infused"])
def test_states_of_a_translator(kind, request):
    translator = request.getfixturevalue(kind)
    if translator.annotator is not None:
        annotate = translator.annotator.annotate
        translator.annotator.annotate_words = lambda sentences: annotate([" ".join(one) for one in sentences])
    states, owners = translator_words(translator).encode(SENTENCES)
    assert len(states) == 2
    assert states[0].shape[:2] == owners.shape
    assert [max(row) for row in owners.tolist()] == [3, 1, 4]


def test_states_of_a_translator_whose_subwords_see_moses_text(plain, monkeypatch):
    """Its pieces are those of "the cats cat 's .": they still belong to the words of the treebank."""
    encoder = replace(plain.encoder, preparation=TextPreparation("en", moses=True))
    monkeypatch.setattr(plain, "encoder", encoder)
    sentence = Sentence.from_words(["the", "cats", "cat's", "."], governors=(1, 2, -1, 2))
    words = translator_words(plain)
    states, owners = words.encode([sentence])
    pieces = plain.encoder.encode([sentence.text]).pieces
    assert words.owners([sentence]).lengths.tolist() == [len(pieces)] == [states[0].shape[1]]
    texts = [plain.encoder.tokenizer.decode(pieces[owners[0] == word]) for word in range(4)]
    assert [text.replace(" ", "") for text in texts] == list(sentence.words)


def _grown_treebank(n: int):
    """Random trees with vectors that hold them: each word is its governor's vector plus a direction of its own."""
    drawn = np.random.default_rng(7)
    sentences, vectors = [], []
    for _ in range(n):
        size = int(drawn.integers(5, 9))
        order = drawn.permutation(size)
        governors, place = [-1] * size, np.zeros((size, 23))
        for step in range(1, size):
            word, above = order[step], order[drawn.integers(step)]
            governors[word] = int(above)
            place[word] = place[above]
            place[word, step] = 1.0
        sentences.append(Sentence.from_words([f"w{i}" for i in range(size)], governors=tuple(governors)))
        vectors.append(place)
    rotation, _ = np.linalg.qr(np.random.default_rng(3).normal(size=(23, 23)))
    return probe_treebank(sentences), torch.tensor(np.concatenate(vectors) @ rotation).float()


def test_trees_are_found_where_vectors_hold_them():
    parts, vectors = zip(*(_grown_treebank(n) for n in (199, 41, 43)), strict=True)
    config = ProbeConfig(rank=11, learning_rate=0.02, max_epochs=25)
    scores = probe_states("grown", torch.cat(vectors), parts, config)
    assert scores.uuas > 0.95
    assert scores.spearman > 0.9
    assert scores.root_accuracy is not None
    assert scores.root_accuracy > 0.9
    assert scores.norm_spearman is not None
    assert scores.norm_spearman > 0.9
    chance = linear_chain(parts[2])
    assert chance.uuas < 0.6
    assert (chance.epochs, chance.seconds) == (0, 0.0)
    again = probe_states("grown", torch.cat(vectors), parts, config)
    assert (again.uuas, again.spearman) == (scores.uuas, scores.spearman)


def test_a_whole_report(bert, tokenizer):
    encoder = huggingface_words(bert, tokenizer)
    long = _tree("the " * 16 + "cat", *(16,) * 16, -1)
    treebank = probe_treebank([*SENTENCES * 5, long])
    config = ProbeConfig(rank=300, max_epochs=2, depth=False)
    report = probe_model(encoder, treebank, treebank, treebank, config, [1])
    assert [one.name for one in report.scores] == ["layer 1", "random vectors", "linear chain"]
    assert report.left_out == {"longer than 17 pieces": 1}  # one treebank, though it is all three parts
    assert (report.n_train, report.n_dev, report.n_test) == (15, 15, 15)
    assert report.scores[0].root_accuracy is None
    assert report.rank == 22  # the width of the vectors, not the 300 asked for
    stored = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert [one["name"] for one in stored["scores"]] == [one.name for one in report.scores]
    unsettled = replace(report, scores=[replace(report.scores[0], uuas=math.nan)])
    assert unsettled.as_dict()["scores"][0]["uuas"] is None
    for layers, got in (([4], "4"), ([], "none")):
        with pytest.raises(ConfigError, match=rf"^layers: expected 0 to 3, got {got}\.$"):
            probe_model(encoder, treebank, treebank, treebank, config, layers)
    with pytest.raises(ConfigError, match=r"^treebank: expected a sentence of at most 17 pieces, got"):
        probe_model(encoder, probe_treebank([long]), treebank, treebank, config)


def test_what_cannot_be_probed(tmp_path, tokenizer, bert):
    with pytest.raises(CheckpointError, match=r"expected a model folder, got none with a config\.json\.$"):
        load_word_encoder(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="expected an encoder, got: "):
        load_word_encoder(tmp_path)

    class Slow:
        is_fast = False

    with pytest.raises(ConfigError, match=r"^tokenizer: expected a fast one, which knows offsets, got a"):
        huggingface_words(bert, Slow())


def test_the_command(tmp_path, bert, tokenizer):
    from typer.testing import CliRunner

    from syntaxformer.cli.main import app

    bert.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    treebank, report = tmp_path / "trees.conllu", tmp_path / "probe.json"
    write_conllu(treebank, SENTENCES * 11)
    options = ("--treebank", treebank, "--rank", 3, "--max-epochs", 1)
    command = ["probe", str(tmp_path / "model"), *map(str, options)]
    done = CliRunner().invoke(app, [*command, "--layers", "0,2", "-o", str(report)])
    assert done.exit_code == 0, done.exception
    assert "rank 3; trained on 30 sentences, stopped on 3, scored on 3" in done.output
    names = [scores["name"] for scores in json.loads(report.read_text())["scores"]]
    assert names == ["embeddings", "layer 2", "random vectors", "linear chain"]
    write_conllu(treebank, SENTENCES * 3)
    assert "treebank: expected at least 10 sentences" in str(CliRunner().invoke(app, command).exception)
    done = CliRunner().invoke(app, [*command, "--layers", "x"])
    assert str(done.exception) == "--layers: expected \"all\" or numbers with commas, got 'x'."
