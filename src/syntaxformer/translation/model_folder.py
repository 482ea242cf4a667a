"""What a translation model folder holds beside Hugging Face's files, and how it is written and read.

- config.json, model.safetensors, generation_config.json: the network
- tokenizer.json, tokenizer_config.json: the subword model; target_tokenizer.json where the target has its own
- syntaxformer.json: languages, factor vocabularies, annotator, decoding defaults
- recipe.yaml, run.json: how it came to be
- manifest.json: sizes and hashes of all others; written last, so a folder that has it is whole
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from transformers import PreTrainedTokenizerFast

from syntaxformer.base.errors import CheckpointError
from syntaxformer.base.files import disk_errors, read_record
from syntaxformer.base.folder_checks import check_pieces, check_weights, folder_errors
from syntaxformer.base.languages import language_of_side
from syntaxformer.infusion.config import TagPlace
from syntaxformer.runs.loading import TRANSLATOR, pick_device, quiet_loading, verify_folder
from syntaxformer.syntax import FactorVocabulary
from syntaxformer.syntax.inputs import SyntaxInputs
from syntaxformer.translation.decoding import DecodingConfig, PieceDecoder, TorchDecoder
from syntaxformer.translation.model import SyntaxTransformer, SyntaxTransformerConfig
from syntaxformer.translation.source import SourceEncoder, TextPreparation

__all__ = [
    "INFO",
    "FolderInfo",
    "load_decoder",
    "load_network",
    "load_source_encoder",
    "read_info",
    "special_pieces",
    "verify_model_folder",
    "write_side_files",
]

INFO = TRANSLATOR
TARGET_TOKENIZER = "target_tokenizer.json"
SPECIAL_ROLES = ("pad_token", "bos_token", "eos_token", "unk_token")
FORMAT_VERSION = 1


class FolderInfo(BaseModel):
    """Content of `syntaxformer.json`.

    `src`, `tgt`: endings of files; `…_language`, `forced`: as in the recipe; older folders have none.
    `rewrites_target`: target pieces are a pretrained encoder's, which do not give back spaces and case.
    """

    model_config = ConfigDict(extra="forbid")

    format_version: int = FORMAT_VERSION
    task: str = "translation"
    backend: str = "pytorch"
    src: str
    tgt: str
    src_language: str | None = None
    tgt_language: str | None = None
    forced: bool = False
    annotator: str | None = Field(max_length=250, pattern="^[^\\x00-\\x1f]*$")
    annotator_version: str | None
    tokenized: bool = False
    lowercase: bool = False
    unescape: bool = False
    moses: bool = False
    target_specials: dict[str, str] | None = None
    rewrites_target: bool = False
    factors: list[dict[str, Any]]
    prepend: TagPlace | None = None
    syntax: SyntaxInputs = SyntaxInputs()
    decoding: DecodingConfig = DecodingConfig()
    data_sha256: dict[str, str] = {}

    @property
    def languages(self) -> tuple[str, ...]:
        """Of source and target; the ending of its files where it tells no language."""
        return tuple(language_of_side(self, ending).code or ending for ending in (self.src, self.tgt))

    def preparation(self, ending: str) -> TextPreparation:
        """What happens to lines of a side before subwords."""
        language = self.languages[ending != self.src]
        return TextPreparation(language, self.tokenized, self.unescape, self.moses, self.lowercase)


def special_pieces(tokenizer: PreTrainedTokenizerFast) -> dict[str, str]:
    """The names of a tokenizer's special pieces, by their role."""
    return {role: str(getattr(tokenizer, role)) for role in SPECIAL_ROLES if getattr(tokenizer, role)}


def write_side_files(
    folder: Path,
    info: FolderInfo,
    tokenizer: PreTrainedTokenizerFast,
    own_target: PreTrainedTokenizerFast | None = None,
) -> None:
    """Write the tokenizer, the target's where it has its own, and `syntaxformer.json`.

    Raises:
        DataError: The folder cannot be written.
    """
    with disk_errors(folder):
        tokenizer.save_pretrained(folder)
        if own_target is not None:
            own_target.backend_tokenizer.save(str(folder / TARGET_TOKENIZER))
        (folder / INFO).write_text(info.model_dump_json(indent=1), "utf-8")


def read_info(folder: Path) -> FolderInfo:
    """Read `syntaxformer.json`.

    Raises:
        CheckpointError: It is missing or not what this version writes.
    """
    return read_record(folder / INFO, FolderInfo, FORMAT_VERSION)


verify_model_folder = partial(verify_folder, wanted=INFO)
"""Check that a folder is a translator that is finished and as it was written."""


def load_network(folder: Path, encoder: SourceEncoder) -> SyntaxTransformer:
    """The network of a model folder.

    Args:
        folder: Model folder.
        encoder: Its source encoder.

    Raises:
        CheckpointError: It cannot be read, its weights are not those of its config, or it does not read what
            the encoder gives.
    """
    with quiet_loading(), folder_errors(folder):
        check_weights(folder, lambda: SyntaxTransformer(SyntaxTransformerConfig.from_pretrained(folder)))
        loaded: Any = SyntaxTransformer.from_pretrained(
            folder, use_safetensors=True, local_files_only=True, output_loading_info=True
        )
    model, report = loaded
    wrong = sorted({*report["missing_keys"], *report["unexpected_keys"]})[:5]
    if wrong:
        raise CheckpointError(
            f"{folder}: expected weights of this model, got other names: {', '.join(wrong)}."
        )
    sizes, rows = (
        {name: len(one) for name, one in encoder.vocabularies.items()},
        model.encoder.embedding.sizes,
    )
    if list(sizes.items()) != list(rows.items()):
        raise CheckpointError(f"{folder / INFO}: expected the factors {rows} of config.json, got {sizes}.")
    plug_in = model.config.plug_in
    if encoder.syntax.trees != SyntaxInputs.of(plug_in and plug_in.tree_options, False).trees:
        raise CheckpointError(f"{folder / INFO}: syntax: expected the trees of config.json. It was altered.")
    check_pieces(folder, encoder.tokenizer, model.encoder.embedding.word.num_embeddings)
    check_pieces(folder, encoder.target_tokenizer, model.config.vocab_size)
    return model


def load_source_encoder(folder: Path, info: FolderInfo) -> SourceEncoder:
    """Tokenizer and factor vocabularies of a model folder.

    Raises:
        CheckpointError: One of them cannot be read.
    """
    own_target = None
    with folder_errors(folder, "a tokenizer"):
        tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
        if info.target_specials is not None:
            own_target = PreTrainedTokenizerFast(
                tokenizer_file=str(folder / TARGET_TOKENIZER), **info.target_specials
            )
    vocabularies = [FactorVocabulary.from_dict(stored) for stored in info.factors]
    return SourceEncoder(
        tokenizer,
        {vocabulary.name: vocabulary for vocabulary in vocabularies},
        preparation=info.preparation(info.src),
        own_target=own_target,
        prepend=info.prepend,
        syntax=info.syntax,
    )


def load_decoder(folder: Path, info: FolderInfo, encoder: SourceEncoder, device: str | None) -> PieceDecoder:
    """Load the network of a model folder with the decoder that its `backend` names.

    Args:
        folder: A verified model folder.
        info: Its `syntaxformer.json`.
        encoder: Its tokenizer and factor vocabularies.
        device: "cpu", "cuda", …; None for the best there is.

    Raises:
        CheckpointError: No such backend, or the network cannot be read.
        BackendMissingError: The backend's package is not installed.
        ConfigError: There is no such device.
    """
    if info.backend == "pytorch":
        model = load_network(folder, encoder)
        return TorchDecoder(model.eval().to(pick_device(device)), encoder.target_tokenizer)
    if info.backend == "ctranslate2":
        from syntaxformer.translation.ctranslate2_decoder import load

        return load(folder, encoder, device)
    raise CheckpointError(
        f"{folder / INFO}: backend: expected one of pytorch, ctranslate2, got {info.backend!r}. "
        "It was altered or written by a later version."
    )
