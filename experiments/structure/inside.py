"""What masks do inside translators of `question.yaml`: which relations weigh, and what is lost without them.

    python experiments/structure/inside.py runs/masks_15 runs/masks_13 --data runs/structure/question

A model is trained by `syntaxformer train` with the settings of `question.yaml` and, say, `seed=15`. For
each, the share of questions of `general` that begin with the main verb's auxiliary is printed: with right
trees, with one part of the trees removed, and with the words of a tree shuffled. Then the weight of the
kinds of relation, which is α of Bai et al. (2021), section 3.4: summed over the distances of a kind, mean
over pieces and layers, in percent.
"""

from __future__ import annotations

import argparse
import csv
import warnings
from collections import defaultdict
from pathlib import Path

import numpy as np
from metrics import main_word

import syntaxformer as sf
from syntaxformer.study.ablation import Ablation, ablate_translator
from syntaxformer.study.attention import subnetwork_view
from syntaxformer.translation.translator import Translator

BLANKED = ("parent", "child", "sibling", "pair", "dependency", "constituency", "syntax")
SHUFFLED = ("dependency", "constituency", "syntax")


class GoldTrees:
    """An annotator that gives each sentence of `general` the right trees."""

    name, version = "gold", "1"

    def __init__(self, sources: list[str], path: Path) -> None:
        parsed = sf.load_annotator(f"conllu:{path}")
        self.provides = parsed.provides
        self.sentences = dict(zip(sources, parsed.annotate(sources), strict=True))

    def annotate(self, lines: list[str]) -> list[sf.Sentence]:
        """The sentences of these lines."""
        return [self.sentences[line] for line in lines]


def share(translator: Translator, sources: list[str], rows: list[dict[str, str]]) -> float:
    """Percent of questions that begin with the auxiliary of the main verb."""
    hypotheses = [best.text for (best,) in translator.translate(sources)]
    follows = [main_word("", hypothesis, "", row) for hypothesis, row in zip(hypotheses, rows, strict=True)]
    return 100 * float(np.mean(follows))


def weights(translator: Translator, sources: list[str]) -> dict[str, float]:
    """Kind of relation → its percentage of α."""
    sums: dict[str, list[float]] = defaultdict(list)
    for source in sources:
        view = subnetwork_view(translator, source)
        of_networks, kinds = view.topical.mean((0, 1)), defaultdict(float)
        for name, weight in zip(view.networks, of_networks.tolist(), strict=True):
            kinds[" ".join(name.split()[:2])] += weight
        for kind, weight in kinds.items():
            sums[kind].append(100 * weight)
    return {kind: float(np.mean(values)) for kind, values in sums.items()}


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--data", type=Path, required=True, help="folder that generate.py wrote")
    parser.add_argument("--lines", type=int, default=500, help="lines of general (default: 500)")
    options = parser.parse_args()
    sources = (options.data / "general.src").read_text("utf-8").splitlines()
    annotator = GoldTrees(sources, options.data / "general.conllu")
    sources = sources[: options.lines]
    with (options.data / "general.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))[: options.lines]
    for model in options.models:
        with warnings.catch_warnings(
            action="ignore"
        ):  # of another annotator, which gives right trees as well
            translator = Translator.load(model, annotator)
        print(f"{model.name}: right trees {share(translator, sources, rows):.1f}")
        for verb, names in (("blank", BLANKED), ("shuffle", SHUFFLED)):
            shares = (
                share(ablate_translator(translator, Ablation(**{verb: (name,)})), sources, rows)
                for name in names
            )
            print(
                f"  {verb}:",
                ", ".join(f"{name} {value:.1f}" for name, value in zip(names, shares, strict=True)),
            )
        of_kinds = weights(translator, sources[:100])
        print("  α:", ", ".join(f"{kind} {value:.1f}" for kind, value in of_kinds.items()), flush=True)


if __name__ == "__main__":
    main()
