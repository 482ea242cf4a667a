"""Looking into models: attention as arrays and pictures, its spread, ablation, cases where they differ."""

from syntaxformer.analysis.ablation import Ablation, ablate_classifier, ablate_translator
from syntaxformer.analysis.attention import CrossAttentionMap, cross_attention
from syntaxformer.analysis.attention_spread import SpreadOfAttention, attention_spread
from syntaxformer.analysis.encoder_attention import EncoderAttention, encoder_attention
from syntaxformer.analysis.plots import draw_attention, draw_subnetwork
from syntaxformer.analysis.subnetworks import SubnetworkView, plain_attention_beside, subnetwork_view
from syntaxformer.analysis.text_view import Parser, TextView, classifier_text, parser_for, translator_text

__all__ = [
    "Ablation",
    "CrossAttentionMap",
    "EncoderAttention",
    "Parser",
    "SpreadOfAttention",
    "SubnetworkView",
    "TextView",
    "ablate_classifier",
    "ablate_translator",
    "attention_spread",
    "classifier_text",
    "cross_attention",
    "draw_attention",
    "draw_subnetwork",
    "encoder_attention",
    "parser_for",
    "plain_attention_beside",
    "subnetwork_view",
    "translator_text",
]
