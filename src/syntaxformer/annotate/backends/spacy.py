"""Annotation with spaCy: the bundled pipelines and any installed one.

Each line gives one `Sentence`: several sentences on a line give several roots, blank lines do not reach the
pipeline, and very long lines are processed in parts. Tokens of white space are not words: they are dropped,
and the words that they govern get their governor.
"""

# pyright: basic
# (spaCy has no complete types.)

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np
import spacy
import srsly
from spacy.attrs import DEP, HEAD, IDX, IS_SPACE, LEMMA, LENGTH, MORPH, POS, TAG
from spacy.language import Language
from spacy.parts_of_speech import NAMES as UPOS_NAMES
from spacy.tokens import Doc

from syntaxformer.annotate.annotator import (
    BatchedAnnotator,
    ParsedSentence,
    bundled_folder,
    chunks_of,
    encodable,
    join_parsed,
    pipeline_version,
    segments_of,
    short_hash,
)
from syntaxformer.base.downloads import MODEL_SIZES
from syntaxformer.base.errors import BackendMissingError, DataError, SyntaxformerError, one_line
from syntaxformer.base.files import MAX_JSON_BYTES, read_json
from syntaxformer.trees import ROOT, Sentence

BATCH_SIZE, BATCH_WORDS, MAX_WORDS = 256, 4000, 20_000
"""Documents at once, words of them (37 KB of memory each), and words of a long document (13 KB each)."""

LINES_PER_ZONE, CHARACTERS_PER_ZONE = 2000, 2_000_000
"""Lines after which spaCy forgets the words that it has seen, so that millions need no more memory."""

# Components that fill no column of `Sentence`.
_UNUSED = {
    *("ner", "beam_ner", "entity_linker", "entity_ruler", "senter", "textcat", "textcat_multilabel"),
    *("spancat", "spancat_singlelabel", "span_finder", "span_ruler"),
}
_PROVIDED_BY = {
    "morphologizer": {"upos"},
    "attribute_ruler": {"upos"},
    "tagger": {"xpos"},
    "parser": {"governors", "deprels"},
    "beam_parser": {"governors", "deprels"},
    "experimental_biaffine_parser": {"governors", "deprels"},
    "lemmatizer": {"lemmas"},
    "trainable_lemmatizer": {"lemmas"},
    "experimental_edit_tree_lemmatizer": {"lemmas"},
}
_SEPARATE = {"governors", "deprels", "lemmas", "feats"}
"""Columns whose components no other component depends on."""


class SpacyParser:
    """A spaCy pipeline that takes batches of lines; components that no column needs are switched off."""

    def __init__(self, nlp: Language) -> None:
        factories = [(pipe, nlp.get_pipe_meta(pipe).factory) for pipe in nlp.pipe_names]
        for pipe, factory in factories:
            if factory in _UNUSED:
                nlp.disable_pipe(pipe)
        self.nlp = nlp
        self.provides = frozenset(column for pipe, _ in factories for column in self._given_by(pipe))
        if any("=" in label.replace("POS=", "") for label in nlp.pipe_labels.get("morphologizer", ())):
            self.provides |= {"feats"}  # others tell the part of speech alone
        self._reader = DocReader(nlp.vocab.strings, self.provides)
        self._reach = _reach(nlp)

    def limit_to(self, columns: Collection[str]) -> frozenset[str]:
        """Switch off what finds trees, lemmas or features if none of them is wanted; return what is left."""
        for pipe in self.nlp.pipe_names:
            pipe_columns = self._given_by(pipe)
            if pipe_columns and pipe_columns <= _SEPARATE and pipe_columns.isdisjoint(columns):
                self.nlp.disable_pipe(pipe)
                self.provides -= pipe_columns
        for pipe in self.nlp.pipe_names:  # a network that nothing listens to any more
            listeners = getattr(self.nlp.get_pipe(pipe), "listening_components", None)
            if listeners and not {*listeners} & {*self.nlp.pipe_names}:
                self.nlp.disable_pipe(pipe)
        self._reader = DocReader(self.nlp.vocab.strings, self.provides)
        return self.provides

    def _given_by(self, pipe: str) -> set[str]:
        """The columns that a component fills; of a second morphologizer, which adds features, these alone."""
        factory = self.nlp.get_pipe_meta(pipe).factory
        adds = factory == "morphologizer" and self.nlp.get_pipe(pipe).cfg["extend"]
        return {"feats"} if adds else _PROVIDED_BY.get(factory, set())

    def parse_lines(self, lines: Sequence[str]) -> list[Sentence]:
        """Return one sentence for each line."""
        return self._read(lines, self._docs(lines))

    def parse_words(self, sentences: Sequence[tuple[str, ...]]) -> list[Sentence]:
        """Return one sentence for each list of words, with exactly these words."""
        vocab, lines = self.nlp.vocab, [" ".join(words) for words in sentences]
        docs = (
            Doc(vocab, words=list(map(encodable, words)), user_data={"position": (number, 0)})
            for number, words in enumerate(sentences)
        )
        return self._read(lines, docs)

    def _read(self, lines: Sequence[str], docs: Iterable[Doc]) -> list[Sentence]:
        """Parse the documents of some lines, which are made meanwhile, and join those of each line."""
        parts: list[list[ParsedSentence]] = [[] for _ in lines]
        with self.nlp.memory_zone():  # one for the whole pipeline
            for doc in self._parsed(docs):
                number, start = doc.user_data["position"]
                parts[number].append(self._reader.read(doc, lines[int(number)], start))
        return [
            join_parsed(line, sentences, self.provides) for line, sentences in zip(lines, parts, strict=True)
        ]

    def _docs(self, lines: Sequence[str]) -> Iterator[Doc]:
        """Documents that store the number of their line and their start in it."""
        for number, line in enumerate(lines):
            for start, segment in segments_of(line):
                whole = self.nlp.make_doc(encodable("" if segment.isspace() else segment))
                for first in range(0, len(whole), MAX_WORDS):
                    doc = whole if len(whole) <= MAX_WORDS else whole[first : first + MAX_WORDS].as_doc()
                    doc.user_data["position"] = (number, start + whole[first].idx)
                    yield doc

    def _parsed(self, docs: Iterable[Doc]) -> Iterator[Doc]:
        """Tag and parse documents in batches; for a very long one, the vectors are computed first."""
        for batch in chunks_of(docs, BATCH_SIZE, BATCH_WORDS):
            is_long = self._reach > 0 and len(batch[0]) > BATCH_WORDS
            if is_long:
                batch[0].tensor = self._vectors(batch[0])
            try:
                yield from self.nlp.pipe(batch, batch_size=BATCH_SIZE, disable=["tok2vec"] if is_long else [])
            except Exception as error:  # of any component, as where weights do not fit
                message = f"spacy: expected an analysis, got {type(error).__name__}: {one_line(error)}"
                raise SyntaxformerError(message) from error

    def _vectors(self, doc: Doc) -> Any:
        """Vectors of the words, computed a thousand at a time, with all words that they depend on."""
        model, parts = self.nlp.get_pipe("tok2vec").model, []
        for first in range(0, len(doc), 1000):
            start = max(0, first - self._reach)
            (vectors,) = model.predict([doc[start : first + 1000 + self._reach].as_doc()])
            parts.append(vectors[first - start :][:1000])
        return model.ops.xp.concatenate(parts)


def spacy_annotator(nlp: Language, name: str, version: str) -> BatchedAnnotator:
    """A pipeline as an annotator."""
    parser = SpacyParser(nlp)
    sizes = {"batch_lines": LINES_PER_ZONE, "batch_chars": CHARACTERS_PER_ZONE}
    return BatchedAnnotator(parser, name, version, parser.provides, **sizes)


def _reach(nlp: Language) -> int:
    """Number of words on each side that a word's vector depends on; 0 if it may depend on all."""
    model = nlp.config["components"].get("tok2vec", {}).get("model", {})
    encode, embed = model.get("encode", {}), model.get("embed", {})
    kinds = f"{encode.get('@architectures')} {embed.get('@architectures')}"
    is_local = re.match(r"spacy\.\w+WindowEncoder\.v\d spacy\.\w+Embed\.v\d", kinds)
    return encode["window_size"] * encode["depth"] if is_local and nlp.pipe_names[0] == "tok2vec" else 0


def load_bundled(language: str) -> BatchedAnnotator:
    """Load a pipeline that comes with the package.

    Raises:
        BackendMissingError: The package was installed without it.
    """
    return _from_folder(bundled_folder(language), language)


def load_spacy(name: str) -> BatchedAnnotator:
    """Load an installed pipeline by its package name, or one in a folder by its path.

    Raises:
        BackendMissingError: No such package is installed.
        DataError: The folder holds no pipeline that spaCy can load.
    """
    if Path(name).exists() or "/" in name:
        return _from_folder(Path(name), f"spacy:{name}")
    # Check its files first, since loading a package imports it, whatever it is.
    spec = find_spec(name) if name.isidentifier() and spacy.util.is_package(name) else None
    homes = [] if spec is None else spec.submodule_search_locations or []
    if not any((Path(home) / "meta.json").is_file() for home in homes):
        command = f"python -m spacy download {name}  # {MODEL_SIZES['spacy']}"
        raise BackendMissingError(f"the spaCy pipeline {name!r}", command)
    nlp = spacy.load(name)
    package = spacy.util.get_package_path(name)
    return spacy_annotator(nlp, f"spacy:{name}", pipeline_version(nlp.meta, package))


_FACTORIES = ("tok2vec", "morphologizer", "trainable_lemmatizer", "parser")
_NETWORKS = ("Tok2Vec.v2", "Tok2VecListener.v1", "MultiHashEmbed.v2", "MaxoutWindowEncoder.v2")
_HEADS = ("Tagger.v2", "TransitionBasedParser.v2")
_SCORERS = ("morphologizer_scorer.v1", "lemmatizer_scorer.v1", "parser_scorer.v1")
_NAMES = {*_FACTORIES, *(f"spacy.{name}" for name in (*_NETWORKS, *_HEADS, *_SCORERS))}
"""What `annotator train` and the bundled pipelines name besides the settings of a language."""
_VARIABLE = r"\$\{(paths\.\w+|system\.\w+|components\.[\w-]+\.model\.encode\.width)\}"
_LARGEST = {"rows": 100_000, **dict.fromkeys(("depth", "window_size", "maxout_pieces", "top_k"), 16)}
_MOST_BYTES = {"config.cfg": 2**15, "moves": 2**17, "model": 2**26}
_OF_LANGUAGE = ("tokenizer", "vocab/lookups.bin", "vocab/vectors", "vocab/key2row", "vocab/vectors.cfg")
_NO_TREE = 2**32 - 1


def foreign_part(folder: Path) -> str | None:
    """What is in a pipeline's folder that `annotator train` would not have written; None for nothing.

    The pipeline is not loaded for this: a stranger may have written it.
    """
    try:
        for file in folder.rglob("*"):
            most = _MOST_BYTES.get(file.name, MAX_JSON_BYTES)
            if not (file.is_dir() or (file.is_file() and file.stat().st_size <= most)):
                return f"{file.name}, which is no file of at most {most} bytes"
        text = re.sub(_VARIABLE, "", (folder / "config.cfg").read_text("utf-8"))
        if re.search(r"\\|\$|__SECTION__", text):  # other ways to write a name
            return "escapes or variables in config.cfg"
        config = spacy.util.load_config(folder / "config.cfg")
        language = spacy.blank(config["nlp"]["lang"])
        usual = spacy.util.dict_to_dot(language.config)
        for option, setting in spacy.util.dict_to_dot(config).items():
            values = setting if isinstance(setting, list) else [setting]
            if usual.get(option, ...) != setting and not all(_is_known(option, value) for value in values):
                expected = f", where only {', '.join(_FACTORIES)} may be" * option.endswith(".factory")
                return f"{f'{option} = {setting}'[:90]!a} in config.cfg{expected}"
        for file in folder.glob("*/cfg"):
            cfg = read_json(file)
            if cfg.get("beam_width", 1) != 1 or not {*cfg.get("labels_pos", {}).values()} <= {*UPOS_NAMES}:
                return f"beams or unknown parts of speech in {file.parent.name}/cfg"
        for file in folder.glob("*/trees"):  # of lemmas: spaCy follows any number in them
            depths, content = list[int](), cast("Any", srsly.msgpack_loads(file.read_bytes()))
            for node in content["trees"]:
                children = {node.get("prefix_tree", _NO_TREE), node.get("suffix_tree", _NO_TREE)} - {_NO_TREE}
                depths.append(1 + max((depths[child] for child in children), default=0))
            if max(depths, default=0) > 100:
                return f"{file.parent.name}/trees with more than 100 levels"
        with TemporaryDirectory() as home:  # patterns and tables, which training leaves as they are
            language.to_disk(home)
            for name in _OF_LANGUAGE:
                if (folder / name).exists() and short_hash(folder / name) != short_hash(Path(home, name)):
                    return f"another {name} than the language's in spaCy {spacy.about.__version__}"
    except Exception as error:  # from configparser, confection or srsly, or since a value has another type
        return f"what cannot be read: {one_line(error)}"
    return None


def _is_known(option: str, value: Any) -> bool:
    """Whether a value of `config.cfg` is one that `annotator train` may write there."""
    section, key = option.partition(".")[0], option.rpartition(".")[2]
    if key == "source" or "width." in option or not re.fullmatch(r"[@\w.-]+", option):
        return False
    if key == "factory" or key.startswith("@"):
        return value in _NAMES
    if isinstance(value, str):  # no number in quotes, which pydantic would accept
        return section != "paths" and re.fullmatch(rf"[A-Za-z][\w.-]*|{_VARIABLE}", value) is not None
    return value is None or (isinstance(value, int | float) and value <= _LARGEST.get(key, 1024))


def _from_folder(folder: Path, name: str) -> BatchedAnnotator:
    try:
        nlp = spacy.load(folder)
    except Exception as error:  # from srsly, thinc or a component
        reason = str(error).split("\n")[0]
        raise DataError(
            f"annotator: expected a folder with a spaCy pipeline, got: {reason}", folder
        ) from error
    return spacy_annotator(nlp, name, pipeline_version(nlp.meta, folder))


_SPAN = (IDX, LENGTH, IS_SPACE)
_TAGS = {"upos": POS, "xpos": TAG, "lemmas": LEMMA, "feats": MORPH, "deprels": DEP, "governors": HEAD}


class DocReader:
    """Reads documents of one pipeline."""

    def __init__(self, strings: Any, provides: frozenset[str]) -> None:
        self._columns = tuple(column for column in _TAGS if column in provides)
        self._attributes = [*_SPAN, *(_TAGS[column] for column in self._columns)]
        self._strings = strings
        self._tags: dict[int, str] = {}  # spaCy's hashes that were looked up before

    def read(self, doc: Doc, line: str, offset: int = 0) -> ParsedSentence:
        """Read a document whose text starts at character `offset` of its line."""
        values = doc.to_array(self._attributes).astype(np.int64)
        is_word = values[:, 2] == 0
        starts = values[is_word, 0] + offset
        spans = list(zip(starts.tolist(), (starts + values[is_word, 1]).tolist(), strict=True))
        by_name = dict(zip(self._columns, values.T[len(_SPAN) :], strict=True))
        relative = by_name.pop("governors", None)
        governors = None if relative is None else _governors(relative, is_word)
        tags = {column: self._named(column, codes[is_word]) for column, codes in by_name.items()}
        return ParsedSentence([line[start:end] for start, end in spans], spans, tags, governors)

    def _named(self, column: str, codes: np.ndarray[Any, Any]) -> list[str]:
        if column == "upos":
            return [UPOS_NAMES[code] for code in codes.tolist()]
        hashes = codes.astype(np.uint64).tolist()
        if column == "lemmas":  # an open class: not stored, so that memory stays constant
            return [self._strings[code] for code in hashes]
        return [self._tags.get(code) or self._tags.setdefault(code, self._strings[code]) for code in hashes]


def _governors(relative: np.ndarray[Any, Any], is_word: np.ndarray[Any, Any]) -> list[int]:
    """Turn distances to the governor, 0 for roots, into indices among the kept words, -1 for roots."""
    positions = np.arange(len(relative))
    governors = np.where(relative == 0, ROOT, positions + relative)
    if not is_word.all():
        for _ in range(len(governors)):
            at_space = (governors != ROOT) & ~is_word[governors]
            if not at_space.any():
                break
            governors = np.where(at_space, governors[governors], governors)
        new_index = np.cumsum(is_word) - 1
        governors = np.where(governors == ROOT, ROOT, new_index[governors])[is_word]
    return governors.tolist()
