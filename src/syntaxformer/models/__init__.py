"""The translation model, which transformers' Auto classes know once this room is imported."""

from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM

from syntaxformer.models.config import SyntaxTransformerConfig
from syntaxformer.models.transformer import SyntaxTransformer

__all__ = ["SyntaxTransformer", "SyntaxTransformerConfig"]

AutoConfig.register(SyntaxTransformerConfig.model_type, SyntaxTransformerConfig, exist_ok=True)
for _auto in (AutoModel, AutoModelForSeq2SeqLM):
    _auto.register(SyntaxTransformerConfig, SyntaxTransformer, exist_ok=True)
