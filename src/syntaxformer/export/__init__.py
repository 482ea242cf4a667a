"""Trained models in the formats of inference engines: CTranslate2 for translators."""

from syntaxformer.export.ctranslate2_folder import QUANTIZATIONS, export_translator
from syntaxformer.export.refusals import why_not

__all__ = ["QUANTIZATIONS", "export_translator", "why_not"]
