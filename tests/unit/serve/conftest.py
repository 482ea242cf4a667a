"""A service whose models answer by rule: everything around them is real."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from syntaxformer.serve import ServiceConfig, create_app
from syntaxformer.serve.engines import ClassifierEngine, TranslatorEngine
from syntaxformer.serve.schemas import Classification, Hypothesis, ModelDescription, Translation


class EchoTranslator(TranslatorEngine):
    """The translation of a text is the text in capitals; remembers its batches."""

    def __init__(self, name="echo", shows=("tags",)):
        self.translator = SimpleNamespace(info=SimpleNamespace(decoding=SimpleNamespace(beam_size=5)))
        self.description = ModelDescription(
            name=name, task="translation", backend="ctranslate2", source_language="en", target_language="EN", shows=list(shows)
        )  # fmt: skip
        self.batches = []

    def work(self, settings, items):
        self.batches.append((settings, list(items)))
        if "broken" in items:
            raise RuntimeError("the model broke")
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

    def work(self, settings, items):
        found = [len(item) > 5 if isinstance(item, str) else item[0] == item[1] for item in items]
        return [
            Classification(label="long" if one else "short", probabilities={"short": 1 - one, "long": one})
            for one in found
        ]


@pytest.fixture
def make_app():
    def make(*engines, **limits):
        engines = engines or (
            EchoTranslator(),
            EchoTranslator("second", ("tags", "alignment")),
            LengthClassifier(),
            LengthClassifier("pairs", 2),
        )
        config = ServiceConfig(models={engine.description.name: "." for engine in engines}, **limits)
        return create_app(config, {engine.description.name: engine for engine in engines})

    return make


@pytest.fixture
def echo():
    return EchoTranslator
