"""syntaxformer puts syntax into Transformers: translation with little parallel data, fine-tuning with trees.

Names are loaded when they are first used, so that `import syntaxformer` and `syntaxformer --help` stay quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from syntaxformer.auto_classes import announce

if TYPE_CHECKING:
    from syntaxformer.annotate import annotate_dataset, load_annotator
    from syntaxformer.encoders.classifier import save
    from syntaxformer.encoders.collator import SyntaxCollator, SyntaxExample
    from syntaxformer.encoders.embeddings import SyntaxEncoder
    from syntaxformer.infusion import infuse, infusion_parameters, load, param_groups, parameter_report
    from syntaxformer.infusion.config import InfusionConfig
    from syntaxformer.infusion.model_card import push_to_hub
    from syntaxformer.nn import register_embedding
    from syntaxformer.pipelines import pipeline
    from syntaxformer.syntax import constituency_relations, dependency_relations, register_relations
    from syntaxformer.translation.model import SyntaxTransformer
    from syntaxformer.translation.translator import Translator
    from syntaxformer.trees import Sentence

__version__ = "0.1.0"

_HOMES = {
    "InfusionConfig": "syntaxformer.infusion.config",
    "Sentence": "syntaxformer.trees",
    "SyntaxCollator": "syntaxformer.encoders.collator",
    "SyntaxEncoder": "syntaxformer.encoders.embeddings",
    "SyntaxExample": "syntaxformer.encoders.collator",
    "SyntaxTransformer": "syntaxformer.translation.model",
    "Translator": "syntaxformer.translation.translator",
    "annotate_dataset": "syntaxformer.annotate",
    "constituency_relations": "syntaxformer.syntax",
    "dependency_relations": "syntaxformer.syntax",
    "infuse": "syntaxformer.infusion",
    "infusion_parameters": "syntaxformer.infusion",
    "load": "syntaxformer.infusion",
    "load_annotator": "syntaxformer.annotate",
    "param_groups": "syntaxformer.infusion",
    "parameter_report": "syntaxformer.infusion",
    "pipeline": "syntaxformer.pipelines",
    "push_to_hub": "syntaxformer.infusion",
    "register_embedding": "syntaxformer.nn",
    "register_relations": "syntaxformer.syntax",
    "save": "syntaxformer.encoders.classifier",
}
_ROOMS = (
    "annotate",
    "encoders",
    "infusion",
    "nn",
    "runs",
    "study",
    "syntax",
    "translation",
    "trees",
)

__all__ = [
    "InfusionConfig",
    "Sentence",
    "SyntaxCollator",
    "SyntaxEncoder",
    "SyntaxExample",
    "SyntaxTransformer",
    "Translator",
    "__version__",
    "annotate_dataset",
    "constituency_relations",
    "dependency_relations",
    "infuse",
    "infusion_parameters",
    "load",
    "load_annotator",
    "param_groups",
    "parameter_report",
    "pipeline",
    "push_to_hub",
    "register_embedding",
    "register_relations",
    "save",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in _ROOMS:
        return import_module(f"syntaxformer.{name}")
    raise AttributeError(f"module 'syntaxformer' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES, *_ROOMS])


announce()
