"""`infuse`: put syntax into a pretrained encoder in place, by subclasses of the host's own classes.

The model stays the same object with the same parameter names; only one module is new, `model.infusion`. The
classes of its encoder, W_O and head are replaced by subclasses of the same name, whose `forward` takes syntax
as named arguments. There are no hooks. Modules are looked up when the model is called, so those that PEFT has
put in their place count. One thing cannot be passed as an argument: the host calls the head that takes the
final vector of the sentence with that vector alone, so for `let` the head looks the factors up by thread.
"""

from __future__ import annotations

import copy
import inspect
import logging
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from syntaxformer.base.errors import ConfigError
from syntaxformer.infusion.config import InfusionConfig
from syntaxformer.infusion.families import OWN, Family, Parts, embedded, final_of, parts_in, parts_of
from syntaxformer.infusion.infusion import (
    BATCH_KEYS,
    ForwardRecord,
    Infusion,
    OfThread,
    SyntaxBatch,
    check_fit,
)
from syntaxformer.infusion.inside_attention import IMPLEMENTATION
from syntaxformer.nn import SyntaxGate, TopicalAttention
from syntaxformer.nn.kernels.cross_entropy import IGNORED_LABEL

_log = logging.getLogger(__name__)


class TakesSyntax(nn.Module):
    """A model whose `forward` names the syntax of a batch among its arguments."""

    host: ClassVar[type]
    positional: ClassVar[tuple[str, ...]]


def wrap_module(module: nn.Module, by: type) -> None:
    """Replace a module's class in place by one that derives from `by` and from that class.

    The module keeps its parameters and their names. An inner module that was wrapped before the module was
    put around it, as PEFT does, is released.
    """
    if isinstance(module, by):
        return
    for inner in module.modules():
        if isinstance(inner, by):
            inner.__class__ = type(inner).host
    module.__class__ = _joined(by, type(module))


@cache
def _joined(by: type, host: type) -> type:
    """A class that derives from `by` and `host`, under the host's name, which people and libraries know."""
    content: dict[str, Any] = {
        "host": host,
        "by": by,
        "__module__": host.__module__,
        "__qualname__": host.__qualname__,
        "__doc__": host.__doc__,
        "__reduce__": _reduce,
    }
    if issubclass(by, TakesSyntax):

        def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
            return by.forward(self, *args, **kwargs)

        # The batch's arguments are named, so that no caller drops them as unknown.
        signature = inspect.signature(host.forward)
        known, keyword = signature.parameters, inspect.Parameter.KEYWORD_ONLY
        new = [inspect.Parameter(key, keyword, default=None) for key in BATCH_KEYS if key not in known]
        parameters = sorted([*known.values(), *new], key=lambda parameter: parameter.kind)
        forward.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        content["forward"] = forward
        positional = [p.name for p in known.values() if p.kind == p.POSITIONAL_OR_KEYWORD]
        content["positional"] = tuple(positional[1:])
    return type(host.__name__, (by, host), content)


def host_class(infused: type) -> type:
    """The class that a module had before it was wrapped."""
    return host_class(infused.host) if "by" in infused.__dict__ else infused


def _reduce(self: nn.Module) -> tuple[Any, ...]:
    """Pickle and copy a module by the importable classes that its own class derives from."""
    stack, host = [], type(self)
    while "by" in host.__dict__:
        stack.append(host.by)
        host = host.host
    return _rebuilt, (host, *reversed(stack)), self.__dict__


def _rebuilt(host: type, *stack: type) -> nn.Module:
    for by in stack:
        host = _joined(by, host)
    return host.__new__(host)


class FoldedOutput(nn.Module):
    """W_O, followed by W_V of topical attention behind the layer's gate.

    For a plain linear layer both are one product. Any other layer, such as LoRA's, runs as it is, and W_V
    takes its output.
    """

    host: ClassVar[type]
    maps_with: tuple[TopicalAttention, SyntaxGate | None]

    def forward(self, states: Tensor, *args: Any, is_mapped: bool = True, **kwargs: Any) -> Tensor:
        """Apply W_O, then W_V; W_O alone if `is_mapped` is false."""
        run = super().forward
        if not is_mapped:
            return run(states, *args, **kwargs)
        topical, gate_module = self.maps_with
        gate = None if gate_module is None else gate_module()
        if type(self).host is nn.Linear:
            return topical.project(states, self.weight, self.bias, gate)
        if gate is None or gate.ndim == 0:
            return topical.map(run(states, *args, **kwargs), gate)
        # One gate for each head: A ((1 - g) x) + W_V A (g x); the bias b uses the mean gate.
        columns = gate.repeat_interleave(states.shape[-1] // len(gate)).to(states.dtype)
        bias, mean = run(torch.zeros_like(states[..., :1, :]), *args, **kwargs), gate.mean().to(states.dtype)
        full = run(states * (1 - columns), *args, **kwargs) - mean * bias
        return full + topical.map(run(states * columns, *args, **kwargs) - (1 - mean) * bias, None)


@dataclass(eq=False)
class _Running:
    """The batch of a thread's forward pass, for the head, which does not get it as an argument."""

    batch: SyntaxBatch | None = None
    tensors: dict[str, Tensor | None] | None = None
    is_open = False


_running = OfThread(_Running)


class TaggedFinal(nn.Module):
    """The module that takes the final vector of the sentence, to which `let` first joins the tags."""

    def forward(self, states: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Join the tags, and go on as the host does; the head alone is refused.

        Raises:
            ValueError: The head is called by itself, without a batch.
        """
        batch = _running.state.batch
        if batch is None or batch.factor_ids is None:
            raise ValueError(
                "factor_ids: expected a batch with the tags of the sentence, which let needs, got a call of "
                "the head alone. Call the model as a whole."
            )
        final = states if states.ndim == 2 else states[:, 0]
        joined = cast("nn.Module", batch.infusion.embedding)(final, batch.factor_ids)
        states = joined if states.ndim == 2 else torch.cat([joined[:, None], states[:, 1:]], 1)
        return super().forward(states, *args, **kwargs)


class InfusedPart(nn.Module):
    """A model within an infused one: its encoder, or what lies between that and the head."""

    syntax_root: tuple[PreTrainedModel]

    def __init__(self, *_: Any, **__: Any) -> None:
        expected = f"{type(self).__name__}: expected a class of transformers"
        raise ValueError(f"{expected}, got that of a part. Load the whole infused model: syntaxformer.load.")

    def save_pretrained(self, *args: Any, **kwargs: Any) -> None:
        """Refuse to save a part, since only the whole model has the infusion.

        Raises:
            ValueError: This is not the whole model.
        """
        if self.syntax_root[0] is not self:
            raise ValueError(
                f"save_pretrained: expected the whole infused model, got its {type(self).__name__}, which "
                "would be saved without syntax. Save the whole; AutoModel loads it without its head."
            )
        super().save_pretrained(*args, **kwargs)


class InfusedEncoder(InfusedPart, TakesSyntax):
    """An encoder that takes the batch's syntax, checks it and passes it on to the layers."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run as the host does; `syntax`, `factor_ids`, `governors` and `first_pieces` are new arguments."""
        inputs, batch = _opened(self, self.syntax_root[0], args, kwargs)
        try:
            output = super().forward(**inputs, syntax_batch=batch)
        finally:  # layers may run again for gradients; a head outside the encoder still reads tags
            batch.seen.closed = True
            if not _running.state.is_open:
                _running.state.batch = None
        implementation, has_attended = self.config._attn_implementation, batch.seen.attended
        if torch.compiler.is_compiling():
            has_attended = implementation == IMPLEMENTATION
        if batch.infusion.attends and not has_attended:
            raise ValueError(
                f"attn_implementation: expected {IMPLEMENTATION!r} in the encoder of an infused model, got "
                f"{implementation!r}, which leaves its syntax out. Do not switch it."
            )
        return output


def _opened(
    stack: InfusedEncoder, root: PreTrainedModel, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[dict[str, Any], SyntaxBatch]:
    """The host's arguments by name, and the batch that its layers take."""
    tensors = {key: kwargs.pop(key, None) for key in BATCH_KEYS}
    if all(value is None for value in tensors.values()):
        tensors = _running.state.tensors or tensors  # heads of MPNet and DeBERTa hand nothing on
    record = kwargs.pop("syntax_seen", None)
    inputs = _by_name(stack, args, kwargs)
    pieces = inputs.get("input_ids")
    pieces = inputs["inputs_embeds"] if pieces is None else pieces
    for key, value in tensors.items():  # the host has put the choices of each example beneath each other
        if value is not None and value.ndim > BATCH_KEYS[key]:
            tensors[key] = value.flatten(0, 1)
    infusion = cast("Infusion", root.infusion)
    parts = parts_in(stack, infusion.family, final_of(root, infusion.family))
    wrap_parts(root, parts)
    extras = ("output_attentions", "output_hidden_states")
    for name in extras if stack.config is not root.config else ():  # as beside a decoder
        if inputs.get(name) is None and getattr(root.config, name):
            inputs[name] = True
    wants = inputs.get("output_attentions")
    wants = bool(stack.config.output_attentions if wants is None else wants)
    outputs = tuple(parts.output(layer) for layer in range(len(parts.layers)))
    mask = inputs.get("attention_mask")
    batch = infusion.prepare_batch(tensors, pieces.shape[:2], mask, wants, record, outputs)
    join = infusion.embedding
    if join is not None and not join.joins_final:  # kinds add and concat: the pieces become their embeddings
        pieces = inputs.pop("input_ids", None)
        if inputs.get("inputs_embeds") is None:
            inputs["inputs_embeds"] = embedded(stack, pieces, inputs)
        inputs["inputs_embeds"] = join(inputs["inputs_embeds"], batch.factor_ids)
    _running.state.batch = batch
    return inputs, batch


def _by_name(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """All arguments of a call of the module's `forward` by name, positional ones included."""
    names = type(module).positional
    if len(args) > len(names) or any(name in kwargs for name in names[: len(args)]):
        got = f"{len(args)} without names and {', '.join(kwargs)}"
        raise TypeError(f"{type(module).__name__}: expected each of {', '.join(names)} once, got {got}.")
    return {**dict(zip(names, args, strict=False)), **kwargs}


class InfusedModel(TakesSyntax):
    """An infused model with any head: it adds the loss of pointing at governors and saves its syntax."""

    infusion: Infusion
    accepts_loss_kwargs = True
    """For `Trainer`: `num_items_in_batch` is used, whatever the host does with it."""

    _has_warned_of_frozen = _has_warned_of_loss = False

    def _warn_of_frozen(self) -> None:
        """Say once that the rest of the model trains, but not its infusion."""
        trained = [parameter.requires_grad for parameter in self.infusion.parameters()]
        if trained and not any(trained) and any(parameter.requires_grad for parameter in self.parameters()):
            self._has_warned_of_frozen = True
            remedy = 'With PEFT, set modules_to_save=["infusion"].'
            _log.warning("infusion: its parameters are not trained, while others are. %s", remedy)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run as the host does; `syntax`, `factor_ids`, `governors` and `first_pieces` are new arguments.

        With `num_items_in_batch`, the labels of all batches of an update, the loss is this batch's share.
        """
        if "infusion" not in self._modules:
            raise ValueError(
                f"infusion: expected one in this class, got none. Make a plain {type(self).__name__} of "
                "transformers with this config, and infuse it."
            )
        seen, running = ForwardRecord(), _running.state
        running.batch, running.is_open = None, True
        running.tensors = {key: kwargs.get(key) for key in BATCH_KEYS}
        n_items = kwargs.pop("num_items_in_batch", None)
        try:
            output = super().forward(*args, **kwargs, syntax_seen=seen)
        finally:
            running = _running.state
            running.batch, running.tensors, running.is_open = None, None, False
        if self.training and not (self._has_warned_of_frozen or torch.compiler.is_compiling()):
            self._warn_of_frozen()
        labels = (_by_name(self, args, kwargs) if type(self).positional else kwargs).get("labels")
        output = _with_governor_loss(self, output, seen, labels)
        return output if labels is None or n_items is None else _share_of_update(output, labels, n_items)

    def _initialize_weights(self, module: nn.Module, *args: Any, **kwargs: Any) -> None:
        """Initialise our own modules as documented, whatever the host does to its layers."""
        if isinstance(module, Infusion):
            module.start_anew()
        else:
            super()._initialize_weights(module, *args, **kwargs)

    def set_attn_implementation(self, attn_implementation: Any, *args: Any, **kwargs: Any) -> None:
        """Refuse to replace our attention, which would switch syntax off; otherwise do as the host does.

        Raises:
            ValueError: The other attention would switch syntax off.
        """
        if self.infusion.attends and attn_implementation != IMPLEMENTATION:
            raise ValueError(
                f"attn_implementation: expected {IMPLEMENTATION!r}, the attention of this infused model, got "
                f"{attn_implementation!r}, which leaves its syntax out. Switch it before `infuse`."
            )
        super().set_attn_implementation(attn_implementation, *args, **kwargs)

    def save_pretrained(self, save_directory: str | Path, *args: Any, **kwargs: Any) -> None:
        """Save as the host does; `config.json` then names our model type, with `infusion.json` beside it."""
        from syntaxformer.infusion.infused_folder import save

        save(self, super().save_pretrained, save_directory, *args, **kwargs)

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Upload what `save_pretrained` writes, as `syntaxformer.push_to_hub` does."""
        from syntaxformer.infusion.model_card import push_to_hub

        with TemporaryDirectory() as folder:
            self.save_pretrained(folder)
            return push_to_hub(folder, repo_id, **options)

    @classmethod
    def from_pretrained(cls, folder: str | Path, *args: Any, **kwargs: Any) -> PreTrainedModel:
        """Load a folder as `syntaxformer.load` does, into this class."""
        from syntaxformer.infusion.infused_folder import from_folder

        return from_folder(folder, *args, model_class=host_class(cls), **kwargs)


def _share_of_update(output: Any, labels: Tensor, n_items: Tensor | int) -> Any:
    """Turn the loss, a mean over the batch's labels, into its share of the mean over those of an update."""
    mean = output[0] if isinstance(output, tuple) else output.loss
    n_labels = (labels != IGNORED_LABEL).sum()
    share = torch.where(n_labels > 0, mean, 0.0) * n_labels / n_items  # of no labels the mean is NaN
    if isinstance(output, tuple):
        return (share, *output[1:])
    output["loss"] = share
    return output


def _with_governor_loss(model: InfusedModel, output: Any, seen: ForwardRecord, labels: Tensor | None) -> Any:
    """Add the loss of pointing at governors.

    If the output has no loss, the caller must add this one; it then keeps its gradients.
    """
    loss = seen.governor_loss()
    # Only in training, so that losses of evaluation can be compared between models.
    if loss is not None and model.training:
        weighted = model.infusion.config.lisa.weight * loss
        if isinstance(output, tuple):
            has_loss = labels is not None
            output = (output[0] + weighted, *output[1:]) if has_loss else output
        elif has_loss := getattr(output, "loss", None) is not None:
            output["loss"] = output["loss"] + weighted
        if not has_loss and loss.requires_grad:
            if not model._has_warned_of_loss:
                _warn_of_loss()
            model._has_warned_of_loss = True
            return output
    seen.governor_losses = {
        layer: [loss.detach() for loss in losses] for layer, losses in seen.governor_losses.items()
    }
    return output


@torch.compiler.assume_constant_result
def _warn_of_loss() -> None:
    """Say that the caller has a loss to add; a compiler says so while it makes its graph."""
    _log.warning(
        "lisa: expected a model that computes its loss, to add that of pointing at governors, got "
        "an output without one. Add infusion.config.lisa.weight * infusion.seen.governor_loss() "
        "to your loss."
    )


def wrap_parts(model: PreTrainedModel, parts: Parts) -> None:
    """Wrap W_O of the layers with topical attention, and the head for let, wherever they are now."""
    infusion = cast("Infusion", model.infusion)
    for layer in range(len(parts.layers)) if infusion.attends else ():
        parts.attention(layer).syntax_layer = layer  # type: ignore[assignment]
        if (topical := infusion.topical_of(layer)) is not None:
            output = parts.output(layer)
            wrap_module(output, FoldedOutput)
            gate = dict(infusion.gates.items()).get(str(layer))
            if getattr(output, "maps_with", None) != (topical, gate):
                output.maps_with = (topical, gate)
    if infusion.embedding is not None and infusion.embedding.joins_final and parts.final is not None:
        wrap_module(parts.final, TaggedFinal)


def infuse(
    model: PreTrainedModel, config: InfusionConfig | str, family: Family | None = None
) -> PreTrainedModel:
    """Infuse an encoder with syntax.

    Its `forward` then takes, as the config needs, `syntax` (uint8 `[batch, trees, pieces, pieces]`),
    `factor_ids` (int64 `[batch, pieces, factors]`) and `governors` (int64 `[batch, pieces]`), as
    `SyntaxCollator` makes them. With the preset "preserving" the model computes the same as before until it
    is trained. New parameters are fp32, even in a bf16 or fp16 model, where small steps from 1 would be lost.
    The model gets a copy of its config, so other models that share the config do not change.

    Args:
        model: A model of a family in `families.FAMILIES`, or of `family`, with any head or none; or a PEFT
            model around one, whose active adapter then trains and saves the infusion.
        config: What to infuse, or a shorthand for it such as "masks,pos_add".
        family: Where the modules of another kind of model are, which must call transformers' attention
            interface. It is saved with the model.

    Returns:
        The same object.

    Raises:
        ConfigError: The model is not supported or already infused; it lacks a layer, head or module; its
            family does not take the kind of embedding; an open factor has no values; its `forward` takes no
            `**kwargs`; or the kind is `let` and no head takes the final vector of the sentence.

    Source: Bai et al. (2021), "Syntax-BERT"; Sundararaman et al. (2019); Strubell et al. (2018).
    """
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    if getattr(inner, "infusion", None) is not None:
        raise ConfigError(
            f"model: expected one that is not infused, got {type(inner).__name__} with an infusion. "
            "Load the plain checkpoint again."
        )
    config = InfusionConfig.of(config)
    parts = parts_of(inner, family)
    check_fit(config, parts, inner)
    is_own = parts.family == OWN
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        holder = _infuse_own(inner, config) if is_own else _infuse_host(inner, config, parts)
    if holder.infusion is None:  # nothing to infuse
        return model
    weight = (inner if is_own else parts.stack).get_input_embeddings().weight
    exact = torch.promote_types(weight.dtype, torch.float32)
    holder.infusion.to(weight.device, exact).train(inner.training)
    inner._keep_in_fp32_modules_strict = {*(inner._keep_in_fp32_modules_strict or ()), "infusion"}
    if inner is not model:
        _train_with_adapter(model, holder)
    return model


def _infuse_host(inner: PreTrainedModel, config: InfusionConfig, parts: Parts) -> Any:
    """Give a foreign model its infusion, and replace its classes; return what holds the infusion."""
    inner.infusion = Infusion(config, parts)
    # The model gets a copy of its config, and an encoder beside a decoder one of its own.
    of_stack: dict[int, Any] = {}  # copies by the number of what they are copied from
    of_model = {} if inner.config.is_encoder_decoder else of_stack
    in_stack = set(parts.stack.modules())
    for module in inner.modules():
        if isinstance(own_config := getattr(module, "config", None), PreTrainedConfig):
            module.config = copy.deepcopy(own_config, of_stack if module in in_stack else of_model)  # type: ignore[assignment]
    if inner.infusion.attends:
        parts.stack.config._attn_implementation = IMPLEMENTATION
    for inner_model in [module for module in inner.modules() if isinstance(module, PreTrainedModel)]:
        if inner_model is parts.stack or (inner_model is not inner and parts.stack in inner_model.modules()):
            inner_model.syntax_root = (inner,)  # type: ignore[assignment]
            wrap_module(inner_model, InfusedEncoder if inner_model is parts.stack else InfusedPart)
    wrap_module(inner, InfusedModel)
    wrap_parts(inner, parts)
    return inner


def _infuse_own(model: Any, config: InfusionConfig) -> Any:
    """Infuse our own translator, whose config says with what; return what holds the infusion."""
    shared, config_of_model = model.config, copy.deepcopy(model.config)
    for name, section in config.sections_of_translator.items():
        setattr(config_of_model, name, section)
    for module in model.modules():
        if getattr(module, "config", None) is shared:
            module.config = config_of_model
    model.encoder.infuse(config)
    return model.encoder


def _train_with_adapter(peft_model: Any, holder: Any) -> None:
    """Make PEFT's active adapter train and save the infusion, as if `modules_to_save` had named it."""
    from peft.utils import ModulesToSaveWrapper

    name = peft_model.active_adapter
    adapter = peft_model.peft_config[name]
    adapter.modules_to_save = [*(adapter.modules_to_save or ()), "infusion"]
    holder.infusion = ModulesToSaveWrapper(holder.infusion, name)
    holder.infusion.set_adapter(name)
