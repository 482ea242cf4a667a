"""A recipe: everything that decides a training run, in one section for each part of the work.

`load_recipe` reads YAML and the overrides of the command line and reports all problems at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from syntaxformer.base.config import apply_overrides, check_once, nearest, read_yaml, validate
from syntaxformer.base.errors import ConfigError
from syntaxformer.base.files import read_json
from syntaxformer.base.languages import BUNDLED, SPACES, choose_annotator, language_of_side
from syntaxformer.infusion.config import (
    IN_ATTENTION,
    MAX_WIDTH,
    EmbeddingConfig,
    InfusionConfig,
    layer_problems,
)
from syntaxformer.nn.infused_embedding import ENCODER_KINDS, INFUSION_KINDS, WidthPlan
from syntaxformer.runs.config import RunConfig, RunTraining, Section
from syntaxformer.runs.loading import TRANSLATOR, is_own
from syntaxformer.runs.run_folder import RECIPE
from syntaxformer.syntax import FACTORS, FactorVocabulary, check_factors
from syntaxformer.syntax.factors import TERM
from syntaxformer.syntax.inputs import SyntaxInputs
from syntaxformer.translation.checkpoint import (
    host_sections,
    local_folder,
    normalizes_punctuation,
    own_sections,
)
from syntaxformer.translation.corpora import CorpusConfig
from syntaxformer.translation.decoding import DecodingConfig
from syntaxformer.translation.prepare import ParseTaskConfig, TargetPosConfig
from syntaxformer.translation.pretrained_tables import PretrainedConfig, pretrained_problems
from syntaxformer.translation.subwords import SubwordConfig
from syntaxformer.trees.sentence import PER_WORD


class AnnotationConfig(Section):
    """Who tags and parses the source."""

    annotator: str | None = Field(
        None, description="en, de, spacy:NAME, …, used only if needed; null: the bundled one of the language"
    )
    force: bool = Field(False, description="allow a bundled annotator to read another language than its own")
    processes: int = Field(1, ge=1, le=1024, description="number of processes that tag in parallel")
    annotated: list[Path] = Field(
        [],
        description="files that `syntaxformer annotate` wrote with the same annotator; lines in them, "
        "whatever their order, are not tagged again",
    )


class ModelConfig(Section):
    """The network: our own Transformer, or a pretrained translator."""

    init_from: str | None = Field(
        None,
        description="start from a translator: a folder in Hugging Face's layout (Marian, mBART, NLLB, T5, …) "
        "or one that `train` wrote; its tokenizer and its shape are kept",
    )
    add_characters: bool = Field(
        False, description="with init_from: learn a piece for each character that its tokenizer lacks"
    )
    src_code: str | None = Field(
        None, description="with init_from: its code of the source language; null: the one that fits"
    )
    tgt_code: str | None = Field(None, description="the same of the target language")
    add_codes: bool = Field(
        False, description="with init_from: a code that it lacks is a new language, learned as a new piece"
    )
    prompt: str = Field(
        "",
        description='with init_from: text before every source line, such as "translate English to German: "',
    )
    d_model: int = Field(512, ge=2, le=2**16, description="width of encoder and decoder")
    d_ff: int = Field(2048, ge=1, le=2**18, description="inner width of the position-wise networks")
    n_heads: int = Field(8, ge=1, le=1024, description="attention heads, a divisor of d_model")
    encoder_layers: int = Field(6, ge=1, le=1024, description="encoder layers")
    decoder_layers: int = Field(6, ge=1, le=1024, description="decoder layers")
    dropout: float = Field(0.1, ge=0, lt=1, description="dropout on embeddings and sublayer outputs")
    attention_dropout: float = Field(0.1, ge=0, lt=1, description="dropout on attention weights")
    activation_dropout: float = Field(
        0.0, ge=0, lt=1, description="dropout inside the position-wise networks"
    )
    norm: Literal["pre", "post"] = Field(
        "pre", description="layer normalisation before or after each sublayer"
    )
    activation: Literal["relu", "gelu", "silu"] = Field(
        "relu", description="activation function of the position-wise networks"
    )
    share_source_embedding: bool = Field(
        True, description="use one table for source and target if their widths are equal"
    )


_OF_START = ("src_code", "tgt_code", "add_codes", "prompt", "add_characters")
"""Keys that go only with `init_from`; all but the last only with a pretrained translator."""

DROPOUTS = frozenset(["dropout", "attention_dropout", "activation_dropout"])


class LoraConfig(Section):
    """Low-rank adapters in the linear maps of a pretrained translator (Hu et al. 2022, "LoRA")."""

    r: int = Field(16, ge=1, le=2**16, description="rank")
    alpha: int = Field(32, ge=1, description="the product of the two maps is scaled by alpha / r")
    dropout: float = Field(0.0, ge=0, lt=1, description="on the input of the adapters")
    targets: tuple[str, ...] | None = Field(
        None, description="names of the linear maps that get one; null: all of encoder and decoder"
    )
    keep_adapter: bool = Field(
        False, description="also write OUTPUT/lora, in PEFT's layout; the model itself has it merged"
    )


class TrainingConfig(RunTraining):
    """Optimisation, evaluation and checkpoints."""

    lora: LoraConfig | None = Field(
        None, description="with model.init_from: train adapters and the infusion, nothing else"
    )
    infusion_learning_rate: float | None = Field(
        None, gt=0, description="of the parameters that syntax adds; null: learning_rate"
    )

    max_steps: int = Field(100_000, ge=1, description="updates")
    max_batch_tokens: int = Field(
        4096, ge=8, le=2**24, description="target pieces of a batch, padding included"
    )
    accumulate: int = Field(
        1, ge=1, le=2**16, description="batches of each update, over all processes together"
    )
    schedule: Literal["noam", "inverse_sqrt", "constant"] = Field(
        "noam", description="learning-rate schedule"
    )
    learning_rate: float = Field(
        1.0, gt=0, description="peak learning rate; for noam, the factor of its formula"
    )
    warmup_steps: int = Field(4000, ge=0, description="updates until the peak learning rate")
    adam_beta1: float = Field(0.9, ge=0, lt=1, description="decay of the mean of gradients")
    adam_beta2: float = Field(
        0.998,
        ge=0,
        lt=1,
        description="decay of the mean of squared gradients (Sundararaman et al. 2019: 0.998)",
    )
    adam_epsilon: float = Field(1e-9, gt=0, description="added to the root of squared gradients")
    weight_decay: float = Field(0.0, ge=0, description="decoupled weight decay, on matrices only")
    max_grad_norm: float = Field(0.0, ge=0, description="clip gradients to this norm; 0 does not clip")
    label_smoothing: float = Field(0.1, ge=0, lt=1, description="share of probability spread over all pieces")
    eval_every: int = Field(
        1000, ge=1, description="updates between evaluations; a checkpoint is written at each"
    )
    best_by: Literal["loss", "bleu", "both"] = Field(
        "loss", description="dev score that chooses the best checkpoint; both: BLEU, then the loss"
    )
    dev_beam_size: int | None = Field(
        None, ge=1, le=256, description="beam for BLEU on dev; null: decoding.beam_size, 1 is fastest"
    )
    keep_checkpoints: int = Field(
        5,
        ge=0,
        description="checkpoints kept besides the best one while training; at the end those stay that a "
        "longer run reads, and with 0 none",
    )
    average: int = Field(
        1, ge=1, description="average so many checkpoints near the best one, if that is no worse"
    )
    tensorboard: bool = Field(True, description="write OUTPUT/logs for TensorBoard")


class Recipe(RunConfig):
    """A training run of a translator."""

    data: CorpusConfig
    annotation: AnnotationConfig = AnnotationConfig()
    subwords: SubwordConfig = SubwordConfig()
    infusion: InfusionConfig = InfusionConfig(embedding=EmbeddingConfig())
    predict_target_pos: TargetPosConfig | None = Field(
        None, description="train the decoder to predict the target's parts of speech as well"
    )
    parse_task: ParseTaskConfig | None = Field(
        None, description="train the decoder to write the parse of its source as well"
    )
    pretrained_embeddings: PretrainedConfig | None = Field(
        None, description="tables that start from vectors of a Hugging Face encoder"
    )
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()
    decoding: DecodingConfig = DecodingConfig()

    shorthands: ClassVar[tuple[str, ...]] = IN_ATTENTION
    """Sections of `infusion` that may be written at the top level."""

    @model_validator(mode="before")
    @classmethod
    def in_full(cls, content: Any) -> Any:
        """Write shorthands in full: `masks` in `infusion`, `infusion.kind` in `infusion.embedding`."""
        if not isinstance(content, Mapping) or isinstance(content.get("infusion"), InfusionConfig):
            return content
        section = content.get("infusion") or {}
        if not isinstance(section, Mapping):
            return content
        parts = {name: content[name] for name in cls.shorthands if name in content}
        infusion = {key: section[key] for key in section if key not in InfusionConfig.shorthands}
        short = {key: section[key] for key in section if key in InfusionConfig.shorthands}
        embedding = infusion.get("embedding")
        twice = [f"infusion.{name}" for name in parts if name in infusion]
        if embedding is None or isinstance(embedding, Mapping):
            twice += [f"infusion.embedding.{key}" for key in short if key in (embedding or {})]
            embedding = {**(embedding or {}), **short}
        if twice:
            raise ConfigError(
                [f"{key}: expected it once, got its shorthand {cls.short(key)} as well." for key in twice]
            )
        full = {key: value for key, value in content.items() if key not in cls.shorthands}
        return {**full, "infusion": {**infusion, **parts, "embedding": embedding}}

    @classmethod
    def long(cls, setting: str) -> str:
        """A setting "key.sub=value" with the key in full: the reverse of `short`."""
        first, _, rest = setting.partition(".")
        if first.partition("=")[0] in cls.shorthands:
            return f"infusion.{setting}"
        of_embedding = re.split(r"[.=]", rest, maxsplit=1)[0] in InfusionConfig.shorthands
        return f"infusion.embedding.{rest}" if first == "infusion" and of_embedding else setting

    @classmethod
    def short(cls, key: str) -> str:
        """The shorthand of a key, if it has one."""
        key = key.replace("infusion.embedding.", "infusion.")
        name = key.removeprefix("infusion.")
        return name if name.partition(".")[0] in cls.shorthands else key

    @model_validator(mode="after")
    def _adds_up(self) -> Recipe:
        """What a folder to start from decides is checked by `completed`, which reads that folder."""
        if self.model.init_from is None and (problems := self._start_problems() + self.problems()):
            raise ValueError("\n".join(problems))
        return self

    def completed(self) -> Recipe:
        """The recipe with what the folder that it starts from decides, and the name of its annotator.

        Raises:
            ConfigError: That folder cannot be had, or the recipe does not fit it.
        """
        recipe = self
        if self.model.init_from is not None:
            problems = self._start_problems()
            with suppress(ConfigError):  # which is among the problems already
                recipe, of_start = _with_start(self, str(self.start))
                problems += of_start
            if problems := problems + recipe.problems():
                raise ConfigError(problems)
        annotation = recipe.annotation.model_copy(update={"annotator": recipe.annotator_name()})
        data = recipe.data.model_copy()
        data._symbols = recipe.subwords.symbols
        return recipe.model_copy(update={"annotation": annotation, "data": data})

    @property
    def start(self) -> str | None:
        """Folder of the translator that training starts from, which may have to be fetched from the Hub."""
        return None if self.model.init_from is None else local_folder(self.model.init_from)

    @property
    def is_hosted(self) -> bool:
        """Whether the network is a pretrained translator of transformers, and not our own."""
        return self.start is not None and not is_own(self.start)

    def _start_problems(self) -> list[str]:
        """What goes only with `model.init_from`, or not with it."""
        model, training = self.model, self.training
        if model.init_from is None:
            alone: dict[str, Any] = {f"model.{key}": getattr(model, key) for key in _OF_START}
            alone["training.lora"] = training.lora
            return [f"{key}: expected model.init_from beside it, got none." for key in alone if alone[key]]
        try:
            is_hosted = self.is_hosted
        except ConfigError as error:
            return error.problems
        refused: dict[str, Any] = {key: getattr(self, key) for key in ("pretrained_embeddings", "parse_task")}
        if is_hosted:
            where, refused["predict_target_pos"] = "a pretrained translator", self.predict_target_pos
        else:
            where, refused["training.lora"] = "a translator of our own", training.lora
        if (Path(str(self.start)) / TRANSLATOR).is_file():
            where = "a translator that `train` wrote"
            refused |= {f"model.{key}": getattr(model, key) for key in _OF_START[:-1]}
        problems = [
            f"{key}: expected none with model.init_from, the folder of {where}, got {value!r}."
            for key, value in refused.items()
            if value
        ]
        problems += [
            f"subwords.{key}: expected none with model.init_from, whose pieces are kept, got {value!r}. "
            "Leave it out, as the recipe finetune_translator does."
            for key, value in self.subwords
            if key not in ("dropout", "symbols") and value != getattr(SubwordConfig(), key)
        ]
        if training.lora is not None and training.average > 1:
            problems.append(
                f"training.average: expected 1 with training.lora, got {training.average}: the mean of "
                "adapters is no mean of models."
            )
        return problems

    def problems(self) -> list[str]:
        """Settings that do not fit each other: factors, shapes, syntax, tables, and last the annotators."""
        problems = [*self._factor_problems(), *self._shape_problems(), *self._syntax_problems()]
        clean, symbols = self.data.preparation(self.data.src).clean, self.subwords.symbols
        if unclean := [symbol for symbol in symbols if clean(symbol) != symbol]:
            problems.append(
                f"subwords.symbols: expected them as data.normalize and data.unescape leave them, got "
                f"{unclean[0]!r}, which no line has after them. Give {clean(unclean[0])!r}."
            )
        if self.pretrained_embeddings and (symbols or self.data.protect):
            problems.append(
                "subwords.symbols, data.protect: expected none with pretrained_embeddings, whose tables have "
                "no rows for new pieces."
            )
        if not problems and not self.is_hosted:
            word_width, d_model = self.width_plan().word_width, self.model.d_model
            section, tokenizer = self.pretrained_embeddings, self.subwords.tokenizer
            problems = pretrained_problems(section, word_width, d_model, tokenizer)
        return problems or self._annotator_problems()

    def _factor_problems(self) -> list[str]:
        """Names and widths; the annotator is only checked when it is loaded."""
        listed = (self.infusion.embedding or EmbeddingConfig()).factors or ()
        if TERM in listed and self.data.terms is None:
            return [f"infusion.factors: expected {TERM} only with data.terms, a list of terms, got none."]
        if self.data.terms is not None and self.embedding.kind == "prepend":
            return [
                "data.terms: expected an infusion.kind that joins factors to pieces, got prepend, whose tags "
                "are pieces. Take another, such as add."
            ]
        if self.data.augment is not None and (self.data.protect or self.subwords.symbols):
            return [
                "data.augment: expected none with data.protect or subwords.symbols, which it would alter."
            ]
        if self.data.terms is not None and self.data.protect:
            return ["data.protect: expected none with data.terms, whose translations it would number, too."]
        if self.data.terms is not None and self.parse_task is not None:
            return [
                "data.terms: expected no parse_task, which would write the translations of terms, got it."
            ]
        try:
            names = self.embedding.factors or [name for name, _ in self.width_plan().factors]
            if self.embedding.kind != "none":  # a baseline may be given files of factors, too
                check_factors(names, PER_WORD, self.data.factor_files)
                if unused := sorted(self.data.factor_files.keys() - {*names}):
                    return [
                        f"data.factor_files: expected names of infusion.factors, got {', '.join(unused)}. "
                        "Leave it out, or add it to infusion.factors."
                    ]
            self.width_plan()
        except ConfigError as error:
            return error.problems
        except ValueError as error:
            return [str(error)]
        return []

    def _shape_problems(self) -> list[str]:
        d_model, n_heads = self.model.d_model, self.model.n_heads
        problems = []
        if self.data.symbols and self.pretrained_embeddings:
            tags, key = ", ".join(self.data.symbols), "data.train: expected no tag"
            key = "data.synthetic_tag: expected false" if self.data.synthetic else key
            problems.append(f"{key} with a model's own pieces, got {tags}.")
        if d_model % n_heads:
            problems.append(f"model.n_heads: expected a divisor of d_model = {d_model}, got {n_heads}.")
        if d_model % 2:
            problems.append(f"model.d_model: expected an even number, got {d_model}.")
        if self.training.max_batch_tokens < self.data.max_pieces:
            problems.append(
                f"training.max_batch_tokens: expected at least data.max_pieces = {self.data.max_pieces}, "
                f"got {self.training.max_batch_tokens}."
            )
        return problems

    def _syntax_problems(self) -> list[str]:
        """Settings that the encoder lacks layers or heads for, or that a translator does not support."""
        section, lisa, embedding = self.infusion, self.infusion.lisa, self.embedding
        kinds = ["none", *(kind for kind, traits in ENCODER_KINDS.items() if traits.join != "final")]
        if self.is_hosted and embedding.kind not in kinds:
            problems = [
                f"infusion.kind: expected one of {', '.join(kinds)} with model.init_from, got "
                f"{embedding.kind}."
            ]
        else:
            problems = embedding.misplaced()
        if not self.is_hosted:  # a host's layers and heads are checked when it is loaded
            if embedding.kind == "prepend" and "subword" in (embedding.factors or ()):
                problems.append(
                    "infusion.factors: expected factors of words for kind 'prepend', got subword, which is a "
                    "factor of pieces."
                )
            if not problems:
                if embedding.kind == "pos_encoder" and lisa is not None and lisa.layers == ():
                    section = section.model_copy(update={"lisa": None})  # its heads are in the second encoder
                problems = layer_problems(
                    section, self.model.encoder_layers, self.model.n_heads, "the encoder"
                )
        # What an encoder of sentences for classification has, and a translator's has not.
        for name in ("masks", "relation_bias"):
            trees = getattr(self.infusion, name)
            if trees is not None and set(trees.without) >= {"parent", "child", "sibling"}:
                # The fourth relation, pair, joins two texts of one input; a translator reads one text.
                problems.append(f"{name}.without: expected to leave at least one relation, got none left.")
        for key, value in {"seed": self.infusion.seed, "embedding.values": embedding.values}.items():
            if value:
                problems.append(
                    f"infusion.{key}: expected none in a translator, got {value}. The run has its own."
                )
        if not self.is_hosted and lisa is not None and lisa.keys != "head":
            problems.append(f"lisa.keys: expected head in a translator, got {lisa.keys}.")
        return problems

    def annotator_name(self) -> str | None:
        """The source's annotator: the user's, or else the bundled one of its language, or that of spaces."""
        language = language_of_side(self.data, self.data.src)
        name = self.annotation.annotator or (language.code if language.code in BUNDLED else None)
        factors, trees = dict(self.width_plan().factors), self.syntax_inputs(training=True).needs
        if name is None and factors and not trees:
            reads_tags = any(FACTORS[factor].needs for factor in factors if factor in FACTORS)
            return None if reads_tags else SPACES
        return name

    def _annotator_problems(self) -> list[str]:
        """Annotators of another language than that of their side, or than one of several."""
        tags, is_forced, force = self.predict_target_pos, self.annotation.force, "annotation.force=true"
        src, tgt = (language_of_side(self.data, ending) for ending in (self.data.src, self.data.tgt))
        name = self.annotator_name()
        is_needed = self.width_plan().factors or self.syntax_inputs(training=True).needs
        for side, needs in (("src", is_needed), ("tgt", tags)):
            others = {getattr(corpus, side) for corpus in self.data.train} - {None, getattr(self.data, side)}
            if needs and others:
                return [
                    f"data.train: expected {side}={getattr(self.data, side)} in each corpus, as an annotator "
                    f"reads one language, got {', '.join(sorted(others))}."
                ]
        try:
            if is_needed and not (name and is_forced):
                choose_annotator(name, src, "annotation.annotator", "data.src_language=CODE", force)
            if tags is not None and not is_forced:
                key = "predict_target_pos.annotator"
                choose_annotator(tags.annotator, tgt, key, "data.tgt_language=CODE", force)
        except ConfigError as error:
            return error.problems
        return []

    @property
    def embedding(self) -> EmbeddingConfig:
        """How factors enter the encoder; the last is `term` if the model learns terms, alone by addition."""
        embedding = self.infusion.embedding or EmbeddingConfig()
        if self.data.terms is None or TERM in (embedding.factors or ()):
            return embedding
        if embedding.kind == "none":
            return embedding.model_copy(update={"kind": "add", "factors": (TERM,)})
        kinds = ENCODER_KINDS if self.is_hosted else INFUSION_KINDS
        default = kinds[embedding.kind].default_factors if embedding.kind in kinds else ()
        return embedding.model_copy(update={"factors": (*(embedding.factors or default), TERM)})

    def width_plan(self) -> WidthPlan:
        """The widths of all tables; for a pretrained translator those of its factors alone."""
        if self.is_hosted and self.embedding.kind in ENCODER_KINDS:
            return self.embedding.plan(MAX_WIDTH, ENCODER_KINDS)
        return self.embedding.plan(self.model.d_model)

    def host_infusion(self, vocabularies: Mapping[str, FactorVocabulary]) -> InfusionConfig:
        """What is put into a pretrained translator, with the values of its factors."""
        embedding = None
        if self.embedding.kind != "none":
            values = {name: vocabulary.values for name, vocabulary in vocabularies.items()}
            embedding = self.embedding.model_copy(update={"factors": tuple(values) or None, "values": values})
        return self.infusion.model_copy(update={"embedding": embedding, "seed": self.seed})

    def syntax_inputs(self, training: bool) -> SyntaxInputs:
        """What the encoder reads of trees; governors are targets in training and are injected outside it."""
        lisa = self.infusion.lisa
        reads_governors = lisa is not None and (lisa.inject is not None or (training and lisa.supervised))
        brackets = () if training and self.parse_task else None
        return SyntaxInputs.of(self.infusion.tree_options, reads_governors, brackets=brackets)


def _with_start(recipe: Recipe, path: str) -> tuple[Recipe, list[str]]:
    """The recipe with what the folder that training starts from decides, and what does not fit it."""
    settings, subwords, data, is_hosted = recipe.model, recipe.subwords, dict[str, Any](), recipe.is_hosted
    try:
        stored = host_sections(path) if is_hosted else own_sections(path)
        model = ModelConfig.model_validate(stored["model"])
    except (ConfigError, ValueError) as error:
        return recipe, [
            f"model.init_from: {line.removeprefix('model.init_from: ')}"
            for line in str(error).splitlines()[:3]
        ]
    fields, own_keys = ModelConfig.model_fields, {"init_from", *_OF_START}
    problems = [
        f"model.{key}: expected {getattr(model, key)!r}, as in model.init_from={path}, got {value!r}. "
        "Leave it out."
        for key in sorted(fields.keys() - own_keys - DROPOUTS)
        if (value := getattr(settings, key)) not in (getattr(model, key), fields[key].default)
    ]
    chosen = {key: getattr(settings, key) for key in (*own_keys, *(settings.model_fields_set & DROPOUTS))}
    model = model.model_copy(update=chosen)
    if recipe.data.normalize_punctuation is None:
        data["normalize_punctuation"] = normalizes_punctuation(path)
    if (Path(path) / TRANSLATOR).is_file():
        info = read_json(Path(path) / TRANSLATOR)
        # Other checkpoints' tokenizers have a form of their own, to which NFC and NFD lead alike.
        of_start = {"normalize": info.get("normalize", "none"), "protect": tuple(info.get("protect", ()))}
        data |= {key: of_start[key] for key in of_start.keys() - recipe.data.model_fields_set}
        symbols = tuple(dict.fromkeys((*info.get("symbols", ()), *subwords.symbols)))
        subwords = subwords.model_copy(update={"symbols": symbols})
    infusion, parent = recipe.infusion, stored["infusion"]
    listed = infusion.embedding or EmbeddingConfig()
    if is_hosted:
        problems += [
            f"model.{key}: expected none in a {stored['kind']} model, which has one rate, model.dropout, "
            f"got {value}."
            for key in DROPOUTS - stored["dropouts"]
            if (value := getattr(model, key)) != model.dropout
        ]
        if parent is not None:  # what a pretrained translator is infused with stays, and nothing is added
            if listed.kind == "none":
                infusion = infusion.model_copy(update={"embedding": None})
            if not infusion.is_plain and infusion.model_dump() != parent.model_dump():
                problems.append(
                    "infusion: expected that of model.init_from, which is infused already. Leave it out."
                )
            else:
                infusion = parent
    else:
        parent = InfusionConfig.from_json(parent, f"{path}/recipe.yaml")
        if listed not in (EmbeddingConfig(), parent.embedding or EmbeddingConfig()):
            problems.append(
                f"infusion.embedding: expected that of model.init_from={path}, got {listed.kind}. "
                "Leave it out; masks, relation_bias and lisa may be added."
            )
        # In part only, so that what is added takes what it does not say of trees from what is there.
        parts = {name: getattr(infusion, name) for name in recipe.shorthands if getattr(infusion, name)}
        added = {name: section.model_dump(exclude_unset=True) for name, section in parts.items()}
        preset = {} if infusion.preset == "preserving" else {"preset": infusion.preset}
        try:
            sections = {**parent.model_dump(exclude_unset=True), **added, **preset}
            infusion = InfusionConfig.from_json(sections, "infusion")
        except ConfigError as error:
            problems += error.problems
    sections = {"model": model, "subwords": subwords, "infusion": infusion}
    sections["data"] = recipe.data.model_copy(update=data)
    return recipe.model_copy(update=sections), problems


def _read(content: Mapping[str, Any], source: str) -> Recipe:
    """A complete recipe; the problems of each line name their source."""
    recipe = validate(Recipe, content, source)
    try:
        return recipe.completed()
    except ConfigError as error:
        raise ConfigError([f"{source}: {problem}" for problem in error.problems]) from error


def load_recipe(path: str | Path, overrides: Sequence[str] = (), overrides_from: str | None = None) -> Recipe:
    """Read a recipe from a YAML file or by the name of a bundled one, and apply settings "key.sub=value".

    Problems that the file alone has not name `overrides_from`, where the settings stand, if it is given.

    Raises:
        DataError: The file cannot be read.
        ConfigError: Lists all problems of the file and the overrides together.
    """
    path = _find(path)
    settings = [Recipe.long(setting) for setting in overrides]
    check_once(settings if overrides_from else ())
    of_file = read_yaml(path)
    of_file.pop("relations", None)  # a file that the command line has registered; a stranger's is not run
    of_file = Recipe.in_full(of_file)
    content = apply_overrides(of_file, settings)
    try:
        return _read(content, str(path))
    except ConfigError as error:
        if overrides_from is None:
            raise
        key, model = "init_from", of_file.get("model")
        if isinstance(model, dict) and key in model:  # nobody asks the Hub for one that settings replace
            of_file = {**of_file, "model": {**model, key: content["model"].get(key)}}
        try:
            _read(of_file, str(path))
            of_file_alone = []
        except ConfigError as without:
            of_file_alone = [problem for problem in without.problems if key not in problem]
        problems = [
            problem if problem in of_file_alone else f"{overrides_from}{problem.removeprefix(str(path))}"
            for problem in error.problems
        ]
        raise ConfigError(problems) from error


def _find(path: str | Path) -> Path:
    """The file, the bundled recipe of that name, from the package or the repository, or a run's own."""
    path = Path(path)
    if path.is_file() or (path.suffix and not path.is_dir()):
        return path
    package = Path(__file__).resolve().parents[1]
    folders = (package.parents[1] / "recipes", package / "recipes")
    bundled = {file.stem: file for folder in folders for file in folder.glob("*.yaml")}
    if (name := str(path)) not in bundled:
        if (path / RECIPE).is_file():
            return path / RECIPE
        raise ConfigError(
            f"recipe: expected a YAML file or a bundled recipe, got {path}. {nearest(name, list(bundled))}"
        )
    return bundled[name]
