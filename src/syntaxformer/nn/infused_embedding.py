"""Embedding infusion: factor embeddings joined to word embeddings at the input of an encoder.

`plan_widths` checks that the widths of a kind add up (492 + 20 = 512) before anything is built.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn


class JoinedMap(nn.Linear):
    """W [e ; f] + b. The last `n_one_hot` columns of [e ; f] are one-hot: those of W embed the values."""

    def __init__(self, width: int, d_model: int, n_one_hot: int = 0) -> None:
        super().__init__(width, d_model)
        self.n_one_hot = n_one_hot


class InfusedEmbedding(nn.Module):
    """h' = [e ; f], e + f or W [e ; f] + b, with f the sum or the concatenation of the factor embeddings.

    For kind `prepend`, tags are pieces: ids from the size of the word table on are the values of the first
    factor, then those of the next. Kind `pos_encoder` embeds only words here.

    Args:
        plan: Widths from `plan_widths`.
        vocab_size: Rows of the word table.
        factor_sizes: Rows of each factor's table.
        padding_id: Piece id whose word embedding is zero and is not trained.

    Raises:
        ValueError: A factor of the plan has no size.

    Source: Sundararaman et al. (2019), "Syntax-infused Transformer": h'_m = [e_m ; f_m], f = f^P ⊕ f^c ⊕ f^s;
        Kapadia et al. (2020), "Augmented Transformer for Machine Translation", section 6, for W.
    """

    def __init__(
        self, plan: WidthPlan, vocab_size: int, factor_sizes: Mapping[str, int], padding_id: int | None = None
    ) -> None:
        super().__init__()
        if missing := sorted(set(plan.factor_widths) - set(factor_sizes)):
            raise ValueError(f"factor_sizes: expected a size for each factor, got none for {missing}.")
        self.plan = plan
        self.kind = kind_of(plan.kind)
        self.sizes = {name: factor_sizes[name] for name in plan.factor_widths}
        self.word = nn.Embedding(vocab_size, plan.word_width, padding_id)
        self.factors = nn.ModuleDict()
        for name, width in plan.factors if self.kind.join not in ("encoder", "module") else ():
            if width is not None:
                self.factors[name] = nn.Embedding(self.sizes[name], width)
        if self.kind.join == "linear":
            n_features = sum(self.sizes[name] if width is None else width for name, width in plan.factors)
            n_one_hot = n_features if self.kind.one_hot else 0
            self.map = JoinedMap(plan.word_width + n_features, plan.d_model, n_one_hot)
        self.module = self.kind.make_module(plan.d_model, self.sizes)

    def forward(
        self,
        pieces: Int[Tensor, "batch pieces"],
        factor_ids: Int[Tensor, "batch pieces factors"] | None = None,
    ) -> Float[Tensor, "batch pieces d_model"]:
        """Look up pieces and factors (columns in the order of the plan) and join them.

        Raises:
            ValueError: `factor_ids` has more or fewer columns than the plan has factors.
        """
        if self.kind.join == "pieces":
            return self._with_tags(pieces)
        word = self.word(pieces)
        if self.kind.join == "encoder" or not self.sizes:
            return word
        if self.module is not None:
            self._check_columns(factor_ids)
            return self.module(word, factor_ids)
        features = self._features(factor_ids)
        if self.kind.join == "add":
            return word + features
        joined = torch.cat([word, features], -1)
        return self.map(joined) if self.kind.join == "linear" else joined

    def _check_columns(self, factor_ids: Tensor | None) -> Tensor:
        n_columns = 0 if factor_ids is None else factor_ids.shape[-1]
        if factor_ids is None or n_columns != len(self.sizes):
            raise ValueError(f"factor_ids: expected columns {list(self.sizes)}, got {n_columns} columns.")
        return factor_ids

    def _features(self, factor_ids: Tensor | None) -> Float[Tensor, "batch pieces width"]:
        columns = self._check_columns(factor_ids).unbind(-1)
        if self.kind.one_hot:
            sizes = self.sizes.values()
            one_hots = [F.one_hot(ids, size) for ids, size in zip(columns, sizes, strict=True)]
            return torch.cat(one_hots, -1).to(self.word.weight.dtype)
        embedded = [table(ids) for table, ids in zip(self.factors.values(), columns, strict=True)]
        return reduce(torch.add, embedded) if self.kind.merge == "sum" else torch.cat(embedded, -1)

    def _with_tags(self, pieces: Int[Tensor, "batch pieces"]) -> Float[Tensor, "batch pieces d_model"]:
        """Take words from their table, and tags from the joined tables of all factors, which follow it."""
        n_words = self.word.num_embeddings
        is_tag = pieces >= n_words
        rows = [torch.arange(self.sizes[name], device=pieces.device) for name in self.factors]
        tags = torch.cat([table(ids) for table, ids in zip(self.factors.values(), rows, strict=True)])
        words = self.word(pieces.masked_fill(is_tag, self.word.padding_idx or 0))
        return torch.where(is_tag[..., None], F.embedding((pieces - n_words).clamp(min=0), tags), words)


@dataclass(frozen=True)
class InfusionKind:
    """How factors are merged with each other, and how the result is joined to the word embedding.

    It is added ("add"), concatenated within d_model ("concat"), concatenated and mapped back to d_model
    ("linear", or "final" with the final vector of the sentence), stands as pieces before the words
    ("pieces"), in a second encoder ("encoder"), or is joined by a module of the user's own ("module").
    """

    merge: Literal["sum", "concat"]
    join: Literal["add", "concat", "linear", "pieces", "encoder", "final", "module"]
    default_factors: tuple[str, ...]  # those of the paper
    one_hot: bool = False  # whether the embedding of a factor is fixed, one column for each value
    default_width: int = 20  # columns of all factors together
    module: Callable[[int, dict[str, int]], nn.Module] | None = None  # see `register_embedding`

    @property
    def takes_widths(self) -> bool:
        """Whether each factor's width can be chosen."""
        return self.merge == "concat" and not self.one_hot

    def make_module(self, d_model: int, sizes: dict[str, int]) -> nn.Module | None:
        """The user's own module, which keeps its initial values; None for the bundled kinds.

        Raises:
            ValueError: It has a buffer that is not stored, which would be lost in a model folder.
        """
        if self.module is None:
            return None
        module = self.module(d_model, dict(sizes))
        if lost := [name for name, _ in module.named_buffers() if name not in module.state_dict()]:
            raise ValueError(f"register_embedding: expected buffers that are stored, got {', '.join(lost)}.")
        for submodule in module.modules():
            cast("Any", submodule)._is_hf_initialized = True  # transformers initialises other modules itself
        return module


INFUSION_KINDS: dict[str, InfusionKind] = {
    "none": InfusionKind("sum", "add", ()),
    "add": InfusionKind("sum", "add", ("pos",)),  # Kapadia et al. (2020), system 1
    "concat": InfusionKind("concat", "concat", ("pos", "case", "subword")),  # Sundararaman et al. (2019)
    "concat_pos": InfusionKind("concat", "concat", ("pos",)),  # Patricia et al. (2023), low resource
    # Sundararaman et al. (2019), the best found
    "sum_then_concat": InfusionKind("sum", "concat", ("pos", "case", "subword")),
    # Kapadia et al. (2020), systems 2, 3, 6 and 5
    "onehot_concat": InfusionKind("concat", "linear", ("pos",), one_hot=True),
    "learned_concat": InfusionKind("concat", "linear", ("pos",), default_width=24),
    "prepend": InfusionKind("sum", "pieces", ("pos",)),
    "pos_encoder": InfusionKind("sum", "encoder", ("pos",)),
}
"""Kinds of our own translator."""

ENCODER_KINDS: dict[str, InfusionKind] = {
    "add": InfusionKind("sum", "add", ("pos",)),  # Sundararaman et al. (2019), BERT option 1
    "concat": InfusionKind("concat", "linear", ("pos",)),  # W [e ; f_pos] + b: the same, BERT option 2
    "let": InfusionKind("concat", "final", ("pos",)),  # W [C ; mean of f_pos] + b: Patricia et al. (2023)
}
"""Kinds of a pretrained encoder, whose output they do not change at the start."""


def register_embedding(
    name: str, module: Callable[[int, dict[str, int]], nn.Module], factors: Sequence[str] = ("pos",)
) -> None:
    """Add a kind of embedding infusion of your own, which `embedding.kind` can then name.

    Call it before a model is built or loaded: a folder stores the name and the weights, and nothing of the
    module. A second call for a name of yours replaces the first.

    Args:
        name: Small letters, digits and underscores, not the name of a bundled kind.
        module: Called with d_model and the number of values of each factor. Its result is called with word
            embeddings `[batch, pieces, d_model]` and factor ids `[batch, pieces, factors]`, and returns
            `[batch, pieces, d_model]`. Ids are 0 for pieces without a word and 1 for unknown values.
        factors: Factors of the kind where a config names none.

    Raises:
        ValueError: The name is not allowed, or there is no factor.
    """
    bundled = {key for kinds in (INFUSION_KINDS, ENCODER_KINDS) for key in kinds if not kinds[key].module}
    if not re.fullmatch("[a-z][a-z0-9_]*", name) or name in bundled:
        free = f"a name of small letters, digits and _, and none of {', '.join(sorted(bundled))}"
        raise ValueError(f"name: expected {free}, got {name!r}.")
    if not factors:
        raise ValueError("factors: expected at least one, got none.")
    INFUSION_KINDS[name] = ENCODER_KINDS[name] = InfusionKind("sum", "module", (*factors,), module=module)


REGISTER = "Register a kind of your own: --relations FILE, or syntaxformer.register_embedding before."
"""The remedy for an unknown kind."""


def kind_of(name: str, kinds: Mapping[str, InfusionKind] = INFUSION_KINDS) -> InfusionKind:
    """The kind of a name; ValueError if there is none."""
    if name not in kinds:
        raise ValueError(f"infusion kind: expected one of {', '.join(kinds)}, got {name!r}. {REGISTER}")
    return kinds[name]


@dataclass(frozen=True)
class WidthPlan:
    """Widths that add up, as `plan_widths` has settled them.

    Factors are names and widths of their embeddings, None for one column per value, in the order of the
    columns of `factor_ids`. They are a sequence, because a JSON file does not keep the order of a mapping.
    """

    kind: str
    d_model: int
    word_width: int
    factors: tuple[tuple[str, int | None], ...] = ()

    @property
    def factor_widths(self) -> dict[str, int | None]:
        """Factor name → width, in order."""
        return dict(self.factors)

    def arithmetic(self, kinds: Mapping[str, InfusionKind] = INFUSION_KINDS) -> str:
        """The sum in words, as shown before training and in errors; `kinds` are those of `plan_widths`."""
        kind, names = kinds[self.kind], list(self.factor_widths)
        terms = [f"{self.word_width} (word)"]
        if kind.join in ("concat", "linear", "final") and kind.merge == "sum" and names:
            terms.append(f"{max(width or 0 for _, width in self.factors)} ({' + '.join(names)}, summed)")
        elif kind.join in ("concat", "linear", "final"):
            terms += [f"{width or 'one for each value'} ({name})" for name, width in self.factors]
        elif kind.join == "pieces":
            terms = [f"{self.word_width} (word, and {' and '.join(names)} before each)"]
        elif kind.join == "encoder":
            terms = [f"{terms[0]}, beside it {self.d_model} ({' + '.join(names)})"]
        elif kind.join == "module":
            terms = [f"{terms[0]}, joined by your own module"]
        mapped = f", linear to {self.d_model}" if kind.join in ("linear", "final") else ""
        return f"{' + '.join(terms)}{mapped} = {self.d_model}"

    def as_dict(self) -> dict[str, Any]:
        """For a model's config; `from_dict` reads it."""
        return {**asdict(self), "factors": [list(factor) for factor in self.factors]}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> WidthPlan:
        """Read what `as_dict` returned, even if JSON has turned pairs into lists."""
        return cls(**{**stored, "factors": tuple((name, width) for name, width in stored["factors"])})


def plan_widths(
    kind: str,
    d_model: int,
    factors: Sequence[str] | None = None,
    width: int | None = None,
    widths: Mapping[str, int] | None = None,
    word_width: int | None = None,
    kinds: Mapping[str, InfusionKind] = INFUSION_KINDS,
) -> WidthPlan:
    """Settle the width of every table, or say why they do not add up.

    Args:
        kind: A key of `kinds`.
        d_model: Width of the encoder.
        factors: Factor names; None for those of the paper that describes the kind.
        width: Width of all factors together, if they have their own columns; None for the kind's default.
        widths: Width of each factor, for kinds that concatenate learned ones; None gives 4 to each but the
            first, which gets the rest of `width`.
        word_width: Width of the word embedding; None for what the factors leave.
        kinds: Those of the host: `INFUSION_KINDS` or `ENCODER_KINDS`.

    Raises:
        ValueError: The kind is unknown or does not use the factors or widths, a factor has no width or width
            0, or the widths do not add up to `d_model`.
    """
    spec = kind_of(kind, kinds)
    if kind == "none" and factors:
        raise ValueError(
            f"infusion.factors: expected none for kind 'none', got {', '.join(factors)}. "
            "Choose an infusion.kind, or leave the factors out."
        )
    if widths is not None and not spec.takes_widths:
        taking = ", ".join(name for name, other in kinds.items() if other.takes_widths)
        raise ValueError(
            f"infusion.widths: expected none for kind {kind!r}, got {dict(widths)}. "
            f"Only these kinds have a width for each factor: {taking}."
        )
    factors = list(spec.default_factors if factors is None else factors)
    if kind != "none" and not factors:
        raise ValueError(f"infusion factors: expected at least one for kind {kind!r}, got none.")
    width = spec.default_width if width is None else width
    factor_widths = _factor_widths(spec, d_model, factors, width, widths)
    if min((size for size in factor_widths.values() if size is not None), default=1) < 1:
        shown = " + ".join(f"{size} ({name})" for name, size in factor_widths.items())
        raise ValueError(
            f"infusion widths: expected at least 1 for each factor, got {shown}. "
            "Raise infusion.width or give infusion.widths."
        )
    features = 0
    if spec.join == "concat":
        features = sum(size or 0 for size in factor_widths.values()) if spec.merge == "concat" else width
    word_width = d_model - features if word_width is None else word_width
    plan = WidthPlan(kind, d_model, word_width, tuple(factor_widths.items()))
    if word_width < 1 or (spec.join != "linear" and word_width + features != d_model):
        problem = plan.arithmetic(kinds).rsplit(" = ", 1)[0]
        raise ValueError(
            f"infusion widths: expected a word width of at least 1 and a sum of d_model = {d_model}, "
            f"got {problem} = {word_width + features}. "
            "Change infusion.width, infusion.widths or infusion.word_width."
        )
    return plan


def _factor_widths(
    spec: InfusionKind, d_model: int, factors: Sequence[str], width: int, widths: Mapping[str, int] | None
) -> dict[str, int | None]:
    if spec.join in ("add", "pieces", "encoder", "module"):
        return dict.fromkeys(factors, d_model)
    if spec.one_hot:
        return dict.fromkeys(factors)
    if spec.merge == "sum":
        return dict.fromkeys(factors, width)
    if widths is None:
        return {name: 4 if index else width - 4 * (len(factors) - 1) for index, name in enumerate(factors)}
    if set(widths) != set(factors):
        raise ValueError(f"infusion.widths: expected one width for each of {factors}, got {dict(widths)}.")
    return {name: widths[name] for name in factors}


class FactorEmbedding(nn.Module):
    """Joins factors to the states of a pretrained encoder, whose output they do not change at the start.

    h' = e + Σ f, where f starts at zero (add); h' = W [e ; f] + b (concat), or C' = W [C ; mean of f over the
    sentence] + b (let, with C the final vector of [CLS]), where W starts as the identity on the states and
    zero on f.

    Args:
        plan: From `plan_widths` with `ENCODER_KINDS`.
        sizes: Rows of each factor's table, in the order of the columns of `factor_ids`.

    Source: Sundararaman et al. (2019), "Syntax-Infused Transformer and BERT", BERT options 1 and 2; differs:
        how W starts. Patricia et al. (2023), "Linguistic-Enhanced Transformer", section 5, for let: a POS
        embedding of the task "combined with the final hidden vector C"; the mean over pieces and the affine
        map are our reading.
    """

    def __init__(self, plan: WidthPlan, sizes: Mapping[str, int]) -> None:
        super().__init__()
        self.kind, self.d_model, self.join = kind_of(plan.kind, ENCODER_KINDS), plan.d_model, None
        self.joins_final = self.kind.join == "final"
        widths = {name: width or 0 for name, width in plan.factors}
        self.sizes = {name: sizes[name] for name in widths}
        self.module = self.kind.make_module(plan.d_model, self.sizes)
        if self.module is not None:
            return
        self.tables = nn.ModuleDict({name: nn.Embedding(sizes[name], widths[name]) for name in widths})
        if plan.kind != "add":
            self.join = nn.Linear(plan.d_model + sum(widths.values()), plan.d_model)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialise again, as documented; a module of the user's own as it is when it is made."""
        if (fresh := self.kind.make_module(self.d_model, self.sizes)) is not None:
            for parameter, values in zip(self.parameters(), fresh.parameters(), strict=True):
                parameter.copy_(values)
            return
        for table in self.tables.values():
            nn.init.zeros_(table.weight) if self.join is None else table.reset_parameters()
        if self.join is not None:
            self.join.weight.copy_(torch.eye(*self.join.weight.shape))
            nn.init.zeros_(self.join.bias)

    def forward(
        self,
        states: Float[Tensor, "batch *pieces d_model"],
        factor_ids: Int[Tensor, "batch pieces factors"],
    ) -> Float[Tensor, "batch *pieces d_model"]:
        """Join the factors to embeddings of pieces, or their mean to final vectors, `[batch, d_model]`.

        Pieces without a word, 0 in all columns, do not count in the mean; without any word it is 0.
        """
        if self.module is not None:
            return self.module(states, factor_ids).to(states.dtype)
        columns = zip(self.tables.values(), factor_ids.unbind(-1), strict=True)
        embedded = [table(ids) for table, ids in columns]
        if self.join is None:
            return states + reduce(torch.add, embedded).to(states.dtype)
        joined = torch.cat(embedded, -1)
        if self.joins_final:
            counted = (factor_ids != 0).any(-1)[..., None].to(joined.dtype)
            joined = (joined * counted).sum(1) / counted.sum(1).clamp(min=1)
        # Computed in the type of the embeddings, returned in that of the states.
        return self.join(torch.cat([states.to(joined.dtype), joined], -1)).to(states.dtype)


class MappedEmbedding(nn.Embedding):
    """e = W t, with t a row of the table and W learned."""

    def __init__(self, n_rows: int, table_width: int, width: int, padding_id: int | None = None) -> None:
        super().__init__(n_rows, table_width, padding_id)
        self.map = nn.Linear(table_width, width, bias=False)

    def forward(self, input: Int[Tensor, "batch pieces"]) -> Float[Tensor, "batch pieces width"]:
        """Look up and map."""
        return self.map(super().forward(input))
