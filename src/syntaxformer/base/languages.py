"""The language of a text, and the annotator that it gets by default. Every verb uses it."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import PurePath
from typing import Any, NamedTuple

from langcodes import Language, tag_is_valid

from syntaxformer.base.downloads import MODEL_SIZES
from syntaxformer.base.errors import ConfigError

BUNDLED = ("de", "de_lower", "en")
"""Pipelines that come with the package: a language code, and a suffix for a variant."""

SPACES = "spaces"  # the annotator that only cuts lines at spaces

PHRASES = "+phrases"
"""The ending of an annotator's name that asks for its parses to be converted to phrases."""

CONTROLS = ("random_tree", "chain", "other_sentence", "permuted")
"""What stands before an annotator's name in brackets and asks for wrong trees; see `annotate.controls`."""

CONTROL = re.compile(
    rf"(?P<kind>{'|'.join(CONTROLS)})\((?P<annotator>.+?)(?:, ?seed=(?P<seed>\d+))?\)", re.DOTALL
)

LANGUAGE_ODDS = 20
"""A text is in another language if that is so many times as likely as the expected one."""

LANGUAGE_NAMES = {
    "arabic": "ar", "chinese": "zh", "czech": "cs", "deutsch": "de", "dutch": "nl", "english": "en",
    "french": "fr", "german": "de", "italian": "it", "japanese": "ja", "russian": "ru", "spanish": "es",
}  # fmt: skip
"""Names that users give instead of a code → the code that a message suggests."""

_NO_LANGUAGE = {
    "all", "ann", "ans", "bak", "bin", "bpe", "cap", "com", "csv", "dat", "dep", "dev", "doc", "err", "ids",
    "in", "inp", "lab", "log", "low", "lst", "mis", "mul", "new", "old", "one", "org", "out", "pos", "pre",
    "raw", "seg", "set", "sgm", "spm", "src", "srt", "sub", "sys", "tab", "tag", "tgt", "tmp", "tok", "trg",
    "trn", "tst", "tsv", "two", "txt", "und", "val", "xml", "zxx",
}  # fmt: skip
"""Endings that say what a file is for. They are also codes (`src` is Logudorese, `tok` Toki Pona, `in` was
Indonesian), but such files are not in those languages. Codes for several languages or none are here, too."""


class TextLanguage(NamedTuple):
    """A code of ISO 639-1, or of 639-3 if that has none, or None if it is unknown; and its evidence."""

    code: str | None
    told_by: str


def language_of(ending: str) -> str | None:
    """The language that an ending names (BCP 47, ISO 639), the last of several: de in deu_DE, ger, tok.de."""
    parts = [tag for tag in ending.split(".") if tag.lower() not in _NO_LANGUAGE and tag_is_valid(tag)]
    code = Language.get(parts[-1]).prefer_macrolanguage().language if parts else None
    return code if code and len(code) <= 3 else None


def given_language(value: str) -> str:
    """The code of a language that the user gives.

    Raises:
        ValueError: It is no language; the message may suggest a code.
    """
    code = None if "." in value else language_of(value)
    if code is None:
        hint = f" Did you mean {near!r}?" if (near := LANGUAGE_NAMES.get(value.lower())) else ""
        raise ValueError(f"expected the code of a language, such as de, deu or de-DE, got {value!r}.{hint}")
    return code


def language_of_side(sides: Any, ending: str) -> TextLanguage:
    """The language of a side of a recipe's data section or of a model: as given, or else by the ending."""
    key = "data.src" if ending == sides.src else "data.tgt"
    language = sides.src_language if ending == sides.src else sides.tgt_language
    source = f"{key}_language={language}" if language else f"{key}={ending}"
    return TextLanguage(language or language_of(ending), source)


def language_of_file(path: str | PurePath) -> TextLanguage:
    """The language of a text file by its name, such as train.de or news.tok.en.gz."""
    name = PurePath(path).name
    return TextLanguage(language_of(name.partition(".")[2]), name)


def language_of_texts(texts: Sequence[str]) -> TextLanguage:
    """The language of texts taken together: English, unless another is `LANGUAGE_ODDS` times as likely."""
    odds = dict(identifier().rank(" ".join(texts)))
    best = max(odds, key=lambda code: odds[code])
    code = best if odds[best] > LANGUAGE_ODDS * odds["en"] else "en"
    return TextLanguage(code, "the texts, says py3langid")


@cache
def identifier() -> Any:
    """py3langid's identifier with probabilities.

    Raises:
        OSError: There is no room to unpack its model.
    """
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def is_other_script(line: str, expected: Sequence[str]) -> bool:
    """Whether most letters of a line are of another script than those that are expected, if any are."""
    if not expected or (line.isascii() and "LATIN" in expected):
        return False
    letters = [letter for letter in line if letter.isalpha()]
    return 2 * sum(_script_of(letter) in expected for letter in letters) < len(letters)


def scripts_of(lines: Sequence[str]) -> tuple[str, ...]:
    """The scripts of a text that have at least a thousandth of the letters of 10,000 evenly spread lines."""
    sample = lines[:: 1 + len(lines) // 10_000]
    counts = Counter(letter for line in sample for letter in line if letter.isalpha())
    scripts: Counter[str] = Counter()
    for letter, n in counts.items():
        scripts[_script_of(letter)] += n
    return tuple(script for script, n in scripts.items() if script and 1000 * n >= counts.total())


@cache
def _script_of(letter: str) -> str:
    return unicodedata.name(letter, "").replace("-", " ").partition(" ")[0]


def split_name(name: str) -> tuple[str, str, str]:
    """What stands before, in and after an annotator's name: `random_tree(`, `en` and `+phrases)`."""
    start, end = 0, len(name)
    while True:
        if name.endswith(PHRASES, start, end):
            end -= len(PHRASES)
        elif control := CONTROL.fullmatch(name, start, end):
            start, end = control.span("annotator")
        else:
            return name[:start], name[start:end], name[end:]


def choose_annotator(named: str | None, text: TextLanguage, key: str, *others: str) -> str:
    """Choose the annotator of a text: the one that the user names, or else the bundled one of its language.

    Args:
        named: As `load_annotator` takes it. A bundled one must be of the text's language, if that is known.
        text: Its language.
        key: The setting that names an annotator.
        others: Other settings that may help: the language, and the one that allows any bundled annotator.

    Raises:
        ConfigError: None is named and the language is unknown or has no bundled annotator, or the bundled
            one that is named is for another language. The message says what to set.
    """
    code, (before, plain, after) = text.code, split_name(named or "")
    if named and (code is None or plain not in BUNDLED or plain.partition("_")[0] == code):
        return named
    if code in BUNDLED and not named:
        return code
    expected = f"an annotator for {code}, the language of {text.told_by}"
    remedies = [f"{key}={before}{code}{after}"]
    if code is None:
        expected = f"an annotator's name, as {text.told_by} names no language to choose one by"
        remedies = [f"{key}=NAME"]
    elif code not in BUNDLED:
        load = f"python -c \"import stanza; stanza.download('{code}')\": {MODEL_SIZES['stanza']}"
        remedies = [
            f"{key}=FOLDER, which `syntaxformer annotator train` makes of a treebank",
            f"{key}=conllu:FILE of parses",
            f"{key}={SPACES} for factors of text (case, subword)",
            f'{key}=stanza:{code} (python -m pip install "syntaxformer[stanza]"; {load})',
            f"{key}=spacy:NAME (python -m spacy download NAME: {MODEL_SIZES['spacy']})",
        ]
    remedies += others if named else others[:1]
    raise ConfigError(f"{key}: expected {expected}, got {named or 'none'}. Set {', or '.join(remedies)}.")
