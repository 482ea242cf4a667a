"""A service whose models answer by rule: everything around them is real."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from syntaxformer.serve import ServiceConfig, create_app
from syntaxformer.serve.engines import ClassifierEngine, TranslatorEngine
from syntaxformer.serve.schemas import (
    Classification,
    Hypothesis,
    ModelDescription,
    Score,
    ScoreSettings,
    Translation,
)


class EchoTranslator(TranslatorEngine):
    """The translation of a text is the text in capitals; remembers its batches."""

    def __init__(self, name="echo", shows=("tags",)):
        info = SimpleNamespace(decoding=SimpleNamespace(beam_size=5))
        self.translator = SimpleNamespace(info=info, cleaned_terms=lambda terms: terms)
        self.description = ModelDescription(
            name=name, task="translation", backend="ctranslate2", source_language="en", target_language="EN", shows=list(shows)
        )  # fmt: skip
        self.batches = []

    def work(self, settings, items, is_over=None):
        self.batches.append((settings, list(items)))
        if "broken" in items:
            raise RuntimeError("the model broke")
        if isinstance(settings, ScoreSettings):
            return [Score(log_prob=-len(text), n_pieces=1, mean=-len(text)) for _, text in items]
        hypotheses = [Hypothesis(text=f"{n}", score=-1.0) for n in range(settings.n_best)]
        several = settings.n_best > 1
        return [Translation(text=text.upper(), hypotheses=hypotheses if several else None) for text in items]


class LengthClassifier(ClassifierEngine):
    """ "long" for more than five characters; of pairs, whether both are the same."""

    def __init__(self, name="length", n_texts=1):
        self.n_texts = n_texts
        self.description = ModelDescription(
            name=name, task="classification", backend="pytorch", labels=["short", "long"]
        )

    def work(self, settings, items, is_over=None):
        def answer(is_long):
            probabilities = {"short": 1 - is_long, "long": is_long}
            return Classification(label="long" if is_long else "short", probabilities=probabilities)

        return [answer(len(item) > 5 if isinstance(item, str) else item[0] == item[1]) for item in items]


@pytest.fixture
def make_app():
    def make(*engines, **limits):
        translators = EchoTranslator(), EchoTranslator("second", ("tags", "alignment"))
        engines = engines or (*translators, LengthClassifier(), LengthClassifier("pairs", 2))
        named = {engine.description.name: engine for engine in engines}
        settings = {"models": dict.fromkeys(named, "."), "allowed_hosts": ["testserver"], **limits}
        return create_app(ServiceConfig(**settings), named)

    return make


@pytest.fixture
def client(make_app):
    from fastapi.testclient import TestClient

    with TestClient(make_app()) as session:
        yield session


@pytest.fixture
def error_of():
    """Check the status and code of an error, and give its message."""

    def message(response, status, code):
        error = response.json()["error"]
        assert (response.status_code, error["status"], error["code"]) == (status, status, code)
        assert error["request_id"] == response.headers["x-request-id"]
        return error["message"]

    return message


@pytest.fixture
def echo():
    return EchoTranslator


@pytest.fixture
def slow():
    """A translator that waits for its gate."""

    class Slow(EchoTranslator):
        def __init__(self):
            super().__init__()
            self.gate = threading.Event()

        def work(self, settings, items, is_over=None):
            self.gate.wait(20)
            return super().work(settings, items, is_over)

    return Slow()


WORDS = ("the", "a", "cat", "dog", "sees", "small", "big", ".", "run", "##s", "cats")
LINES = ["The cat sees a small dog .", "Two cats run .", "A dog and the cat run"]


def _tiny_translator(kind, layers, parser, masks=None):
    import torch

    from syntaxformer.infusion.config import InfusionConfig
    from syntaxformer.nn import plan_widths
    from syntaxformer.syntax import WordColumns, build_vocabularies
    from syntaxformer.syntax.inputs import SyntaxInputs
    from syntaxformer.translation.decoding import DecodingConfig
    from syntaxformer.translation.model import SyntaxTransformer, SyntaxTransformerConfig
    from syntaxformer.translation.model_folder import FolderInfo
    from syntaxformer.translation.source import SourceEncoder
    from syntaxformer.translation.subwords import SubwordConfig, train_subwords
    from syntaxformer.translation.translator import Translator

    plan = plan_widths(kind, 14, None, **({} if kind == "none" else {"width": 5}))
    names = [name for name, _ in plan.factors]
    tokenizer = train_subwords(LINES * 3, SubwordConfig(vocab_size=313))
    columns = WordColumns.from_sentences(parser.annotate(LINES))
    trees = SyntaxInputs(trees=None if masks is None else InfusionConfig(masks=masks).tree_options)
    encoder = SourceEncoder(tokenizer, build_vocabularies([columns], names) if names else {}, syntax=trees)
    sizes = {name: len(vocabulary) for name, vocabulary in encoder.vocabularies.items()}
    torch.manual_seed(5)
    config = SyntaxTransformerConfig(
        vocab_size=len(tokenizer), d_model=14, d_ff=17, n_heads=2, encoder_layers=2 if masks else 1,
        decoder_layers=layers, infusion=plan.as_dict(), factor_sizes=sizes, masks=masks,
    )  # fmt: skip
    model = SyntaxTransformer(config)
    with torch.no_grad():
        model.decoder.embedding.weight.mul_(5)
    info = FolderInfo(
        src="en", tgt="de", factors=[vocabulary.to_dict() for vocabulary in encoder.vocabularies.values()],
        annotator=parser.name if names or masks else None, annotator_version=parser.version if names or masks else None,
        decoding=DecodingConfig(beam_size=2, batch_size=3), syntax=trees,
    )  # fmt: skip
    return Translator(model.eval(), encoder, info, parser if names or masks else None)


def _tiny_classifier(infusion, n_texts, parser):
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    from syntaxformer.encoders.classifier import Classifier, needed_columns
    from syntaxformer.encoders.collator import SyntaxCollator
    from syntaxformer.encoders.tasks import ClassifierInfo
    from syntaxformer.infusion import infuse
    from syntaxformer.infusion.config import InfusionConfig

    config = InfusionConfig(**infusion)
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    torch.manual_seed(3)
    model = BertForSequenceClassification(
        BertConfig(vocab_size=len(pieces), hidden_size=22, num_hidden_layers=3, num_attention_heads=2, intermediate_size=23,
                   max_position_embeddings=41, initializer_range=0.3)
    ).eval()  # fmt: skip
    tokenizer = BertTokenizerFast(vocab={piece: number for number, piece in enumerate(pieces)})
    needs = tuple(sorted(needed_columns(config)))
    info = ClassifierInfo(
        type="label",
        task="cola", labels=("bad", "good"), metrics=("matthews",), n_texts=n_texts, annotator=parser.name if needs else None,
        annotator_version=parser.version if needs else None, needs=needs,
    )  # fmt: skip
    model = model if config.is_plain else infuse(model, config)
    return Classifier(
        model, SyntaxCollator(tokenizer, config, max_length=41), info, parser if needs else None
    )


@pytest.fixture(scope="session")
def masked_translator():
    """A random translator with masks in its two encoder layers, and one decoder layer."""
    from syntaxformer.annotate import load_annotator

    masks = {"max_distance": 3, "preset": "paper"}
    return TranslatorEngine("masks", _tiny_translator("none", 1, load_annotator("en+phrases"), masks))


@pytest.fixture(scope="session")
def tiny_engines():
    """Random translators with one and with three decoder layers, classifiers with masks, with tags, of pairs."""
    from syntaxformer.annotate import load_annotator

    parser = load_annotator("en+phrases")
    classifiers = {
        "masked": ({"masks": {"max_distance": 3}, "preset": "paper"}, 1),
        "tagged-pairs": ({"embedding": {"kind": "add"}}, 2),
        "bare": ({}, 1),
    }
    engines = {
        "sit": TranslatorEngine("sit", _tiny_translator("sum_then_concat", 3, parser)),
        "base": TranslatorEngine("base", _tiny_translator("none", 1, parser)),
    }
    return engines | {
        name: ClassifierEngine(name, _tiny_classifier(*settings, parser))
        for name, settings in classifiers.items()
    }
