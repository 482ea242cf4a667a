"""The translation model, and the probe for trees in states."""

from syntaxformer.models.config import SyntaxTransformerConfig
from syntaxformer.models.transformer import SyntaxTransformer

__all__ = ["SyntaxTransformer", "SyntaxTransformerConfig"]
