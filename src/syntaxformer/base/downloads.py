"""What is about to be downloaded and how large it is, said before it starts. Nothing is downloaded here."""

from __future__ import annotations

import logging
import re
from functools import cache

MODEL_SIZES = {
    "spacy": "12 MB for sm to 600 MB for lg",  # wheels of github.com/explosion/spacy-models, 3.8
    "stanza": "some 400 to 650 MB",  # default.zip of huggingface.co/stanfordnlp: sr 387, en 503, ru 629 MB
    "corenlp": "some 500 MB",  # nlp.stanford.edu/software/corenlp-backup-download.html
}
"""Annotator → roughly what its models take. They come from places that do not tell beforehand."""

TOKENIZER = r"[^/]+\.(json|txt|model)"
CHECKPOINT = rf"model(-\d+-of-\d+)?\.safetensors|{TOKENIZER}"
"""Names of the files that transformers reads."""


@cache
def say_download(name: str, files: str = CHECKPOINT, kind: str = "model") -> None:
    """Log, once, how much of a "model" or "dataset" of the Hub is about to come; nothing for what is here.

    Raises:
        CheckpointError: The name is a path of nothing.
    """
    from huggingface_hub import HfApi, try_to_load_from_cache

    from syntaxformer.base.files import is_local  # which imports pydantic, as the command line must not

    if is_local(name):
        return
    try:
        listed = HfApi().repo_info(name, repo_type=kind, files_metadata=True, timeout=10).siblings or []
    except Exception:  # no network, no such name, no right to read it: loading says which
        return
    matches = [file for file in listed if re.fullmatch(files, file.rfilename)]
    new = [file for file in matches if not try_to_load_from_cache(name, file.rfilename, repo_type=kind)]
    size = f"{'up to ' * (kind == 'dataset')}{sum(file.size or 0 for file in new) / 1e6:,.1f} MB"
    if new:
        logger = logging.getLogger(__name__)
        logger.info("downloading the %s %s from the Hugging Face Hub: %s", kind, name, size)
