"""What a model folder may not ask for, checked before anything of it is built: it may be a stranger's."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from syntaxformer.base.errors import CheckpointError
from syntaxformer.base.files import MAX_JSON_BYTES, read_json

_SETTINGS = ("tokenizer_config", "config", "generation_config", "infusion", "collator")
_LARGEST_NUMBER = 2**20
_SIZES = re.compile(r"(\w+_)?(layers?|heads?)|(vocab|hidden|intermediate|embedding)_size|d_\w+|(hidden_)?dim")
_ELSEWHERE = re.compile(
    r"auto_map|(attn|experts)_implementation|kernel|quantization|transformers_weights|distributed|gguf"
    r"|custom_generate|trust_remote|(?<!special_tokens_map)_files?$"
)
"""Settings by which transformers fetches code, or reads another file than ours."""


def check_settings(folder: Path) -> None:
    """Check that no settings name code, a file elsewhere, or a number that cannot be.

    Raises:
        CheckpointError: Some do, or there are weights that would be loaded besides the model's.
    """
    for found in (*folder.glob("adapter_*"), *folder.glob("shard-*")):
        raise CheckpointError(f"{folder}: expected the weights of one model, got also {found.name}.")
    sizes = [_LARGEST_NUMBER]
    for path in (folder / f"{name}.json" for name in _SETTINGS):
        content = read_json(path) if path.exists() else {}
        sizes = [n for k, n in content.items() if k.endswith("vocab_size") and isinstance(n, int)] or sizes
        for key, value, is_top in _values(content):
            if expected := _expected(key, value, max(sizes), is_top):
                raise CheckpointError(f"{path}: {key}: expected {expected}, got {str(value)[:60]!r}.")


def _values(content: Any) -> Iterator[tuple[str, Any, bool]]:
    """Every value, the key that it stands under, and whether no section is around it."""
    waiting: list[tuple[str, Any, int]] = [("", content, 0)]
    while waiting:
        key, value, depth = waiting.pop()
        yield key, value, depth == 1
        if isinstance(value, dict) and key not in ("id2label", "label2id"):  # their keys are the user's words
            waiting += [(name, one, depth + 1) for name, one in value.items()]
        elif isinstance(value, list):
            waiting += [(key, one, depth + 1) for one in value]


def _expected(key: str, value: Any, n_pieces: int, is_top: bool) -> str | None:
    """What a value should be; None where it may be what it is."""
    if isinstance(value, str | dict) and value not in ("", {}, "eager", "sdpa") and _ELSEWHERE.search(key):
        return "none, since it fetches code or files"
    if isinstance(value, bool) or not isinstance(value, int | float) or key == "model_max_length":
        return None
    if not math.isfinite(value):
        return "a finite number"
    if key.endswith("_token_id") and not -(key == "pad_token_id") <= value < n_pieces:
        return f"a piece, 0 to {n_pieces - 1}"
    if abs(value) > _LARGEST_NUMBER and not re.search("theta|seed", key):
        return f"at most {_LARGEST_NUMBER}"
    return "at least 1" if is_top and value < 1 and _SIZES.fullmatch(key) else None


@contextmanager
def folder_errors(folder: str | Path, expected: str = "weights that fit config.json") -> Iterator[None]:
    """Turn whatever a library raises of a folder that it cannot read into one `CheckpointError`."""
    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:  # each library has classes of its own
        reason = " ".join(str(error).split())[:300]
        raise CheckpointError(f"{folder}: expected {expected}, got: {reason}") from error


def check_weights(folder: Path, build: Callable[[], Any]) -> None:
    """Check that weights are finite and those of `config.json`, before memory is taken for its network.

    Raises:
        CheckpointError: There is no such network, or its weights are others, or none.
    """
    import torch
    from transformers.initialization import no_init_weights

    with folder_errors(folder):
        stored = _stored_shapes(folder)
        for key, value, _ in _values(read_json(folder / "config.json")):
            # A layer is an object, which takes memory without a weight.
            if isinstance(value, int) and value > len(stored) and re.search("layer|group|block", key):
                raise ValueError(f"{value} for {key}, with {len(stored)} tensors")
        with torch.device("meta"), no_init_weights():
            wanted = {name: tuple(one.shape) for name, one in build().state_dict().items()}
        for name in wanted.keys() & stored.keys():
            if wanted[name] != stored[name]:
                raise ValueError(f"{name} of {stored[name]}, not {wanted[name]}")
        n_missing = sum(math.prod(shape) for name, shape in wanted.items() if name not in stored)
        if n_missing > 2 * sum(map(math.prod, stored.values())):
            raise ValueError(f"none for {n_missing} numbers")


def _stored_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Shapes of all tensors, which are finite."""
    from safetensors import safe_open

    files, index = sorted(folder.glob("model*.safetensors")), folder / "model.safetensors.index.json"
    if not files:
        raise CheckpointError(f"{folder}: expected model.safetensors, found none. Was it saved whole?")
    shards = set(read_json(index)["weight_map"].values()) if index.exists() else set()
    if missing := shards - {one.name for one in files}:
        raise ValueError(f"no file {missing.pop()!r} in the folder")
    shapes: dict[str, tuple[int, ...]] = {}
    for path in files:
        with path.open("rb") as head:
            if int.from_bytes(head.read(8), "little") > MAX_JSON_BYTES:
                raise ValueError("Error while deserializing header: header too large")
        with safe_open(path, "pt") as file:
            for name in sorted(file.keys()):
                tensor = file.get_tensor(name)
                shapes[name] = tuple(tensor.shape)
                if not tensor.isfinite().all():
                    raise ValueError(f"NaN or infinity in {name}")
    return shapes


def check_pieces(folder: Path, tokenizer: Any, n_rows: int) -> None:
    """Check that a network has a row for each piece of a tokenizer, which fills no line up without measure.

    Raises:
        CheckpointError: It has not, or it does.
    """
    padding = tokenizer.backend_tokenizer.padding or {}
    longest = max(padding.get("length") or 0, padding.get("pad_to_multiple_of") or 0)
    last = max(tokenizer.get_vocab().values(), default=0)
    for what, found, most in (("padding", longest, 1024), ("piece", last, n_rows - 1)):
        if found > most:
            raise CheckpointError(f"{folder}: tokenizer: {what}: expected at most {most}, got {found}.")
