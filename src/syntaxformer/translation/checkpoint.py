"""A pretrained translator that training starts from: its tokenizer as two of ours, its network, its loss.

Marian, mBART, M2M100, NLLB, BART, Pegasus, T5 and mT5, in a folder of Hugging Face's layout. The tokenizer
becomes two fast ones, for source and target, with the language codes and the prompt in their templates. From
there on a line takes the way of every other translator. Slow tokenizers (Marian, M2M100) are rebuilt from
their SentencePiece models, and compared with the original on the training text.
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
from langcodes import Language
from safetensors.torch import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.convert_slow_tokenizer import generate_merges, import_protobuf

from syntaxformer.base.config import nearest, read_yaml
from syntaxformer.base.errors import BackendMissingError, CheckpointError, ConfigError, SyntaxformerError
from syntaxformer.base.files import check_weights, folder_errors, read_json
from syntaxformer.infusion import INFUSION_FILE, infuse
from syntaxformer.infusion import load as load_infused
from syntaxformer.infusion.config import InfusionConfig
from syntaxformer.nn.kernels.cross_entropy import IGNORED_LABEL, cross_entropy
from syntaxformer.runs.loading import TRANSLATOR, checkpoint_errors, quiet_loading, verify_folder
from syntaxformer.translation.auxiliary import TranslationOutput, shift_right

_log = logging.getLogger("syntaxformer.data")

Side = Literal["source", "target"]

MODEL_TYPE = "syntaxformer"
"""`model_type` of our own translator; every other one is a host of the table of families."""

NOT_TEXT = -100.0
"""Score of special pieces in a unigram model: text that spells one of them is cut into smaller pieces."""

ADAPTER = "default"
"""PEFT's name of the one adapter that is trained."""

N_COMPARED = 2000
"""Lines on which a rebuilt tokenizer is compared with the original."""

_BYTE = re.compile(r"<0x[0-9A-F]{2}>")


@dataclass(frozen=True)
class Checkpoint:
    """What training needs to know of a pretrained translator before its network is loaded.

    Args:
        path: Folder, or name on the Hub.
        source: Tokenizer of the source: its language code and its prompt are in its template.
        target: Tokenizer of the target.
        start_id: Piece that the decoder begins with.
        n_known: Pieces that the checkpoint knows; what is added to them comes behind.
    """

    path: str
    source: PreTrainedTokenizerFast
    target: PreTrainedTokenizerFast
    start_id: int
    n_known: int

    @property
    def n_pieces(self) -> int:
        """Rows that the network's tables need."""
        return _n_pieces(self.source.backend_tokenizer, self.target.backend_tokenizer)

    def missing_characters(self, sides: Sequence[Iterable[Sequence[str]]]) -> tuple[Counter[str], int]:
        """Characters that a side's tokenizer does not know, with their counts, and how many lines have some.

        Args:
            sides: Prepared lines of source and target, in parts.
        """
        counts: Counter[str] = Counter()
        n_lines = 0
        for tokenizer, parts in zip((self.source, self.target), sides, strict=True):
            spelling = {number for piece, number in tokenizer.get_vocab().items() if _BYTE.fullmatch(piece)}
            unknown = np.array([*spelling, tokenizer.unk_token_id], np.int64)
            for lines in parts:
                encodings = tokenizer.backend_tokenizer.encode_batch(list(lines), add_special_tokens=False)
                for line, one in zip(lines, encodings, strict=True):
                    if (is_unknown := np.isin(one.ids, unknown)).any():
                        counts.update(
                            _characters(line, [one.offsets[at] for at in np.flatnonzero(is_unknown)])
                        )
                        n_lines += 1
        return counts, n_lines

    def with_characters(self, characters: Iterable[str]) -> Checkpoint:
        """The same with a piece for each of some characters, after all others."""
        added = sorted(characters)
        pieces = {one: self.n_pieces + place for place, one in enumerate(added)}
        source, target = (_extended(one, pieces) for one in (self.source, self.target))
        return replace(self, source=source, target=target)


def is_own(path: str | Path) -> bool:
    """Whether a path is a folder of our own Transformer, and not of a host's.

    Raises:
        ConfigError: It is a folder without a config.
    """
    config = Path(path) / "config.json"
    if not Path(path).is_dir():
        return False
    if not config.is_file():
        raise ConfigError(f"model.init_from: expected the folder of a model, got {path}: no config.json.")
    return json.loads(config.read_text("utf-8")).get("model_type") == MODEL_TYPE


def own_sections(path: str) -> dict[str, Any]:
    """Sections `model` and `infusion` of the recipe of our own translator's folder.

    Raises:
        ConfigError: The folder is not finished, or has no recipe.
    """
    try:
        verify_folder(Path(path), TRANSLATOR)
        content = read_yaml(Path(path) / "recipe.yaml")
    except SyntaxformerError as error:
        raise ConfigError(str(error)) from error
    return {"model": {**content["model"], "init_from": path}, "infusion": content["infusion"]}


def host_sections(path: str) -> dict[str, Any]:
    """Of a pretrained translator, the section `model` of a recipe, its dropout, and what it is infused with.

    Raises:
        ConfigError: Its config cannot be read.
    """
    with checkpoint_errors(path, "expected a pretrained translator"):
        config = AutoConfig.from_pretrained(path)
    common = getattr(config, "dropout", getattr(config, "dropout_rate", 0.0))
    names = ("dropout", "attention_dropout", "activation_dropout")
    model = {"init_from": path, **{name: getattr(config, name, common) for name in names}}
    if not is_infused(path):
        return {"model": model, "infusion": None}
    stored = InfusionConfig.from_json(read_json(Path(path) / INFUSION_FILE)["infusion"], path)
    values = None if stored.embedding is None else stored.embedding.model_copy(update={"values": None})
    return {"model": model, "infusion": stored.model_copy(update={"embedding": values, "seed": 0})}


def normalizes_punctuation(path: str) -> bool:
    """Whether a checkpoint was trained on text whose punctuation Moses normalised: NLLB."""
    config = Path(path) / "tokenizer_config.json"
    return config.is_file() and "Nllb" in str(json.loads(config.read_text("utf-8")).get("tokenizer_class"))


def open_checkpoint(
    path: str, languages: tuple[str, str], codes: tuple[str | None, str | None], adds_codes: bool, prompt: str
) -> Checkpoint:
    """Read the tokenizer of a pretrained translator.

    Args:
        path: Its folder, or its name on the Hub.
        languages: Of source and target, ISO codes.
        codes: The checkpoint's own codes of them; None for those that fit the languages.
        adds_codes: Codes that it does not know become new pieces.
        prompt: Text before every source line: "translate English to German: " for T5.

    Raises:
        ConfigError: It cannot be read, is no translator, or has no such language.
    """
    with checkpoint_errors(path, "model.init_from: expected a pretrained translator"):
        config = AutoConfig.from_pretrained(path)
        tokenizer = AutoTokenizer.from_pretrained(path)
    if not config.is_encoder_decoder:
        raise ConfigError(
            f"model.init_from: expected a translator, an encoder with a decoder, got {path}, a model of the "
            f"kind {config.model_type!r}. `syntaxformer finetune` takes encoders."
        )
    known = _codes_of(tokenizer)
    chosen = [
        _choose_code(known, code, language, key, adds_codes)
        for code, language, key in zip(codes, languages, ("model.src_code", "model.tgt_code"), strict=True)
    ]
    framed: list[PreTrainedTokenizerFast] = []
    start_id, sides = config.decoder_start_token_id, ("source", "target")
    backends = [_backend(tokenizer, side) for side in sides]
    n_known, new = _n_pieces(*backends), sorted({one for one in chosen if one and one not in known})
    if new:
        numbers = {one: n_known + place for place, one in enumerate(new)}
        backends = [_with_pieces(backend, numbers, is_special=True) for backend in backends]
    for side, code, backend in zip(sides, chosen, backends, strict=True):
        before, after = _template(tokenizer, side, known, code, backend)
        if side == "source" and prompt:
            before = [*before, *backend.encode(prompt, add_special_tokens=False).ids]
        if side == "target" and after[-1] != tokenizer.eos_token_id:
            # mBART writes its code behind the end piece and begins the decoder with it.
            start_id, after = after[-1], after[:-1]
        framed.append(_framed(backend, tokenizer, before, after))
    if start_id is None:
        raise ConfigError(
            f"model.init_from: expected decoder_start_token_id in config.json of {path}, got none."
        )
    return Checkpoint(path, framed[0], framed[1], start_id, n_known)


def of_own_folder(path: str, source: PreTrainedTokenizerFast, target: PreTrainedTokenizerFast) -> Checkpoint:
    """A translator that `train` wrote, ours or a pretrained one, whose tokenizers have been read."""
    config = AutoConfig.from_pretrained(path)
    n_known = _n_pieces(source.backend_tokenizer, target.backend_tokenizer)
    return Checkpoint(path, source, target, config.decoder_start_token_id, n_known)


def compare(checkpoint: Checkpoint, sides: Sequence[Sequence[str]]) -> None:
    """Say on how many lines a tokenizer that was rebuilt differs from the original."""
    original = AutoTokenizer.from_pretrained(checkpoint.path)
    if original.is_fast:  # as it is in folders that `train` wrote
        return
    if known := _codes_of(original):
        original.tgt_lang = next(iter(known))
    for side, lines in zip(("source", "target"), sides, strict=True):
        lines = [line.strip() for line in lines[:N_COMPARED] if line.strip()]
        if not lines:
            continue
        given = {"text": lines} if side == "source" else {"text_target": lines}
        wanted = original(**given, add_special_tokens=False)["input_ids"]
        ours = getattr(checkpoint, side).backend_tokenizer.encode_batch(lines, add_special_tokens=False)
        unlike = [line for line, one, other in zip(lines, wanted, ours, strict=True) if one != other.ids]
        if unlike:
            _log.warning(
                "model.init_from: %d of %d %s lines are cut into other pieces than by the checkpoint's own "
                "tokenizer, such as: %s",
                *(len(unlike), len(lines), side, unlike[0][:80]),
            )


# Tokenizers.


def _backend(tokenizer: Any, side: Side) -> Tokenizer:
    """A fast tokenizer of one side, without what frames a line, truncation and padding."""
    if tokenizer.is_fast:
        backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        backend.no_truncation()
        backend.no_padding()
    elif hasattr(tokenizer, "spm_files"):  # Marian
        ids = (
            tokenizer.target_encoder if side == "target" and tokenizer.separate_vocabs else tokenizer.encoder
        )
        backend = _rebuilt(tokenizer.spm_files[side == "target"], ids)
    elif hasattr(tokenizer, "spm_file"):  # M2M100
        backend = _rebuilt(tokenizer.spm_file, {**tokenizer.encoder, **tokenizer.lang_token_to_id})
    else:
        raise ConfigError(
            "model.init_from: expected a fast tokenizer, or one of SentencePiece, got "
            f"{type(tokenizer).__name__}."
        )
    names = {*map(str, tokenizer.all_special_tokens), *_codes_of(tokenizer).values()}
    special = [AddedToken(one, special=True, normalized=False) for one in sorted(names)]
    backend.add_special_tokens([one for one in special if backend.token_to_id(one.content) is not None])
    return _specials_are_no_text(backend)


def _rebuilt(path: str, ids: dict[str, int]) -> Tokenizer:
    """A SentencePiece model as a fast tokenizer whose ids are those of another vocabulary."""
    proto = import_protobuf().ModelProto()
    proto.ParseFromString(Path(path).read_bytes())
    scores = {piece.piece: piece.score for piece in proto.pieces}
    unknown, spells_bytes = proto.trainer_spec.unk_piece, bool(proto.trainer_spec.byte_fallback)
    if proto.trainer_spec.model_type == 1:
        rare = (
            min(piece.score for piece in proto.pieces if piece.type == 1) - 10
        )  # as SentencePiece's unknown
        names = {number: name for name, number in ids.items()}
        table = []
        for name in (names.get(number, "") for number in range(max(names) + 1)):
            # Of what only the other side has, characters are found by the original, too; no text matches the
            # others, for in text a space is "▁".
            is_piece = name in scores or name[:1] == "<" or len(name) == 1
            missing = rare if len(name) == 1 else NOT_TEXT
            table.append((name, scores.get(name, missing)) if is_piece else (f" {name}", 0.0))
        tokenizer = Tokenizer(models.Unigram(table, ids[unknown], spells_bytes))
    else:
        merges = generate_merges({name: place for place, name in enumerate(scores)}, scores)
        merges = [pair for pair in merges if "".join(pair) in ids and all(part in ids for part in pair)]
        options = {"unk_token": unknown, "fuse_unk": True, "byte_fallback": spells_bytes}
        tokenizer = Tokenizer(models.BPE(ids, merges, **options))
    steps = [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    if charsmap := proto.normalizer_spec.precompiled_charsmap:
        steps.insert(0, normalizers.Precompiled(charsmap))
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    spaces = decoders.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), spaces, decoders.Fuse()])
    return tokenizer


def _specials_are_no_text(backend: Tokenizer) -> Tokenizer:
    """A unigram model takes any piece for text, also "</s>": special ones get the score `NOT_TEXT`."""
    state = json.loads(backend.to_str())
    if state["model"]["type"] != "Unigram":
        return backend
    for added in state["added_tokens"]:
        if added["special"] and added["id"] < len(state["model"]["vocab"]):
            state["model"]["vocab"][added["id"]][1] = NOT_TEXT
    return Tokenizer.from_str(json.dumps(state))


def _template(
    tokenizer: Any, side: Side, known: dict[str, str], code: str | None, backend: Tokenizer
) -> tuple[list[int], list[int]]:
    """Ids of the pieces before and behind a line."""
    stand_in = code if code in known or not known else next(iter(known))
    if code is not None:
        setattr(tokenizer, "src_lang" if side == "source" else "tgt_lang", stand_in)
    given = {"text": "a"} if side == "source" else {"text_target": "a"}
    bare = tokenizer(**given, add_special_tokens=False)["input_ids"]
    ids = tokenizer(**given)["input_ids"]
    first = next(place for place in range(len(ids)) if ids[place : place + len(bare)] == bare)
    before, after = ids[:first], ids[first + len(bare) :]
    if code is None or stand_in == code:
        return before, after
    old, new = tokenizer.convert_tokens_to_ids(known[stand_in]), cast("int", backend.token_to_id(code))
    return [new if one == old else one for one in before], [new if one == old else one for one in after]


def _framed(
    backend: Tokenizer, tokenizer: Any, before: Sequence[int], after: Sequence[int]
) -> PreTrainedTokenizerFast:
    """The backend with a line's frame, as a tokenizer of ours that names its special pieces."""
    frame = [
        {"id": name, "ids": list(ids), "tokens": [backend.id_to_token(one) for one in ids]}
        for name, ids in (("before", before), ("after", after))
        if ids
    ]
    single = ["before", "$A", "after"] if len(frame) == 2 else ["$A", "after"]
    backend.post_processor = processors.TemplateProcessing(single=single, special_tokens=frame)
    roles = {role: getattr(tokenizer, role) for role in ("pad_token", "eos_token", "unk_token")}
    if roles["pad_token"] is None or roles["eos_token"] is None:
        raise ConfigError(
            "model.init_from: expected a tokenizer with padding and end pieces, got one without."
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, **{role: one for role, one in roles.items() if one}
    )


def _codes_of(tokenizer: Any) -> dict[str, str]:
    """Language codes of a tokenizer, each with the piece that stands for it; none for one without."""
    if hasattr(tokenizer, "lang_code_to_token"):  # M2M100: "de" is "__de__"
        return dict(tokenizer.lang_code_to_token)
    if not hasattr(tokenizer, "src_lang"):
        return {}
    roles = {str(one) for one in tokenizer.special_tokens_map.values() if isinstance(one, str)}
    return {one: one for one in map(str, tokenizer.all_special_tokens) if one not in roles and one[:1] != "<"}


def _choose_code(
    known: dict[str, str], given: str | None, language: str, key: str, adds_codes: bool
) -> str | None:
    """The checkpoint's code of a language; None where it has no codes."""
    if not known:
        if given is not None:
            raise ConfigError(
                f"{key}: expected none, as this checkpoint has no language codes, got {given!r}."
            )
        return None
    if given in known or (given is not None and adds_codes):
        return given
    if given is not None:
        raise ConfigError(
            f"{key}: expected a language code of the checkpoint, got {given!r}. "
            f"{nearest(given, sorted(known))} For a language that it does not know, model.add_codes=true "
            "adds the code as a new piece."
        )
    fitting = [one for one in known if _language(one) == _language(language)]
    if len(fitting) != 1:
        found = f"{', '.join(fitting)}" if fitting else "none"
        raise ConfigError(
            f"{key}: expected the checkpoint's code of {language!r}, of which it has {found}. Give "
            f"{key}=CODE; model.add_codes=true adds one that it does not know."
        )
    return fitting[0]


def _language(code: str) -> str:
    """ISO 639 of a code: de of deu_Latn, de_DE and de."""
    return Language.get(code.replace("_", "-").partition("-")[0]).prefer_macrolanguage().language or code


def _characters(line: str, spans: Iterable[tuple[int, int]]) -> list[str]:
    """Characters of a line within some spans, each place once; spaces are no characters."""
    places = {place for start, end in spans for place in range(start, end)}
    return [line[place] for place in sorted(places) if not line[place].isspace()]


def _n_pieces(*backends: Tokenizer) -> int:
    return 1 + max(max(one.get_vocab().values()) for one in backends)


def _extended(tokenizer: PreTrainedTokenizerFast, pieces: dict[str, int]) -> PreTrainedTokenizerFast:
    """The tokenizer with some more pieces."""
    roles = {role: getattr(tokenizer, role) for role in ("pad_token", "bos_token", "eos_token", "unk_token")}
    backend = _with_pieces(tokenizer.backend_tokenizer, pieces)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, **{role: one for role, one in roles.items() if one}
    )


def _with_pieces(backend: Tokenizer, pieces: dict[str, int], is_special: bool = False) -> Tokenizer:
    """More pieces in the model of a tokenizer, which cuts text; their ids come behind all others."""
    state = json.loads(backend.to_str())
    vocabulary, added = state["model"]["vocab"], {one["id"]: one["content"] for one in state["added_tokens"]}
    if isinstance(vocabulary, dict):
        # Ids of special pieces that are not in the model are numbered anew on reading, behind all of it.
        vocabulary |= {piece: number for number, piece in added.items()} | pieces
    else:  # a list, in which a piece's place is its id
        lowest = min(score for _, score in vocabulary if score > NOT_TEXT)
        vocabulary += [
            [added.get(number, f" {number}"), NOT_TEXT]
            for number in range(len(vocabulary), max(pieces.values()) + 1)
        ]
        for piece, number in pieces.items():
            vocabulary[number] = [piece, NOT_TEXT if is_special else lowest]
    extended = Tokenizer.from_str(json.dumps(state))
    if is_special:
        extended.add_special_tokens([AddedToken(one, special=True, normalized=False) for one in pieces])
    return extended


# The network.


def load_pretrained(checkpoint: Checkpoint, dropouts: Mapping[str, float]) -> PreTrainedModel:
    """The network of a checkpoint in fp32, its tables long enough for all pieces: new rows are the mean row.

    Raises:
        ConfigError: It cannot be read, or lacks weights.
    """
    path = checkpoint.path
    with checkpoint_errors(path, "model.init_from: expected a translator"), quiet_loading():
        config = AutoConfig.from_pretrained(path)
        _set_dropouts(getattr(config, "host", config), dropouts)
        if is_infused(path):
            model, report = load_infused(path, config=config, dtype=torch.float32), {"missing_keys": ()}
        else:
            model, report = AutoModelForSeq2SeqLM.from_pretrained(
                path, config=config, use_safetensors=True, output_loading_info=True, dtype=torch.float32
            )
    if missing := sorted(report["missing_keys"])[:3]:
        raise ConfigError(
            f"model.init_from: expected all weights of a {model.config.model_type} model at "
            f"{path}, missing: {', '.join(missing)}."
        )
    if checkpoint.n_pieces > checkpoint.n_known:
        _lengthen(model, checkpoint.n_pieces, checkpoint.n_known)
    model.config.decoder_start_token_id = checkpoint.start_id
    target = checkpoint.target
    first, *rest = target.backend_tokenizer.encode("").ids
    # What the checkpoint's own settings say of a search would hold in silence: the recipe's settings hold.
    model.generation_config = GenerationConfig(
        pad_token_id=target.pad_token_id,
        eos_token_id=target.eos_token_id,
        decoder_start_token_id=checkpoint.start_id,
        forced_bos_token_id=first if rest else None,  # a code, or BART's first piece
    )
    return model


def is_infused(path: str | Path) -> bool:
    """Whether a folder holds an infused model."""
    return (Path(path) / INFUSION_FILE).is_file()


def _set_dropouts(config: Any, dropouts: Mapping[str, float]) -> None:
    """Rates by the names that a host has for them: T5 has one for all."""
    for name, rate in dropouts.items():
        if hasattr(config, name):
            setattr(config, name, rate)
    if hasattr(config, "dropout_rate"):
        config.dropout_rate = dropouts["dropout"]


@torch.no_grad()
def _lengthen(model: PreTrainedModel, n_pieces: int, n_known: int) -> None:
    """A row for each new piece, which begins as the mean of those that the checkpoint knows."""
    if n_pieces > len(model.get_input_embeddings().weight):
        with quiet_loading():
            model.resize_token_embeddings(n_pieces, mean_resizing=False)
    tables: Any = (model.get_input_embeddings().weight, model.get_output_embeddings().weight)
    for table in {id(one): one for one in tables}.values():
        table[n_known:n_pieces] = table[:n_known].mean(0)


def infuse_host(model: PreTrainedModel, config: InfusionConfig) -> PreTrainedModel:
    """Infuse a pretrained translator for training; `host_output` adds the loss of pointing at governors.

    Raises:
        ConfigError: As `infuse`.
    """
    if not config.is_plain:
        model = infuse(model, config)
    model._has_warned_of_loss = True
    return model


def add_adapters(
    model: PreTrainedModel, r: int, alpha: int, dropout: float, targets: Sequence[str] | None
) -> Any:
    """Put low-rank adapters into the linear maps of a pretrained translator, which keeps its class.

    Adapters and infusion are trained from there on, and the table of pieces where it has new ones.

    Returns:
        PEFT's object, which merges them again.

    Raises:
        BackendMissingError: PEFT is not installed.
        ConfigError: No map has one of the names.

    Source: Hu et al. (2022), "LoRA".
    """
    try:
        from peft import LoraConfig
        from peft.tuners.lora import LoraModel
    except ImportError as error:
        raise BackendMissingError("PEFT, for training.lora,", "python -m pip install peft") from error
    output = model.get_output_embeddings()
    names = [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and module is not output and "infusion" not in name.split(".")
    ]
    chosen = [name for name in names if targets is None or name.rpartition(".")[2] in targets]
    if not chosen:
        known = ", ".join(sorted({name.rpartition(".")[2] for name in names}))
        raise ConfigError(f"training.lora.targets: expected some of {known}, got {', '.join(targets or ())}.")
    config = LoraConfig(r=r, lora_alpha=alpha, lora_dropout=dropout, target_modules=chosen, bias="none")
    adapters = LoraModel(model, config, ADAPTER)
    if hasattr(model, "infusion"):
        model.infusion.requires_grad_(True)
    return adapters


def save_adapter(model: PreTrainedModel, adapters: Any, folder: Path) -> None:
    """Write the adapters, and the infusion with them, as PEFT reads them."""
    folder.mkdir()
    config = copy(adapters.peft_config[ADAPTER])
    config.modules_to_save = ["infusion"] if hasattr(model, "infusion") else None
    config.task_type, config.inference_mode = "SEQ_2_SEQ_LM", True
    config.save_pretrained(str(folder))
    weights = {
        f"base_model.model.{name.replace(f'.{ADAPTER}.', '.')}": tensor.contiguous()
        for name, tensor in model.state_dict().items()
        if ".lora_" in name or name.startswith("infusion.")
    }
    save_file(weights, str(folder / "adapter_model.safetensors"))


def load_host(folder: Path) -> PreTrainedModel:
    """The network of a folder that training from a checkpoint wrote.

    Raises:
        CheckpointError: It cannot be read, or lacks weights.
    """
    with quiet_loading(), folder_errors(folder):
        if (folder / INFUSION_FILE).exists():
            return load_infused(folder)
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        check_weights(folder, lambda: AutoModelForSeq2SeqLM.from_config(config))
        model, report = AutoModelForSeq2SeqLM.from_pretrained(
            folder, use_safetensors=True, output_loading_info=True, local_files_only=True
        )
    if wrong := sorted({*report["missing_keys"], *report["unexpected_keys"]})[:3]:
        raise CheckpointError(
            f"{folder}: expected weights of its config, got other names: {', '.join(wrong)}."
        )
    return model


def host_output(
    model: Any, batch: dict[str, Tensor], smoothing: float = 0.0, n_items: Tensor | int | None = None
) -> TranslationOutput:
    """Loss of a batch, as `SyntaxTransformer` gives it: per target piece; in training with LISA's.

    Args:
        model: A pretrained translator, plain or infused, perhaps wrapped for several processes.
        batch: As `TranslationCollator` makes it.
        smoothing: Share of probability spread over all pieces.
        n_items: Divisor of the loss; None for the target pieces of the batch.
    """
    inner = getattr(model, "module", model)
    labels = batch["labels"]
    inputs = {name: tensor for name, tensor in batch.items() if name != "labels"}
    output = model(**inputs, decoder_input_ids=shift_right(labels, inner.config), use_cache=False)
    n_pieces = (labels != IGNORED_LABEL).sum()
    total, tallies = cross_entropy(output.logits, labels, smoothing), None
    infusion = getattr(inner, "infusion", None)
    if infusion is not None and infusion.config.lisa is not None:
        hits, pointing = infusion.seen.governor_hits(), infusion.seen.governor_loss()
        tallies = {"governor_accuracy": hits[max(hits)]} if hits else None
        if inner.training and infusion.config.lisa.supervised and pointing is not None:
            total = total + n_pieces * infusion.config.lisa.weight * pointing
    loss = total / (n_pieces if n_items is None else n_items)
    return TranslationOutput(loss=loss, logits=output.logits, tallies=tallies)
