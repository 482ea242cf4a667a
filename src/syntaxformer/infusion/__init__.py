"""The one plug-in that puts syntax inside an encoder: its config, its families and its model folders."""

from syntaxformer.infusion.config import InfusionConfig
from syntaxformer.infusion.cost import parameter_report
from syntaxformer.infusion.families import Family
from syntaxformer.infusion.infused_folder import INFUSION_FILE, load
from syntaxformer.infusion.infusion import Infusion, infusion_parameters, param_groups
from syntaxformer.infusion.model_card import push_to_hub
from syntaxformer.infusion.plug_in import infuse

__all__ = [
    "INFUSION_FILE",
    "Family",
    "Infusion",
    "InfusionConfig",
    "infuse",
    "infusion_parameters",
    "load",
    "param_groups",
    "parameter_report",
    "push_to_hub",
]
