"""`Infusion`: all parameters that syntax adds to an encoder; the syntax of a batch, and what a pass records.

It does not depend on any encoder. For each forward pass a host opens a `SyntaxBatch` and passes it to its
layers as an argument, so that gradient checkpointing, which runs a layer again later, uses the same one.
`inside_attention` says what happens inside attention; `plug_in` treats foreign hosts, and our own host is the
translator's encoder.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from syntaxformer.base.errors import ConfigError
from syntaxformer.infusion.config import IN_ATTENTION, InfusionConfig, layer_problems
from syntaxformer.infusion.families import OWN, Parts
from syntaxformer.nn import (
    ENCODER_KINDS,
    BiaffineHead,
    FactorEmbedding,
    RelationBias,
    RelationIndex,
    SyntaxGate,
    TopicalAttention,
    governor_hits,
)
from syntaxformer.nn.infused_embedding import REGISTER
from syntaxformer.nn.kernels.on_cpu import takes_cpu_path
from syntaxformer.nn.relation_index import check_ids

BATCH_KEYS = {"syntax": 4, "factor_ids": 3, "governors": 2, "first_pieces": 2, "syntax_settings": 2}
"""Arguments of `forward` with the syntax of a batch, and for which settings it was made → number of axes."""

_SHARED = "shared"


_ByLayer = dict[int, list[Tensor]]


@dataclass(eq=False)
class ForwardRecord:
    """What a forward pass recorded, by layer; a layer that runs several times (ALBERT) has several entries.

    Logits are scaled and biased, but -inf outside the window of a local layer, `[batch, heads, pieces,
    pieces]` as the collapsed attention. They, the weights and the passes are there only while recording.
    """

    weights: _ByLayer = field(default_factory=dict)  # α of the sub-networks, [batch, pieces, networks]
    attention: _ByLayer = field(default_factory=dict)
    logits: _ByLayer = field(default_factory=dict)
    passes: list[int] = field(default_factory=list)  # the layers in the order in which they ran
    governor_losses: _ByLayer = field(default_factory=dict)
    pointed_at: _ByLayer = field(default_factory=dict)  # [batch, pieces], if governors are given
    targets: Tensor | None = None  # position that the biaffine head should point at, [batch, pieces]
    counted: Tensor | None = None  # first pieces of words, [batch, pieces]; None counts all pieces
    attended: bool = False  # whether any layer's attention was ours
    closed: bool = False  # the pass is over; layers that run again for gradients record nothing

    def add(self, kind: str, layer: int, value: Tensor) -> None:
        """Record a value of a layer."""
        if not self.closed:
            getattr(self, kind).setdefault(layer, []).append(value)
            if kind == "attention":
                self.passes.append(layer)

    def of_all_layers(self, kind: str) -> list[Tensor]:
        """All recorded values of one kind, layer by layer."""
        return [value for of_layer in getattr(self, kind).values() for value in of_layer]

    def governor_loss(self) -> Tensor | None:
        """Mean loss over the layers that point at governors; None if nothing was supervised."""
        losses = self.of_all_layers("governor_losses")
        return torch.stack(losses).mean() if losses else None

    def governor_hits(self) -> dict[int, tuple[Tensor, Tensor]]:
        """Count the right words and all words with a governor, by layer; their quotient is the UAS."""
        if self.targets is None:
            return {}
        return {
            layer: governor_hits(of_layer[-1], self.targets, self.counted)
            for layer, of_layer in self.pointed_at.items()
        }


@dataclass(eq=False)
class SyntaxBatch:
    """The syntax of a batch, and what else the layers need; each layer gets it as an argument."""

    infusion: Infusion  # the model's at the time of the call: PEFT may have replaced it by a copy
    relations: Tensor | None  # uint8 [batch, trees, pieces, pieces]; None if nothing reads them
    key_mask: Tensor | None  # True for pieces that are not padding, [batch, pieces]; None for all
    factor_ids: Tensor | None  # [batch, pieces, factors]
    governors: Tensor | None  # position of each piece's governor, [batch, pieces]
    wants_attention: bool  # whether layers also return their collapsed attention; each then attends twice
    seen: ForwardRecord
    outputs: tuple[nn.Module, ...] = ()  # W_O of each layer of a foreign host at the time of the call
    with_gradient: bool = field(default_factory=torch.is_grad_enabled)
    _indices: dict[bool, RelationIndex] = field(default_factory=dict)

    @property
    def max_distance(self) -> int:
        """D of the relations."""
        options = self.infusion.config.tree_options
        return options.max_distance if options else 1

    def relations_within(self, window: Tensor | None) -> Tensor:
        """Relations within the window of local attention, `[batch, 1, pieces, pieces]`; None: all."""
        relations = cast("Tensor", self.relations)
        return relations if window is None else relations * window

    def index(self, window: Tensor | None) -> RelationIndex:
        """Index of `relations_within` a window, made once for all layers that have one, or for all others."""
        is_local = window is not None
        if is_local not in self._indices:
            relations = self.relations_within(window)
            self._indices[is_local] = RelationIndex.of(relations, self.key_mask, self.max_distance)
        return self._indices[is_local]


class OfThread(threading.local):
    """An object of each thread's own; a compiler loses what is stored in the `threading.local` itself."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.state = make()


@dataclass(eq=False)
class _Last:
    """What the last forward pass of a thread recorded; nothing is computed from it."""

    seen: ForwardRecord = field(default_factory=ForwardRecord)


class Infusion(nn.Module):
    """The parameters that an `InfusionConfig` adds to one encoder.

    Each module reads its parameters only in its own `forward`, because `accelerate` moves weights to a device
    just before their module runs.

    Raises:
        ConfigError: The encoder does not have a layer or head that the config names.
    """

    def __init__(self, config: InfusionConfig, parts: Parts) -> None:
        super().__init__()
        n_layers, n_heads = len(parts.layers), parts.n_heads
        if problems := layer_problems(config, n_layers, n_heads, "the encoder"):
            raise ConfigError(problems)
        self.config, self.family = config.fitted(), parts.family
        self._batch_numbers, self._has_checked = self.config.batch_numbers, False
        self._last = OfThread(_Last)
        self.records_weights = self.records_attention = False
        masks, bias, lisa = config.masks, config.relation_bias, config.lisa
        self.inject = lisa.inject if lisa else None
        self.left_out: tuple[str, ...] = ()

        self.masked_layers = _layers_of(masks, n_layers)
        self.topical, self.gates = nn.ModuleDict(), nn.ModuleDict()
        if masks and masks.topical:
            for owner in map(str, self.masked_layers) if masks.per_layer else [_SHARED]:
                self.topical[owner] = TopicalAttention(parts.output(0).out_features, n_heads)
        if masks and config.preset_of_masks == "preserving":
            for layer in self.masked_layers:
                self.gates[str(layer)] = SyntaxGate(n_heads if masks.gate == "head" else None)
        self.relation_bias, self.lisa = nn.ModuleDict(), nn.ModuleDict()
        for layer in _layers_of(bias, n_layers):
            shape = (n_heads, len(bias.planes), bias.max_distance, bias.init, bias.sigma)
            self.relation_bias[str(layer)] = RelationBias(*shape)
        for layer in _layers_of(lisa, n_layers, [n_layers - 1]):
            self.lisa[str(layer)] = _biaffine_head(parts, layer, lisa)
        self.layers = {*self.masked_layers, *map(int, [*self.relation_bias, *self.lisa])}

        self.embedding = None
        if (embedding := self.config.embedding) is not None:
            joins_final = ENCODER_KINDS[embedding.kind].join == "final"
            table = cast("Any", parts.stack).get_input_embeddings
            width = parts.output(0).out_features if joins_final else table().embedding_dim
            sizes = {name: len(vocabulary) for name, vocabulary in self.config.vocabularies.items()}
            self.embedding = FactorEmbedding(embedding.plan(width, ENCODER_KINDS), sizes)

    @torch.no_grad()
    def start_anew(self) -> None:
        """Initialise all parameters with `config.seed`, except those loaded from a checkpoint.

        transformers marks what it has loaded, and asks a model to initialise the rest.
        """
        loaded = [p for p in self.parameters() if getattr(p, "_is_hf_initialized", False)]
        loaded_values = [parameter.clone() for parameter in loaded]
        groups = (self.topical, self.gates, self.relation_bias, self.lisa)
        modules = [module for group in groups for module in group.values()]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.config.seed)
            for module in [*modules, *([self.embedding] if self.embedding else [])]:
                cast("Any", module).reset_parameters()
        for parameter, values in zip(loaded, loaded_values, strict=True):
            parameter.copy_(values)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what was last recorded: its tensors belong to a graph that cannot be copied."""
        return {name: value for name, value in self.__dict__.items() if name != "_last"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._last = OfThread(_Last)

    @property
    def seen(self) -> ForwardRecord:
        """What this thread's last forward pass recorded."""
        return self._last.state.seen

    @property
    def attends(self) -> bool:
        """Whether any layer uses our attention; otherwise only the embeddings can differ from the host's."""
        return bool(self.layers)

    @property
    def includes_full(self) -> bool:
        """Whether full attention is one of the sub-networks."""
        return self.config.masks is not None and self.config.preset_of_masks != "paper"

    def topical_of(self, layer: int) -> TopicalAttention | None:
        """Topical attention of a layer; None for a summation."""
        if layer not in self.masked_layers or not self.topical:
            return None
        owner = str(layer) if self.config.masks.per_layer else _SHARED
        return cast("TopicalAttention", self.topical[owner])

    def gate_of(self, layer: int) -> Tensor | None:
        """The layer's gate g, from -1 to 1; None without gates."""
        return self.gates[str(layer)]() if str(layer) in self.gates else None

    def leave_out(self, *names: str) -> None:
        """Switch off trees or kinds of relation, even in a trained model; without names, they are on again.

        Those that the config is `without` stay off: the model never learned to use them.

        Args:
            names: Some of the model's trees, parent, child, sibling and pair; without the three in the middle
                where all trees are relations of the user's own.

        Raises:
            ValueError: The model has no such tree or kind, or no relation would be left.
        """
        options = self.config.tree_options
        omitted_trees = set(options.trees) - set(options.used_trees) if options else set()
        known = [name for name in options.omissible if name not in omitted_trees] if options else []
        if unknown := [name for name in names if name not in known]:
            expected = f"some of {', '.join(known)}" if known else "no name, as the model reads no tree"
            raise ValueError(f"leave_out: expected {expected}, got {', '.join(unknown)}.")
        if options is not None and not any(options.active_networks((*options.without, *names))):
            raise ValueError(f"leave_out: expected a relation to be left, got {', '.join(names)}.")
        self.left_out = names

    def inject_governors(self, is_on: bool = True) -> None:
        """Let LISA heads look at the batch's governors outside training; PEFT passes this call on."""
        self.inject = "gold" if is_on else None

    @property
    def active(self) -> tuple[bool, ...] | None:
        """Which sub-networks take part, not counting that of full attention; None for all."""
        options = self.config.tree_options
        networks = options.active_networks((*options.without, *self.left_out)) if options else [True]
        return None if all(networks) else tuple(networks)

    @contextmanager
    def record(self, attention: bool = False) -> Iterator[Infusion]:
        """Record the weights of the sub-networks in all forward passes inside the `with` block.

        Read `seen.weights[layer][-1]`, α `[batch, pieces, networks]` with the sub-network
        of full attention last, and `seen.attention[layer][-1]`, `[batch, heads, pieces, pieces]`. If this
        collapsed `attention` is recorded as well, each layer attends twice.
        """
        before = self.records_weights, self.records_attention
        self.records_weights, self.records_attention = True, attention
        try:
            yield self
        finally:
            self.records_weights, self.records_attention = before

    def prepare_batch(
        self,
        tensors: Mapping[str, Tensor | None],
        shape: torch.Size,
        attention_mask: Tensor | None,
        wants_attention: bool = False,
        seen: ForwardRecord | None = None,
        outputs: tuple[nn.Module, ...] = (),
    ) -> SyntaxBatch:
        """Begin a forward pass; `wants_attention`, `seen` and `outputs` are those of its `SyntaxBatch`.

        `tensors` has those of the batch by their names in `BATCH_KEYS`, and `shape` the numbers of sentences
        and of pieces. `attention_mask` is 0 for padding; None if there is no padding.

        Raises:
            ValueError: The batch lacks syntax that the model is infused with, was made for other settings, or
                its shape is wrong.
        """
        self._check_batch(tensors, shape)
        if attention_mask is not None and attention_mask.ndim != 2:
            problem = f"attention_mask: expected shape [batch, pieces], got {list(attention_mask.shape)}."
            raise ValueError(f"{problem} An infused model takes only a mask of padding.")
        relations = _as_bytes(cast("Tensor", tensors["syntax"])) if self.config.tree_options else None
        if relations is not None and self.relation_bias:  # a larger id would be read from the next tree's
            check_ids(relations, 3 * self.config.relation_bias.max_distance + 2)
        seen = seen or ForwardRecord()
        seen.targets, seen.counted = tensors.get("governors"), tensors.get("first_pieces")
        self._last.state.seen = seen
        return SyntaxBatch(
            infusion=self,
            relations=relations,
            key_mask=None if attention_mask is None else attention_mask != 0,
            factor_ids=tensors.get("factor_ids"),
            governors=tensors.get("governors"),
            wants_attention=wants_attention,
            seen=seen,
            outputs=outputs,
        )

    def _check_batch(self, tensors: Mapping[str, Tensor | None], shape: torch.Size) -> None:
        """Check that the batch brings what the infusion needs, in the shape of its pieces."""
        batch, n_pieces = shape
        options, embedding = self.config.tree_options, self.embedding
        injects = self.inject == "gold" and not self.training and len(self.lisa) > 0
        required = {
            "syntax": [batch, len(options.planes), n_pieces, n_pieces] if options else None,
            "factor_ids": [batch, n_pieces, len(embedding.sizes)] if embedding else None,
            "governors": [batch, n_pieces] if injects else None,
        }
        for name, expected in required.items():
            if expected is not None and tensors.get(name) is None:
                why = "which the model is infused with"
                remedy = "give raw text to syntaxformer.pipeline or to a Translator"
                if name == "governors":
                    why = "as lisa.inject is gold"
                    remedy = "switch it off: infusion.inject_governors(False)"
                raise ValueError(
                    f"{name}: expected a tensor of shape {expected}, {why}, got none. "
                    f"Make batches with SyntaxCollator, or {remedy}."
                )
        shapes = required | {"governors": [batch, n_pieces], "first_pieces": [batch, n_pieces]}
        shapes |= {"syntax_settings": [batch, len(self._batch_numbers)]}
        for name, expected in shapes.items():
            tensor = tensors.get(name)
            if expected is not None and tensor is not None and list(tensor.shape) != expected:
                raise ValueError(f"{name}: expected shape {expected}, got {list(tensor.shape)}.")
        if (settings := tensors.get("syntax_settings")) is not None:
            self._check_settings(settings)

    def _check_settings(self, made_for: Tensor) -> None:
        """Refuse a batch for another infusion; a GPU is waited for once, and later aborts by itself."""
        is_read = takes_cpu_path(made_for.device) or not (self._has_checked or made_for.is_meta)
        if torch.compiler.is_compiling() or not is_read:
            problem = "syntax_settings: expected a batch for this model's infusion, got another."
            torch._assert_async((made_for.sum(1) == sum(self._batch_numbers)).all(), problem)
            return
        rows, self._has_checked = made_for.unique(dim=0).tolist(), True
        settings = self.config.batch_settings.items()
        for (name, expected), mine, *numbers in zip(settings, self._batch_numbers, *rows, strict=True):
            if other := [number for number in numbers if number != mine]:
                got = other[0] if isinstance(expected, int) else "another"
                raise ValueError(
                    f"{name}: expected a batch for that of the model, {str(expected)[:80]}, got {got}. "
                    "Make it with a collator of the model: SyntaxCollator(tokenizer, model)."
                )


def _layers_of(section: Any, n_layers: int, default: Sequence[int] | None = None) -> list[int]:
    """Layers that a section names, or else the default or all; none if the section is off."""
    if section is None:
        return []
    if section.layers is not None:
        return sorted(set(section.layers))
    return list(range(n_layers) if default is None else default)


def _biaffine_head(parts: Parts, layer: int, lisa: Any) -> BiaffineHead:
    """A biaffine head; in the place of another one, it starts as the scaled dot product of that."""
    width = parts.output(layer).in_features
    if lisa.head == "added":
        return BiaffineHead(width, d_output=parts.output(layer).out_features)
    d_head = width // parts.n_heads
    scaling = getattr(parts.attention(layer), "scaling", d_head**-0.5)
    return BiaffineHead(d_head, d_head if lisa.keys == "head" else width, scaling)


def check_fit(config: InfusionConfig, parts: Parts, model: nn.Module) -> None:
    """Check that a config fits a model, by a table of what goes with what.

    Raises:
        ConfigError: It does not; with all problems.
    """
    name, family, is_own = type(model).__name__, parts.family, parts.family == OWN
    problems = layer_problems(config, len(parts.layers), parts.n_heads, name)
    if family.reason:
        no_syntax = f"expected none in {name}, got one: {family.reason}. It takes an embedding."
        sections = [key for key in IN_ATTENTION if getattr(config, key) is not None]
        problems += [f"{section}: {no_syntax}" for section in sections]
    if config.lisa is not None and config.lisa.head == "added" and not is_own:
        remedy = "only our own layers add to what W_O gives. Leave it out."
        problems.append(f"lisa.head: expected replaced in {name}, got added: {remedy}")
    if config.embedding is not None:
        kind, traits = config.embedding.kind, ENCODER_KINDS.get(config.embedding.kind)
        if is_own:
            remedy = "Its factors come from the source: see infusion.embedding of a recipe."
            problems.append(f"embedding: expected none in {name}, got {kind}. {remedy}")
        elif kind not in family.kinds and (traits is None or traits.module is None):
            known = f"expected one of {', '.join(family.kinds)} in {name}"
            problems.append(f"embedding.kind: {known}, got {kind}. {REGISTER}")
        elif traits is not None and traits.join == "final" and parts.final is None:
            final = f"expected a model with a head that takes the sentence's final vector for {kind}"
            remedy = "Use a ForSequenceClassification model, or the kind add or concat."
            problems.append(f"embedding: {final}, got {name}. {remedy}")
    for module in () if is_own else (model, parts.stack):
        parameters = inspect.signature(module.forward).parameters.values()
        if all(parameter.kind != parameter.VAR_KEYWORD for parameter in parameters):
            remedy = "with **kwargs, by which it gets the syntax and hands it on, got one without."
            problems.append(f"model: expected a forward of {type(module).__name__} {remedy}")
    if problems:
        raise ConfigError(problems)


def infusion_parameters(model: PreTrainedModel) -> list[tuple[str, nn.Parameter]]:
    """The new parameters with their names, for example to give them a learning rate of their own.

    Raises:
        ConfigError: The model is not infused.
    """
    infusion = getattr(model, "infusion", None)
    if not isinstance(infusion, nn.Module):
        raise ConfigError(f"model: expected an infused one, got a plain {type(model).__name__}. Call infuse.")
    prefix = next((name for name, module in model.named_modules() if module is infusion), "infusion")
    return [(f"{prefix}.{name}", parameter) for name, parameter in infusion.named_parameters()]


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
    infusion_rate = lr if infusion_lr is None else infusion_lr
    infused = infusion_parameters(model) if hasattr(model, "infusion") else []
    new = {id(parameter) for _, parameter in infused}
    groups: dict[tuple[bool, bool], dict[str, Any]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            is_new, is_bare = id(parameter) in new, parameter.dim() < 2 or "bias" in name
            group = {"lr": infusion_rate if is_new else lr, "weight_decay": 0.0 if is_bare else weight_decay}
            groups.setdefault((is_new, is_bare), {"params": [], **group})["params"].append(parameter)
    return [groups[key] for key in sorted(groups)]


def _as_bytes(relations: Tensor) -> Tensor:
    """Relations as uint8, also if reading them from a table has widened their type."""
    if relations.dtype == torch.uint8:
        return relations
    problem = f"syntax: expected relations as uint8, got {relations.dtype}."
    if relations.is_floating_point():
        raise ValueError(problem)
    fits = ((relations >= 0) & (relations <= 255)).all()
    if not takes_cpu_path(relations.device):
        torch._assert_async(fits, problem)
    elif not fits:
        raise ValueError(problem)
    return relations.to(torch.uint8)
