"""Whole networks: the translation model, and the plug-in that puts syntax into pretrained encoders."""

from syntaxformer.infusion_config import InfusionConfig
from syntaxformer.models.config import SyntaxTransformerConfig
from syntaxformer.models.infusion_report import parameter_report
from syntaxformer.models.plug_in import infuse, infusion_parameters, load
from syntaxformer.models.transformer import SyntaxTransformer

__all__ = [
    "InfusionConfig",
    "SyntaxTransformer",
    "SyntaxTransformerConfig",
    "infuse",
    "infusion_parameters",
    "load",
    "parameter_report",
]
