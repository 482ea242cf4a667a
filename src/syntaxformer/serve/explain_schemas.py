"""Bodies of `POST /v1/explain`: one text with all that a model and a parser say about it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from syntaxformer.serve.schemas import Classification
from syntaxformer.syntax import MAX_DISTANCE

__all__ = [
    "AttentionView",
    "ExplainAnswer",
    "ExplainRequest",
    "NetworksView",
    "PiecesView",
    "RelationsView",
    "SentenceView",
]

_LARGEST_DISTANCE = 84


class ExplainRequest(BaseModel):
    """A text to look into."""

    text: str | Annotated[list[str], Field(min_length=2, max_length=2)] = Field(
        description="a sentence; two where the model was trained on pairs"
    )
    model: str | None = Field(default=None, description="name of a model; null: the first one")
    layer: int = Field(
        default=-1, ge=-1, le=999, description="whose attention is shown, from 0; -1: the last"
    )
    head: int | None = Field(default=None, ge=0, le=999, description="null: the mean over the heads")
    network: str | None = Field(
        default=None,
        max_length=100,
        description='show one sub-network\'s attention, "dependency parent 1"; null: all together',
    )
    max_distance: int = Field(
        default=MAX_DISTANCE, ge=1, le=_LARGEST_DISTANCE, description="largest distance that has a relation"
    )

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"text": "Two dogs play in the snow."},
                {"text": "They drank the pub dry.", "model": "cola", "layer": 0, "head": 3},
            ]
        },
    )


class SentenceView(BaseModel):
    """Words with their annotation, one value a word; null for what the parser does not give."""

    text: str
    words: list[str]
    upos: list[str] | None = None
    xpos: list[str] | None = None
    lemmas: list[str] | None = None
    governors: list[int] | None = Field(default=None, description="from 0, -1 for a root")
    deprels: list[str] | None = None
    constituency: str | None = Field(default=None, description="in brackets")
    phrases: list[tuple[str, int, int]] | None = Field(
        default=None, description="[label, first word, word after the last], parents before children"
    )


class PiecesView(BaseModel):
    """What the model reads."""

    texts: list[str]
    words: list[int] = Field(description="word of each piece, counted through both sentences, -1 for none")
    factors: dict[str, list[str]] = Field(description="factor → its value for each piece")


class RelationsView(BaseModel):
    """Relations of the words of all sentences."""

    max_distance: int
    names: list[str] = Field(description="name of each id")
    trees: dict[str, list[list[int]]] = Field(description="tree → [word][word] → id")


class AttentionView(BaseModel):
    """Attention of one layer."""

    kind: Literal["cross", "self"]
    n_layers: int
    n_heads: int
    layer: int
    head: int | None = Field(default=None, description="null: the mean")
    network: str | None = None
    rows: list[str] = Field(description="pieces that look")
    columns: list[str] = Field(description="pieces looked at")
    weights: list[list[float]]


class NetworksView(BaseModel):
    """Sub-networks of syntax attention."""

    layers: list[int]
    names: list[str]
    occurs: list[bool] = Field(description="whether the sub-network links any two pieces here")
    weights: list[list[float]] = Field(description="[layer][sub-network], mean over pieces")


class ExplainAnswer(BaseModel):
    """What there is to see; what there is not, with the reason, in `missing`."""

    model: str
    task: Literal["translation", "classification"]
    translation: str | None = None
    classification: Classification | None = None
    sentences: list[SentenceView]
    pieces: PiecesView
    relations: RelationsView
    attention: AttentionView | None = None
    networks: NetworksView | None = None
    missing: dict[str, str] = Field(
        default={}, description="trees, attention, networks → why they are not here"
    )
