"""Inside syntax attention of a tiny infused classifier: what is shown adds up to what the model does."""

from __future__ import annotations

import json
from argparse import ArgumentTypeError
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import (
    AlbertConfig,
    AlbertForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
    BertTokenizerFast,
    ModernBertConfig,
    ModernBertForSequenceClassification,
)
from typer.testing import CliRunner

from syntaxformer.annotate import Annotator
from syntaxformer.base.errors import ConfigError
from syntaxformer.cli.attend import _subnetworks
from syntaxformer.cli.main import app
from syntaxformer.encoders.classifier import Classifier
from syntaxformer.encoders.collator import SyntaxCollator, SyntaxExample
from syntaxformer.encoders.export_onnx import OnnxNetwork
from syntaxformer.encoders.tasks import ClassifierInfo
from syntaxformer.infusion import infuse
from syntaxformer.infusion.config import InfusionConfig
from syntaxformer.study.attention import encoder_attention, plain_attention_beside, subnetwork_view
from syntaxformer.study.plots import Curve, draw_subnetwork
from syntaxformer.study.word_states import huggingface_words, infused_words
from syntaxformer.trees import Sentence

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "john", "slipped", "in", "front", "##s", "."]
TEXT = "john slipped ."


class FlatAnnotator(Annotator):
    """The second word governs all; all words are nouns."""

    name, version, provides = "flat", "1", frozenset({"governors"})

    def stream(self, lines, *, n_processes=1):
        for words in map(str.split, lines):
            governors = tuple(-1 if number == 1 else 1 for number in range(len(words)))
            yield Sentence.from_words(words, governors=governors, upos=("NOUN",) * len(words))


def _classifier(infusion="masks", n_layers=3, lower_case=True, family=None, **settings) -> Classifier:
    config = InfusionConfig.parse(infusion)
    if infusion == "masks":
        masks = {"trees": ("dependency",), "max_distance": 3, **settings.pop("masks", {})}
        config = InfusionConfig(**{"masks": masks, "seed": 5, **settings})
    torch.manual_seed(3)
    config_class, model_class, more = family or (BertConfig, BertForSequenceClassification, {})
    sizes = {
        "vocab_size": len(PIECES), "hidden_size": 22, "num_hidden_layers": n_layers, "num_attention_heads": 2,
        "intermediate_size": 23, "max_position_embeddings": 29, "initializer_range": 0.3,
    }  # fmt: skip
    model = model_class(config_class(**{**sizes, **more}))
    vocabulary = {piece: number for number, piece in enumerate(PIECES)}
    tokenizer = BertTokenizerFast(vocab=vocabulary, do_lower_case=lower_case)
    info = ClassifierInfo(
        type="label", task="cola", labels=("bad", "good"), metrics=("matthews",), n_texts=1, annotator="flat",
        annotator_version="1", needs=("governors",),
    )  # fmt: skip
    return Classifier(infuse(model.eval(), config), SyntaxCollator(tokenizer, config), info, FlatAnnotator())


@pytest.fixture(scope="module")
def masked():
    return _classifier(preset="paper")


@pytest.fixture(scope="module")
def plain():
    return _classifier("none")


def _check_sum(view):
    """The sub-networks, weighted by α, are the attention of each layer and head."""
    np.testing.assert_allclose(view.topical.sum(-1), 1, atol=1e-5)
    for layer in range(3):
        for head in range(2):
            networks = [view.sub_attention(layer, network, head) for network in range(len(view.networks))]
            expected = np.einsum("qr,rqk->qk", view.topical[layer], np.stack(networks))
            np.testing.assert_allclose(view.attention[layer, head], expected, atol=1e-5)


MODERNBERT = {"hidden_size": 24, "local_attention": 8, "global_attn_every_n_layers": 3, "pad_token_id": 0}
LOCAL = {"family": (ModernBertConfig, ModernBertForSequenceClassification, MODERNBERT)}
"""ModernBERT: a layer of three sees all pieces, the others four to each side."""


@pytest.mark.parametrize(
    ("settings", "masks", "text"),
    [
        ({}, {}, "john slipped in fronts ."),
        ({}, {"mode": "additive", "on_empty_row": "full"}, "john slipped in fronts ."),
        ({}, {"mode": "additive", "on_empty_row": "zero"}, "john slipped in fronts ."),
        (LOCAL, {}, "john slipped in front . " * 3),
        (LOCAL, {"mode": "additive"}, "john slipped in front . " * 3),
    ],
)
@pytest.mark.parametrize("preset", ["paper", "preserving"])
def test_sub_networks_weighted_by_alpha_are_the_attention(preset, settings, masks, text):
    view = subnetwork_view(_classifier(preset=preset, masks=masks, **settings), text)
    assert view.pieces[:4] == ["[CLS]", "john", "slipped", "in"]
    assert view.networks[0] == "dependency parent 1"
    assert len(view.networks) == 3 * 3 + 1 + (preset == "preserving")
    if settings:
        assert [np.isneginf(view.logits[layer]).any() for layer in range(3)] == [False, True, True]
    if preset == "paper":
        _check_sum(view)
        return
    for layer in range(3):  # its gates are closed: the model is the plain one
        np.testing.assert_allclose(view.attention[layer].mean(0), view.plain_attention(layer), atol=1e-5)


def test_layers_that_share_parameters_are_numbered_as_they_run():
    """ALBERT: two groups of parameters, five layers. Its gates are closed: the model is the plain one."""
    more = {"embedding_size": 13, "num_hidden_groups": 2}
    albert = {"family": (AlbertConfig, AlbertForSequenceClassification, more), "n_layers": 5}
    view, plain = subnetwork_view(_classifier(**albert), TEXT), _classifier("none", **albert)
    assert view.layers == [0, 1, 2, 3, 4]
    for layer in range(5):
        beside = plain_attention_beside(view, plain, TEXT, layer)
        np.testing.assert_allclose(view.attention[layer].mean(0), beside, atol=1e-5)
    assert not np.allclose(view.attention[0], view.attention[4], atol=1e-2)


def test_masks_are_the_relations():
    view = subnetwork_view(_classifier(), TEXT)
    children = view.masks[view.network("dependency child 1")]
    # john and "." below slipped, slipped below [CLS]
    assert [side.tolist() for side in children.nonzero()] == [[1, 2, 3], [2, 0, 2]]
    siblings = view.network("dependency sibling 3")
    assert not view.masks[siblings].any()
    assert siblings not in view.strongest(99)
    assert "full" not in [view.networks[network] for network in view.strongest(99)]
    with pytest.raises(
        ConfigError, match=r"^network: unknown .*'dependency parents 1'\. Nearest: dependency p"
    ):
        view.network("dependency parents 1")
    with pytest.raises(ConfigError, match="expected one that was trained with masks"):
        subnetwork_view(_classifier("pos_add"), TEXT)


@pytest.mark.slow
def test_the_figure(tmp_path, masked, plain):
    view = subnetwork_view(masked, TEXT)
    beside = {"runs/cola": plain_attention_beside(view, plain, TEXT)}
    pictures = []
    for more in ({}, {}, {"head": 1}, {"plain": beside}):
        draw_subnetwork(view, tmp_path / "a.png", view.strongest(1)[0], **more)
        pictures.append((tmp_path / "a.png").read_bytes())
    assert pictures[0][:4] == b"\x89PNG"
    assert pictures[0] == pictures[1]
    assert len({*pictures}) == 3
    with pytest.raises(ConfigError, match=r"^figure: .*got a\.txt"):
        draw_subnetwork(view, tmp_path / "a.txt", 0)


def test_the_command(tmp_path, monkeypatch, masked, plain, capsys):
    (tmp_path / "masks").mkdir()
    (tmp_path / "masks" / "classifier.json").write_text("{}")
    models = {"masks": masked, "plain": plain}
    monkeypatch.setattr(Classifier, "from_folder", lambda folder, annotator, **_: models[folder.name])
    drawn, draw = [], "syntaxformer.study.plots.draw_subnetwork"
    monkeypatch.setattr(draw, lambda *_, plain=None, **__: drawn.append(plain))
    for more in ([], ["--beside", str(tmp_path / "plain")]):
        command = ["attend", str(tmp_path / "masks"), TEXT, "-o", str(tmp_path / "a.png"), *more]
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.exception
    assert not drawn[0]
    assert list(drawn[1]) == [str(tmp_path / "plain")]
    models, figure = [("model", masked)], tmp_path / "a.png"
    _subnetworks(models, TEXT, figure, "dependency sibling 3", -1, None)  # a relation that no pieces have
    assert "related by dependency sibling 3: the picture shows equal weights" in capsys.readouterr().err
    _subnetworks(models, TEXT, figure, "dependency parent 1", -1, None)
    assert not capsys.readouterr().err
    # So has a text of one word, which an annotator makes the root.
    monkeypatch.setattr("syntaxformer.study.attention.SubnetworkView.strongest", lambda view, n: [])
    with pytest.raises(ConfigError, match=r"^TEXT: expected words that a relation links"):
        _subnetworks(models, TEXT, figure, None, -1, None)


@pytest.mark.parametrize("infusion", ["none", "pos_add"])
def test_the_plain_model_of_the_figure_is_a_model_of_its_own(masked, infusion):
    view, plain = subnetwork_view(masked, TEXT), _classifier(infusion)
    weights = encoder_attention(plain, TEXT).weights
    np.testing.assert_array_equal(plain_attention_beside(view, plain, TEXT, 1), weights[1].mean(0))
    np.testing.assert_array_equal(plain_attention_beside(view, plain, TEXT, head=1), weights[2][1])
    assert not np.allclose(weights[2].mean(0), view.plain_attention(2), atol=1e-3)


@pytest.mark.parametrize(
    ("settings", "head", "match"),
    [
        ({"infusion": "masks"}, None, "got one whose attention is infused"),
        ({"infusion": "lisa"}, None, "got one whose attention is infused"),
        ({"n_layers": 2}, None, "layer 2 and head 0, got 2 layers of 2 heads"),
        ({}, 2, "layer 2 and head 2, got 3 layers of 2 heads"),
        ({"lower_case": False}, None, "reads the same 5 pieces, got 5 others"),
        (None, None, "got an exported one"),
    ],
)
def test_what_cannot_stand_beside(masked, settings, head, match):
    text = "john Slipped ."
    beside = _classifier(**{"infusion": "none", **(settings or {})})
    if settings is None:
        beside.model = OnnxNetwork.__new__(OnnxNetwork)
    with pytest.raises(ConfigError, match=f"^beside: .*{match}"):
        plain_attention_beside(subnetwork_view(masked, text), beside, text, head=head)


@pytest.mark.parametrize("infusion", ["none", "masks"])
def test_a_tokenizer_that_pads_on_the_left_is_probed_alike(infusion):
    classifier = _classifier(infusion, **({"preset": "paper"} if infusion == "masks" else {}))
    classifier.collator.tokenizer.padding_side = "left"
    encoder = infused_words(classifier.model, classifier.collator, FlatAnnotator())
    short = Sentence.from_words(["slipped", "fronts"], governors=(-1, 0))
    long = Sentence.from_words(["john", "slipped", "in", "fronts", "."], governors=(1, -1, 1, 1, 1))
    (states, owners), (alone, of_short) = encoder.encode([short, long]), encoder.encode([short])
    n = of_short.shape[1]
    assert owners[0].tolist() == [*of_short[0], *[-1] * (owners.shape[1] - n)] == [-1, 0, 1, 1, *[-1] * 4]
    torch.testing.assert_close(states[3][0, :n], alone[3][0], atol=1e-5, rtol=1e-5)
    assert classifier.collator.tokenizer.padding_side == "left"


def test_an_infused_encoder_is_probed_with_its_own_trees_on_sentences_longer_than_those_of_its_task():
    classifier = _classifier(preset="paper")
    gold = Sentence.from_words(["john", "fronts", "slipped"], governors=(-1, 0, 0))
    (annotated,) = FlatAnnotator().annotate([gold.text])
    batch = classifier.collator([SyntaxExample((annotated,))])
    expected = classifier.model(**batch, output_hidden_states=True).hidden_states
    classifier.collator.max_length = 5
    encoder = infused_words(classifier.model, classifier.collator, FlatAnnotator())
    states, owners = encoder.encode([gold])
    assert (encoder.n_states, len(states), encoder.longest) == (4, 4, 29)
    assert owners.tolist() == [[-1, 0, 1, 1, 2, -1]]
    torch.testing.assert_close(states[3], expected[3])
    assert classifier.collator.max_length == 5
    words = huggingface_words(classifier.model, classifier.collator.tokenizer)
    assert words.owners([gold]).lengths.tolist() == [6]


def test_the_gallery_draws_figure_2_and_says_the_strongest(gallery, tmp_path, monkeypatch, masked, plain):
    models = {"masked": masked, "bare": plain}
    monkeypatch.setattr(gallery.Classifier, "from_folder", lambda folder: models[str(folder)])
    options = SimpleNamespace(masks=Path("masked"), plain=Path("bare"), sentence=TEXT)
    options.network = "dependency parent 1"
    _, figure, table = gallery._subnetwork(options, tmp_path)
    assert (tmp_path / figure.file).read_bytes()[:4] == b"\x89PNG"
    view = subnetwork_view(masked, TEXT)
    strongest = view.strongest(5)
    assert [row[0] for row in table.rows] == [view.networks[network] for network in strongest]
    assert table.rows[0][1] == f"{view.topical_weights().mean(0)[strongest[0]]:.4f}"
    assert gallery._subnetwork(SimpleNamespace(masks=None), tmp_path) == []


def test_the_gallery_draws_a_curve_for_each_probed_model(gallery, tmp_path, monkeypatch):
    drawn, files = {}, []
    monkeypatch.setattr(gallery, "draw_curves", lambda curves, path, *_: drawn.update({path.name: curves}))
    for number, model in enumerate(("before", "after")):
        names = ("embeddings", "layer 1", "layer 2", "linear chain")
        scores = [{"name": name, "uuas": 0.1 * (n + number), "spearman": 0.2} for n, name in enumerate(names)]
        (tmp_path / f"{model}.json").write_text(json.dumps({"scores": scores, "rank": 7}))
        files.append(gallery._named(f"{model}={tmp_path / model}.json"))
    gallery._probe(files, tmp_path)
    assert list(drawn) == ["probe_uuas.png", "probe_spearman.png"]
    curves = drawn["probe_uuas.png"]
    assert curves["before"].y == pytest.approx([0, 10, 20])
    assert curves["after"].y == pytest.approx([10, 20, 30])
    assert curves["linear chain"].y == pytest.approx([30, 30, 30])  # of the first file
    missing = [{"name": "layer 1", "uuas": None, "spearman": 0.3}]
    missing += [{"name": "layer 4", "uuas": 0.5, "spearman": 0.2}]
    (tmp_path / "some.json").write_text(json.dumps({"scores": missing, "rank": 7}))
    gallery._probe([("some", str(tmp_path / "some.json"))], tmp_path)
    assert drawn["probe_uuas.png"]["some"] == Curve([4.0], [50.0])
    assert drawn["probe_spearman.png"]["some"].x == [1.0, 4.0]
    with pytest.raises(ArgumentTypeError, match="NAME=FILE"):
        gallery._named("probe.json")
