"""What a translation model folder holds beside Hugging Face's files, and how it is written and read.

- config.json, model.safetensors, generation_config.json: the network
- tokenizer.json, tokenizer_config.json: the subword model; target_tokenizer.json where the target has its own
- syntaxformer.json: languages, factor vocabularies, annotator, decoding defaults
- recipe.yaml, run.json: how it came to be
- manifest.json: sizes and hashes of all others; written last, so a folder that has it is whole
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from transformers import PreTrainedTokenizerFast

from syntaxformer.base.errors import CheckpointError, ConfigError
from syntaxformer.base.files import disk_errors, read_record
from syntaxformer.base.folder_checks import check_pieces, check_weights, folder_errors
from syntaxformer.base.languages import language_of, language_of_side
from syntaxformer.runs.loading import TRANSLATOR, quiet_loading, verify_folder
from syntaxformer.syntax import FactorVocabulary
from syntaxformer.translation.length_limit import DecodingConfig
from syntaxformer.translation.model import SyntaxTransformer, SyntaxTransformerConfig
from syntaxformer.translation.preparation import TextPreparation
from syntaxformer.translation.source import SourceEncoder
from syntaxformer.translation.source_syntax import SyntaxInputs
from syntaxformer.translation.tag_pieces import TagPlace

__all__ = [
    "INFO",
    "FolderInfo",
    "check_directions",
    "load_network",
    "load_source_encoder",
    "read_info",
    "reference_note",
    "scoring",
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


_TOKENIZERS = {"zh": ("zh", None), "ja": ("ja-mecab", "ipadic"), "ko": ("ko-mecab", "mecab_ko")}
"""Language → sacreBLEU's tokenizer and the package that it needs."""


def scoring(info: FolderInfo) -> dict[str, Any]:
    """How sacreBLEU scores a model's output: as its target side was prepared.

    Lower-cased text is compared in lower case, and text that stays tokenised is not tokenised again. Chinese,
    Japanese and Korean have tokenizers of their own, as in sacreBLEU's command; characters count where the
    package that splits them into words is not installed.
    """
    tokenize, package = _TOKENIZERS.get(info.languages[1], ("13a", None))
    if package is not None and find_spec(package) is None:
        tokenize = "char"
    return {"lowercase": info.lowercase, "tokenize": "none" if info.tokenized else tokenize}


def check_directions(infos: Sequence[FolderInfo], option: str) -> None:
    """Check that models that are compared translate between the same languages.

    Raises:
        ConfigError: They do not. A side whose language is not known may be in any that is.
    """
    for other in infos[1:]:
        sides = zip(infos[0].languages, other.languages, strict=True)
        if any(a != b and (language_of(a) is None) == (language_of(b) is None) for a, b in sides):
            ways = " and ".join(" → ".join(one.languages) for one in (infos[0], other))
            raise ConfigError(f"{option}: expected models of the same direction, got {ways}.")


def reference_note(info: FolderInfo) -> str | None:
    """What stands in the signature of a score whose references `Translator.as_written` changed."""
    return "refs:through_target_pieces" if info.rewrites_target else None


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
    if encoder.syntax.trees != SyntaxInputs.of(model.config.plug_in.tree_options, False).trees:
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
