"""Scores and tests of significance."""

from syntaxformer.evaluation.translation import (
    Comparison,
    TranslationScores,
    compare_translations,
    score_translations,
)

__all__ = ["Comparison", "TranslationScores", "compare_translations", "score_translations"]
