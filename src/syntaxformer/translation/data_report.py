"""What is wrong with parallel text before a translator is trained on it, and what data.clean leaves out."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from langcodes import Language

from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.base.files import without_packing
from syntaxformer.base.languages import LANGUAGE_ODDS, identifier, is_other_script, language_of_side
from syntaxformer.base.progress import track
from syntaxformer.translation.corpora import LOST, CorpusConfig, ParallelText, paired_lines, read_split
from syntaxformer.translation.source import ENTITIES, encode_pieces

_log = logging.getLogger("syntaxformer.training")

FILE = "data_report.json"
"""Its name in the folder of a run."""
LANGUAGE_SAMPLE = 10_000
"""Pairs whose language is looked at for a report; some 0.3 ms each."""
RATIO, RATIO_CHARACTERS = 3.0, 10
"""A pair is an outlier if the ratio of its lengths, with some characters added, is so far from the median."""
COPY_WORDS = 3
"""Shorter copies are often right: names, numbers, "OK."."""

SCRIPTS = {
    "Arab": "ARABIC", "Armn": "ARMENIAN", "Beng": "BENGALI", "Cyrl": "CYRILLIC", "Deva": "DEVANAGARI",
    "Geor": "GEORGIAN", "Grek": "GREEK", "Hans": "CJK", "Hant": "CJK", "Hebr": "HEBREW",
    "Jpan": "CJK HIRAGANA KATAKANA", "Kore": "CJK HANGUL", "Latn": "LATIN", "Taml": "TAMIL", "Thai": "THAI",
}  # fmt: skip
"""Code of a script (ISO 15924) → first words of the Unicode names of its letters."""

EMPTY, DUPLICATE, RATIOS = "with an empty side", "duplicates of an earlier pair", "with odd lengths"
COPY, SCRIPT, LANGUAGE = "untranslated copies", "in another script", "in another language"
TABS, UNKNOWN, LONG = "with tabs", "with characters unknown to the tokenizer", "longer than the model takes"
HELD_OUT = "that are also in {}"
UNSHARED = "with values of data.protect on one side only"
ESCAPES, MARKS, MARKUP = "with escapes such as &apos;", "with marks of subwords", "with markup"
TWICE, UNREADABLE, SHIFTED = "encoded twice (Ã¤)", "with U+FFFD", "shifted by a line or more"
_LATE = "\x80-\xbf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ"
CHECKS = {
    ESCAPES: ("|".join(ENTITIES), "data.unescape=true reads them"),
    MARKS: (r"\S@@( |$)|▁|(^| )##\w", "give the text before it was cut, or sed 's/@@ //g'"),
    MARKUP: (r"</?[a-zA-Z]\w*( [^<>]*)?/?>|&(?!(apos|quot|amp|lt|gt);)([a-zA-Z]{2,8}|#x\w+);", "remove it"),
    TWICE: (f"Ã[{_LATE}]|Â[\xa0-\xbf]|â[€\x80]|([ÐÑ][{_LATE}]){{2}}", "iconv -f UTF-8 -t WINDOWS-1252"),
    UNREADABLE: (LOST, "data.drop_unreadable=true leaves them out"),
}
"""Fault → what a side with it has somewhere, and what mends it."""
_SUSPECT = re.compile(f"[&@▁#<ÃÂâÐÑ{LOST}]")
"""What a side with such a fault has, which is quickly found."""
REMEDIES = {fault: remedy for fault, (_, remedy) in CHECKS.items()}
REMEDIES[UNSHARED] = "they stay text"
REMEDIES[SHIFTED] = "find the missing line at their start"
WINDOW, N_WINDOWS, LARGEST_SHIFT = 100, 200, 3
"""Pairs that are looked at together for a shift, how many such windows, and lines that a side is moved."""
SHIFT_GAIN = 0.4
"""So much better must a shifted window agree, in its lengths' correlation and shared words, both up to 1."""
WARNED, MANY = (COPY, SCRIPT, LANGUAGE, RATIOS, SHIFTED, *CHECKS), 0.2
"""Faults of which a larger share of pairs is told as a warning, as are pairs that are held out."""
KEPT = (TABS, UNKNOWN, ESCAPES, MARKS)
"""Faults that `data.clean` leaves in: tabs are read as spaces, unknown characters can be learned, and what
most of a text has is mended in its files or by a key."""


@dataclass
class DataReport:
    """Faults of parallel text.

    Args:
        name: What was looked at.
        lines: Line numbers of its rows in the files, counted from 0; None if they are the same.
        faults: Fault → rows that have it, ascending, counted from 0.
        notes: What was not checked, or only in part.
        sampled: Fault → number of pairs that were looked at, if not all.
        kept: The rows that `data.clean` kept; None if it was not asked for.
        corpora: What each of several corpora gave to training.
        unit: What the rows are.
    """

    name: str
    n_pairs: int
    lines: Sequence[int] | None = field(default=None, repr=False)
    faults: dict[str, list[int]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    sampled: dict[str, int] = field(default_factory=dict)
    kept: list[int] | None = field(default=None, repr=False)
    corpora: list[dict[str, Any]] = field(default_factory=list)
    unit: str = "pairs"

    def add(self, fault: str, rows: Iterable[int]) -> None:
        """Add a fault that was found in the pairs that `data.clean` has kept."""
        self.faults[fault] = sorted(rows if self.kept is None else (self.kept[row] for row in rows))

    def bad_rows(self, excused: Sequence[str] = KEPT) -> set[int]:
        """The rows with a fault other than the excused ones."""
        return {row for fault, rows in self.faults.items() if fault not in excused for row in rows}

    def to_dict(self) -> dict[str, Any]:
        """The report for a JSON file: each fault with count, share and the first three lines."""
        faults = {
            fault: {
                self.unit: len(rows),
                "share": len(rows) / max(1, self.sampled.get(fault, self.n_pairs)),
                "lines": [(row if self.lines is None else self.lines[row]) + 1 for row in rows[:3]],
            }
            for fault, rows in self.faults.items()
        }
        n_kept = self.n_pairs if self.kept is None else len(self.kept)
        report = {"text": self.name, self.unit: self.n_pairs, "kept": n_kept, "faults": faults}
        return {**report, "notes": self.notes, **({"corpora": self.corpora} if self.corpora else {})}

    def tell(self) -> None:
        """Log the report, and warn of what is wrong with so many pairs that the whole text may be."""
        _log.info("%s", self)
        for fault, about in self.to_dict()["faults"].items() if self.kept is None else ():
            if about["share"] > MANY and (fault in WARNED or fault.startswith(HELD_OUT.format(""))):
                sentence = f"{about['share']:.0%} of the pairs are {fault.removeprefix('that are ')}"
                sentence = sentence.replace("are with ", "have ")
                remedy = REMEDIES.get(fault, "check the files, data.src and data.tgt")
                _log.warning("%s: %s. %s.", self.name, sentence, remedy[0].upper() + remedy[1:])

    def __str__(self) -> str:
        rows = [f"{self.name}: {self.n_pairs:,} {self.unit}"]
        for fault, about in self.to_dict()["faults"].items():
            where = f"   lines {', '.join(map(str, about['lines']))}" if about["lines"] else ""
            of = f" of {self.sampled[fault]:,}" if fault in self.sampled else ""
            remedy = f": {REMEDIES[fault]}" if where and fault in REMEDIES else ""
            rows.append(f"{about[self.unit]:>9,} {about['share']:>7.2%}{of}  {fault}{remedy}{where}")
        words = "corpus {name}: {pairs:,} pairs, {pairs_in_epoch:,} in each epoch, tag: {tag}."
        return "\n".join([*rows, *self.notes, *(words.format(**corpus) for corpus in self.corpora)])


Pairs = tuple[Sequence[str], Sequence[str]]


def report_pairs(
    name: str,
    pairs: Pairs,
    languages: tuple[str | None, str | None],
    held_out: Mapping[str, Pairs] | None = None,
    lines: Sequence[int] | None = None,
    all_languages: bool = False,
) -> DataReport:
    """Look for faults in parallel text, whose source and target have as many lines.

    A language of None is not checked; without `all_languages`, only that of a sample of `LANGUAGE_SAMPLE`
    pairs is identified. Pairs of the sets `held_out`, by name, must not occur, with both sides the same.
    `lines` are the numbers of the rows in their files, counted from 0; None if they are the same.
    """
    report = DataReport(name, len(pairs[0]), lines)
    faults = report.faults = {fault: [] for fault in (EMPTY, TABS, DUPLICATE)}
    others = {
        HELD_OUT.format(split): {_key(*pair) for pair in zip(*text, strict=True) if all(map(str.strip, pair))}
        for split, text in (held_out or {}).items()
    }
    faults |= {fault: [] for fault in (*others, COPY, RATIOS, SCRIPT, *CHECKS)}
    checks = {fault: re.compile(pattern) for fault, (pattern, _) in CHECKS.items()}
    seen: set[int] = set()
    ratios = np.zeros(report.n_pairs)
    for row, (src, tgt) in enumerate(zip(*pairs, strict=True)):
        key = _key(src, tgt)
        of_pair = [fault for fault, keys in others.items() if key in keys]
        if "\t" in src or "\t" in tgt:
            of_pair.append(TABS)
        if _SUSPECT.search(src) or _SUSPECT.search(tgt):
            of_pair += [fault for fault, check in checks.items() if check.search(src) or check.search(tgt)]
        if not (src.strip() and tgt.strip()):
            of_pair.append(EMPTY)
        else:
            ratios[row] = math.log((len(src) + RATIO_CHARACTERS) / (len(tgt) + RATIO_CHARACTERS))
            of_pair += [DUPLICATE] * (key in seen) + [COPY] * is_copy(src, tgt)
            seen.add(key)
        for fault in of_pair:
            faults[fault].append(row)
    full = np.ones(report.n_pairs, bool)
    full[faults[EMPTY]] = False
    if full.any():
        far = np.abs(ratios - np.median(ratios[full])) > math.log(RATIO)
        faults[RATIOS] = np.flatnonzero(far & full).tolist()
    faults[SHIFTED] = _shifted(pairs)
    _add_scripts(report, pairs, languages, full)
    _add_languages(report, pairs, languages, all_languages)
    return report


def report_train(
    config: CorpusConfig, text: ParallelText, dev: ParallelText
) -> tuple[ParallelText, DataReport]:
    """Look for faults in the training text of a recipe; leave them out if `data.clean` asks for it.

    Held out are dev and the files DIR/test*. A sentence of `data.exclude` is no longer in the text.

    Returns:
        The text to train on, and the report. Line numbers go through the training splits, one after another.

    Raises:
        DataError: `data.clean` would leave out all pairs, or more than half, not counting equal ones.
    """
    directions = {(section.src, section.tgt): section for section in map(config.of, config.corpora)}
    languages = tuple(
        language_of_side(config, ending).code if {*endings} == {ending} else None  # not several
        for ending, endings in zip((config.src, config.tgt), zip(*directions, strict=True), strict=True)
    )
    held_out: dict[str, Pairs] = {config.dev: (dev.src, dev.tgt)}
    notes: list[str] = []
    files = {without_packing(path) for path in config.dir.glob("test*")} if config.dir else set()
    for (src, _), section in directions.items():
        splits = {file.removesuffix(f".{src}") for file in files if file.endswith(f".{src}")}
        for split in sorted(splits - {config.dev, *config.train_splits, *config.exclude}):
            try:
                test = read_split(section.model_copy(update={"tabs": "space"}), split)
            except (ConfigError, DataError) as error:
                notes.append(f"Not compared with {split}.{section.src} and .{section.tgt}: {error}")
            else:
                of_others = held_out.get(split, ((), ()))
                held_out[split] = [*of_others[0], *test.src], [*of_others[1], *test.tgt]
    name = f"{text.src_path}, {text.tgt_path}"
    report = report_pairs(name, (text.src, text.tgt), languages, held_out, text.rows, config.clean)
    report.notes += notes
    report.faults.pop(TABS)  # they are spaces by now, and counted
    if "markup" in config.protect:
        report.faults.pop(MARKUP)
    if config.clean:
        report.kept = sorted({*range(len(text))} - report.bad_rows())
        n_out = len(text) - len(report.kept)
        report.notes.append(f"data.clean: left out {n_out:,} of {len(text):,} pairs.")
        excused = (*KEPT, DUPLICATE, *map(HELD_OUT.format, held_out)) if report.kept else KEPT
        if 2 * (n_bad := len(report.bad_rows(excused))) > len(text):
            faults = {fault: rows for fault, rows in report.faults.items() if fault not in excused}
            n_most, most = max((len(rows), fault) for fault, rows in faults.items())
            raise DataError(
                f"data.clean: expected to leave out half of the {len(text):,} pairs at most, got {n_bad:,}, "
                f"{n_most:,} of them {most}. Check data.src, data.tgt and their languages. If the pairs are "
                "right, set data.clean=false; or else remove them yourself.",
                text.src_path,
            )
        text = text.select(report.kept) if n_out else text
    if config.synthetic is not None:
        counts = f"{text.n_synthetic:,} of {len(text):,} pairs, tag: {config.corpora[-1].tag or 'none'}."
        report.notes.append(f"data.synthetic: the last {counts}")
    return text, report


def add_long(
    report: DataReport, sides: Iterable[tuple[Any, Iterable[Sequence[str]]]], limit: int
) -> set[int]:
    """Add the pairs with more than `limit` pieces on a side, the end piece included, as training counts them.

    `sides` are the tokenizer and the prepared lines, in parts, of both sides. The rows are returned.
    """
    rows: set[int] = set()
    for tokenizer, parts in sides:
        start = 0
        for lines in parts:
            # A character gives at most its bytes and a space: most lines need no tokenizer to be short.
            wide = [at for at, line in enumerate(lines) if 2 * len(line.encode()) + 2 > limit]
            encodings = encode_pieces(tokenizer, [lines[at] for at in wide])
            rows |= {start + at for at, line in zip(wide, encodings, strict=True) if len(line.ids) > limit}
            start += len(lines)
    report.add(LONG, rows)
    return rows


def read_pair_files(src: Path, tgt: Path) -> Pairs:
    """The lines of two files, tabs included.

    Raises:
        DataError: As `paired_lines`, or there are no lines.
    """
    pairs = list(paired_lines(src, tgt))
    if not pairs:
        raise DataError("expected lines, got none.", src)
    return [a for a, _ in pairs], [b for _, b in pairs]


def _key(src: str, tgt: str) -> int:
    """A number for the words of a pair, without regard to spaces; 64 bits, as many pairs are held."""
    return hash((" ".join(src.split()), " ".join(tgt.split())))


def is_copy(src: str, tgt: str) -> bool:
    """Whether a line of some words was copied in place of being translated."""
    words = src.split()
    return len(words) >= COPY_WORDS and words == tgt.split() and any(word.isalpha() for word in words)


_SHARED = re.compile(r"\d+|[^\W\d_a-z]\w{2,}")
"""Numbers, and words that may be names."""


def _shifted(pairs: Pairs) -> list[int]:
    """Rows whose window agrees much better if a side is moved by some lines."""
    n_rows, rows = len(pairs[0]), list[int]()
    step = max(WINDOW, n_rows // N_WINDOWS)
    for start in range(0, n_rows - WINDOW + 1, step):
        sides = [side[start : start + WINDOW] for side in pairs]
        lengths = [np.log([len(line) + RATIO_CHARACTERS for line in side]) for side in sides]
        words = [[set(_SHARED.findall(line)) for line in side] for side in sides]
        scores: dict[int, float] = {}
        for shift in sorted(range(-LARGEST_SHIFT, LARGEST_SHIFT + 1), key=abs):
            src, tgt = (slice(max(0, n), WINDOW + min(0, n)) for n in (shift, -shift))
            of_shift = lengths[0][src], lengths[1][tgt]
            # Of lines that are all as long the deviation is 0 but for rounding, and the correlation anything.
            correlation = np.corrcoef(of_shift)[0, 1] if all(map(np.ptp, of_shift)) else 0.0
            both = [(a, b) for a, b in zip(words[0][src], words[1][tgt], strict=True) if a and b]
            shared = sum(bool(a & b) for a, b in both) / max(len(both), WINDOW // 5)
            scores[shift] = float(correlation) + shared
        if max(scores.values()) > scores[0] + SHIFT_GAIN:
            rows += range(start, min(start + step, n_rows))
    return rows


def _add_scripts(
    report: DataReport, pairs: Pairs, languages: tuple[str | None, str | None], full: Any
) -> None:
    """Add the rows that are in another script than the language's, unless most of a side are: it has two."""
    rows, n_rows = set[int](), int(full.sum())
    for side, lines, code in zip(("source", "target"), pairs, languages, strict=True):
        script = Language.get(code).maximize().script if code else None
        expected = SCRIPTS.get(script or "", "").split()
        others = [row for row, line in enumerate(lines) if full[row] and is_other_script(line, expected)]
        if code and not expected:
            report.notes.append(f"The script of the {side} was not checked: that of {code} is not known.")
        if 2 * len(others) > n_rows:
            report.notes.append(
                f"The script of the {side} was not checked: {len(others):,} of {n_rows:,} lines are in "
                f"another than {script}, the usual one of {code}."
            )
        else:
            rows |= set(others)
    report.faults[SCRIPT] = sorted(rows)


def _add_languages(
    report: DataReport, pairs: Pairs, languages: tuple[str | None, str | None], every: bool
) -> None:
    try:
        identify = identifier()
    except OSError as error:  # its model is unpacked into a temporary file
        remedy = "Make room for temporary files."
        report.notes.append(f"The language of the lines was not checked: {error}. {remedy}")
        return
    for side, code in zip(("source", "target"), languages, strict=True):
        if code not in identify.labels:
            report.notes.append(f"The language of the {side} was not checked: {code or 'none'} is not known.")
    checked = [(side, code) for side, code in zip(pairs, languages, strict=True) if code in identify.labels]
    if not checked:
        return
    n_looked = report.n_pairs if every else min(report.n_pairs, LANGUAGE_SAMPLE)
    sample = np.linspace(0, report.n_pairs - 1, n_looked).astype(int).tolist() if n_looked else []
    if n_looked < report.n_pairs:
        report.sampled[LANGUAGE] = n_looked
        report.notes.append(f"The language of {n_looked:,} pairs, evenly spread, was identified.")
    shown = track(sample, "identifying languages", unit="pairs", enabled=every)

    def is_foreign(line: str, code: str | None) -> bool:
        ranked = identify.rank(line)
        return ranked[0][1] > LANGUAGE_ODDS * dict(ranked)[code]

    report.faults[LANGUAGE] = [
        row for row in shown if any(is_foreign(side[row], code) for side, code in checked)
    ]
