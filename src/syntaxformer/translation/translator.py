"""`Translator` turns raw lines into translated raw lines, and tags them itself."""

from __future__ import annotations

import logging
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from pydantic import ValidationError

from syntaxformer.annotate.annotator import check_lines
from syntaxformer.annotate.backends import is_file
from syntaxformer.annotate.registry import trusted_annotator
from syntaxformer.base.config import config_error
from syntaxformer.base.errors import AlignmentError, CheckpointError, ConfigError, DataError
from syntaxformer.base.languages import CONTROL, choose_annotator, is_other_script, language_of_side
from syntaxformer.base.progress import is_waiting_for, lines_at_hand, map_ahead
from syntaxformer.runs.loading import TRANSLATOR, verify_folder
from syntaxformer.syntax import FACTORS, WordColumns
from syntaxformer.syntax.columns import Injection
from syntaxformer.syntax.factors import TERM
from syntaxformer.syntax.inputs import check_syntax
from syntaxformer.translation.alignment import Alignment, AlignmentHead, word_spans
from syntaxformer.translation.all_caps import all_caps_words, in_capitals, in_lower_case
from syntaxformer.translation.decoding import DecodingConfig, Hypothesis, PieceDecoder, Score, Search, is_loop
from syntaxformer.translation.model_folder import (
    FolderInfo,
    load_decoder,
    load_source_encoder,
    read_info,
    torch_decoder_of,
)
from syntaxformer.translation.protection import SYMBOLS, TOO_MANY, put_back
from syntaxformer.translation.sentences import USUAL, cut_lines, joined, sentence_starts
from syntaxformer.translation.source import (
    Cutter,
    EncodedText,
    SourceEncoder,
    encode_pieces,
    offsets_in,
    tagged,
    unknown_pieces,
)
from syntaxformer.translation.terms import Terms, n_missing_terms
from syntaxformer.trees.locate import plain_form, spans_of_given_words

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from syntaxformer.annotate import Annotator

_log = logging.getLogger("syntaxformer.translate")

UserFactors = Mapping[str, Iterable[Sequence[str]]]
"""The user's own factors: name → for each line, the values of its words."""

Split = Literal["never", "auto", "always"]
"""When the sentences of a line are translated one by one."""

CHUNK_LINES = 2048
"""Number of lines in memory at a time; a chunk is sorted by length."""

CHUNK_LINES_AHEAD = 256
"""The same for a decoder that runs while the next chunk is tagged; a chunk has at least four batches."""

MAX_SOURCE_PIECES = 1024
"""Longer lines are cut to this and reported, because the cost of attention grows with the square."""

_TABS = "with a tab, which is read as a space. Of a table, give the sources alone: `cut -f1`"
_FORM = (
    "not in the form NFC with plain spaces and no invisible characters. The model was trained without "
    "data.normalize and may not know them"
)
_UNWRITTEN = "with characters in a translation that the model cannot write, scored as its unknown piece"
_OVERLAPS = "with terms that overlap, of which the first in the line is used, such as"
_REPAIRED = (
    "whose translation lost or doubled a protected value, or has more than "
    f"{len(SYMBOLS)}. What is lost stands at its end; --report FILE names them"
)
_LONG = "are longer than the {} words that this model was trained on"
_WHOLE = (
    "seem to have more sentences than 99 % of the training lines, {}. The later ones may be lost; "
    "--split-sentences auto (in Python split_sentences) translates them one by one"
)
_SPLIT = (
    "have more sentences than 99 % of the training lines, {}; they were translated one by one. "
    "--split-sentences never (in Python split_sentences) leaves lines whole"
)
_UNKNOWN = "taken to be 1 as this older folder does not say"
_BESIDE = "{}: expected {}, one for each line of the text, got {}."
_ALL_CAPS = (
    "are in capitals, read in lower case and translated in capitals, since the model was trained with "
    "data.all_caps=lower"
)
_UNSEEN = "with characters, or in a script, that are not in the model's training text. They may be lost"


@cache
def say_once(message: str) -> None:
    """Log a warning, the same one only once."""
    _log.warning("%s", message)


@dataclass
class _Chunk:
    """Lines as they were given, clean, and encoded.

    Several lines may be the sentences of one that was cut: `spaces` stood between them, for each such line.
    """

    raw: Sequence[str]
    lines: Sequence[str]
    source: EncodedText
    spaces: Sequence[Sequence[str]] | None = None

    @cached_property
    def rows(self) -> list[int]:
        """The lines with text, longest first."""
        order = np.argsort(-self.source.lengths, kind="stable").tolist()
        return [row for row in order if self.lines[row].strip()]

    @property
    def n_cut(self) -> int:
        """Number of lines that a model reads only in part."""
        return max(text.n_cut for text in (self.source, *self.source.others))


class Translator:
    """A trained model, with everything that is needed to turn raw text into its input."""

    def __init__(
        self,
        model: PreTrainedModel | PieceDecoder,
        encoder: SourceEncoder,
        info: FolderInfo,
        annotator: Annotator | None = None,
    ) -> None:
        self.encoder = replace(encoder, preparation=info.preparation(info.src))
        self.info, self.annotator = info, annotator
        self._all_directions = info  # of whose languages `to` chooses
        self._output = info.preparation(info.tgt)
        self.decoder: Any = model if hasattr(model, "decode") else torch_decoder_of(model, encoder)
        self.others: Sequence[Translator] = ()
        self.language: str | None = None  # that it translates into, if it could translate into several
        self._faults: Counter[str] = Counter()

    @property
    def longest(self) -> int:
        """Pieces to which a line is cut."""
        return min(MAX_SOURCE_PIECES, self.decoder.longest)

    @property
    def model(self) -> Any:
        """The network, for code that looks inside it.

        Raises:
            ConfigError: The model is an export, which translates but does not show attention or states.
        """
        if (model := getattr(self.decoder, "model", None)) is None:
            raise ConfigError(
                f"model: expected a folder that `train` wrote, got one exported to {self.info.backend}, "
                "which gives no attention, states or probability. Use the folder from which it was exported."
            )
        return model

    @classmethod
    def load(
        cls,
        folder: str | Path,
        annotator: str | Annotator | None = None,
        device: str | None = None,
        inject_governors: bool | None = None,
        trust_annotator: bool = False,
    ) -> Translator:
        """Load a model folder.

        Args:
            folder: What `train` or `export` wrote.
            annotator: Use this annotator instead of the one that the folder names.
            device: "cpu", "cuda", …; None for the best one available.
            inject_governors: Whether a LISA head attends to the annotator's governors; None as in the recipe.
            trust_annotator: Accept an annotator on the network, or at a path outside the folder.

        Raises:
            CheckpointError: The folder is unfinished, truncated or altered, or names an annotator that needs
                `trust_annotator`.
            BackendMissingError: The annotator is not installed.
            ConfigError: There is no such annotator or device, the annotator lacks the trees that the model
                reads, or the model has no LISA head for the governors.
        """
        folder = Path(folder)
        verify_folder(folder, TRANSLATOR, trust_annotator)
        info = read_info(folder)
        if inject_governors is not None:
            syntax = info.syntax.model_copy(update={"governors": inject_governors})
            info = info.model_copy(update={"syntax": syntax})
        encoder = load_source_encoder(folder, info)
        if encoder.needs_words:
            annotator = trusted_annotator(info.annotator, annotator, folder, trust_annotator)
        decoder = load_decoder(folder, info, encoder, device)
        if inject_governors is not None:
            from syntaxformer.infusion.infusion import Infusion

            modules = decoder.model.modules() if hasattr(decoder, "model") else ()
            infusions = [module for module in modules if isinstance(module, Infusion) and len(module.lisa)]
            if inject_governors and not infusions:
                raise ConfigError("inject governors: expected a model with a LISA head, got one without it.")
            for infusion in infusions:
                infusion.inject = "gold" if inject_governors else None
        tagger = _load_annotator(info, annotator) if encoder.needs_words else None
        return cls(decoder, encoder, info, tagger)

    @classmethod
    def load_ensemble(cls, folders: Sequence[str | Path], *settings: Any) -> Translator:
        """Load model folders as one translator, which averages their log-probabilities at each step.

        Each reads the source with its own pieces, syntax and annotator; other settings are the first one's.
        `settings` are the other arguments of `load`.

        Raises:
            ConfigError: As `load`, or one of several is an export or writes other pieces than the first.
        """

        def output_of(member: Translator) -> tuple[Any, ...]:
            """What all members must have in common."""
            config, first = member.model.config, member.model.generation_config.forced_bos_token_id
            vocabulary, languages = member.encoder.target_tokenizer.get_vocab(), member.info.languages
            ids = config.vocab_size, config.decoder_start_token_id, first
            return vocabulary, ids, member._output, languages, member.info.all_caps

        lead, *others = (cls.load(folder, *settings) for folder in folders)
        for folder, member in zip(folders[1:], others, strict=True):
            if output_of(member) != output_of(lead):
                raise ConfigError(
                    f"{folder}: expected the languages and the target pieces of {folders[0]}, got others. "
                    "Train both with the same subwords on the same text, or with one subwords.tokenizer."
                )
        if others:
            lead.decoder = torch_decoder_of(lead.model, lead.encoder, [member.model for member in others])
            lead.others = others
        return lead

    def to(self, language: str | None) -> Translator:
        """The translator for one of its target languages; for a model of one language, itself.

        Raises:
            ConfigError: The model does not translate into the language, or into others as well.
        """
        directions = self._all_directions.directions
        known = directions or self._all_directions.languages[1:]
        if language in directions:
            return self._in_direction(language, directions[language])
        if directions or language not in (None, *known):
            raise ConfigError(
                f"to: expected a language that the model translates into, {', '.join(known)}, got "
                f"{language or 'none'}. Choose it with --to, in Python with Translator.to."
            )
        return self

    def _in_direction(self, language: str, source: str) -> Translator:
        """The translator from the texts of one ending into one language."""
        other, ends = copy(self), {"tgt": language, "tgt_language": None}
        if source != self._all_directions.src:  # whose language may be given
            ends |= {"src": source, "src_language": None}
        other.info, other.language = self._all_directions.model_copy(update=ends), language
        other._output = other.info.preparation(other.info.tgt)
        other.encoder = replace(self.encoder, preparation=other.info.preparation(other.info.src))
        other._faults = Counter()
        other.others = [member.to(language) for member in self.others]
        return other

    def with_annotator(self, annotator: str | Annotator) -> Translator:
        """The same model reading the trees and tags of another annotator; without syntax, itself.

        An annotator's name is checked as that of `load`; an annotator itself may be that of one split.

        Raises:
            BackendMissingError: The annotator is not installed.
            ConfigError: There is no such annotator, or it lacks what the model reads.
        """
        if not self.encoder.needs_words:
            return self
        other = copy(self)
        other._faults = Counter()
        if isinstance(annotator, str):
            annotator = _load_annotator(self.info, annotator)
        check_syntax(self.info.syntax, annotator.provides, annotator.name)
        other.annotator = annotator
        return other

    def translate(
        self,
        lines: Iterable[str],
        beam_size: int | None = None,
        length_penalty: float | None = None,
        n_best: int = 1,
        batch_size: int | None = None,
        scored: bool = False,
        user_factors: UserFactors | None = None,
        first_line: int = 1,
        alignments: bool = False,
        terms: Terms | Mapping[str, str | Sequence[str]] | None = None,
        split_sentences: Split = "never",
        prefixes: Iterable[str] | None = None,
        **further: Any,
    ) -> Iterator[list[Hypothesis]]:
        """Translate lines, in constant memory and in order.

        Args:
            lines: Raw text; an empty line gives an empty translation.
            beam_size: Number of beams; None for the folder's setting, here and below.
            length_penalty: A log-probability is divided by the length to this power.
            n_best: Number of translations of each line, at most `beam_size`.
            batch_size: Number of lines decoded together.
            scored: Give each hypothesis its score, which costs one more pass.
            user_factors: For each of the user's own factors, the values of each line's words.
            first_line: Number of the first line in its file, for errors.
            alignments: Give each hypothesis its alignment, which costs one more pass; that of several models
                is by the first one's attention.
            terms: Terms and their translations, to use where a line has the terms.
            split_sentences: Translate the sentences of a line one by one and join them: "always", "never", or
                "auto" where there are more than in 99 % of the training lines. Second, third … translations
                are those of all sentences, and a score is that of the whole.
            prefixes: For each line how its translation must begin; empty: as it likes.
            further: Other settings of `Search` by name, such as `no_repeat_ngram_size`, `max_length_factor`
                or `min_length`; `temperature`, `top_k` and `seed`, with which translations are sampled.

        Yields:
            For each line its `n_best` hypotheses, best first.

        Raises:
            TypeError: `lines` is one string.
            ValueError: `n_best` is larger than the beam.
            ConfigError: The values of a user factor are missing, a setting is out of its range, settings of
                sampling and of beam search are mixed, or the model has no head that aligns or has
                not learned terms.
            AlignmentError: The values are not one list for each line, or not one value for each word; or
                there is not one prefix for each line.
            DataError: A line or a prefix is no text, or a prefix cannot be written.
        """
        check_lines(lines)
        if split_sentences != "never":
            self._check_split(split_sentences, user_factors, prefixes, alignments)
        if alignments and terms is not None:
            raise ConfigError(
                "alignments: expected none with terms, whose translations are words of the source, too. "
                "Translate without --terms for them."
            )
        further |= {"beam_size": beam_size, "length_penalty": length_penalty, "batch_size": batch_size}
        further |= {"alignment": self.aligning_head() if alignments else None}
        search = self._search("translate", n_best=n_best, scored=scored, **further)
        _check_sampling(search, beam_size)

        def decode(chunk: _Chunk) -> tuple[_Chunk, list[list[Hypothesis]]]:
            return chunk, self._decode(chunk, search)

        iterator, n_ahead = iter(lines), self.decoder.n_ahead
        chunks = self._chunks(
            iterator,
            user_factors or {},
            self.chunk_lines(search.batch_size),
            first_line - 1,
            terms=self.cleaned_terms(terms),
            with_offsets=alignments,
            split=split_sentences,
            prefixes=prefixes,
        )
        decoded = map(decode, chunks)
        if n_ahead:  # this thread tags a chunk while others decode those before it
            pool = ThreadPoolExecutor(n_ahead, "decode")
            decoded = map_ahead(pool, decode, chunks, n_ahead, partial(is_waiting_for, iterator))
        n_cut = 0
        for chunk, hypotheses in decoded:
            n_cut += chunk.n_cut
            yield from self._texts(chunk, hypotheses, search)
        self._warn(n_cut)

    def score(
        self,
        lines: Iterable[str],
        translations: Iterable[str | Sequence[str]],
        batch_size: int | None = None,
        user_factors: UserFactors | None = None,
        first_line: int = 1,
    ) -> Iterator[list[Score]]:
        """Score given translations by the model's log-probability, in constant memory and in order.

        Both sides are prepared as in training. A translation that is a search's own gets the search's score,
        unless the tokenizer cuts its text into other pieces than the search chose.

        Args:
            lines: Raw text.
            translations: For each line a translation, or several.
            batch_size: Number of translations computed together; None for the folder's setting.
            user_factors: As in `translate`.
            first_line: As in `translate`.

        Yields:
            For each line the score of each of its translations. An empty one of an empty line has no pieces.

        Raises:
            TypeError: One of the sides is one string.
            DataError: A line or a translation is no text, or one has more pieces than the model writes.
            ConfigError: As `translate`.
            AlignmentError: As `translate`, or the sides have different numbers of lines.
        """
        check_lines(lines)
        check_lines(translations, "translations")
        size = self._search("score", batch_size=batch_size).batch_size
        texts, n_lines, n_cut = iter(translations), first_line - 1, 0
        for chunk in self._chunks(iter(lines), user_factors or {}, CHUNK_LINES, n_lines):
            of_chunk = [
                each if isinstance(each, Iterable) and not isinstance(each, str) else [each]
                for each in islice(texts, len(chunk.lines))
            ]
            if len(of_chunk) == len(chunk.lines):
                yield from self._scores(chunk, of_chunk, n_lines + 1, size)
            n_lines, n_cut = n_lines + len(of_chunk), n_cut + chunk.n_cut
            if len(of_chunk) < len(chunk.lines):
                raise AlignmentError(f"translations: expected one for each line, got only {n_lines}.")
        if next(texts, None) is not None:
            raise AlignmentError(f"translations: expected {n_lines}, one for each line, got more.")
        self._warn(n_cut)

    def score_encoded(
        self, lines: Sequence[str], source: EncodedText, translations: Sequence[str]
    ) -> list[list[Score]]:
        """Score a translation of each line that is already encoded, all of them in memory."""
        chunk = _Chunk(lines, [self.clean(line) for line in lines], source)
        return self._scores(chunk, [[text] for text in translations], 1, self.info.decoding.batch_size)

    def target_pieces(self, lines: Sequence[str], translations: Sequence[str]) -> list[list[int]]:
        """The pieces of given translations, as the decoder writes them, with their ends; cut to `longest`.

        What is protected becomes a symbol where a line and its translation have it, as in training.
        """
        texts = list(map(self._as_written_for, lines, translations))
        whole = self._target_pieces([self.clean(line) for line in lines], texts)
        return [[*ids[: min(len(ids), self.longest) - 1], ids[-1]] for ids in whole]

    def _target_pieces(self, lines: Sequence[str], translations: Sequence[str]) -> list[list[int]]:
        """As `target_pieces`, of clean lines."""
        spans = self._output.shared_spans(lines, translations)[1] if self.info.protect else None
        texts = self._output.prepare(translations, spans).texts
        return [encoding.ids for encoding in encode_pieces(self.encoder.target_tokenizer, texts)]

    def _scores(
        self, chunk: _Chunk, translations: Sequence[Sequence[str]], first_line: int, batch_size: int
    ) -> list[list[Score]]:
        """Scores in the order of the lines."""
        tokenizer, texts = self.encoder.target_tokenizer, [*chain.from_iterable(translations)]
        rows = np.repeat(np.arange(len(translations)), [*map(len, translations)]).tolist()
        _check_strings(texts, "translation", first_line, rows)
        clean = [self._output.clean(text.replace("\0", " ")) for text in texts]
        clean = [self._as_written_for(chunk.raw[row], text) for row, text in zip(rows, clean, strict=True)]
        pieces = self._target_pieces([chunk.lines[row] for row in rows], clean)
        lengths = np.maximum(chunk.source.lengths[rows], [*map(len, pieces)])
        unknown, scores = {*unknown_pieces(tokenizer, spelled=False).tolist()}, [Score() for _ in texts]
        for row, ids in zip(rows, pieces, strict=True):
            self._faults[_UNWRITTEN] += not unknown.isdisjoint(ids)
            if len(ids) > self.longest:
                problem = f"translation: expected at most {self.longest} pieces, got {len(ids)}."
                raise DataError(f"{problem} Split it and its source into sentences.", line=first_line + row)
        order = np.argsort(-lengths, kind="stable").tolist()
        order = [number for number in order if chunk.lines[rows[number]].strip() or clean[number].strip()]
        pairs = [(rows[number], pieces[number]) for number in order]
        for number, log in zip(order, self.decoder.score(chunk.source, pairs, batch_size), strict=True):
            scores[number] = Score(tokenizer.convert_ids_to_tokens(pieces[number]), log)
        in_order = iter(scores)
        return [[*islice(in_order, len(of_line))] for of_line in translations]

    def _search(self, verb: str, **settings: Any) -> Search:
        """The folder's settings with those that are not None."""
        settings = {name: value for name, value in settings.items() if value is not None}
        try:
            return Search.model_validate({**self.info.decoding.model_dump(), **settings})
        except ValidationError as error:
            raise config_error(Search, error, verb) from error

    def _warn(self, n_cut: int) -> None:
        """Say what was cut or may be read otherwise than it is meant."""
        if n_cut:
            warnings.warn(
                f"{n_cut} lines of more than {self.longest} pieces were cut to "
                f"{self.longest}: the rest of each is not translated. Split them into sentences.",
                stacklevel=3,
            )
        for member in (self, *self.others):
            member.encoder.unseen.warn()
        for fault, count in (+self._faults).items():
            verb, _, rest = fault.partition(" ")
            if count == 1:
                verb = {"are": "is", "have": "has", "seem": "seems"}.get(verb, verb)
            say_once(f"{count:,} line{'s' * (count > 1)} {verb} {rest}.")
        self._faults.clear()

    def chunk_lines(self, batch_size: int | None) -> int:
        """Number of lines that are read, and divided into batches, at a time."""
        n_batches = 4 * (batch_size or self.info.decoding.batch_size)
        return max(CHUNK_LINES_AHEAD, n_batches) if self.decoder.n_ahead else CHUNK_LINES

    def _count_faults(self, raw: Sequence[str], lines: Sequence[str], source: EncodedText) -> None:
        """Count the lines that may be read otherwise than they are meant."""
        self._faults[_TABS] += sum("\t" in line for line in raw)
        self._faults[_ALL_CAPS] += sum(map(self._is_all_caps, raw))
        if self.info.normalize == "none":
            self._faults[_FORM] += sum(plain_form(line) != line for line in lines)
        unknown = np.flatnonzero(np.isin(source.pieces, self._unknown))
        rows = {*(np.searchsorted(source.splits, unknown, "right") - 1).tolist()}
        if longest := self.info.longest_line:
            self._faults[_LONG.format(longest)] += sum(len(line.split()) > longest for line in lines)
        is_other = (is_other_script(line, self.info.scripts) for line in lines)
        self._faults[_UNSEEN] += sum(row in rows or other for row, other in enumerate(is_other))

    @cached_property
    def _unknown(self) -> Any:
        return unknown_pieces(self.encoder.tokenizer)

    def aligning_head(self) -> AlignmentHead:
        """The head that aligns; ConfigError if the folder names none."""
        if self.info.alignment is None:
            raise ConfigError(
                "alignments: expected a model with a head that aligns, got an older one without. Choose it "
                "once with syntaxformer.translation.alignment.add_head(FOLDER, SOURCES, TARGETS), where the "
                "model was trained; export the folder again."
            )
        return self.info.alignment

    def _check_split(self, split: Split, user_factors: object, prefixes: object, alignments: bool) -> None:
        problems = {
            "values of user factors": bool(user_factors),
            "prefixes": prefixes is not None,
            "alignments or markup": alignments,
            "a file of parses": self.annotator is not None and is_file(self.annotator.name),
        }
        if split not in get_args(Split):
            raise ConfigError(f"split_sentences: expected never, auto or always, got {split!r}.")
        if reason := next((name for name, is_so in problems.items() if is_so), None):
            expected = f"expected never with {reason}, which belong to whole lines"
            raise ConfigError(f"split_sentences: {expected}, got {split}. Split the file.")

    def cut(self, lines: Sequence[str], split: Split) -> list[list[str]]:
        """Cut lines of several sentences: for each `[sentence, white space, sentence, …]`."""
        if split == "never":
            return [[line] for line in lines]
        most = (self.info.usual_sentences or 1) if split == "auto" else 1
        lines = [line.replace("\0", " ") for line in lines]
        lines = list(map(self._as_it_stands, lines)) if self.info.tokenized else lines
        return cut_lines(lines, most, sentence_parser(self.info, self.annotator))

    def _begun(
        self, source: EncodedText, prefixes: Sequence[str], lines: Sequence[str], first_line: int
    ) -> EncodedText:
        """The source of clean lines with the pieces that their translations must begin with."""
        _check_strings(prefixes, "prefix", first_line)
        tokenizer = self.encoder.target_tokenizer
        whole = self._target_pieces(lines, [self._output.clean(prefix).rstrip() for prefix in prefixes])
        n_before = len(tokenizer.backend_tokenizer.encode("").ids) - 1  # such as the code of a language
        pieces = [ids[n_before:-1] for ids in whole]
        unknown = {*unknown_pieces(tokenizer, spelled=False).tolist()}
        longest = self.decoder.longest - 3
        for number, (prefix, ids, line) in enumerate(zip(prefixes, pieces, lines, strict=True), first_line):
            problems = {
                "an empty line": ids and not line.strip(),
                f"more than {longest} pieces": len(ids) > longest,
                "characters that the model cannot write": unknown & {*ids},
            }
            if problem := next((name for name, is_so in problems.items() if is_so), None):
                shown = repr(prefix[:40])
                raise DataError(f"prefix: expected one that fits, got {shown} with {problem}.", line=number)
        return replace(source, prefixes=pieces)

    def encode(
        self,
        lines: Sequence[str],
        user_factors: UserFactors | None = None,
        first_line: int = 1,
        with_offsets: bool = False,
        terms: Terms | Mapping[str, str | Sequence[str]] | None = None,
        prefixes: Sequence[str] | None = None,
    ) -> EncodedText:
        """Tag and encode lines; those over `longest` pieces are cut and counted. Alignments need the offsets.

        Raises:
            TypeError: `lines` is one string.
            ConfigError: The values of a user factor are missing, or the model has not learned terms.
            AlignmentError: There is not one value for each word.
            DataError: A line or a prefix is no text, or a prefix cannot be written.
        """
        check_lines(lines)
        _check_strings(lines, "text", first_line)
        user = {name: list(rows) for name, rows in (user_factors or {}).items()}
        self._check_user_factors(user)
        source = self._encode(lines, user, first_line, self.cleaned_terms(terms), with_offsets)
        if prefixes is None:
            return source
        return self._begun(source, prefixes, [self.clean(line) for line in lines], first_line)

    def _encode(
        self,
        lines: Sequence[str],
        user_factors: UserFactors,
        first_line: int,
        terms: Terms | None = None,
        with_offsets: bool = False,
    ) -> EncodedText:
        clean, words, cut = [self.clean(line) for line in lines], None, self.cutter(len(lines))
        translations = None
        if self.annotator is not None:
            values = {name: rows for name, rows in user_factors.items() if name in self.encoder.factors}
            sentences, columns = self.annotator.annotate(clean), _needed(self.info)
            words = WordColumns.from_sentences(sentences, values, first_line, only=columns)
            if terms is not None:
                capitals = {row for row, line in enumerate(lines) if self._is_all_caps(line)}
                words, translations = self._with_terms(words, terms, capitals)
                clean = [*words.texts]
        others = [member._encode(lines, user_factors, first_line, terms) for member in self.others]
        encoded = self.encoder.encode(clean, words, self.longest, cut, with_offsets=with_offsets)
        return replace(encoded, others=tuple(others), terms=translations)

    def cutter(self, n_lines: int) -> Cutter:
        """What cuts lines into pieces, behind that of the chosen one of several target languages.

        Raises:
            ConfigError: The model has several target languages, and none was chosen.
        """
        if not self.info.directions:
            return encode_pieces
        return partial(tagged, encode_pieces, [[f"<2{self.language or self.to(None).language}>"]] * n_lines)

    def cleaned_terms(self, terms: Terms | Mapping[str, str | Sequence[str]] | None) -> Terms | None:
        """Terms in the form of the model's texts; None for none. All members must have learned terms.

        Raises:
            ConfigError: One is blank, or the model, or a member of an ensemble, has not learned terms.
        """
        if terms is None:
            return None
        for member in (self, *self.others):
            if member.info.terms is None or TERM not in member.encoder.columns:
                raise ConfigError(
                    "terms: expected a model that has learned to use terms, got one that has not. Train it "
                    "with data.terms=FILE."
                )
        return Terms.of(terms).cleaned(self._as_it_stands, self._output.clean)

    def _with_terms(
        self, words: WordColumns, terms: Terms, capitals: set[int]
    ) -> tuple[WordColumns, list[list[tuple[str, ...]]]]:
        """The lines with translations put in, and these of each line; lines with overlaps are counted.

        The rows of `capitals` were in capitals before they were read.
        """
        matches = terms.find(words, capitals)
        overlaps = {match.row: match for match in reversed(matches) if match.overlapping}
        if overlaps:
            match = overlaps[min(overlaps)]
            where = f"{match.source!r} before {match.overlapping!r} in line {match.row + words.first_line}"
            earlier = (fault for fault in self._faults if fault.startswith(_OVERLAPS))
            self._faults[next(earlier, f"{_OVERLAPS} {where}")] += len(overlaps)
        injections, translations = list[Injection](), [list[tuple[str, ...]]() for _ in words.texts]
        for match in matches:
            injections.append(Injection(match.row, match.first, match.stop, match.targets[0]))
            translations[match.row].append(match.targets)
        return words.with_injected(injections, self.info.terms == "replace"), translations

    def as_written(self, lines: Sequence[str]) -> list[str]:
        """Rewrite reference translations as the model would write them.

        Lines change only if the target uses a pretrained encoder's tokenizer. Such a tokenizer separates
        punctuation and may drop case, so that no translation could equal an unchanged reference.

        Raises:
            TypeError: `lines` is one string.
        """
        check_lines(lines)
        if not self.info.rewrites_target:
            return list(lines)
        prepared = replace(self._output, protect=()).prepare(lines)
        encoded = encode_pieces(self.encoder.target_tokenizer, prepared.texts)
        return self._as_text([encoding.ids for encoding in encoded])

    def _chunks(
        self,
        lines: Iterator[str],
        user_factors: UserFactors,
        size: int,
        n_before: int,
        terms: Terms | None = None,
        with_offsets: bool = False,
        split: Split = "never",
        prefixes: Iterable[str] | None = None,
    ) -> Iterator[_Chunk]:
        """Encode lines with their factors, `size` at a time; `n_before` lines of their file came before."""
        self._check_user_factors(user_factors)
        self._faults.clear()  # a call that was not finished has said nothing of its own
        n_lines, beside = n_before, {f"factor {name}": iter(rows) for name, rows in user_factors.items()}
        if prefixes is not None:
            beside["prefixes"] = iter(prefixes)
        while chunk := lines_at_hand(lines, size):
            _check_strings(chunk, "text", n_lines + 1)
            n_of_chunk, spaces = len(chunk), None
            of_chunk = {name: list(islice(rows, n_of_chunk)) for name, rows in beside.items()}
            for name, rows in of_chunk.items():
                if len(rows) < n_of_chunk:
                    expected = f"{n_lines + n_of_chunk} or more"
                    raise AlignmentError(_BESIDE.format(name, expected, n_lines + len(rows)))
            begin = of_chunk.pop("prefixes", None)
            factors = {name.removeprefix("factor "): rows for name, rows in of_chunk.items()}
            usual = self.info.usual_sentences
            if split == "never" and usual is not None:
                n_longer = sum(len(sentence_starts(line)) >= usual for line in chunk)
                if n_longer > (1 - USUAL) * n_of_chunk:  # such lines are more frequent than in training
                    self._faults[_WHOLE.format(usual)] += n_longer
            if split != "never":
                cut = self.cut(chunk, split)
                chunk, spaces = [text for line in cut for text in line[::2]], [line[1::2] for line in cut]
                if split == "auto":
                    self._faults[_SPLIT.format(usual or _UNKNOWN)] += sum(map(bool, spaces))
            source = self._encode(chunk, factors, n_lines + 1, terms, with_offsets)
            clean = [self.clean(line) for line in chunk]
            if begin is not None:
                source = self._begun(source, begin, clean, n_lines + 1)
            self._count_faults(chunk, clean, source)
            yield _Chunk(chunk, clean, source, spaces)
            n_lines += n_of_chunk
        for name, rows in beside.items():
            if n_more := sum(1 for _ in rows):
                raise AlignmentError(_BESIDE.format(name, n_lines, n_lines + n_more))

    def _check_user_factors(self, user_factors: Mapping[str, object]) -> None:
        keys = chain.from_iterable(member.encoder.factors for member in (self, *self.others))
        names = [key for key in keys if key not in FACTORS]
        if missing := [name for name in names if name not in user_factors]:
            raise ConfigError(
                f"user factors: expected values of {', '.join(missing)} for the words of every line, "
                f"got none. Give them with --factor {missing[0]}=FILE."
            )
        if unknown := [name for name in user_factors if name not in names]:
            expected = f"expected {', '.join(names) or 'none'}, as in training"
            raise ConfigError(f"user factors: {expected}, got {', '.join(unknown)}.")

    def clean(self, line: str) -> str:
        """Clean a line as training did before annotation, in lower case if it is all in capitals."""
        line, preparation = self._as_it_stands(line), self.encoder.preparation
        words = self._all_caps_words(line)
        return in_lower_case(line, words, preparation, self.encoder.tokenizer) if words else line

    def _as_it_stands(self, line: str) -> str:
        """A clean line in its own case; a null character becomes a space."""
        return self.encoder.preparation.clean(line.replace("\0", " "))

    def _as_written_for(self, raw: str, translation: str) -> str:
        """A clean translation of a line as the decoder writes it: in lower case for a line in capitals."""
        if not self._is_all_caps(raw):
            return translation
        words = all_caps_words(translation, self._output, fewest_letters=1)
        return in_lower_case(translation, words, self._output, self.encoder.target_tokenizer)

    def _is_all_caps(self, raw: str) -> bool:
        return self.info.all_caps != "keep" and bool(self._all_caps_words(self._as_it_stands(raw)))

    def _all_caps_words(self, clean: str) -> list[tuple[int, int]]:
        """The words of a line that is read in lower case; a file of parses has lines as they stand."""
        if self.info.all_caps == "keep" or (self.annotator is not None and is_file(self.annotator.name)):
            return []
        return all_caps_words(clean, self.encoder.preparation)

    def search(
        self,
        lines: Sequence[str],
        source: EncodedText,
        settings: DecodingConfig,
        n_best: int = 1,
        scored: bool = False,
        spaces: Sequence[Sequence[str]] | None = None,
        **bounds: Any,
    ) -> list[list[Hypothesis]]:
        """Translate lines that are already encoded, all of them in memory; `bounds` as in `Search`.

        With `spaces`, they are the sentences of lines that were `cut`, and whole lines are returned.
        """
        chunk = _Chunk(lines, [self.clean(line) for line in lines], source, spaces)
        search = Search(**settings.model_dump(), n_best=n_best, scored=scored, **bounds)
        return self._texts(chunk, self._decode(chunk, search), search)

    def _decode(self, chunk: _Chunk, search: Search) -> list[list[Hypothesis]]:
        """Translations as pieces."""
        chooses = search.n_best == 1 and search.temperature is None
        if chooses and (self.info.protect or chunk.source.terms):
            return self._decode_to_choose(chunk, search)
        return self.decoder.decode(chunk.source, chunk.rows, search)

    def _decode_to_choose(self, chunk: _Chunk, search: Search) -> list[list[Hypothesis]]:
        """All that the search ends with for lines where one translation is chosen for what it keeps."""
        terms, of_rows = chunk.source.terms, dict[int, list[Hypothesis]]()
        all_beams = search.model_copy(update={"n_best": search.beam_size})
        for settings, chooses in ((all_beams, True), (search, False)):
            rows = [row for row in chunk.rows if bool(self.info.protect or (terms and terms[row])) == chooses]
            if rows:
                of_rows |= zip(rows, self.decoder.decode(chunk.source, rows, settings), strict=True)
        return [of_rows[row] for row in chunk.rows]

    def _texts(
        self, chunk: _Chunk, decoded: Sequence[Sequence[Hypothesis]], search: Search
    ) -> list[list[Hypothesis]]:
        """Translations in the order of the lines; those of blank lines are empty, of cut lines joined."""
        results = [[Hypothesis("", 0.0 if search.scored else None)] * search.n_best for _ in chunk.lines]
        limits = search.limits(chunk.source, range(len(chunk.lines)), self.decoder.longest).tolist()
        end_id = self.encoder.target_tokenizer.eos_token_id
        protected = self.encoder.preparation.protected(chunk.lines) if self.info.protect else None
        for row, hypotheses in zip(chunk.rows, decoded, strict=True):
            texts = self._as_text([hypothesis.pieces for hypothesis in hypotheses])
            if chunk.source.terms is not None and search.n_best == 1:
                # Of what the search ended with, the best that uses most terms.
                terms, lowercase = chunk.source.terms[row], bool(self._output.lowercase)
                n_missing = [n_missing_terms(terms, text, lowercase) for text in texts]
                chosen = n_missing.index(min(n_missing))
                hypotheses, texts = [hypotheses[chosen]], [texts[chosen]]
            if self._is_all_caps(chunk.raw[row]):
                (prefix,) = self._as_text([chunk.source.prefix_of(row)])
                texts = [prefix + in_capitals(text[len(prefix) :], self._output) for text in texts]
            of_row = [
                replace(best, text=text, loops=is_loop(best.pieces, limits[row], end_id))
                for best, text in zip(hypotheses, texts, strict=True)
            ]
            if protected is not None:
                is_cut = chunk.source.is_cut is not None and bool(chunk.source.is_cut[row])
                of_row = [_with_values(best, protected[row], not is_cut) for best in of_row]
                if search.n_best == 1:  # of what the search ended with, the best that keeps all values
                    of_row = [next((best for best in of_row if not best.repairs), of_row[0])]
                self._faults[_REPAIRED] += any(best.repairs for best in of_row)
            if search.alignment is not None:
                of_row = [self._aligned(best, chunk, row) for best in of_row]
            results[row] = of_row
        if chunk.spaces is None:
            return results
        rest, power = iter(results), search.length_penalty
        return [joined([*islice(rest, len(spaces) + 1)], spaces, power, end_id) for spaces in chunk.spaces]

    def _aligned(self, best: Hypothesis, chunk: _Chunk, row: int) -> Hypothesis:
        """A translation of a line with the links between their words.

        Source words are the annotator's. Without it, or if words are given, white space cuts both sides.
        """
        source, line, raw = chunk.source, chunk.lines[row], chunk.raw[row]
        if best.attention is None or source.offsets is None:
            return best
        if source.words is None:
            spans = np.array(spans_of_given_words(line), np.int32).reshape(-1, 2)
        else:
            of_line = slice(*source.words.row_splits[row : row + 2].tolist())
            spans = np.stack([source.words.starts[of_line], source.words.ends[of_line]], 1)
        # A piece ends where the text of all pieces up to it does; a character may have several pieces.
        beginnings = [best.pieces[:stop] for stop in range(1, len(best.pieces) + 1)]
        texts = self.encoder.target_tokenizer.batch_decode(beginnings, skip_special_tokens=True)
        ends = np.minimum.accumulate(np.array([*map(len, texts)], np.int32)[::-1])[::-1]
        offsets = np.stack([np.concatenate([ends[:1] * 0, ends[:-1]]), ends], 1)
        clean = self._as_it_stands(raw)  # with the places of the line that was read
        attention = replace(
            best.attention,
            src=offsets_in(raw, clean, source.offsets[source.splits[row] : source.splits[row + 1]]),
            tgt=offsets_in(best.text, texts[-1] if texts else "", offsets),
        )
        words = [(start, end) for start, end in offsets_in(raw, clean, spans).tolist()]
        by_space = source.words is None or self.info.tokenized
        targets = spans_of_given_words(best.text) if by_space else word_spans(best.text)
        alignment = Alignment(words, targets, attention.links(words, targets))
        return replace(best, attention=attention, alignment=alignment)

    def _as_text(self, pieces: Sequence[Sequence[int]]) -> list[str]:
        texts = self.encoder.target_tokenizer.batch_decode(list(pieces), skip_special_tokens=True)
        return [self._output.restore(_CONTROLS.sub(" ", text).strip()) for text in texts]


_HALF = re.compile("[\ud800-\udfff]")


def _check_strings(
    texts: Sequence[object], what: str, first_line: int, rows: Iterable[int] | None = None
) -> None:
    """Check that texts, of these rows, are strings of whole characters, which UTF-8 can write."""
    for row, text in zip(range(len(texts)) if rows is None else rows, texts, strict=True):
        if not isinstance(text, str):
            raise DataError(f"{what}: expected a string, got {type(text).__name__}.", line=first_line + row)
        if half := _HALF.search(text):
            problem = f"{what}: expected whole characters, got {half[0]!r}, a half of one."
            raise DataError(problem, line=first_line + row)


def _with_values(best: Hypothesis, values: Sequence[tuple[str, str]], appends: bool) -> Hypothesis:
    """A translation with the values of its line in the place of their symbols."""
    text, repairs = put_back(best.text, [value for value in values if value[0]], appends)
    stayed = tuple((TOO_MANY, value) for symbol, value in values if not symbol)
    return replace(best, text=text, repairs=repairs + stayed)


def _check_sampling(search: Search, beam_size: int | None) -> None:
    """Check that `n_best` fits, and that no setting is given that the search would not look at."""
    if search.temperature is not None:
        if beam_size is not None:
            raise ConfigError(
                f"beam_size: expected none with a temperature, which samples without beams, got {beam_size}."
            )
        if search.n_best < 1:
            raise ValueError(f"n_best: expected at least 1, got {search.n_best}.")
        return
    for name in ("top_k", "seed"):
        if (value := getattr(search, name)) is not None:
            raise ConfigError(
                f"{name}: expected a temperature with it, got {name} = {value} alone. Beam search draws "
                "nothing: set temperature, to 1 for the model's own probabilities."
            )
    if not 1 <= search.n_best <= search.beam_size:
        raise ValueError(f"n_best: expected 1 to beam_size = {search.beam_size}, got {search.n_best}.")


def _load_annotator(info: FolderInfo, name: str | Annotator | None) -> Annotator:
    from syntaxformer import annotate

    if name is None:
        raise CheckpointError(
            "syntaxformer.json: expected the annotator's name, got none. Give one with --annotator."
        )
    try:
        if not info.forced and isinstance(name, str):
            choose_annotator(name, language_of_side(info, info.src), "--annotator")
    except ConfigError as error:
        if name != info.annotator:
            raise
        warnings.warn(f"{error} The model was trained with {name}: train it again.", stacklevel=3)
    # An unused parse would cost a third of the time.
    needs, only = info.syntax.needs, _needed(info)
    annotator = annotate.prepare(name, needs=needs, only=only, words_given=info.tokenized)
    check_syntax(info.syntax, annotator.provides, annotator.name)
    if info.annotator is not None and annotator.version != info.annotator_version:
        warnings.warn(
            f"annotator: the model was trained with {info.annotator} {info.annotator_version}, this is "
            f"{annotator.name} {annotator.version}; tags may differ.",
            stacklevel=3,
        )
    return annotator


def _needed(info: FolderInfo) -> set[str]:
    """The annotations that the model's factors and trees need; phrases also need a parse."""
    names = FACTORS.keys() & {vocabulary.name for vocabulary in info.factors}
    needs = {need for name in names for need in FACTORS[name].needs}
    needs |= {"lemmas"} if info.terms else set()
    return needs | ({*info.syntax.needs, "upos", "governors", "deprels"} if info.syntax.needs else set())


def sentence_parser(info: FolderInfo, annotator: Annotator | None) -> Annotator | None:
    """The annotator, if the model reads its parses and these are of any line and not wrong on purpose."""
    if annotator is None or "governors" not in annotator.provides & _needed(info):
        return None
    return None if is_file(annotator.name) or CONTROL.match(annotator.name) else annotator


_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
"""Line breaks, tabs and NULs, which byte pieces can spell: output is one line, which `train` can read."""
