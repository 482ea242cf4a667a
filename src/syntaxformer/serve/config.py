"""Settings of the service: where it listens and how much work it accepts."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field


class ServiceConfig(BaseModel):
    """The settings of `syntaxformer serve`."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    models: dict[str, Path] = Field(description="name of each model → its folder; the first is the default")
    host: str = Field(default="127.0.0.1", description="address to listen on; by default this machine only")
    port: int = Field(default=8000, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    allowed_hosts: list[str] = Field(
        default=[], description="names in the header `Host` that are answered besides those of this machine"
    )
    workers: int = Field(default=1, ge=1, description="number of processes, each with its own models")
    annotator: str | None = Field(
        default=None, description="annotator for all models that need one; null: the models' own"
    )
    trust_annotator: bool = Field(default=False, description="load any annotator that a folder names")
    device: str | None = Field(default=None, description="cpu, cuda, …; null: the best one available")
    max_texts: int = Field(default=128, ge=1, description="largest number of texts in a request")
    max_characters: int = Field(default=5000, ge=1, description="largest number of characters in a text")
    max_explained_characters: int = Field(
        default=1000,
        ge=1,
        description="characters of a text or pair that is explained, or whose attention is shown",
    )
    max_body_bytes: int = Field(
        default_factory=lambda data: max(1_000_000, data["max_characters"] * max(2 * data["max_texts"], 13)),
        ge=1,
        description="bytes of one request; by default 2 for each allowed character, at least 1 MB",
    )
    max_batch: int = Field(default=64, ge=1, description="largest number of texts in a batch")
    batch_s: float = Field(
        default=0.5, gt=0, allow_inf_nan=False, description="seconds of a batch; one text may take twice that"
    )
    max_beam: int = Field(default=20, ge=1, le=256, description="largest beam size of a request")
    max_waiting: int = Field(
        default=1024, ge=1, description="texts of a client that may wait for each model; more are refused"
    )
    deadline_s: float = Field(default=30.0, gt=0, description="seconds within which a request is answered")
    log_texts: bool = Field(default=False, description="write users' texts to the log")
    api_key: str | None = Field(
        default=None, repr=False, description="key that every request to /v1 must send; null: none"
    )
