"""Settings of a fine-tuning run, in one section for each part of the work; the counterpart of a recipe.

`load_finetune` merges the options and settings of the command line and reports all problems at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, field_validator, model_validator

from syntaxformer.base.config import apply_overrides, validate
from syntaxformer.base.errors import ConfigError
from syntaxformer.encoders.task_data import LabelledData
from syntaxformer.infusion.config import INFUSIONS, InfusionConfig
from syntaxformer.runs.config import RunConfig, RunTraining, Section

_LISTS = frozenset({"without", "trees", "layers", "learning_rates", "factors"})
"""Settings that are lists."""

_ADAM = {"warmup_frac": 0.0, "weight_decay": 0.0}
_PRINTED = {
    **{task: {**_ADAM, "learning_rate": 1e-4} for task in ("sst1", "sst2", "sst2_trees")},
    **{task: {**_ADAM, "learning_rate": 5e-4, "decay": 0.9} for task in ("snli", "mnli")},
}
"""Tasks → training of encoders from scratch as Bai et al. (2021) print it, appendix A.1 and A.2."""


class ParserConfig(Section):
    """The annotator that tags and parses the texts."""

    annotator: str | None = Field(
        default=None,
        description="en, de, spacy:NAME, …; null: en, of a table the bundled one of its language; "
        "constituency trees are made from its dependencies",
    )
    processes: int = Field(default=1, ge=1, le=1024, description="number of processes that parse in parallel")
    gold_trees: bool = Field(
        default=True, description="use the constituency trees in the data (SST, SNLI, MNLI, SICK)"
    )


class FinetuneTraining(RunTraining):
    """How the model is trained: BERT's recipe, as Sundararaman et al. (2019) use it."""

    epochs: int = Field(
        default=3, ge=1, description="passes over the training data (Sundararaman et al. 2019: 3)"
    )
    batch_size: int = Field(
        default=32,
        ge=1,
        le=2**16,
        description="examples in a batch, over all processes together (Sundararaman et al. 2019: 32)",
    )
    accumulate: int = Field(default=1, ge=1, le=2**16, description="batches of each update, with their mean")
    average: int = Field(
        default=1, ge=1, description="average so many checkpoints near the best one, if that is no worse"
    )
    learning_rate: Annotated[float, Field(allow_inf_nan=True)] | Literal["auto"] = Field(
        default=5e-5,
        description="learning rate of the checkpoint's parameters; auto: the best of learning_rates on dev. "
        "The default is the papers' largest; small checkpoints and small data need it, BERT-base can take it",
    )
    learning_rates: tuple[float, ...] = Field(
        default=(5e-5, 4e-5, 3e-5, 2e-5),
        min_length=1,
        description="learning rates that auto tries (Sundararaman et al. 2019)",
    )
    infusion_learning_rate: float | None = Field(
        default=None, gt=0, description="of the parameters that syntax adds; null: learning_rate"
    )
    warmup_frac: float = Field(
        default=0.1, ge=0, lt=1, description="share of updates in which the learning rate rises (BERT: 0.1)"
    )
    decay: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="factor of the learning rate after each epoch (Bai et al. 2021, A.2: 0.9); null: the "
        "rate falls to 0 in a line",
    )
    class_weights: Literal["balanced"] | None = Field(
        default=None,
        description="balanced: a row's loss is multiplied by rows / (classes · rows of its class)",
    )
    best_by: str | None = Field(
        default=None,
        description="metric on dev that chooses the best epoch, as macro_f1; null: the task's, or their mean",
    )
    weight_decay: float = Field(default=0.01, ge=0, description="decoupled, on matrices only (BERT: 0.01)")
    max_grad_norm: float = Field(default=1.0, gt=0, description="gradients are clipped to this norm")
    max_length: int = Field(
        default=128,
        ge=8,
        le=2**20,
        description="largest number of pieces; longer examples are cut and counted",
    )
    stride: int | None = Field(
        default=None,
        ge=0,
        description="tags, questions: pieces that two windows of a longer text share; null: max_length / 4",
    )
    tagged: Literal["first", "all"] = Field(
        default="first", description="tags: the pieces of a word from which its tag is learned"
    )
    eval_batch_size: int = Field(default=64, ge=1, le=2**16, description="examples evaluated together")
    tensorboard: bool = Field(default=False, description="write OUTPUT/logs for TensorBoard")
    keep_checkpoints: bool = Field(
        default=False, description="keep the checkpoints of a finished run (each about 3 × the model's size)"
    )

    @field_validator("learning_rate")
    @classmethod
    def _positive(cls, value: float | str) -> float | str:
        if not isinstance(value, str) and not 0 < value < math.inf:
            raise ValueError(f"expected a number over 0 or auto, got {value}.")
        return value

    @field_validator("learning_rates")
    @classmethod
    def _distinct(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        """Check that rates differ in six digits, because these name the folder of each trial."""
        if not all(0 < value < math.inf for value in values):
            raise ValueError(f"expected numbers over 0, got {', '.join(map(str, values))}.")
        if len({f"{value:g}" for value in values}) < len(values):
            raise ValueError(f"expected each rate once, got {', '.join(map(str, values))}.")
        return values

    @property
    def rates(self) -> tuple[float, ...]:
        """The learning rates to try."""
        return self.learning_rates if self.learning_rate == "auto" else (float(self.learning_rate),)


class FinetuneConfig(RunConfig):
    """A fine-tuning run."""

    task: str = Field(
        description="cola, sst2, …; own data: classify, regress, similarity, multilabel, vector, ner or squad"
    )
    model: str = Field(description="folder of a pretrained checkpoint, or its name on the Hub")
    head: Literal["auto", "classifier", "text"] = Field(
        default="auto",
        description="text: the model writes the label as words; auto: text for encoder-decoders (T5)",
    )
    head_width: int | None = Field(
        default=None,
        ge=1,
        le=2**16,
        description="width of the classifier's hidden layer (Bai et al. 2021: 2000); null: the model's",
    )
    preset: Literal["paper"] | None = Field(
        default=None,
        description="paper: head_width, infusion.preset and, of training, learning_rate, decay, warmup_frac "
        "and weight_decay are those of Bai et al. (2021) from scratch (SST, SNLI, MNLI), unless set",
    )
    data: LabelledData = LabelledData()
    annotation: ParserConfig = ParserConfig()
    infusion: InfusionConfig = InfusionConfig()
    training: FinetuneTraining = FinetuneTraining()

    @model_validator(mode="before")
    @classmethod
    def _as_printed(cls, content: Any) -> Any:
        """Under the keys of a run with a preset, those of the preset."""
        if not isinstance(content, Mapping) or content.get("preset") != "paper":
            return content
        if (task := str(content.get("task"))) not in _PRINTED:
            raise ValueError(f"preset: expected task {', '.join(_PRINTED)}, got {task}. Leave it out.")
        content = {"head_width": 2000, **content}
        for name, settings in (("training", _PRINTED[task]), ("infusion", {"preset": "paper"})):
            section = content.get(name) or {}
            chosen = section.model_dump(exclude_unset=True) if isinstance(section, BaseModel) else section
            content[name] = {**settings, **chosen} if isinstance(chosen, Mapping) else chosen
        return content

    @model_validator(mode="after")
    def _settled(self) -> FinetuneConfig:
        """Check the factors; give the infusion the run's seed, unless it has its own."""
        try:
            _ = self.infusion.factors
        except ConfigError as error:
            raise ValueError("\n".join(f"infusion.{problem}" for problem in error.problems)) from error
        if "seed" not in self.infusion.model_fields_set:
            self.infusion = self.infusion.model_copy(update={"seed": self.seed})
        return self


def load_finetune(
    options: Mapping[str, Any], infuse: str = "", overrides: Sequence[str] = ()
) -> FinetuneConfig:
    """Build the settings of a run from options and overrides.

    `infuse` is a shorthand of the infusion, "masks,pos_add" or "none", which overrides ("key.sub=value")
    refine; "" leaves the infusion to options and overrides.

    Raises:
        ConfigError: Lists all problems together, or an override sets a part of a kind that neither the
            shorthand names nor an override gives as a whole (`infusion.masks={}`).
    """
    content = dict(options)
    infusion = InfusionConfig.parse(infuse)
    if not infusion.is_plain:
        sections = dict(content.get("infusion") or {})
        for name, section in infusion.model_dump(mode="json", exclude_unset=True).items():
            sections[name] = {**(sections.get(name) or {}), **section}
        content["infusion"] = sections
    settings = apply_overrides(content, list(map(_as_list, overrides)))
    config = validate(FinetuneConfig, settings, "finetune")
    overridden = {setting.partition("=")[0] for setting in overrides}
    for kind in INFUSIONS if infuse else ():
        is_named = f"infusion.{kind}" in overridden or getattr(infusion, kind) is not None
        if getattr(config.infusion, kind) is not None and not is_named:
            raise ConfigError(
                f"infusion.{kind}: expected settings of {infuse}, got some of {kind}. "
                "Name it in --infuse, or leave them out."
            )
    return config


def _as_list(setting: str) -> str:
    """Read `masks.without=parent,child` and `masks.without=parent` as lists, like YAML `[parent, child]`."""
    key, equals, value = setting.partition("=")
    if key.rpartition(".")[2] in _LISTS and value and value[0] not in "[{" and value != "null":
        return f"{key}{equals}[{value}]"
    return setting
