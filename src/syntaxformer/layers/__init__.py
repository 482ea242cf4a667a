"""Building blocks in torch.nn alone: nothing here knows a Sentence, a file or a config object."""

from syntaxformer.layers.attention import CrossAttention, SelfAttention, attend, attend_with_weights
from syntaxformer.layers.dropout import Dropout, drop
from syntaxformer.layers.infusion import InfusedEmbedding
from syntaxformer.layers.infusion_plan import INFUSION_KINDS, WidthPlan, plan_widths
from syntaxformer.layers.lisa import (
    NO_GOVERNOR,
    BiaffineHead,
    check_gradient,
    first_pieces,
    governor_hits,
    governor_loss,
    governor_targets,
    inject_governors,
)
from syntaxformer.layers.mapped_embedding import MappedEmbedding
from syntaxformer.layers.pos_embedding import PosAdd, PosConcat, PosLet
from syntaxformer.layers.positions import SinusoidalPositions, sinusoids
from syntaxformer.layers.relation_biases import RelationBias, relation_bias
from syntaxformer.layers.relation_index import RelationIndex
from syntaxformer.layers.syntax import syntax_attention
from syntaxformer.layers.syntax_graph import relation_bias_graph, syntax_attention_graph
from syntaxformer.layers.syntax_heads import MaskRules, SyntaxContext, SyntaxHeads
from syntaxformer.layers.syntax_reference import syntax_attention_reference
from syntaxformer.layers.topical import SyntaxGate, TopicalAttention, linear_map
from syntaxformer.layers.transformer import DecoderLayer, EncoderLayer, FeedForward, Residual

__all__ = [
    "INFUSION_KINDS",
    "NO_GOVERNOR",
    "BiaffineHead",
    "CrossAttention",
    "DecoderLayer",
    "Dropout",
    "EncoderLayer",
    "FeedForward",
    "InfusedEmbedding",
    "MappedEmbedding",
    "MaskRules",
    "PosAdd",
    "PosConcat",
    "PosLet",
    "RelationBias",
    "RelationIndex",
    "Residual",
    "SelfAttention",
    "SinusoidalPositions",
    "SyntaxContext",
    "SyntaxGate",
    "SyntaxHeads",
    "TopicalAttention",
    "WidthPlan",
    "attend",
    "attend_with_weights",
    "check_gradient",
    "drop",
    "first_pieces",
    "governor_hits",
    "governor_loss",
    "governor_targets",
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
