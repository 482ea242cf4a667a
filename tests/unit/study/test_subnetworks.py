"""Inside syntax attention of a tiny infused classifier: what is shown adds up to what the model does."""

from __future__ import annotations

import json
from argparse import ArgumentTypeError
from dataclasses import replace
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

from syntaxformer.base.errors import ConfigError
from syntaxformer.cli.attend import _subnetworks
from syntaxformer.encoders.classifier import Classifier
from syntaxformer.encoders.collator import SyntaxCollator
from syntaxformer.encoders.export_onnx import OnnxNetwork
from syntaxformer.encoders.tasks import ClassifierInfo
from syntaxformer.infusion import infuse
from syntaxformer.infusion.config import InfusionConfig
from syntaxformer.study.attention import encoder_attention, plain_attention_beside, subnetwork_view
from syntaxformer.study.plots import Curve, draw_subnetwork
from syntaxformer.trees import Sentence

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "john", "slipped", "in", "front", "##s", "."]


class FlatAnnotator:
    """The second word governs all."""

    name, version, provides = "flat", "1", frozenset({"governors"})

    def stream(self, lines, *, n_processes=1):
        return iter(self.annotate(lines))

    def annotate_words(self, sentences):
        return self.annotate(" ".join(words) for words in sentences)

    def annotate(self, lines, *, n_processes=1, progress=False):
        found = []
        for line in lines:
            words = line.split()
            found.append(
                Sentence.from_words(words, governors=tuple(-1 if n == 1 else 1 for n in range(len(words))))
            )
        return found


class TaggingAnnotator(FlatAnnotator):
    """All words are nouns."""

    def annotate(self, lines, *, n_processes=1, progress=False):
        return [replace(one, upos=("NOUN",) * len(one)) for one in super().annotate(lines)]


def _classifier(
    infusion: str = "masks", n_layers: int = 3, lower_case: bool = True, family=None, **settings
) -> Classifier:
    config = InfusionConfig.parse(infusion)
    if infusion == "masks":
        masks = {"trees": ("dependency",), "max_distance": 3}
        config = InfusionConfig(**{"masks": masks, "seed": 5, **settings})
    torch.manual_seed(3)
    config_class, model_class, more = family or (BertConfig, BertForSequenceClassification, {})
    sizes = {
        "vocab_size": len(PIECES), "hidden_size": 22, "num_hidden_layers": n_layers, "num_attention_heads": 2,
        "intermediate_size": 23, "max_position_embeddings": 29, "initializer_range": 0.3,
    }  # fmt: skip
    model = model_class(config_class(**{**sizes, **more}))
    tokenizer = BertTokenizerFast(
        vocab={piece: number for number, piece in enumerate(PIECES)}, do_lower_case=lower_case
    )
    info = ClassifierInfo(
        type="label",
        task="cola", labels=("bad", "good"), metrics=("matthews",), n_texts=1, annotator="flat",
        annotator_version="1", needs=("governors",),
    )  # fmt: skip
    return Classifier(infuse(model.eval(), config), SyntaxCollator(tokenizer, config), info, FlatAnnotator())


def test_the_picture_of_a_relation_that_no_pieces_have_is_announced(tmp_path, capsys, monkeypatch):
    model, figure = [("model", _classifier(preset="paper"))], tmp_path / "a.png"

    _subnetworks(model, "john slipped .", figure, "dependency sibling 3", -1, None)
    assert "related by dependency sibling 3: the picture shows equal weights" in capsys.readouterr().err

    _subnetworks(model, "john slipped .", figure, "dependency parent 1", -1, None)
    assert not capsys.readouterr().err

    # So has a text of one word, which an annotator makes the root.
    monkeypatch.setattr("syntaxformer.study.attention.SubnetworkView.strongest", lambda view, n: [])
    with pytest.raises(ConfigError, match=r"^TEXT: expected words that a relation links, got none\. Give"):
        _subnetworks(model, "john slipped .", figure, None, -1, None)


@pytest.mark.parametrize("preset", ["paper", "preserving"])
def test_sub_networks_weighted_by_alpha_are_the_attention(preset):
    view = subnetwork_view(_classifier(preset=preset), "john slipped in fronts .")
    assert view.pieces == ["[CLS]", "john", "slipped", "in", "front", "##s", ".", "[SEP]"]
    assert view.networks[0] == "dependency parent 1"
    assert len(view.networks) == 3 * 3 + 1 + (preset == "preserving")
    np.testing.assert_allclose(view.topical.sum(-1), 1, atol=1e-5)
    if preset == "preserving":  # its gates are closed: the model is the plain one
        np.testing.assert_allclose(view.attention.mean(1)[2], view.plain_attention(2), atol=1e-5)
        return
    for layer in range(3):
        for head in range(2):
            parts = [view.sub_attention(layer, one, head) for one in range(len(view.networks))]
            expected = np.einsum("qr,rqk->qk", view.topical[layer], np.stack(parts))
            np.testing.assert_allclose(view.attention[layer, head], expected, atol=1e-5)


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


@pytest.mark.parametrize("mode", ["multiplicative", "additive"])
@pytest.mark.parametrize("preset", ["paper", "preserving"])
def test_local_layers_are_shown_with_their_window(preset, mode):
    """ModernBERT: a layer of three sees all pieces, the others four to each side."""
    more = {"hidden_size": 24, "local_attention": 8, "global_attn_every_n_layers": 3, "pad_token_id": 0}
    family = (ModernBertConfig, ModernBertForSequenceClassification, more)
    masks = {"trees": ("dependency",), "max_distance": 3, "mode": mode}
    view = subnetwork_view(
        _classifier(preset=preset, masks=masks, family=family), "john slipped in front . " * 3
    )
    assert [np.isneginf(view.logits[layer]).any() for layer in range(3)] == [False, True, True]
    for layer in range(3):
        if preset == "preserving":  # its gates are closed: the model is the plain one
            np.testing.assert_allclose(view.attention[layer].mean(0), view.plain_attention(layer), atol=1e-5)
            continue
        parts = [view.sub_attention(layer, one, 1) for one in range(len(view.networks))]
        expected = np.einsum("qr,rqk->qk", view.topical[layer], np.stack(parts))
        np.testing.assert_allclose(view.attention[layer, 1], expected, atol=1e-5)


@pytest.mark.parametrize("on_empty_row", ["full", "zero"])
def test_rows_without_a_key_are_what_the_model_makes_of_them(on_empty_row):
    masks = {"trees": ("dependency",), "max_distance": 3, "mode": "additive", "on_empty_row": on_empty_row}
    view = subnetwork_view(_classifier(preset="paper", masks=masks), "john slipped in fronts .")
    for layer in range(3):
        parts = [view.sub_attention(layer, one, 1) for one in range(len(view.networks))]
        expected = np.einsum("qr,rqk->qk", view.topical[layer], np.stack(parts))
        np.testing.assert_allclose(view.attention[layer, 1], expected, atol=1e-5)


def test_masks_are_the_relations():
    view = subnetwork_view(_classifier(), "john slipped .")
    children = view.masks[view.network("dependency child 1")]
    assert children.nonzero()[0].tolist() == [1, 2, 3]  # john and "." below slipped, slipped below [CLS]
    assert children.nonzero()[1].tolist() == [2, 0, 2]
    assert not view.masks[view.network("dependency sibling 3")].any()
    assert view.network("dependency sibling 3") not in view.strongest(99)
    assert "full" not in [view.networks[one] for one in view.strongest(99)]
    with pytest.raises(
        ConfigError,
        match=r"^network: unknown sub-network 'dependency parents 1'\. Nearest: dependency parent",
    ):
        view.network("dependency parents 1")


def test_the_figure(tmp_path):
    view = subnetwork_view(_classifier(), "john slipped .")
    paths = [tmp_path / "first.png", tmp_path / "second.png"]
    for path in paths:
        draw_subnetwork(view, path, view.strongest(1)[0])
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert paths[0].read_bytes()[:4] == b"\x89PNG"
    draw_subnetwork(view, tmp_path / "head.png", view.strongest(1)[0], head=1)
    assert (tmp_path / "head.png").read_bytes() != paths[0].read_bytes()
    with pytest.raises(
        ConfigError, match=r"^figure: expected a file ending of .*, got a\.txt\. Use \.png\.$"
    ):
        draw_subnetwork(view, tmp_path / "a.txt", 0)


def test_a_model_without_masks():
    with pytest.raises(
        ConfigError, match=r"^model: expected one that was trained with masks, got one without\.$"
    ):
        subnetwork_view(_classifier("pos_add"), "john slipped .")


TEXT = "john slipped ."


@pytest.mark.parametrize("infusion", ["none", "pos_add"])
def test_the_plain_model_of_the_figure_is_a_model_of_its_own(infusion):
    view, plain = subnetwork_view(_classifier(preset="paper"), TEXT), _classifier(infusion)
    plain.annotator = TaggingAnnotator()
    weights = encoder_attention(plain, TEXT).weights
    np.testing.assert_array_equal(plain_attention_beside(view, plain, TEXT, 1), weights[1].mean(0))
    np.testing.assert_array_equal(plain_attention_beside(view, plain, TEXT, head=1), weights[2][1])
    assert not np.allclose(weights[2].mean(0), view.plain_attention(2), atol=1e-3)


def test_the_figure_with_a_plain_model(tmp_path):
    view = subnetwork_view(_classifier(preset="paper"), TEXT)
    plain = plain_attention_beside(view, _classifier("none"), TEXT)
    draw_subnetwork(view, tmp_path / "own.png", 0)
    draw_subnetwork(view, tmp_path / "plain.png", 0, plain={"runs/cola": plain})
    assert (tmp_path / "own.png").read_bytes() != (tmp_path / "plain.png").read_bytes()


def test_the_command_takes_a_plain_model_beside(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from syntaxformer.cli.main import app

    models = {"masks": _classifier(preset="paper"), "plain": _classifier("none")}
    (tmp_path / "masks").mkdir()
    (tmp_path / "masks" / "classifier.json").write_text("{}")
    monkeypatch.setattr(Classifier, "from_folder", lambda folder, annotator, **_: models[folder.name])
    pictures = []
    for name, more in (("own", []), ("beside", ["--beside", str(tmp_path / "plain")])):
        picture = tmp_path / f"{name}.png"
        done = CliRunner().invoke(app, ["attend", str(tmp_path / "masks"), TEXT, "-o", str(picture), *more])
        assert done.exit_code == 0, done.exception
        pictures.append(picture.read_bytes())
    assert pictures[0] != pictures[1]


def test_what_cannot_stand_beside():
    view = subnetwork_view(_classifier(preset="paper"), "john Slipped .")
    for infusion in ("masks", "lisa"):
        with pytest.raises(
            ConfigError,
            match=r"^beside: expected a model fine-tuned without masks, relation_bias and lisa, got one whose "
            r"attention is infused\. Fine-tune the checkpoint with --infuse none\.$",
        ):
            plain_attention_beside(view, _classifier(infusion), "john Slipped .")
    with pytest.raises(
        ConfigError,
        match=r"^beside: expected a model with layer 2 and head 0, got 2 layers of 2 heads\. Choose another",
    ):
        plain_attention_beside(view, _classifier("none", n_layers=2), "john Slipped .")
    with pytest.raises(
        ConfigError, match=r"^beside: expected a model with layer 0 and head 2, got 3 layers of"
    ):
        plain_attention_beside(view, _classifier("none"), "john Slipped .", 0, head=2)
    with pytest.raises(
        ConfigError, match=r"^beside: expected a model that reads the same 5 pieces, got 5 others\. Use one"
    ):
        plain_attention_beside(view, _classifier("none", lower_case=False), "john Slipped .")
    exported = _classifier("none")
    exported.model = OnnxNetwork.__new__(OnnxNetwork)
    with pytest.raises(ConfigError, match=r"and lisa, got an exported one\."):
        plain_attention_beside(view, exported, "john Slipped .")


@pytest.mark.parametrize("kind", ["plain", "infused"])
def test_a_tokenizer_that_pads_on_the_left_is_probed_alike(kind):
    from syntaxformer.study.word_states import huggingface_words, infused_words

    classifier = _classifier(preset="paper") if kind == "infused" else _classifier("none")
    classifier.collator.tokenizer.padding_side = "left"
    if kind == "infused":
        encoder = infused_words(classifier.model, classifier.collator, FlatAnnotator())
    else:
        encoder = huggingface_words(classifier.model, classifier.collator.tokenizer)
    short = Sentence.from_words(["slipped", "fronts"], governors=(-1, 0))
    long = Sentence.from_words(["john", "slipped", "in", "fronts", "."], governors=(1, -1, 1, 1, 1))
    states, owners = encoder.encode([short, long])
    alone, own = encoder.encode([short])
    n = own.shape[1]
    assert owners[0].tolist() == [*own[0], *[-1] * (owners.shape[1] - n)] == [-1, 0, 1, 1, -1, -1, -1, -1]
    torch.testing.assert_close(states[3][0, :n], alone[3][0], atol=1e-5, rtol=1e-5)
    assert classifier.collator.tokenizer.padding_side == "left"


def test_an_infused_encoder_is_probed_with_its_own_trees():
    from syntaxformer.study.word_states import huggingface_words, infused_words

    classifier = _classifier(preset="paper")
    encoder = infused_words(classifier.model, classifier.collator, FlatAnnotator())
    gold = Sentence.from_words(["john", "fronts", "slipped"], governors=(-1, 0, 0))
    states, owners = encoder.encode([gold])
    assert (encoder.n_states, len(states)) == (4, 4)
    assert owners.tolist() == [[-1, 0, 1, 1, 2, -1]]
    annotated = FlatAnnotator().annotate([gold.text])
    from syntaxformer.encoders.collator import SyntaxExample

    batch = classifier.collator([SyntaxExample((annotated[0],))])
    expected = classifier.model(**batch, output_hidden_states=True).hidden_states
    torch.testing.assert_close(states[3], expected[3])
    plain = huggingface_words(classifier.model, classifier.collator.tokenizer)
    assert plain.owners([gold]).lengths.tolist() == [6]


def test_an_infused_encoder_is_probed_on_sentences_longer_than_those_of_its_task():
    from syntaxformer.study.word_states import infused_words

    classifier = _classifier(preset="paper")
    classifier.collator.max_length = 5
    encoder = infused_words(classifier.model, classifier.collator, FlatAnnotator())
    gold = Sentence.from_words(["john", "slipped", "in", "front", "."], governors=(1, -1, 1, 1, 1))
    states, owners = encoder.encode([gold])
    assert (encoder.longest, states[0].shape[1]) == (29, 7)
    assert owners.tolist() == [[-1, 0, 1, 2, 3, 4, -1]]
    assert classifier.collator.max_length == 5


def test_the_gallery_draws_figure_2_and_says_the_strongest(gallery, tmp_path, monkeypatch):
    models = {"masked": _classifier(), "bare": _classifier("none")}
    monkeypatch.setattr(gallery.Classifier, "from_folder", lambda folder: models[str(folder)])
    options = SimpleNamespace(
        masks=Path("masked"), plain=Path("bare"), sentence="john slipped .", network="dependency parent 1"
    )
    _, figure, table = gallery._subnetwork(options, tmp_path)
    assert (tmp_path / figure.file).read_bytes()[:4] == b"\x89PNG"
    view = subnetwork_view(models["masked"], "john slipped .")
    strongest = view.strongest(5)
    assert [row[0] for row in table.rows] == [view.networks[one] for one in strongest]
    assert table.rows[0][1] == f"{view.topical_weights().mean(0)[strongest[0]]:.4f}"
    assert gallery._subnetwork(SimpleNamespace(masks=None), tmp_path) == []


def test_the_gallery_draws_a_curve_for_each_probed_model(gallery, tmp_path, monkeypatch):
    drawn = {}
    monkeypatch.setattr(gallery, "draw_curves", lambda curves, path, *_: drawn.update({path.name: curves}))
    named = []
    for place, model in enumerate(("before", "after")):
        names = ("embeddings", "layer 1", "layer 2", "linear chain")
        scores = [{"name": name, "uuas": 0.1 * (n + place), "spearman": 0.2} for n, name in enumerate(names)]
        (tmp_path / f"{model}.json").write_text(json.dumps({"scores": scores, "rank": 7}))
        named.append(gallery._named(f"{model}={tmp_path / model}.json"))
    gallery._probe(named, tmp_path)
    assert list(drawn) == ["probe_uuas.png", "probe_spearman.png"]
    curves = drawn["probe_uuas.png"]
    assert curves["before"].y == pytest.approx([0, 10, 20])
    assert curves["after"].y == pytest.approx([10, 20, 30])
    assert curves["linear chain"].y == pytest.approx([30, 30, 30])  # of the first file
    some = [
        {"name": "layer 1", "uuas": None, "spearman": 0.3},
        {"name": "layer 4", "uuas": 0.5, "spearman": 0.2},
    ]
    (tmp_path / "some.json").write_text(json.dumps({"scores": some, "rank": 7}))
    gallery._probe([("some", str(tmp_path / "some.json"))], tmp_path)
    assert drawn["probe_uuas.png"]["some"] == Curve([4.0], [50.0])
    assert drawn["probe_spearman.png"]["some"].x == [1.0, 4.0]
    with pytest.raises(ArgumentTypeError, match="NAME=FILE"):
        gallery._named("probe.json")
