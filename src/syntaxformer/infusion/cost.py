"""What an infusion costs in parameters, beside the plain model of the same shape.

Time and memory are measured by `benchmarks/infusion_cost.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForSeq2SeqLM, AutoModelForSequenceClassification, PreTrainedModel

from syntaxformer.base.errors import ConfigError
from syntaxformer.infusion.config import InfusionConfig
from syntaxformer.infusion.infusion import infusion_parameters
from syntaxformer.infusion.plug_in import infuse

PARTS = {
    "topical": ("topical attention", "Bai et al. (2021), BERT-base: 1.0 million"),
    "gates": ("gates", "ours"),
    "relation_bias": ("relation bias", "ours"),
    "lisa": ("LISA", "Bai et al. (2021), BERT-base, all layers: 0.6 million"),
    "embedding": ("factor embedding", "Sundararaman et al. (2019) and Patricia et al. (2023)"),
    "task": ("target tags and parses", "ours"),
}
_OF_SYNTAX = ("infusion", "factor_sizes", "lisa", "masks", "relation_bias", "target_pos", "parse_task")
"""Keys of the config of our translator."""


def parameter_counts(model: PreTrainedModel, plain: PreTrainedModel | None = None) -> dict[str, int]:
    """Count the parameters by purpose; those of the infusion, or all that `plain` has not, count as added.

    Raises:
        ConfigError: The model is not infused.
    """
    # A translator of ours may have nothing in attention, but factors or tasks.
    is_bare = plain is not None and getattr(model, "infusion", model) is None
    added = [] if is_bare else infusion_parameters(model)
    added += [
        (f"infusion.task.{key}", parameter)
        for key, parameter in model.named_parameters()
        if key.startswith(("target_tagger.", "parse_labels."))
    ]
    n_all, n_added = _count(model.parameters()), _count(parameter for _, parameter in added)
    n_plain = n_all - n_added if plain is None else _count(plain.parameters())
    counts = {"backbone": n_plain}
    for key, (title, _) in PARTS.items():
        counts[title] = _count(parameter for name, parameter in added if f"infusion.{key}." in name)
    counts |= {"source words and factors": n_all - n_plain - n_added, "added in all": n_all - n_plain}
    return {title: count for title, count in counts.items() if count}


def parameter_report(model: PreTrainedModel, plain: PreTrainedModel | None = None) -> str:
    """Count the parameters as `parameter_counts` does, one line each, beside the papers' numbers.

    Raises:
        ConfigError: The model is not infused.
    """
    counts = parameter_counts(model, plain)
    n_plain = counts.pop("backbone")
    share = f"{counts.get('added in all', 0) / n_plain:.2%} of the backbone"
    beside = dict(PARTS.values()) | {"added in all": share}
    lines = [f"{title:26}{count:>+13,}   ({beside.get(title, 'ours')})" for title, count in counts.items()]
    return "\n".join([f"{'backbone':26}{n_plain:>13,}", *lines])


def _count(parameters: Iterable[nn.Parameter]) -> int:
    return sum(parameter.numel() for parameter in parameters)


def twins(config: Any, infusion: InfusionConfig) -> tuple[PreTrainedModel, PreTrainedModel]:
    """Make a plain network and an infused one of a config, in fp32 with random weights.

    The config of our translator may say itself what is infused; `infusion` then is empty.

    Raises:
        ConfigError: The model is not supported or cannot be infused so.
    """
    auto = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForSequenceClassification
    if type(config) not in auto._model_mapping:
        raise ConfigError(f"model: expected a supported encoder, got one of the kind {config.model_type!r}.")
    plain, infused = deepcopy(config), deepcopy(config)
    if config.model_type == "syntaxformer":
        plain.update(dict.fromkeys(_OF_SYNTAX))
    elif not config.is_encoder_decoder:
        plain.num_labels = infused.num_labels = 2
        plain.problem_type = infused.problem_type = "single_label_classification"
    torch.manual_seed(0)
    models = [auto.from_config(of_twin, dtype=torch.float32) for of_twin in (plain, infused)]
    return models[0], models[1] if infusion.is_plain else infuse(models[1], infusion)
