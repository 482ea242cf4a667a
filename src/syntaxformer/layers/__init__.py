"""Building blocks in torch.nn alone: nothing here knows a Sentence, a file or a config object."""

from syntaxformer.layers.attention import CrossAttention, SelfAttention, attend, attend_with_weights
from syntaxformer.layers.dropout import Dropout, drop
from syntaxformer.layers.infusion import INFUSION_KINDS, InfusedEmbedding, WidthPlan, plan_widths
from syntaxformer.layers.positions import SinusoidalPositions, sinusoids
from syntaxformer.layers.transformer import DecoderLayer, EncoderLayer, FeedForward, Residual

__all__ = [
    "INFUSION_KINDS",
    "CrossAttention",
    "DecoderLayer",
    "Dropout",
    "EncoderLayer",
    "FeedForward",
    "InfusedEmbedding",
    "Residual",
    "SelfAttention",
    "SinusoidalPositions",
    "WidthPlan",
    "attend",
    "attend_with_weights",
    "drop",
    "plan_widths",
    "sinusoids",
]
