"""What an infusion adds to a model, in numbers, with those of the papers beside them."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn
from transformers import PreTrainedModel

from syntaxformer.models.plug_in import infusion_parameters

__all__ = ["parameter_report"]

_GROUPS = {
    "topical": ("topical attention", "paper 002, BERT-base: 1.0 million"),
    "gates": ("gates", "ours"),
    "relation_bias": ("relation bias", "ours"),
    "lisa": ("LISA", "paper 002, BERT-base, all layers: 0.6 million"),
    "pos": ("part-of-speech embedding", "papers 000 and 003"),
}


def parameter_report(model: PreTrainedModel) -> str:
    """Count parameters by what they are for, one line each.

    Args:
        model: An infused one.

    Raises:
        ConfigError: A plain one.
    """
    added = infusion_parameters(model)
    names = {name for name, _ in added}
    backbone = _count(parameter for name, parameter in model.named_parameters() if name not in names)
    lines = [f"{'backbone':26}{backbone:>13,}"]
    for group, (title, beside) in _GROUPS.items():
        count = _count(parameter for name, parameter in added if name.split(".")[1] == group)
        if count:
            lines.append(f"{title:26}{count:>+13,}   ({beside})")
    total = _count(parameter for _, parameter in added)
    lines.append(f"{'added in all':26}{total:>+13,}   ({total / backbone:.2%} of the backbone)")
    return "\n".join(lines)


def _count(parameters: Iterable[nn.Parameter]) -> int:
    return sum(parameter.numel() for parameter in parameters)
