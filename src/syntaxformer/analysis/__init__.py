"""Looking into models: attention as arrays and pictures, its spread, ablation, cases where they differ."""

from syntaxformer.analysis.ablation import Ablation, ablate_classifier, ablate_translator
from syntaxformer.analysis.attention import CrossAttentionMap, cross_attention
from syntaxformer.analysis.attention_spread import SpreadOfAttention, attention_spread
from syntaxformer.analysis.plots import draw_attention, draw_subnetwork
from syntaxformer.analysis.subnetworks import SubnetworkView, subnetwork_view

__all__ = [
    "Ablation",
    "CrossAttentionMap",
    "SpreadOfAttention",
    "SubnetworkView",
    "ablate_classifier",
    "ablate_translator",
    "attention_spread",
    "cross_attention",
    "draw_attention",
    "draw_subnetwork",
    "subnetwork_view",
]
