"""The folder of a trained translator: `syntaxformer.json`, and how network, pieces and factors are read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from syntaxformer.base.errors import CheckpointError, ConfigError
from syntaxformer.base.files import disk_errors, folder_errors, read_record
from syntaxformer.base.languages import language_of_side
from syntaxformer.runs.config import Section
from syntaxformer.runs.loading import TARGET_TOKENIZER, TRANSLATOR, load_written, to_device
from syntaxformer.runs.tokenizer_rules import check_pieces
from syntaxformer.syntax import FactorVocabulary
from syntaxformer.syntax.inputs import SyntaxInputs, TagPlace
from syntaxformer.translation.alignment import AlignmentHead
from syntaxformer.translation.decoding import DecodingConfig, PieceDecoder, own_generation
from syntaxformer.translation.protection import Protected, Symbols
from syntaxformer.translation.source import PlainTokenizer, SourceEncoder, TextPreparation
from syntaxformer.translation.terms import TermStyle

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

FORMAT_VERSION = 1

Ending = Annotated[str, Field(max_length=250, pattern=r"^[^/\\\x00-\x1f]*$")]


class FolderInfo(Section):
    """Content of `syntaxformer.json`, one of the files in the folder of a trained translator.

    - config.json, model.safetensors, generation_config.json: the network
    - tokenizer.json, tokenizer_config.json: subwords; target_tokenizer.json if the target has its own
    - syntaxformer.json: languages, factor vocabularies, annotator, decoding defaults
    - recipe.yaml, run.json: how the model was trained
    - manifest.json: sizes and hashes of all other files; written last, so a folder that has it is complete

    `src`, `tgt`: endings of files; `…_language`, `forced`: as in the recipe, absent in older folders.
    `normalize`, `symbols`, `protect`, and `scripts` of the training sources: absent in older folders.
    `all_caps`: what happens to lines in capitals; absent in older folders, which keep them.
    `terms`: how translations of terms are put into a source; None if the model has learned no terms.
    `directions`: target languages and the endings of their sources, if the model translates into several.
    `longest_line`, `usual_sentences`: most words of a training line, and sentences that 99 % of them do not
    exceed; absent in older folders.
    `rewrites_target`: a pretrained encoder's tokenizer writes the target and may lose spaces and case.
    `alignment`: the head that aligns words; absent in older folders.
    """

    format_version: int = FORMAT_VERSION
    task: str = "translation"
    backend: str = "pytorch"
    src: Ending
    tgt: Ending
    src_language: str | None = None
    tgt_language: str | None = None
    forced: bool = False
    annotator: str | None = Field(max_length=250, pattern="^[^\\x00-\\x1f]*$")
    annotator_version: str | None
    tokenized: bool = False
    lowercase: Literal[False, True, "source"] = False
    unescape: bool = False
    moses: bool = False
    normalize_punctuation: bool = False
    normalize: Literal["nfc", "none"] = "none"
    all_caps: Literal["lower", "keep"] = "keep"
    scripts: tuple[str, ...] = ()
    symbols: Symbols = ()
    protect: Protected = ()
    directions: dict[Ending, Ending] = Field({}, max_length=1000)
    longest_line: int | None = Field(None, ge=1, le=10**6)
    usual_sentences: int | None = Field(None, ge=1, le=10**6)
    target_specials: dict[str, str] | None = None
    rewrites_target: bool = False
    alignment: AlignmentHead | None = None
    factors: list[FactorVocabulary]
    prepend: TagPlace | None = None
    terms: TermStyle | None = Field(None, exclude_if=lambda style: style is None)
    syntax: SyntaxInputs = SyntaxInputs()
    decoding: DecodingConfig = DecodingConfig()
    data_sha256: dict[str, str] = Field({})

    @property
    def languages(self) -> tuple[str, ...]:
        """Language codes of source and target, or file endings if they do not name a language."""
        return tuple(language_of_side(self, ending).code or ending for ending in (self.src, self.tgt))

    def preparation(self, ending: str) -> TextPreparation:
        """How lines of a side are prepared for the tokenizer."""
        return TextPreparation.of_side(self, ending, self.symbols)


def write_side_files(
    folder: Path,
    info: FolderInfo,
    tokenizer: PreTrainedTokenizerFast,
    own_target: PreTrainedTokenizerFast | None = None,
) -> None:
    """Write the tokenizer, the target's if it has its own, and `syntaxformer.json`.

    Raises:
        DataError: The folder cannot be written.
    """
    with disk_errors(folder):
        tokenizer.save_pretrained(folder)
        if own_target is not None:
            own_target.backend_tokenizer.save(str(folder / TARGET_TOKENIZER))
        (folder / TRANSLATOR).write_text(info.model_dump_json(indent=1), "utf-8")


def read_info(folder: Path) -> FolderInfo:
    """Read `syntaxformer.json`; `CheckpointError` if it is missing or this version does not write such."""
    try:
        return read_record(folder / TRANSLATOR, FolderInfo, FORMAT_VERSION)
    except ConfigError as error:
        raise CheckpointError(f"{folder / TRANSLATOR}: {error} It was altered.") from error


def load_network(folder: Path, encoder: SourceEncoder) -> Any:
    """The network of a model folder, checked against what the encoder gives.

    Raises:
        CheckpointError: The network cannot be read, its weights do not fit its config, or its inputs do not
            fit what the encoder gives.
    """
    from transformers import AutoModelForSeq2SeqLM

    from syntaxformer.translation.model import SyntaxTransformer

    model = load_written(folder, AutoModelForSeq2SeqLM)
    if isinstance(model, SyntaxTransformer):
        file, sizes, plug_in = "config.json", model.encoder.embedding.sizes, model.config.plug_in
        n_rows = model.encoder.embedding.word.num_embeddings, model.config.vocab_size
    else:
        file, plug_in = "infusion.json", model.infusion.config if hasattr(model, "infusion") else None
        vocabularies = {} if plug_in is None else plug_in.vocabularies
        sizes = {name: len(values) for name, values in vocabularies.items()}
        n_rows = (model.get_input_embeddings().num_embeddings,) * 2
    factors = {name: len(values) for name, values in encoder.vocabularies.items()}
    if list(factors.items()) != list(sizes.items()):
        raise CheckpointError(
            f"{folder / TRANSLATOR}: expected the factors {sizes} of {file}, got {factors}."
        )
    if encoder.syntax.trees != SyntaxInputs.of(plug_in and plug_in.tree_options, False).trees:
        raise CheckpointError(f"{folder / TRANSLATOR}: syntax: expected the trees of {file}. It was altered.")
    for tokenizer, rows in zip((encoder.tokenizer, encoder.target_tokenizer), n_rows, strict=True):
        check_pieces(folder, tokenizer, rows)
    model.generation_config = own_generation(encoder.target_tokenizer, model.config.decoder_start_token_id)
    return model


def load_source_encoder(folder: Path, info: FolderInfo) -> SourceEncoder:
    """Tokenizer and factor vocabularies of a model folder.

    Raises:
        CheckpointError: One of them cannot be read.
    """
    own_target, kind = None, PlainTokenizer
    with folder_errors(folder, "a tokenizer"):
        if info.backend != "ctranslate2" or not PlainTokenizer.reads(folder):
            from transformers import PreTrainedTokenizerFast as kind
        tokenizer: Any = kind.from_pretrained(folder)
        if info.target_specials is not None:
            own_target: Any = kind(tokenizer_file=str(folder / TARGET_TOKENIZER), **info.target_specials)
    if unknown := [name for name in info.directions if f"<2{name}>" not in tokenizer.get_vocab()]:
        raise CheckpointError(
            f"{folder / TRANSLATOR}: directions: expected languages with pieces, got {', '.join(unknown)}. "
            "It was altered."
        )
    return SourceEncoder(
        tokenizer,
        {vocabulary.name: vocabulary for vocabulary in info.factors},
        preparation=info.preparation(info.src),
        own_target=own_target,
        prepend=info.prepend,
        syntax=info.syntax,
    )


def torch_decoder_of(model: Any, encoder: SourceEncoder, others: Sequence[Any] = ()) -> PieceDecoder:
    """The decoder of a network in PyTorch, whose log-probabilities are averaged with those of others."""
    from syntaxformer.translation.torch_decoder import TorchDecoder

    return TorchDecoder(model, encoder.target_tokenizer, others)


def load_decoder(folder: Path, info: FolderInfo, encoder: SourceEncoder, device: str | None) -> PieceDecoder:
    """Load the network of a model folder with the decoder that `backend` names.

    Raises:
        CheckpointError: There is no such backend, or the network cannot be read.
        BackendMissingError: The backend's package is not installed.
        ConfigError: There is no such device.
    """
    if info.backend == "pytorch":
        model = load_network(folder, encoder)
        return torch_decoder_of(to_device(model.eval(), device), encoder)
    if info.backend == "ctranslate2":
        from syntaxformer.translation.ctranslate2_decoder import load

        return load(folder, encoder, device)
    raise CheckpointError(
        f"{folder / TRANSLATOR}: backend: expected one of pytorch, ctranslate2, got {info.backend!r}. "
        "It was altered or written by a later version."
    )
