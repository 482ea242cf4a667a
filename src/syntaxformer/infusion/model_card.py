"""`README.md` of a model folder, which tells what its other files say and nothing else; and its upload."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from glob import escape
from pathlib import Path
from typing import Any

import yaml

from syntaxformer.base.files import BAD_ROWS, CARD, HELD_OUT, MANIFEST, TRAINED_ON
from syntaxformer.infusion.config import IN_ATTENTION

MARK = "<!-- Written by syntaxformer; without this line it is left as it is. -->"

_NOT_UPLOADED = ("checkpoint*/*", "logs/*", "runs/*", ".*", HELD_OUT, TRAINED_ON, BAD_ROWS)
"""Training state, and what tells of the user's rows."""

_PICKLES = {".bin", ".pt", ".pth"}
"""Endings of pickles; a file so named that the manifest lists is none, but read with the model."""

_KINDS = {
    "syntaxformer": ("translation", 'sf.pipeline("{name}")("…")  # [{{"translation_text": …}}]'),
    "classifier": ("text-classification", 'sf.pipeline("{name}")("…")  # [{{"label": …, "score": …}}]'),
    "infusion": (None, 'sf.load("{name}")  # takes the batches of an sf.SyntaxCollator'),
}
"""File that tells the kind of model → its task, and how it is loaded."""

_STANDING_ROWS = ("annotator", "trained on", "scores on dev")
"""What a card names also where it is not known."""

_TIMES = re.compile("epoch|step|runtime|per_second")


def write_card(folder: Path, name: str | None = None) -> None:
    """Write the card of a folder, unless somebody has written one; `name` is that on the Hub."""
    path = folder / CARD
    if not path.is_file() or MARK in path.read_text("utf-8"):
        path.write_text(_card(folder, name or folder.resolve().name), "utf-8")


def push_to_hub(
    folder: str | Path, repo_id: str, *, private: bool | None = None, token: str | None = None, **options: Any
) -> str:
    """Upload a model folder with its card, but without training state.

    Args:
        folder: What `train`, `finetune`, `export` or `save_pretrained` wrote.
        repo_id: Name on the Hub, made where it is new. A card of somebody's own stays there.
        private: Whether a new one is private.
        token: None for the one that the Hub's client has stored.
        options: As `HfApi.upload_folder` takes them, such as `revision`.

    Returns:
        Where it is; `load` or `pipeline` takes its name.
    """
    from huggingface_hub import HfApi

    api, listed = HfApi(token=token), _read(Path(folder) / MANIFEST).get("files", {})
    names = [
        path.relative_to(folder).as_posix() for path in Path(folder).rglob("*") if path.suffix in _PICKLES
    ]
    left_out = [*_NOT_UPLOADED, *(escape(name) for name in names if name not in listed)]
    repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
    write_card(Path(folder), repo_id)
    branch = options.get("revision")
    if api.file_exists(repo_id, CARD, revision=branch):
        text_on_hub = Path(api.hf_hub_download(repo_id, CARD, revision=branch)).read_text("utf-8")
        left_out += [] if MARK in text_on_hub else [CARD]
    options = {"commit_message": "Upload model", **options}
    return str(api.upload_folder(repo_id=repo_id, folder_path=folder, ignore_patterns=left_out, **options))


def _card(folder: Path, name: str) -> str:
    names = ("config", "infusion", "collator", "classifier", "syntaxformer", "run", "trainer_state")
    files: dict[str, Any] = {stem: _read(folder / f"{stem}.json") for stem in names}
    recipe, kind = _read(folder / "recipe.yaml"), next((stem for stem in _KINDS if files[stem]), "infusion")
    (task, use), record = _KINDS[kind], files[kind]
    start: Any = files["infusion"].get("checkpoint") or recipe.get("model")
    infusion = files["infusion"].get("infusion") or recipe.get("infusion") or {}
    embedding = infusion.get("embedding") or {}
    parts = [section for section in IN_ATTENTION if infusion.get(section)]
    by = [record[key] for key in ("annotator", "annotator_version") if record.get(key)]
    facts = {
        "network": ", ".join(files["config"].get("architectures") or ()),
        "started from": end_of(start.get("init_from") if isinstance(start, dict) else start),
        "infused": ", ".join(filter(None, [*parts, embedding.get("kind")])),
        "factors": ", ".join(embedding.get("factors") or ()),
        "annotator": " ".join(by) or ", ".join(files["collator"].get("annotators") or ()),
        "languages": " → ".join(record[side] for side in ("src", "tgt") if side in record),
        "trained on": _data(files["run"], recipe.get("data") or {}),
        "scores on dev": _scores(files["run"], files["trainer_state"].get("log_history") or ()),
    }
    rows = [
        f"| {title} | {fact or 'not recorded'} |\n"
        for title, fact in facts.items()
        if fact or title in _STANDING_ROWS
    ]
    head = {"library_name": "syntaxformer", "tags": ["syntaxformer"]} | (
        {"pipeline_tag": task} if task else {}
    )
    return (
        f"---\n{yaml.safe_dump(head, sort_keys=False)}---\n{MARK}\n\n# {name}\n\n| | |\n|---|---|\n"
        f"{''.join(rows)}\n```python\nimport syntaxformer as sf\n\n{use.format(name=name)}\n```\n"
    )


def _data(run: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """Names of data sets or files, without the folders that these lay in."""
    if "data" in run:
        return f"{run['task']}, {end_of(run['data']['train'])}: {run['n_train']:,} examples"
    train = [end_of(data.get("dir")), str(data.get("train") or "")]
    return data.get("dataset") or " / ".join(filter(None, train))


def _scores(run: Mapping[str, Any], logs: Sequence[Mapping[str, Any]]) -> str:
    """As a run of ours has stored them, or transformers' `Trainer` those of its last evaluation."""
    scores = run.get("dev") or {key: run[key] for key in run if key.startswith("dev_")}
    scores = scores or next((log for log in reversed(logs) if "eval_loss" in log), {})
    numbers = {key: score for key, score in scores.items() if isinstance(score, int | float)}
    return ", ".join(f"{key} {score:.4g}" for key, score in numbers.items() if not _TIMES.search(key))


def end_of(path: str | None) -> str:
    """The end of a path; of a name on the Hub all."""
    return Path(path).name if path and (Path(path).is_absolute() or Path(path).exists()) else path or ""


def _read(path: Path) -> dict[str, Any]:
    read = json.loads if path.suffix == ".json" else yaml.safe_load
    return read(path.read_text("utf-8")) if path.is_file() else {}
