"""Tools to look into models: attention as arrays and pictures, its spread, ablation, differing sentences."""

from syntaxformer.study.ablation import Ablation, ablate_classifier, ablate_translator
from syntaxformer.study.attention import (
    CrossAttentionMap,
    SubnetworkView,
    attention_spread,
    cross_attention,
    encoder_attention,
    plain_attention_beside,
    subnetwork_view,
)
from syntaxformer.study.plots import draw_attention, draw_subnetwork
from syntaxformer.study.text_view import Parser, TextView, classifier_text, parser_for, translator_text

__all__ = [
    "Ablation",
    "CrossAttentionMap",
    "Parser",
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
