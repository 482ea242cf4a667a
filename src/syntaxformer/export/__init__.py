"""Trained models in the formats of inference engines: CTranslate2 for translators, ONNX for classifiers."""

from syntaxformer.export.ctranslate2_folder import QUANTIZATIONS, export_translator
from syntaxformer.export.onnx_folder import export_classifier
from syntaxformer.export.refusals import why_not

__all__ = ["QUANTIZATIONS", "export_classifier", "export_translator", "why_not"]
