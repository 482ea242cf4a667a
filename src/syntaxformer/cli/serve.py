"""`syntaxformer serve`: models behind HTTP."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Annotated

import typer

from syntaxformer.cli.options import DeviceOption, TrustOption


def serve(
    models: Annotated[
        list[Path], typer.Argument(metavar="MODEL...", help="Folders of `train`, `export` or `finetune`.")
    ],
    host: Annotated[str, typer.Option(help="Address; only this machine unless told.")] = "127.0.0.1",
    allowed_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Name others call it by; needed with --host.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    workers: Annotated[int, typer.Option(min=1, help="Processes, each with models of its own.")] = 1,
    max_batch: Annotated[int, typer.Option(min=1, help="Texts that are worked on together.")] = 64,
    max_waiting: Annotated[int, typer.Option(min=1, help="Texts that may wait; more get status 429.")] = 1024,
    deadline: Annotated[float, typer.Option(min=0.1, help="Seconds; what takes longer gets 503.")] = 30.0,
    max_texts: Annotated[int, typer.Option(min=1, help="Texts of one request.")] = 128,
    max_characters: Annotated[int, typer.Option(min=1, help="Characters of one text.")] = 5000,
    max_body_bytes: Annotated[int | None, typer.Option(min=1, help="Of one request; default: 1 MB.")] = None,
    api_key_file: Annotated[
        Path | None, typer.Option(help="File with the key that requests must send; or SYNTAXFORMER_API_KEY.")
    ] = None,
    annotator: Annotated[
        str | None, typer.Option(help="Use this annotator, not the models' own, for all that need one.")
    ] = None,
    log_texts: Annotated[bool, typer.Option("--log-texts", help="Write users' texts into the log.")] = False,
    device: DeviceOption = None,
    trust_annotator: TrustOption = False,
) -> None:
    """Serve models over HTTP: POST /v1/translate and /v1/classify, OpenAPI at /openapi.json.

    syntaxformer serve runs/sit-int8 --port 8000
    """
    from syntaxformer.base.errors import BackendMissingError, ConfigError
    from syntaxformer.base.files import read_lines

    try:
        from syntaxformer.serve import ServiceConfig, name_models, run
    except ImportError as error:
        install = 'python -m pip install "syntaxformer[serve]"'
        raise BackendMissingError(f"{error.name}, which the service needs,", install) from error
    if not math.isfinite(deadline):
        raise ConfigError(f"--deadline: expected a finite number of seconds, got {deadline}.")
    key = os.environ.get("SYNTAXFORMER_API_KEY") or None
    if api_key_file is not None:
        key = next(read_lines(api_key_file), "").strip()
        if not key:
            raise ConfigError(
                f"--api-key-file: expected a key on the first line of {api_key_file}, got none."
            )
    run(
        ServiceConfig(
            models=name_models(models),
            host=host,
            port=port,
            allowed_hosts=allowed_host or [],
            workers=workers,
            annotator=annotator,
            trust_annotator=trust_annotator,
            device=device,
            max_texts=max_texts,
            max_characters=max_characters,
            **({} if max_body_bytes is None else {"max_body_bytes": max_body_bytes}),
            max_batch=max_batch,
            max_waiting=max_waiting,
            deadline_s=deadline,
            log_texts=log_texts,
            api_key=key,
        )
    )
