"""The language of a text, and who annotates it where nobody is named. Every verb asks here; names only."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any, NamedTuple

from langcodes import Language, tag_is_valid

from syntaxformer.base.downloads import MODEL_SIZES
from syntaxformer.base.errors import ConfigError

BUNDLED = ("de", "de_lower", "en")
"""Pipelines that come with the package: a language, and what is special."""

LANGUAGE_NAMES = {
    "arabic": "ar", "chinese": "zh", "czech": "cs", "deutsch": "de", "dutch": "nl", "english": "en",
    "french": "fr", "german": "de", "italian": "it", "japanese": "ja", "russian": "ru", "spanish": "es",
}  # fmt: skip
"""What is given where a code is expected → the code that a message suggests."""

_NO_LANGUAGE = {
    "all", "bpe", "com", "csv", "dev", "doc", "err", "in", "inp", "log", "low", "mis", "mul", "new", "old",
    "one", "org", "out", "pos", "pre", "raw", "seg", "set", "sgm", "spm", "src", "sub", "sys", "tag", "tgt",
    "tmp", "tok", "trg", "trn", "tst", "tsv", "two", "txt", "und", "val", "xml", "zxx",
}  # fmt: skip
"""Endings that say what a file is for. They are codes, too (`src` is Logudorese, `tok` Toki Pona, `in` was
Indonesian), but a file called so is in no such language; and the codes of several languages or none."""


class TextLanguage(NamedTuple):
    """A code of ISO 639-1, or 639-3 where there is none; None where it is not known. And what tells it."""

    code: str | None
    told_by: str


def language_of(ending: str) -> str | None:
    """The language that an ending names (BCP 47, ISO 639), the last if several: de of deu_DE, ger, tok.de."""
    parts = [part for part in ending.split(".") if part.lower() not in _NO_LANGUAGE and tag_is_valid(part)]
    code = Language.get(parts[-1]).prefer_macrolanguage().language if parts else None
    return code if code and len(code) <= 3 else None


def given_language(value: str) -> str:
    """The code of a language that the user gives.

    Raises:
        ValueError: It is none. Suggests the code of a name.
    """
    code = None if "." in value else language_of(value)
    if code is None:
        hint = f" Did you mean {near!r}?" if (near := LANGUAGE_NAMES.get(value.lower())) else ""
        raise ValueError(f"expected the code of a language, such as de, deu or de-DE, got {value!r}.{hint}")
    return code


def language_of_side(sides: Any, ending: str) -> TextLanguage:
    """The language of a side of a recipe's data section or of a model: as given, else by the ending."""
    key = "data.src" if ending == sides.src else "data.tgt"
    given = sides.src_language if ending == sides.src else sides.tgt_language
    return TextLanguage(
        given or language_of(ending), f"{key}_language={given}" if given else f"{key}={ending}"
    )


def language_of_file(path: str | PurePath) -> TextLanguage:
    """The language of a text file, by its name: train.de, news.tok.en.gz."""
    name = PurePath(path).name
    return TextLanguage(language_of(name.partition(".")[2]), name)


def choose_annotator(named: str | None, text: TextLanguage, key: str, *others: str) -> str:
    """Who annotates a text: whom the user names, else the bundled pipeline of its language.

    Args:
        named: As `load_annotator` takes it. A bundled one must be of the text's language, if that is known.
        text: Its language.
        key: Where an annotator is named.
        others: What else may be set: the language, and what allows any bundled one.

    Raises:
        ConfigError: Nobody is named and the language is not known or has no bundled pipeline, or the bundled
            one that is named is for another language. Says what to set.
    """
    code, (plain, plus, more) = text.code, (named or "").partition("+")
    if named and (code is None or plain not in BUNDLED or plain.partition("_")[0] == code):
        return named
    if code in BUNDLED and not named:
        return code
    expected = f"an annotator for {code}, the language of {text.told_by}"
    remedies = [f"{key}={code}{plus}{more}"]
    if code is None:
        expected = f"an annotator's name, as {text.told_by} names no language to choose one by"
        remedies = [f"{key}=NAME"]
    elif code not in BUNDLED:
        load = f"python -c \"import stanza; stanza.download('{code}')\": {MODEL_SIZES['stanza']}"
        remedies = [f'{key}=stanza:{code} (python -m pip install "syntaxformer[stanza]"; {load})']
        remedies += [f"{key}=spacy:NAME (python -m spacy download NAME: {MODEL_SIZES['spacy']})"]
    remedies += others if named else others[:1]
    raise ConfigError(f"{key}: expected {expected}, got {named or 'none'}. Set {', or '.join(remedies)}.")
