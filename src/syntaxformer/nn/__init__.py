"""Building blocks in pure torch.nn: nothing here depends on a Sentence, a file or a config object."""

from syntaxformer.nn.attention import CrossAttention, SelfAttention, attend, attend_with_weights
from syntaxformer.nn.infused_embedding import (
    ENCODER_KINDS,
    INFUSION_KINDS,
    FactorEmbedding,
    InfusedEmbedding,
    MappedEmbedding,
    WidthPlan,
    plan_widths,
)
from syntaxformer.nn.kernels.on_cpu import Dropout, drop
from syntaxformer.nn.lisa import (
    BiaffineHead,
    check_gradient,
    governor_hits,
    governor_loss,
    inject_governors,
)
from syntaxformer.nn.relation_biases import RelationBias, relation_bias
from syntaxformer.nn.relation_index import RelationIndex
from syntaxformer.nn.syntax import SyntaxGate, TopicalAttention, linear_map, syntax_attention
from syntaxformer.nn.syntax_graph import relation_bias_graph, syntax_attention_graph
from syntaxformer.nn.syntax_reference import syntax_attention_reference
from syntaxformer.nn.transformer import (
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    Residual,
    SinusoidalPositions,
    sinusoids,
)

__all__ = [
    "ENCODER_KINDS",
    "INFUSION_KINDS",
    "BiaffineHead",
    "CrossAttention",
    "DecoderLayer",
    "Dropout",
    "EncoderLayer",
    "FactorEmbedding",
    "FeedForward",
    "InfusedEmbedding",
    "MappedEmbedding",
    "RelationBias",
    "RelationIndex",
    "Residual",
    "SelfAttention",
    "SinusoidalPositions",
    "SyntaxGate",
    "TopicalAttention",
    "WidthPlan",
    "attend",
    "attend_with_weights",
    "check_gradient",
    "drop",
    "governor_hits",
    "governor_loss",
    "inject_governors",
    "linear_map",
    "plan_widths",
    "relation_bias",
    "relation_bias_graph",
    "sinusoids",
    "syntax_attention",
    "syntax_attention_graph",
    "syntax_attention_reference",
]
