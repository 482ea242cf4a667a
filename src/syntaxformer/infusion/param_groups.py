"""`param_groups`: the parameters of a model for an optimizer, the infusion's with a rate of their own."""

from __future__ import annotations

from typing import Any

from torch import nn

from syntaxformer.infusion.plug_in import infusion_parameters


def param_groups(
    model: nn.Module, lr: float = 3e-5, infusion_lr: float | None = None, weight_decay: float = 0.0
) -> list[dict[str, Any]]:
    """Group the parameters that train, as optimizers of torch take them.

    Args:
        model: An infused model, also within PEFT's; or a plain one, whose parameters all have `lr`.
        lr: Learning rate of the host's parameters.
        infusion_lr: Of the infusion's; None for `lr`.
        weight_decay: Of matrices. As in transformers' `Trainer`, biases and norms have none; nor have gates.

    Returns:
        Groups of the host and of the infusion, each with decay and without, as far as there are such.
    """
    new = {id(one) for _, one in infusion_parameters(model)} if hasattr(model, "infusion") else set()
    own = lr if infusion_lr is None else infusion_lr
    groups: dict[tuple[bool, bool], dict[str, Any]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            is_new, is_bare = id(parameter) in new, parameter.dim() < 2 or "bias" in name
            group = {"lr": own if is_new else lr, "weight_decay": 0.0 if is_bare else weight_decay}
            groups.setdefault((is_new, is_bare), {"params": [], **group})["params"].append(parameter)
    return [groups[key] for key in sorted(groups)]
