"""`/v1/explain` on random models: what it shows is what the other endpoints, the parser and the arrays say."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from fastapi.testclient import TestClient

from syntaxformer.annotate import load_annotator
from syntaxformer.base.errors import ConfigError
from syntaxformer.serve.engines import explain_translation
from syntaxformer.serve.schemas import ExplainSettings
from syntaxformer.study.attention import cross_attention, encoder_attention, subnetwork_view
from syntaxformer.study.text_view import classifier_text, parser_for, translator_text
from syntaxformer.syntax import dependency_relations, relation_name

TEXT = "The cat sees a small dog ."


@pytest.fixture(scope="module")
def client(tiny_engines):
    from syntaxformer.serve import ServiceConfig, create_app

    config = ServiceConfig(models=dict.fromkeys(tiny_engines, "."), allowed_hosts=["testserver"])
    with TestClient(create_app(config, tiny_engines)) as session:
        yield session


def _explain(client, **body):
    response = client.post("/v1/explain", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def test_a_translation_with_all_that_is_known_of_it(client, tiny_engines):
    explanation = _explain(client, text=TEXT, model="sit", layer=1, head=1)
    translated = client.post("/v1/translate", json={"texts": [TEXT], "model": "sit", "show": ["tags"]}).json()
    (translated,) = translated["translations"]
    assert explanation["translation"] == translated["text"]
    assert explanation["pieces"]["texts"] == translated["source"]["pieces"]
    assert explanation["pieces"]["factors"] == translated["source"]["factors"]
    (sentence,), (parsed,) = explanation["sentences"], load_annotator("en+phrases").annotate([TEXT])
    for column in ("words", "upos", "governors", "deprels"):
        assert sentence[column] == list(getattr(parsed, column))
    assert sentence["constituency"] == parsed.constituency
    assert sentence["phrases"][0][1:] == [0, len(parsed)]
    names = explanation["relations"]["names"]
    assert names == [relation_name(relation) for relation in range(47)]
    assert explanation["relations"]["trees"]["dependency"] == dependency_relations(parsed.governors).tolist()
    attention = explanation["attention"]
    expected = cross_attention(tiny_engines["sit"].translator, TEXT).weights[1, 1]
    np.testing.assert_allclose(attention["weights"], expected, atol=1e-5)
    assert attention.items() >= {"kind": "cross", "n_layers": 3, "layer": 1, "head": 1}.items()
    assert explanation["missing"] == {"networks": "This model was trained without masks."}


def test_factors_are_those_of_the_models_annotator(tiny_engines, monkeypatch):
    """Also where its annotator gives no trees, and those of another parser are shown."""
    from dataclasses import replace

    translator, parser = tiny_engines["sit"].translator, parser_for(None, "en", "en", False)

    def tag(lines):
        parsed = parser.annotator.annotate(lines)
        return [replace(sentence, upos=("X",) * len(sentence)) for sentence in parsed]

    monkeypatch.setattr(translator, "annotator", SimpleNamespace(annotate=tag))
    view = translator_text(translator, TEXT, parser)
    assert {*view.factors["pos"]} <= {"X", "<none>", "<unk>"}
    assert view.sentences[0].upos == parser.annotator.annotate([TEXT])[0].upos


def test_each_piece_stands_under_its_word(client):
    explanation = _explain(client, text=TEXT, model="base")
    words, texts = explanation["sentences"][0]["words"], explanation["pieces"]["texts"]
    spelled = ["" for _ in words]
    for word, text in zip(explanation["pieces"]["words"], texts, strict=True):
        if word >= 0:
            spelled[word] += text.lstrip("▁")
    assert spelled == words
    assert explanation["pieces"]["words"][-1] == -1  # the end piece
    assert explanation["attention"]["layer"] == 0
    assert "head" not in explanation["attention"]


def test_a_classification_with_its_sub_networks(client, tiny_engines):
    engine = tiny_engines["masked"]
    explanation = _explain(client, text=TEXT, model="masked")
    classified = client.post("/v1/classify", json={"texts": [TEXT], "model": "masked"}).json()
    assert explanation["classification"] == classified["classifications"][0]
    view = subnetwork_view(engine.classifier, TEXT)
    assert explanation["networks"]["names"] == view.networks
    np.testing.assert_allclose(explanation["networks"]["weights"], view.topical_weights(), atol=1e-5)
    assert explanation["networks"]["occurs"] == [bool(mask.any()) for mask in view.masks]
    assert explanation["attention"]["rows"] == explanation["pieces"]["texts"] == view.pieces
    np.testing.assert_allclose(explanation["attention"]["weights"], view.attention[2].mean(0), atol=1e-5)
    assert explanation["missing"] == {}


def test_one_sub_networks_attention(client, tiny_engines):
    view = subnetwork_view(tiny_engines["masked"].classifier, TEXT)
    name = view.networks[view.strongest(1)[0]]
    attention = _explain(client, text=TEXT, model="masked", network=name, layer=1, head=0)["attention"]
    assert attention["network"] == name
    expected = view.sub_attention(1, view.network(name), 0)
    np.testing.assert_allclose(attention["weights"], expected, atol=1e-5)


@pytest.mark.slow
def test_sub_networks_of_a_translators_encoder(masked_translator):
    translator = masked_translator.translator
    assert masked_translator.description.networks
    view = subnetwork_view(translator, TEXT)
    explanation = explain_translation(masked_translator, TEXT, ExplainSettings())
    assert (explanation.attention.kind, explanation.attention.n_layers) == ("cross", 1)
    assert (explanation.networks.layers, explanation.networks.names) == ([0, 1], view.networks)
    np.testing.assert_allclose(explanation.networks.weights, view.topical_weights(), atol=1e-5)
    assert explanation.missing == {}
    np.testing.assert_allclose(view.topical.sum(-1), 1, atol=1e-5)
    np.testing.assert_allclose(view.attention.sum(-1), 1, atol=1e-5)
    name = view.networks[view.strongest(1)[0]]
    detail = explain_translation(masked_translator, TEXT, ExplainSettings(network=name, layer=0, head=1))
    assert (detail.attention.kind, detail.attention.n_layers, detail.attention.network) == ("self", 2, name)
    assert detail.attention.rows == detail.attention.columns == detail.pieces.texts == view.pieces
    expected = view.sub_attention(0, view.network(name), 1)
    np.testing.assert_allclose(detail.attention.weights, expected, atol=1e-5)
    assert detail.translation == explanation.translation == view.prediction


def test_a_pair_is_counted_through(client):
    view = _explain(client, text=["The cat sees .", "A dog ."], model="tagged-pairs")
    words = [sentence["words"] for sentence in view["sentences"]]
    assert words == [["The", "cat", "sees", "."], ["A", "dog", "."]]
    assert view["pieces"]["texts"] == ["[CLS]", "the", "cat", "sees", ".", "[SEP]", "a", "dog", ".", "[SEP]"]
    assert view["pieces"]["words"] == [-1, 0, 1, 2, 3, -1, 4, 5, 6, -1]
    assert view["pieces"]["factors"]["pos"][:3] == ["<none>", "DET", "NOUN"]
    across = view["relations"]["trees"]["constituency"][0][5]
    assert view["relations"]["names"][across] == "pair"
    weights = np.array(view["attention"]["weights"])
    np.testing.assert_allclose(weights.sum(1), 1, atol=1e-3)
    assert view["missing"] == {"networks": "This model was fine-tuned without masks."}


def test_an_encoder_that_tells_nothing_is_refused(tiny_engines, monkeypatch):
    classifier = tiny_engines["bare"].classifier
    silent = SimpleNamespace(attentions=())
    monkeypatch.setattr(type(classifier.model.base_model), "forward", lambda *_, **__: silent)
    with pytest.raises(
        ConfigError, match=r"^model: expected an encoder that returns its attention, got Bert"
    ):
        encoder_attention(classifier, TEXT)


def test_what_cannot_be_shown_says_what_to_change(client):
    for body, message in (
        ({"text": " "}, "text: expected one that is not empty, got ''."),
        ({"text": "x" * 1001}, "text: expected at most 1000 characters, got 1001."),
        ({"model": "none"}, "model: expected one of sit, base, masked, tagged-pairs, bare, got 'none'."),
        ({"text": ["a", "b"]}, "text: expected a text for sit, got a pair."),
        ({"layer": 3}, "layer: expected at most 2 in this model, got 3."),
        ({"head": 2}, "head: expected at most 1 in this model, got 2."),
        ({"model": "masked", "network": "dependency parnet 1"}, "network: unknown sub-network 'dependency parnet"),
        ({"max_distance": 85}, "max_distance: "),
        ({"model": "masked", "to": "fr"}, "to: expected none for masked, which does not translate, got 'fr'."),
        ({"to": "fr"}, "to: expected a language that the model translates into"),
    ):  # fmt: skip
        response = client.post("/v1/explain", json={"text": TEXT, **body})
        assert (response.status_code, response.json()["error"]["message"][: len(message)]) == (422, message)


def test_layers_without_masks_have_no_sub_network(tiny_engines):
    from syntaxformer.serve.engines import _attention

    inside = SimpleNamespace(layers=[0, 2])
    with pytest.raises(ConfigError, match=r"^layer: expected one with sub-networks \(0, 2\), got 1\.$"):
        _attention("self", np.zeros((3, 2, 1, 1)), [], [], ExplainSettings(layer=1, network="x"), inside)


def test_an_exported_translator_gives_what_it_can(tiny_engines):
    engine = tiny_engines["sit"]
    info = engine.translator.info.model_copy(update={"backend": "ctranslate2"})
    model = {"annotator": engine.translator.annotator, "encoder": engine.translator.encoder}
    model |= {"cutter": engine.translator.cutter, "clean": engine.translator.clean}
    exported = SimpleNamespace(info=info, longest=1024, **model)
    exported.to = lambda language: exported
    about = {"description": engine.description, "parser": engine.parser, "translator": exported}
    served = SimpleNamespace(**about, translate=lambda *_: [SimpleNamespace(text="ein Text")])
    explanation = explain_translation(served, TEXT, ExplainSettings())
    assert (explanation.translation, explanation.attention) == ("ein Text", None)
    reason = "This model was exported to ctranslate2, which gives no attention. "
    assert explanation.missing["attention"].startswith(reason)
    assert explanation.pieces.factors["pos"][0] == "DET"


def test_without_a_parser_words_are_what_stands_between_spaces(tiny_engines):
    parser = parser_for(None, None, "xx", False)
    assert parser.lacks.startswith(
        "--annotator: expected an annotator's name, as source_language=xx names no language to choose one by"
    )
    view = translator_text(tiny_engines["base"].translator, "  the  cat", parser)
    assert view.sentences[0].words == ("the", "cat")
    assert view.relations == {}
    assert set(view.words_of_pieces) == {0, 1, -1}
    assert "as the text names no language to choose one by" in parser_for(None, None, None, False).lacks


def test_relations_reach_as_far_as_asked(tiny_engines):
    classifier = tiny_engines["bare"].classifier
    parser = parser_for(None, None, "en", False)
    view = classifier_text(classifier, (TEXT,), parser, max_distance=1)
    assert {relation_name(int(relation), 1).split()[0] for relation in np.unique(view.relations["dependency"])} <= {
        "none", "parent", "child",
    }  # fmt: skip
    with pytest.raises(ValueError, match=r"^max_distance: expected 1 to 84"):
        classifier_text(classifier, (TEXT,), parser, max_distance=85)
