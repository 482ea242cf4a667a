"""The demo trains a baseline and an infused translator on the bundled corpus and compares them."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syntaxformer.base.errors import ConfigError, SyntaxformerError
from syntaxformer.demo.corpus import ATTRIBUTION, write_corpus
from syntaxformer.runs.run_folder import empty_folder
from syntaxformer.study.attention import cross_attention
from syntaxformer.study.plots import draw_attention
from syntaxformer.translation.recipe import load_recipe
from syntaxformer.translation.scoring import compare_translations, score_translator
from syntaxformer.translation.translator import Translator

if TYPE_CHECKING:
    from syntaxformer.annotate import Annotator

_log = logging.getLogger("syntaxformer.demo")

CORPUS = "corpus"
N_EXAMPLES = 6

OWN = {"attention.png", "baseline", "cache", CORPUS, "infused"}
"""Files that the demo writes, which `--overwrite` may delete."""

SYSTEMS = {
    "baseline": ("infusion.kind=none", "model.share_source_embedding=false"),
    "infused": ("infusion.kind=sum_then_concat",),
}
"""Settings of each system. The infused one needs its own source table, so the baseline gets one as well:
otherwise the tables would cause a part of the difference."""


def run_demo(folder: Path, overwrite: bool = False, settings: Sequence[str] = ()) -> list[str]:
    """Write the corpus, train both systems in parallel, translate the test set and draw attention.

    Returns:
        The report, line by line.

    Raises:
        ConfigError: The folder is not empty, a setting is wrong, or a training reports an error.
        SyntaxformerError: A training was killed, or ended because of a fault in this package.
    """
    data = (f"data.dir={folder / CORPUS}", f"data.cache={folder / 'cache'}")
    overrides = {name: [*data, f"output={folder / name}", *keys, *settings] for name, keys in SYSTEMS.items()}
    for of_system in overrides.values():
        load_recipe("tiny", of_system)  # errors in the settings are reported before anything is written
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    is_older_demo = CORPUS in names and OWN.issuperset(names)
    if (folder.exists() and not folder.is_dir()) or (names and not (overwrite and is_older_demo)):
        remedy = " or give --overwrite" if is_older_demo else ""
        raise ConfigError(
            f"output: expected a new or empty folder, got {folder}, which holds "
            f"{', '.join(names[:3]) or 'a file'}. Choose another{remedy}."
        )
    if names:
        empty_folder(folder, last=CORPUS)
    pairs = write_corpus(folder / CORPUS)
    quiet = [] if _log.isEnabledFor(logging.INFO) else ["--quiet"]
    command = [sys.executable, "-m", "syntaxformer.cli.main", *quiet, "train", "tiny"]
    seconds = _train({name: [*command, *of_system] for name, of_system in overrides.items()})
    sources, references = (list(side) for side in zip(*pairs["test"], strict=True))
    translators = {name: Translator.load(folder / name) for name in SYSTEMS}
    report = [
        f"\n{len(sources)} test sentences of {ATTRIBUTION}",
        f"{'system':<10} {'BLEU':>6} {'chrF':>6} {'parameters':>11} {'seconds':>8}   folder",
    ]
    outputs = {}
    for name, translator in translators.items():
        scored = score_translator(translator, sources, references)
        scores, outputs[name] = scored.scores, scored.hypotheses
        n_parameters = sum(parameter.numel() for parameter in translator.model.parameters())
        size = f"{n_parameters:>11,} {seconds[name]:>8.0f}"
        report.append(f"{name:<10} {scores.bleu:>6.2f} {scores.chrf:>6.2f} {size}   {folder / name}")
    test = compare_translations(*outputs.values(), references)
    p_value = f"no p: {test.no_p}" if test.no_p else f"p = {test.p_value:.3f}"
    report.append(
        f"difference {test.difference:>+6.2f} BLEU, {p_value} "
        "(one-sided paired bootstrap; one seed, short sentences: a first look, not a benchmark)"
    )
    alike = [len(set(texts)) == 1 for texts in zip(*outputs.values(), strict=True)]
    report += _examples(translators["infused"].annotator, sources, references, outputs, alike)
    figure = folder / "attention.png"
    _, _, line = max((same, len(set(source)), source) for same, source in zip(alike, sources, strict=True))
    draw_attention({name: cross_attention(system, line) for name, system in translators.items()}, figure)
    return [*report, f"\nattention  {figure}"]


def _examples(
    annotator: Annotator | None,
    sources: Sequence[str],
    references: Sequence[str],
    outputs: Mapping[str, Sequence[str]],
    alike: Sequence[bool],
) -> list[str]:
    """The first sentences that all systems translate in the same way, and the first on which they differ."""
    rows = [row for row, same in enumerate(alike) if same][: N_EXAMPLES // 2]
    rows += [row for row, same in enumerate(alike) if not same][: N_EXAMPLES - len(rows)]
    shown = [sources[row] for row in rows]
    if annotator is not None:
        for number, sentence in enumerate(annotator.annotate(shown)):
            tags = zip(sentence.words, sentence.upos or (), strict=False)  # none without tags
            shown[number] = " ".join(map("/".join, tags)) or shown[number]
    examples = []
    for text, row in zip(shown, rows, strict=True):
        examples.append(f"\nsource     {text}\nreference  {references[row]}")
        examples += [f"{name:<10} {translations[row]}" for name, translations in outputs.items()]
    return examples


def _train(commands: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """Run the commands in parallel with one thread each; return the seconds that each took."""
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    pipes["stderr"] = subprocess.PIPE
    pipes["env"] = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"}
    start, children, ends = time.monotonic(), [], {}
    with ThreadPoolExecutor(len(commands)) as pool:
        try:
            for name, command in commands.items():
                children.append(subprocess.Popen(command, encoding="utf-8", errors="replace", **pipes))
                ends[pool.submit(_follow, name, children[-1])] = name
            return {ends[future]: future.result() - start for future in as_completed(ends)}
        finally:  # if one fails, or on Ctrl-C, the other is ended
            for child in children:
                child.kill()


def _follow(name: str, child: subprocess.Popen[str]) -> float:
    """Log the lines of a training with its name in front; return the moment at which it ended."""
    problems = []
    with child:
        for line in child.stderr or ():
            if line.startswith("error: "):
                problems.append(line.removeprefix("error: ").rstrip())
            else:
                _log.log(_log.getEffectiveLevel(), "%-9s %s", name, line.rstrip())
    if problems:
        raise ConfigError(problems)
    if code := child.returncode:
        raise SyntaxformerError(
            f"training of {name}: expected a model, got exit code {code}. See its last messages above."
        )
    return time.monotonic()
