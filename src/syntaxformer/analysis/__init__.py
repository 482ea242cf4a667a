"""Looking into models: attention as arrays, and pictures of it."""

from syntaxformer.analysis.attention import CrossAttentionMap, cross_attention
from syntaxformer.analysis.plots import draw_attention

__all__ = ["CrossAttentionMap", "cross_attention", "draw_attention"]
