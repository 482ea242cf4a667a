"""`syntaxformer serve`: serves models over HTTP."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from syntaxformer.base.errors import ConfigError, needs_extra
from syntaxformer.cli import options


def serve(
    models: Annotated[
        list[Path], Argument(metavar="MODEL...", help="Folders of `train`, `export` or `finetune`.")
    ],
    host: Annotated[str, Option(help="Address to listen on; by default this machine only.")] = "127.0.0.1",
    allowed_hosts: Annotated[
        list[str] | None,
        Option("--allowed-host", metavar="NAME", help="Name by which others call it; needed with --host."),
    ] = None,
    port: Annotated[int, Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8000,
    workers: Annotated[int, Option(min=1, help="Number of processes, each with its own models.")] = 1,
    max_batch: Annotated[int, Option(min=1, help="Largest number of texts in a batch.")] = 64,
    batch_s: Annotated[
        float, Option("--batch-seconds", min=0.01, help="Seconds of a batch; one text may take twice that.")
    ] = 0.5,
    max_beam: Annotated[int, Option(min=1, max=256, help="Largest beam size of a request.")] = 20,
    max_waiting: Annotated[int, Option(min=1, help="Texts of a client that wait; more get 429.")] = 1024,
    deadline_s: Annotated[
        float, Option("--deadline", min=0.1, help="Seconds for an answer; slower requests get 503.")
    ] = 30.0,
    max_texts: Annotated[int, Option(min=1, help="Largest number of texts in a request.")] = 128,
    max_characters: Annotated[int, Option(min=1, help="Largest number of characters in a text.")] = 5000,
    max_body_bytes: Annotated[int | None, Option(min=1, help="Bytes of a request; default: 1.28 MB.")] = None,
    api_key_file: Annotated[
        Path | None, Option(help="File with the key that requests must send, or set SYNTAXFORMER_API_KEY.")
    ] = None,
    annotator: options.ModelAnnotatorOption = None,
    log_texts: Annotated[bool, Option("--log-texts", help="Write users' texts to the log.")] = False,
    device: options.DeviceOption = None,
    trust_annotator: options.TrustOption = False,
) -> None:
    """Serve models over HTTP: POST /v1/translate and /v1/classify, OpenAPI at /openapi.json.

    syntaxformer serve runs/sit-int8 --port 8000
    """
    arguments = {name: value for name, value in locals().items() if value is not None}
    from syntaxformer.base.files import read_lines

    with needs_extra("serve", "the service needs"):
        from syntaxformer.serve import ServiceConfig, name_models, run

    for option, seconds in (("--deadline", deadline_s), ("--batch-seconds", batch_s)):
        if not math.isfinite(seconds):
            raise ConfigError(f"{option}: expected a finite number of seconds, got {seconds}.")
    key, where = os.environ.get("SYNTAXFORMER_API_KEY"), "SYNTAXFORMER_API_KEY: expected a key or no variable"
    if (file := arguments.pop("api_key_file", None)) is not None:
        lines = [line for line in read_lines(file) if line.strip()]
        where = f"--api-key-file: expected a key in {file}"
        if len(lines) > 1:
            raise ConfigError(f"{where}, got {len(lines)} lines. A service has one key.")
        key = "".join(lines)
    if key is not None and not (key := key.strip()):
        raise ConfigError(f"{where}, got an empty one. Without a key, everybody could ask.")
    run(ServiceConfig(**{**arguments, "models": name_models(models), "api_key": key}))
