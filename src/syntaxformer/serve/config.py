"""Settings of the service: where it listens and how much it takes on. Reads no model."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field


class ServiceConfig(BaseModel):
    """What `syntaxformer serve` was told."""

    model_config = ConfigDict(extra="forbid")

    models: dict[str, Path] = Field(description="name of each model → its folder; the first is the default")
    host: str = Field(default="127.0.0.1", description="address to listen on; loopback unless told")
    port: int = Field(default=8000, ge=0, le=65535, description="0 takes a free one")
    allowed_hosts: list[str] = Field(
        default=[], description="names in `Host` that are answered, beside those of this machine alone"
    )
    workers: int = Field(default=1, ge=1, description="processes, each with models of its own")
    annotator: str | None = Field(
        default=None, description="tags and parses for all models that read them; null: the models' own"
    )
    trust_annotator: bool = Field(default=False, description="load any annotator that a folder names")
    device: str | None = Field(default=None, description="cpu, cuda, …; null: the best there is")
    max_texts: int = Field(default=128, ge=1, description="texts of one request")
    max_characters: int = Field(default=5000, ge=1, description="characters of one text")
    max_explained_characters: int = Field(
        default=1000, ge=1, description="characters of a text that is looked into, both of a pair together"
    )
    max_body_bytes: int = Field(
        default_factory=lambda data: max(1_000_000, data["max_characters"] * max(2 * data["max_texts"], 13)),
        ge=1,
        description="bytes of one request; by default 2 for each allowed character, and no less than 1 MB",
    )
    max_batch: int = Field(default=64, ge=1, description="texts that are worked on together")
    max_batch_characters: int = Field(
        default_factory=lambda data: max(5000, 100 * data["max_batch"]),
        ge=1,
        description="characters of several texts worked on together; by default 100 a text, at least 5,000",
    )
    max_waiting: int = Field(
        default=1024, ge=1, description="texts that wait, for each model; more are refused"
    )
    deadline_s: float = Field(
        default=30.0, gt=0, allow_inf_nan=False, description="seconds within which a request is answered"
    )
    log_texts: bool = Field(default=False, description="write texts of users into the log")
    api_key: str | None = Field(
        default=None, repr=False, description="asked of every request to /v1; null: none"
    )
