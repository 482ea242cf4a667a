"""The translation model."""

from syntaxformer.models.config import SyntaxTransformerConfig
from syntaxformer.models.transformer import SyntaxTransformer

__all__ = ["SyntaxTransformer", "SyntaxTransformerConfig"]
