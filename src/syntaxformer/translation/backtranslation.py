"""Training pairs from target-language text alone: a translator of the other direction writes the sources."""

from __future__ import annotations

import hashlib
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from syntaxformer.base import files
from syntaxformer.base.errors import AlignmentError, ConfigError
from syntaxformer.base.progress import track
from syntaxformer.runs.run_folder import hold_run
from syntaxformer.syntax import read_user_values
from syntaxformer.translation.corpora import LOST, MADE, TRAIN
from syntaxformer.translation.data_report import COPY, EMPTY, UNREADABLE, is_copy
from syntaxformer.translation.translator import Translator

PARTS, PART_LINES = "parts", 512
Report = dict[str, Any]


def backtranslate(
    translator: Translator,
    model: Path,
    mono: Path,
    output: Path,
    factors: Mapping[str, Path] | None = None,
    **search: Any,
) -> Report:
    """Write OUTPUT/train.{src,tgt}: the lines of a text as targets, and their translations as sources.

    `translator`, loaded from the folder `model`, reads the language of the text `mono`; `factors` are files
    of the user's own factors of it, and `search` settings of `Translator.translate`. Pairs with an empty
    side, copies, loops and repairs are left out. A run that was killed is continued.

    Returns:
        The content of `backtranslation.json`: the endings of the translated and the real side, what the pairs
        are made from, the number of lines and of pairs, and how many lines were left out for each reason.

    Raises:
        ConfigError: The folder holds other files, or pairs of another model, text or search.
        AlignmentError: A factor file has other lines than the text, or as `Translator.translate`.

    Source: Sennrich et al. (2016), "Improving Neural Machine Translation Models with Monolingual Data".
    """
    info, tagger, factors = translator.info, translator.annotator, factors or {}
    made_from = {"MODEL": files.hash_file(model / files.MANIFEST), "MONO": files.hash_file(mono)}
    made_from |= {"annotator": tagger and f"{tagger.name} {tagger.version}", **search}
    n_lines, parts = files.count_lines(mono), output / PARTS
    hashes = {f"--factor {name}": _hashes(path, mono, n_lines) for name, path in factors.items()}
    n_parts = -(-n_lines // PART_LINES)
    origins = [made_from | {key: sums[n] for key, sums in hashes.items()} for n in range(n_parts)]
    origins = origins or [made_from]
    with hold_run(output):
        if "pairs" in (report := _begun(output, origins)):
            return report
        n_done = min(PART_LINES * len([*parts.glob("*.json")]), n_lines)
        task = f"translating {mono}{f', continued after line {n_done:,}' if n_done else ''}"
        values = {name: islice(read_user_values(path), n_done, None) for name, path in factors.items()}
        left, lines = files.read_lines(mono, n_done), files.read_lines(mono)
        translations = translator.translate(left, user_factors=values, first_line=n_done + 1, **search)
        translations = track(translations, task, n_lines - n_done)
        counts: Counter[str | None] = Counter()
        src, tgt = (output / f"{TRAIN}.{ending}" for ending in (info.tgt, info.src))
        with files.atomic_text(src) as sources, files.atomic_text(tgt) as targets:
            for number in range(n_parts):
                file, real = parts / f"{number}.json", list(islice(lines, PART_LINES))
                if not file.exists():
                    pairs = zip(real, translations, strict=False)
                    new = [(best.text, _fault(line, best)) for line, (best, *_) in pairs]
                    files.write_json(file, {"made_from": origins[number], "found": new})
                for line, (text, fault) in zip(real, files.read_json(file)["found"], strict=True):
                    counts[fault] += 1
                    if fault is None:
                        sources.write(f"{text}\n")
                        targets.write(line.replace("\t", " ") + "\n")
            next(translations, None)  # at its end it warns of what it met
        report = {"src": info.tgt, "tgt": info.src, "made_from": origins[-1], "lines": n_lines}
        report |= {"pairs": counts.pop(None, 0), "left_out": counts}
        files.write_json(output / MADE, report, indent=1)
        shutil.rmtree(parts, ignore_errors=True)
    return report


def _begun(output: Path, origins: Sequence[dict[str, Any]]) -> Report:
    """The report of an earlier run, its last part if it is not finished, or only what this is made from."""
    files.remove_partials(output)
    n_parts = 0 if (output / MADE).exists() else len([*(output / PARTS).glob("*.json")])
    stored = [path for path in (output / MADE, output / PARTS / f"{n_parts - 1}.json") if path.exists()]
    made_from = (origins[:n_parts] or origins)[-1]
    begun = files.read_json(stored[0]) if stored else {"made_from": made_from}
    before, names = begun["made_from"], {path.name for path in output.iterdir()} - {files.LOCK, PARTS}
    changed = [key for key in {**before, **made_from} if before.get(key) != made_from.get(key)]
    if other := changed if stored else sorted(names):
        raise ConfigError(
            f"-o: expected a new folder, or one begun with the same MODEL, MONO and options, got {output}, "
            f"with another {', '.join(other)}. Choose another folder, or delete this one."
        )
    return begun


def _hashes(values: Path, mono: Path, n_lines: int) -> list[str]:
    """For each part, a hash of the values up to its end: those of lines to come can still be mended."""
    digest, hashes, lines = hashlib.sha256(), [], files.read_lines(values)
    if (n_values := files.count_lines(values)) != n_lines:
        raise AlignmentError(f"expected as many lines as {mono}, {n_lines:,}, got {n_values:,}.", values)
    while chunk := list(islice(lines, PART_LINES)):
        digest.update("".join(f"{line}\n" for line in chunk).encode())
        hashes.append(digest.hexdigest())
    return hashes


def _fault(line: str, best: Any) -> str | None:
    if not (line.strip() and best.text.strip()):
        return EMPTY
    if LOST in line or LOST in best.text:  # bytes that are no UTF-8, or a mono text that lost characters
        return UNREADABLE
    if best.repairs:
        return "with what data.protect could not keep"
    return "with a loop" if best.loops else COPY if is_copy(best.text, line) else None
