"""The models that the contract is tested on: tiny, with every parameter doing something, and what they are given.

`make test` takes the translators and infused encoders that issue pages name; SYNTAXFORMER_EXHAUSTIVE=1 takes all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers as hf

import syntaxformer as sf
from syntaxformer.nn import INFUSION_KINDS, plan_widths
from syntaxformer.translation.model import SyntaxTransformerConfig
from tiny_hosts import ATTENDING, BERT, EXHAUSTIVE, WRITING, host_of

BATCH, PIECES, TARGETS, VOCAB, EOS = 3, 7, 5, BERT["vocab_size"], 1

_IN_FULL = ["bert", "roberta", "electra", "distilbert", "albert", "modernbert", "t5"]
_MORE = [
    kind
    for kind in ATTENDING
    if kind not in _IN_FULL and host_of(kind, BERT)[2].keys() == host_of("bert", BERT)[2].keys()
]
"""Of BERT's shape. Others have habits of their own, also where they are plain: see tests/parity/infused."""
_HOSTS = {kind: host_of(kind, BERT) for kind in (*_IN_FULL, *_MORE)}

_SINGLE = ["masks", "relation_bias", "lisa", "pos_add", "pos_concat", "let"]
_COMBINED = ["masks,lisa,pos_add", "relation_bias,lisa", "masks,let"]
_PAIRS = [
    ("bert", "masks,lisa,pos_add"), ("roberta", "relation_bias,lisa"), ("albert", "masks,let"),
    ("modernbert", "masks,lisa,pos_add"), ("t5", "masks,lisa,pos_add"), ("bert", "pos_concat"),
]  # fmt: skip
"""Of `make test`: hosts pairwise with the kinds."""
_TRANSLATORS = ["none", "sum_then_concat", "lisa"]
_MORE_TRANSLATORS = [
    *(kind for kind in INFUSION_KINDS if kind not in _TRANSLATORS),
    *("masks", "relation_bias", "masks+head_gates", "target_pos", "source_vocabulary", "narrow_table"),
    "post_norm",
]


@dataclass(frozen=True)
class Subject:
    """A kind of model under test.

    Args:
        name: Shown in the test's id.
        config: Makes a config; takes changes.
        build: Makes the model of a config, with the same values each time, not in training.
        batch: Makes inputs with labels, in which one row is padded.
        auto: The Auto class that loads its folder.
        pieces: Argument names of what has a column for each source piece, and its axes of pieces.
        has_lisa: A head is taught in training.
        attends: Attention is that of an infusion, so it cannot be switched.
    """

    name: str
    config: Callable[..., Any]
    build: Callable[[Any], Any]
    batch: Callable[[], dict[str, torch.Tensor]]
    auto: Any
    pieces: tuple[tuple[str, int], ...]
    is_translator: bool
    has_lisa: bool = False
    attends: bool = False

    def model(self, **changes: Any) -> Any:
        return self.build(self.config(**changes))

    def unlabelled(self) -> dict[str, torch.Tensor]:
        """Inputs without labels; a decoder's are given."""
        batch = self.batch()
        labels = batch.pop("labels")
        batch.pop("target_tags", None)
        if self.is_seq2seq:
            batch["decoder_input_ids"] = labels.clamp(min=0)
        return batch

    @property
    def is_seq2seq(self) -> bool:
        return self.is_translator or self.name.rpartition("-")[0] in WRITING

    def source(self) -> dict[str, torch.Tensor]:
        """What the encoder takes."""
        batch = self.unlabelled()
        return {key: one for key, one in batch.items() if key not in ("decoder_input_ids", "first_pieces")}

    def scores(self, model: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Logits, without gradients."""
        with torch.no_grad():
            return model(**batch).logits


def stirred(model: Any, seed: int = 2) -> Any:
    """Every parameter does something, whatever it starts as; padding rows of tables stay zero."""
    generator = torch.Generator().manual_seed(seed)
    gates = {id(one) for name, one in model.named_parameters() if ".gate" in name}
    with torch.no_grad():
        for parameter in model.parameters():
            if id(parameter) in gates:
                parameter.fill_(0.7)
            else:
                parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def _numbers(seed: int = 3) -> Callable[..., torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return lambda low, high, *shape: torch.randint(low, high, shape, generator=generator)


def _source(has_trees: bool, has_governors: bool) -> dict[str, torch.Tensor]:
    numbers = _numbers()
    batch = {
        "input_ids": numbers(4, VOCAB, BATCH, PIECES),
        "attention_mask": torch.ones(BATCH, PIECES, dtype=torch.int64),
    }
    batch["attention_mask"][1, 5:] = 0
    batch["input_ids"][1, 5:] = 0
    if has_trees:
        relations = numbers(0, 11, BATCH, 2, PIECES, PIECES).to(torch.uint8)
        places = torch.arange(PIECES)
        relations[:, :, places, places] = 0
        batch["syntax"] = relations
    if has_governors:
        batch["governors"] = numbers(0, 5, BATCH, PIECES).masked_fill(batch["attention_mask"] == 0, -100)
        batch["first_pieces"] = batch["governors"] >= 0
    return batch


def _of_pieces(batch: dict[str, torch.Tensor]) -> tuple[tuple[str, int], ...]:
    """Argument → its first axis of pieces."""
    axes = {"input_ids": 1, "attention_mask": 1, "syntax": 2, "governors": 1, "factor_ids": 1}
    return tuple((name, axes[name]) for name in axes if name in batch)


# Translators

_SHAPE = {
    "vocab_size": VOCAB, "d_model": 22, "n_heads": 2, "d_ff": 29, "encoder_layers": 2, "decoder_layers": 3,
    "dropout": 0.0, "attention_dropout": 0.0,
}  # fmt: skip
_SIZES = {"pos": 13, "case": 4, "subword": 6}
_SETTINGS: dict[str, dict[str, Any]] = {
    "lisa": {"lisa": {"supervised": True, "weight": 0.7}},
    "masks": {"masks": {"max_distance": 3}},
    "masks+head_gates": {"masks": {"max_distance": 3, "gate": "head", "per_layer": True}},
    "relation_bias": {"relation_bias": {"max_distance": 3}},
    "target_pos": {"target_pos": {"tags": ["<none>", "<unk>", "NOUN", "VERB"], "weight": 0.5}},
    "source_vocabulary": {"source_vocab_size": 37},
    "narrow_table": {"source_table_width": 11},
    "post_norm": {"norm": "post"},
}


def _translator(kind: str) -> Subject:
    joins = kind if kind in INFUSION_KINDS else "none"
    width = None if joins in ("onehot_concat", "concat") else 5
    plan = plan_widths(
        joins, 22, width=width, widths={"pos": 3, "case": 1, "subword": 1} if joins == "concat" else None
    )
    settings = {**_SHAPE, "infusion": plan.as_dict(), "factor_sizes": _SIZES, **_SETTINGS.get(kind, {})}

    def config(**changes: Any) -> Any:
        return SyntaxTransformerConfig(**{**settings, **changes})

    def build(config: Any) -> Any:
        torch.manual_seed(1)
        return stirred(sf.SyntaxTransformer(config))

    def batch() -> dict[str, torch.Tensor]:
        inputs, numbers = _source(kind.startswith(("masks", "relation")), kind == "lisa"), _numbers(5)
        n_factors = len(INFUSION_KINDS[joins].default_factors)
        if n_factors and joins != "prepend":
            inputs["factor_ids"] = numbers(0, 4, BATCH, PIECES, n_factors)
        inputs["labels"] = numbers(4, VOCAB, BATCH, TARGETS)
        inputs["labels"][2, 3:] = -100
        if kind == "target_pos":
            inputs["target_tags"] = numbers(0, 4, BATCH, TARGETS)
        return inputs

    auto, pieces = hf.AutoModelForSeq2SeqLM, _of_pieces(batch())
    return Subject(f"translator-{kind}", config, build, batch, auto, pieces, True, kind == "lisa")


# Infused encoders


def _infused(family: str, names: str) -> Subject:
    make_config, host, sizes = _HOSTS[family]
    has_trees, has_lisa = "masks" in names or "relation" in names, "lisa" in names

    def config(**changes: Any) -> Any:
        return make_config(**{**sizes, **changes})

    def build(config: Any) -> Any:
        torch.manual_seed(1)
        return stirred(sf.infuse(host(config), names))

    def batch() -> dict[str, torch.Tensor]:
        inputs, numbers = _source(has_trees, has_lisa), _numbers(5)
        if config().pad_token_id == 1:
            inputs["input_ids"] = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, 1)
        if "pos" in names or "let" in names:
            inputs["factor_ids"] = numbers(1, 20, BATCH, PIECES, 1)
        inputs["syntax_settings"] = torch.tensor([sf.InfusionConfig.parse(names).batch_numbers] * BATCH)
        shape = (BATCH, TARGETS) if family in WRITING else (BATCH,)
        inputs["labels"] = numbers(0, 3, *shape)
        return inputs

    auto = hf.AutoModelForSeq2SeqLM if family in WRITING else hf.AutoModelForSequenceClassification
    attends = has_trees or has_lisa
    return Subject(
        f"{family}-{names}", config, build, batch, auto, _of_pieces(batch()), False, has_lisa, attends
    )


def _subjects() -> list[Subject]:
    translators = [*_TRANSLATORS, *(_MORE_TRANSLATORS if EXHAUSTIVE else ())]
    pairs = _PAIRS
    if EXHAUSTIVE:
        pairs = [(family, names) for family in _IN_FULL for names in (*_SINGLE, *_COMBINED)]
        pairs += [(kind, _COMBINED[0]) for kind in _MORE]
    infused = [_infused(*pair) for pair in pairs if not (pair[0] in WRITING and "let" in pair[1])]
    return [_translator(kind) for kind in translators] + infused


def subject_of(name: str) -> Subject:
    """The subject of this name, whether or not it is among those that all tests take."""
    family, _, kind = name.rpartition("-")
    return _translator(kind) if family == "translator" else _infused(family, kind)


SUBJECTS = _subjects()
TRAINED = {"translator-lisa", "bert-masks,lisa,pos_add", "t5-masks,lisa,pos_add"}
"""In `make test` as well, where a test takes a whole Trainer, or another way of what all are tested in."""
COMPILED = [
    [("bert-masks,lisa,pos_add", "eager"), ("albert-masks,let", "eager"), ("translator-lisa", "eager")]
]
if EXHAUSTIVE:
    _BY_INDUCTOR = sorted({*TRAINED, "translator-none", "translator-sum_then_concat"})
    COMPILED = [[(subject.name, "aot_eager")] for subject in SUBJECTS]
    COMPILED += [[(name, "inductor")] for name in _BY_INDUCTOR]
"""Which are compiled in one process, and by what: Inductor takes a minute for each."""
