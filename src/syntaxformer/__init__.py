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

_NAMES_OF_ROOMS = {
    "annotate": ("annotate_dataset", "load_annotator"),
    "encoders.classifier": ("save",),
    "encoders.collator": ("SyntaxCollator", "SyntaxExample"),
    "encoders.embeddings": ("SyntaxEncoder",),
    "infusion": ("infuse", "infusion_parameters", "load", "param_groups", "parameter_report", "push_to_hub"),
    "infusion.config": ("InfusionConfig",),
    "nn": ("register_embedding",),
    "pipelines": ("pipeline",),
    "syntax": ("constituency_relations", "dependency_relations", "register_relations"),
    "translation.model": ("SyntaxTransformer",),
    "translation.translator": ("Translator",),
    "trees": ("Sentence",),
}
_HOMES = {name: f"syntaxformer.{room}" for room, names in _NAMES_OF_ROOMS.items() for name in names}
_ROOMS = ("annotate", "encoders", "infusion", "nn", "runs", "study", "syntax", "translation", "trees")

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
