"""Building blocks in pure torch.nn: nothing here depends on a Sentence, a file or a config object."""

from syntaxformer.nn.attention import attend
from syntaxformer.nn.infused_embedding import (
    ENCODER_KINDS,
    INFUSION_KINDS,
    FactorEmbedding,
    InfusedEmbedding,
    plan_widths,
    register_embedding,
)
from syntaxformer.nn.kernels.on_cpu import Dropout
from syntaxformer.nn.lisa import (
    BiaffineHead,
    check_gradient,
    governor_hits,
    governor_loss,
    inject_governors,
)
from syntaxformer.nn.relation_biases import RelationBias
from syntaxformer.nn.relation_index import RelationIndex
from syntaxformer.nn.syntax import SyntaxGate, TopicalAttention, linear_map, syntax_attention
from syntaxformer.nn.syntax_graph import syntax_attention_graph
from syntaxformer.nn.syntax_reference import syntax_attention_reference

__all__ = [
    "ENCODER_KINDS",
    "INFUSION_KINDS",
    "BiaffineHead",
    "Dropout",
    "FactorEmbedding",
    "InfusedEmbedding",
    "RelationBias",
    "RelationIndex",
    "SyntaxGate",
    "TopicalAttention",
    "attend",
    "check_gradient",
    "governor_hits",
    "governor_loss",
    "inject_governors",
    "linear_map",
    "plan_widths",
    "register_embedding",
    "syntax_attention",
    "syntax_attention_graph",
    "syntax_attention_reference",
]
