"""Bodies of requests and answers, with examples, as the OpenAPI document shows them."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from syntaxformer.syntax import MAX_DISTANCE
from syntaxformer.syntax.relations import LARGEST_DISTANCE

Split = Literal["never", "auto", "always"]
Shown = Literal["tags", "alignment", "attention"]
Task = Literal["translation", "classification"]
Pair = Annotated[list[str], Field(min_length=2, max_length=2)]
TargetLanguage = Annotated[
    str | None, Field(max_length=250, description="target language, of a model that has several")
]
Truncated = Annotated[bool, Field(description="whether the text was cut to the model's longest input")]


def _with_examples(*examples: dict[str, Any]) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": list(examples)})


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


MAX_KEYS = 50
"""Largest number of keys in all objects of a request, of which terms may take what the others leave."""

TermText = Annotated[str, Field(min_length=1, max_length=100, pattern=r"\S")]


class TranslateSettings(_Request):
    """Settings that texts of one batch share."""

    beam_size: int | None = Field(default=None, ge=1, le=256, description="null: the model's setting")
    n_best: int = Field(default=1, ge=1, le=256, description="translations of each text, at most beam_size")
    length_penalty: float | None = Field(default=None, ge=-5, le=5, description="null: the model's setting")
    scores: bool = Field(default=False, description="return the score of each translation")
    terms: dict[TermText, TermText] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_KEYS,
        description="terms and the translations to use, of a model that has the factor term",
    )
    to: TargetLanguage = None
    min_length: int = Field(default=0, ge=0, le=512, description="fewest pieces of a translation")
    max_length_factor: float | None = Field(
        default=None,
        gt=0,
        le=100,
        description="most pieces: so many times the source's + 10; null: as trained",
    )
    coverage_penalty: float = Field(default=0.0, ge=0, le=100, description="exports alone, with beams")
    split_sentences: Split | None = Field(
        default=None,
        description="translate sentences one by one; auto: of texts with more than training lines; null: auto"
        ", but never with a prefix, alignment or attention, or if the model does not know what those had",
    )
    prefix: str = Field(default="", max_length=2000, description="how each translation must begin")
    show: list[Shown] = Field(
        default=[],
        max_length=3,
        description="also return tags of the source, or alignment or attention of the best translation",
    )
    format: Literal["text", "html"] = Field(
        default="text",
        description="html: inline tags go where their words go; a badly formed text is refused",
    )
    alignments: bool = Field(
        default=False, description="return which word became which in the best translation of a plain text"
    )

    @model_validator(mode="after")
    def _of_plain_text(self) -> TranslateSettings:
        if self.format == "html" and (self.alignments or self.show):
            field = "alignments" if self.alignments else "show"
            raise ValueError(f"{field}: expected none with format=html, whose tags are no words.")
        linked = self.format == "html" or self.alignments or {"alignment", "attention"} & {*self.show}
        if self.terms is not None and linked:
            raise ValueError("terms: expected none with format=html, alignments or shown attention.")
        return self


class TranslateRequest(TranslateSettings):
    """Texts to translate."""

    texts: list[str] = Field(
        min_length=1,
        fail_fast=True,
        description="sentences or segments; line breaks and tabs are read as spaces",
    )
    model: str | None = Field(default=None, description="name of a model; null: the first translator")

    model_config = _with_examples(
        {"texts": ["A man is standing on a ladder."]},
        {"texts": ["Two dogs run."], "beam_size": 5, "n_best": 3, "scores": True, "show": ["tags"]},
    )


class Hypothesis(BaseModel):
    """One translation."""

    text: str
    score: float | None = Field(default=None, description="log-probability / length ** length_penalty")


class Source(BaseModel):
    """The source as the model read it."""

    pieces: list[str] = Field(description="subword pieces, the end piece included")
    factors: dict[str, list[str]] = Field(description="factor → its value for each piece")


class Attention(BaseModel):
    """Cross-attention of the last layer, averaged over its heads."""

    source: list[str]
    target: list[str]
    weights: list[list[float]] = Field(description="[target][source]; each row sums to 1")


class WordAlignment(BaseModel):
    """Which word became which."""

    source: list[tuple[int, int]] = Field(
        description="characters of each word, end exclusive, in the text with each line break as one space"
    )
    target: list[tuple[int, int]] = Field(description="the same in the translation")
    links: list[tuple[int, int]] = Field(description="numbers of a source and of a target word, from 0")


class Translation(BaseModel):
    """The translation of one text."""

    text: str = Field(description="the best translation")
    repairs: list[Pair] | None = Field(
        default=None, description="lost, doubled, …, with the protected text that it concerns, of the best"
    )
    hypotheses: list[Hypothesis] | None = Field(default=None, description="best first, with n_best or scores")
    source: Source | None = None
    alignment: list[Annotated[list[int], Field(min_length=2, max_length=2)]] | None = Field(
        default=None, description="for each target piece: [most attended source piece, target piece]"
    )
    attention: Attention | None = None
    words: WordAlignment | None = Field(default=None, description="with alignments")
    n_sentences: int | None = Field(default=None, description="sentences, if they were translated one by one")
    truncated: Truncated = False


class TranslateAnswer(BaseModel):
    """Translations, one for each text, in order."""

    model: str
    translations: list[Translation]

    model_config = _with_examples(
        {"model": "sit", "translations": [{"text": "Ein Mann steht auf einer Leiter.", "truncated": False}]}
    )


class ScoreSettings(_Request):
    """Settings that pairs of one batch share."""

    beam_size: ClassVar[int] = 1
    pieces: bool = Field(default=False, description="also return the log-probability of each piece")
    to: TargetLanguage = None


class ScoreRequest(ScoreSettings):
    """Given translations to score."""

    texts: list[Pair] = Field(
        min_length=1, fail_fast=True, description="pairs of a source and its translation"
    )
    model: str | None = Field(default=None, description="name of a model; null: the first translator")

    model_config = _with_examples({"texts": [["Two dogs run.", "Zwei Hunde rennen."]]})


class Score(BaseModel):
    """The score of one translation; logarithms are natural."""

    log_prob: float = Field(description="log-probability of the translation")
    n_pieces: int = Field(description="number of its pieces, the end piece included")
    mean: float = Field(description="log_prob / n_pieces")
    pieces: list[str] | None = None
    log_probs: list[float] | None = Field(default=None, description="log-probability of each piece")
    truncated: Truncated = False


class ScoreAnswer(BaseModel):
    """Scores, one for each pair, in order."""

    model: str
    scores: list[Score]

    model_config = _with_examples(
        {"model": "sit", "scores": [{"log_prob": -1.5, "n_pieces": 5, "mean": -0.3, "truncated": False}]}
    )


class ClassifyRequest(_Request):
    """Texts, or pairs of texts, to classify."""

    texts: list[str | Pair] = Field(
        min_length=1,
        fail_fast=True,
        description="texts, or pairs if the model was trained on pairs; none may be empty",
    )
    model: str | None = Field(default=None, description="name of a model; null: the first classifier")

    model_config = _with_examples({"texts": ["They drank the pub dry."]})


class Classification(BaseModel):
    """A model's answer about one text."""

    label: str | None = Field(default=None, description="label; null if the model gives scores")
    score: float | None = Field(default=None, description="score, if the model gives scores")
    labels: list[str] | None = Field(default=None, description="all labels, if a text may have several")
    scores: dict[str, float] | None = Field(default=None, description="all scores, if there are several")
    tags: list[dict[str, Any]] | None = Field(
        default=None, description="word, entity (its tag), score, start and end of each word"
    )
    answer: dict[str, Any] | None = Field(
        default=None, description="answer, start and end in the second text, score; an empty answer: none"
    )
    probabilities: dict[str, float] | None = None
    truncated: Truncated = False


class ClassifyAnswer(BaseModel):
    """Classifications, one for each text, in order."""

    model: str
    classifications: list[Classification]

    model_config = _with_examples(
        {
            "model": "cola",
            "classifications": [{"label": "1", "probabilities": {"0": 0.02, "1": 0.98}, "truncated": False}],
        }
    )


class ModelDescription(BaseModel):
    """A model that is served."""

    name: str
    task: Task
    backend: str
    annotator: str | None = None
    source_language: str | None = None
    target_language: str | None = None
    factors: list[str] = []
    labels: list[str] | None = None
    n_texts: int = Field(default=1, description="2 if it takes pairs of texts")
    n_layers: int | None = Field(default=None, description="number of layers that /v1/explain can show")
    n_heads: int | None = Field(default=None, description="number of heads in each layer")
    networks: bool = Field(default=False, description="whether it has sub-networks of syntax attention")
    shows: list[Shown] = Field(default=[], description="values of `show` that it supports")


class ModelList(BaseModel):
    """All models; the default of each task comes first."""

    models: list[ModelDescription]


class _Error(BaseModel):
    status: int
    code: str
    message: str = Field(description="what was expected, what was found, and what to change")
    request_id: str


class ErrorBody(BaseModel):
    """The body of every answer that is not 2xx."""

    error: _Error


class ExplainSettings(_Request):
    """What to show of a text."""

    layer: int = Field(
        default=-1, ge=-1, le=999, description="layer whose attention is shown, from 0; -1: the last"
    )
    head: int | None = Field(default=None, ge=0, le=999, description="head; null: the mean over all heads")
    network: str | None = Field(
        default=None,
        max_length=100,
        description='sub-network to show, such as "dependency parent 1"; null: all together',
    )
    max_distance: int = Field(
        default=MAX_DISTANCE, ge=1, le=LARGEST_DISTANCE, description="largest distance of relations"
    )
    to: TargetLanguage = None


class ExplainRequest(ExplainSettings):
    """A text to explain."""

    text: str | Pair = Field(description="a sentence, or two if the model was trained on pairs")
    model: str | None = Field(default=None, description="name of a model; null: the first one")

    model_config = _with_examples(
        {"text": "Two dogs play in the snow."},
        {"text": "They drank the pub dry.", "model": "cola", "layer": 0, "head": 3},
    )


class SentenceView(BaseModel):
    """Words with their annotation, one value for each word; null if the parser does not give it."""

    text: str
    words: list[str]
    upos: list[str] | None = None
    xpos: list[str] | None = None
    lemmas: list[str] | None = None
    feats: list[str] | None = None
    governors: list[int] | None = Field(default=None, description="governor of each word, from 0; -1: root")
    deprels: list[str] | None = None
    constituency: str | None = Field(default=None, description="bracketed constituency tree")
    phrases: list[tuple[str, int, int]] | None = Field(
        default=None, description="[label, first word, word after the last], parents before children"
    )


class PiecesView(BaseModel):
    """The pieces that the model reads."""

    texts: list[str]
    words: list[int] = Field(description="word of each piece, numbered through both sentences; -1: none")
    factors: dict[str, list[str]] = Field(description="factor → its value for each piece")


class RelationsView(BaseModel):
    """Relations between the words of all sentences."""

    max_distance: int
    names: list[str] = Field(description="name of each id")
    trees: dict[str, list[list[int]]] = Field(description="tree → [word][word] → id")


class AttentionView(BaseModel):
    """Attention of one layer."""

    kind: Literal["cross", "self"]
    n_layers: int
    n_heads: int
    layer: int
    head: int | None = Field(default=None, description="head; null: the mean over all heads")
    network: str | None = None
    rows: list[str] = Field(description="pieces that attend")
    columns: list[str] = Field(description="pieces that are attended to")
    weights: list[list[float]]


class NetworksView(BaseModel):
    """Sub-networks of syntax attention."""

    layers: list[int]
    names: list[str]
    occurs: list[bool] = Field(description="whether the sub-network links any two pieces of this text")
    weights: list[list[float]] = Field(description="[layer][sub-network], averaged over pieces")


class ExplainAnswer(BaseModel):
    """The explanation of a text; `missing` gives the reason for each part that is absent."""

    model: str
    task: Task
    translation: str | None = None
    classification: Classification | None = None
    sentences: list[SentenceView]
    pieces: PiecesView
    relations: RelationsView
    attention: AttentionView | None = None
    networks: NetworksView | None = None
    missing: dict[str, str] = Field(
        default={}, description="trees, attention, networks → reason why they are absent"
    )
