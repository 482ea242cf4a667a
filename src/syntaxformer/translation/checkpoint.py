"""A pretrained translator that training starts from: where it is, its network, its adapters, its loss.

Marian, mBART, M2M100, NLLB, BART, Pegasus, T5 and mT5, in a folder of Hugging Face's layout; see
`checkpoint_pieces` for their tokenizers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import copy
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForSeq2SeqLM, PreTrainedModel

from syntaxformer.base.config import read_yaml
from syntaxformer.base.downloads import say_download
from syntaxformer.base.errors import BackendMissingError, CheckpointError, ConfigError, SyntaxformerError
from syntaxformer.base.files import fetched, read_json
from syntaxformer.infusion import INFUSION_FILE
from syntaxformer.infusion import load as load_infused
from syntaxformer.infusion.config import InfusionConfig
from syntaxformer.nn.kernels.cross_entropy import IGNORED_LABEL, cross_entropy
from syntaxformer.runs.checkpoints import WEIGHTS, load_tensors, load_weights
from syntaxformer.runs.loading import (
    TRANSLATOR,
    checked_checkpoint,
    checkpoint_errors,
    quiet_loading,
    verify_folder,
)
from syntaxformer.translation.checkpoint_pieces import Checkpoint, host_config
from syntaxformer.translation.decoding import own_generation
from syntaxformer.translation.model import OF_INFUSION, TranslationOutput, shift_right

_OF_TASKS = re.compile(r"target_tagger\.|parse_labels\.")
_MAY_LACK = re.compile(f"{OF_INFUSION.pattern}|{_OF_TASKS.pattern}")

ADAPTER = "default"
"""PEFT's name of the one adapter that is trained."""


@cache
def local_folder(name: str) -> str:
    """The folder of a checkpoint, fetched once from the Hub if there is none of that name here."""
    try:
        say_download(name)
        return str(fetched(name))
    except CheckpointError as error:
        raise ConfigError(f"model.init_from: {error}") from error


def own_sections(path: str) -> dict[str, Any]:
    """Sections `model` and `infusion` of the recipe of our own translator's folder."""
    try:
        verify_folder(Path(path), TRANSLATOR)
        content = read_yaml(Path(path) / "recipe.yaml")
        if not all(isinstance(content.get(name), dict) for name in ("model", "infusion")):
            raise CheckpointError(f"{path}/recipe.yaml: expected sections model and infusion, got others.")
    except SyntaxformerError as error:
        raise ConfigError(str(error)) from error
    return {"model": {**content["model"], "init_from": path}, "infusion": content["infusion"]}


def host_sections(path: str) -> dict[str, Any]:
    """Of a pretrained translator: the section `model` of a recipe, its dropout, what it is infused with."""
    config = host_config(path)
    common = getattr(config, "dropout", getattr(config, "dropout_rate", 0.0))
    names = ("dropout", "attention_dropout", "activation_dropout")
    model = {"init_from": path, **{name: getattr(config, name, common) for name in names}}
    dropouts = {name for name in names if hasattr(config, name)} | {"dropout"}
    if (infusion := stored_infusion(path)) is not None:
        embedding = infusion.embedding and infusion.embedding.model_copy(update={"values": None})
        infusion = infusion.model_copy(update={"embedding": embedding, "seed": 0})
    return {"kind": config.model_type, "dropouts": dropouts, "model": model, "infusion": infusion}


def normalizes_punctuation(path: str) -> bool:
    """Whether a checkpoint was trained on text with Moses' plain punctuation: NLLB, and what came of it."""
    stored = Path(path) / TRANSLATOR
    if stored.is_file():
        return bool(read_json(stored).get("normalize_punctuation", False))
    config = Path(path) / "tokenizer_config.json"
    return config.is_file() and "Nllb" in str(read_json(config).get("tokenizer_class"))


def stored_infusion(path: str) -> InfusionConfig | None:
    """What a checkpoint is infused with; None for a plain one."""
    if not (Path(path) / INFUSION_FILE).is_file():
        return None
    return InfusionConfig.from_json(read_json(Path(path) / INFUSION_FILE)["infusion"], path)


def load_pretrained(checkpoint: Checkpoint, dropouts: Mapping[str, float]) -> PreTrainedModel:
    """The network of a checkpoint in fp32, with rows for all pieces: new ones are the mean row."""
    path = checkpoint.path
    rates = {**dropouts, "dropout_rate": dropouts["dropout"]}  # T5 has one for all
    rates |= {"encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0}  # no key tells of them
    with checkpoint_errors(path, "model.init_from: expected a translator"), quiet_loading():
        config = AutoConfig.from_pretrained(path, trust_remote_code=False)
        host = getattr(config, "host", config)
        for name, rate in rates.items():
            if hasattr(host, name):
                setattr(host, name, rate)
        read: Any = load_infused
        if not (Path(path) / INFUSION_FILE).is_file():
            checked_checkpoint(path, AutoModelForSeq2SeqLM)
            read = AutoModelForSeq2SeqLM.from_pretrained
        options = {"use_safetensors": True, "output_loading_info": True, "dtype": torch.float32}
        model, report = read(path, config=config, **options)
    if missing := sorted(report["missing_keys"])[:3]:
        raise ConfigError(
            f"model.init_from: expected all weights of a {model.config.model_type} model at "
            f"{path}, missing: {', '.join(missing)}."
        )
    if checkpoint.n_pieces > checkpoint.n_known:
        _lengthen(model, checkpoint.n_pieces, checkpoint.n_known)
    model.config.decoder_start_token_id = checkpoint.start_id
    model._has_warned_of_loss = True  # `host_output` adds the loss of pointing at governors
    model.generation_config = own_generation(checkpoint.target, checkpoint.start_id)
    return model


@torch.no_grad()
def _lengthen(model: PreTrainedModel, n_pieces: int, n_known: int) -> None:
    """A row for each new piece, which begins as the mean of those that the checkpoint knows."""
    if n_pieces > len(model.get_input_embeddings().weight):
        is_tied, config = model.config.tie_word_embeddings, model.config
        # mT5 and T5 1.1 have an output layer of their own, which would be tied again by their config.
        same = model.get_output_embeddings().weight is model.get_input_embeddings().weight
        config.tie_word_embeddings = is_tied and same
        with quiet_loading():
            model.resize_token_embeddings(n_pieces, mean_resizing=False)
        config.tie_word_embeddings = is_tied
    tables: Any = (model.get_input_embeddings().weight, model.get_output_embeddings().weight)
    for table in {id(table): table for table in tables}.values():
        table[n_known:n_pieces] = table[:n_known].mean(0)
    if (bias := getattr(model, "final_logits_bias", None)) is not None:  # which is not trained
        bias[:, n_known:n_pieces] = bias[:, :n_known].mean()


def take_weights(model: nn.Module, start: Checkpoint) -> None:
    """Weights of another translator of ours; new pieces begin as the mean row, heads of tasks anew."""
    weights, current = load_tensors(Path(start.path) / WEIGHTS), model.state_dict()
    weights = {name: tensor for name, tensor in weights.items() if not _OF_TASKS.match(name)}
    for name, tensor in weights.items():
        if name in current and len(current[name]) > len(tensor) == start.n_known:
            n_new = len(current[name]) - len(tensor)
            weights[name] = torch.cat([tensor, tensor.mean(0, keepdim=True).expand(n_new, *tensor.shape[1:])])
    try:
        load_weights(model, weights, Path(start.path), may_lack=_MAY_LACK)
    except CheckpointError as error:
        raise ConfigError(f"model.init_from: {error}") from error


def add_adapters(
    model: PreTrainedModel, r: int, alpha: int, dropout: float, targets: Sequence[str] | None
) -> Any:
    """Put low-rank adapters into the linear maps of a pretrained translator, which keeps its class.

    Adapters and infusion are trained from there on. What is returned is PEFT's object, which merges them.

    Source: Hu et al. (2022), "LoRA".
    """
    try:
        from peft import LoraConfig
        from peft.tuners.lora import LoraModel
    except ImportError as error:
        raise BackendMissingError("PEFT, for training.lora,", "python -m pip install peft") from error
    output = model.get_output_embeddings()
    names = [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and module is not output and "infusion" not in name.split(".")
    ]
    known = sorted({name.rpartition(".")[2] for name in names})
    if unknown := [target for target in targets or () if target not in known]:
        raise ConfigError(
            f"training.lora.targets: expected some of {', '.join(known)}, got {', '.join(unknown)}."
        )
    chosen = [name for name in names if targets is None or name.rpartition(".")[2] in targets]
    config = LoraConfig(r=r, lora_alpha=alpha, lora_dropout=dropout, target_modules=chosen, bias="none")
    adapters = LoraModel(model, config, ADAPTER)
    if hasattr(model, "infusion"):
        model.infusion.requires_grad_(True)
    return adapters


def save_adapter(model: PreTrainedModel, adapters: Any, folder: Path) -> None:
    """Write the adapters, and the infusion with them, as PEFT reads them."""
    folder.mkdir()
    config = copy(adapters.peft_config[ADAPTER])
    config.modules_to_save = ["infusion"] if hasattr(model, "infusion") else None
    config.task_type, config.inference_mode = "SEQ_2_SEQ_LM", True
    config.save_pretrained(str(folder))
    weights = {
        f"base_model.model.{name.replace(f'.{ADAPTER}.', '.')}": tensor.contiguous()
        for name, tensor in model.state_dict().items()
        if ".lora_" in name or name.startswith("infusion.")
    }
    save_file(weights, str(folder / "adapter_model.safetensors"))


def host_output(
    model: Any, batch: dict[str, Tensor], smoothing: float = 0.0, n_items: Tensor | int | None = None
) -> TranslationOutput:
    """Loss of a batch, as `SyntaxTransformer` gives it: per target piece; in training with LISA's.

    The model is a pretrained translator, plain or infused, perhaps wrapped for several processes. `smoothing`
    is the share of probability spread over all pieces; `n_items` None divides by the batch's target pieces.
    """
    inner = getattr(model, "module", model)
    labels = batch["labels"]
    inputs = {name: tensor for name, tensor in batch.items() if name != "labels"}
    output = model(**inputs, decoder_input_ids=shift_right(labels, inner.config), use_cache=False)
    n_pieces = (labels != IGNORED_LABEL).sum()
    total, tallies = cross_entropy(output.logits, labels, smoothing), None
    infusion = getattr(inner, "infusion", None)
    if infusion is not None and infusion.config.lisa is not None:
        hits, pointing = infusion.seen.governor_hits(), infusion.seen.governor_loss()
        tallies = {"governor_accuracy": hits[max(hits)]} if hits else None
        if inner.training and infusion.config.lisa.supervised and pointing is not None:
            total = total + n_pieces * infusion.config.lisa.weight * pointing
    loss = total / (n_pieces if n_items is None else n_items)
    return TranslationOutput(loss=loss, logits=output.logits, tallies=tallies)
