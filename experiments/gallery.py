"""The figure gallery: attention of two translators, its spread, ablation, cases; two encoders; probes.

    make gallery                       of the demo's two models, into demo/gallery; for others:
    python experiments/gallery.py runs/base runs/sit --src test.en --ref test.de -o gallery

Two models that `finetune` wrote, with masks and without, add figure 2 of Bai et al. (2021) (--masks, --plain,
--sentence); scores that `syntaxformer probe -o` wrote add a curve for each file (--probe). Everything is
written into one folder: gallery.md and its PNG files, cases.md. The same models and text give the same
files. How docs/results/gallery.md came to be stands in docs/guides/analysis.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from syntaxformer.annotate import load_annotator
from syntaxformer.base.files import read_lines, write_text
from syntaxformer.base.languages import choose_annotator, language_of_side
from syntaxformer.encoders.classifier import Classifier
from syntaxformer.study.ablation import Ablation, ablate_translator
from syntaxformer.study.attention import (
    MEASURES,
    attention_spread,
    cross_attention,
    plain_attention_beside,
    subnetwork_view,
)
from syntaxformer.study.cases import Case, case_blocks, cases_of_lines
from syntaxformer.study.document import Block, Figure, Heading, Paragraph, Table, to_markdown
from syntaxformer.study.plots import Curve, draw_attention, draw_curves, draw_subnetwork
from syntaxformer.translation.scoring import (
    check_directions,
    compare_translations,
    score_translations,
    scoring,
)
from syntaxformer.translation.translator import Translator

N_FIGURES = 3


def main() -> None:
    """Read the command line, write the gallery."""
    options = _options()
    output: Path = options.output
    models = {"baseline": Translator.load(options.baseline), "infused": Translator.load(options.infused)}
    sources, references = (list(read_lines(path))[: options.lines] for path in (options.src, options.ref))
    outputs = {name: _translate(one, sources) for name, one in models.items()}
    infos = [one.info for one in models.values()]
    check_directions(infos, "infused")
    texts = [language_of_side(infos[0], ending) for ending in (infos[0].src, infos[0].tgt)]
    annotators = [load_annotator(choose_annotator(None, text, "annotator")) for text in texts]
    both, train = (
        (outputs["baseline"], outputs["infused"]),
        read_lines(options.train) if options.train else (),
    )
    cases = cases_of_lines(sources, references, both, *annotators, infos, train)
    if options.cases is None:
        write_text(output / "cases.md", to_markdown(case_blocks(cases, ("baseline", "infused"))))
    blocks: list[Block] = [
        *introduction(options.note or f"{len(sources)} lines.", options.cases or "cases.md"),
        *_attention(models, cases, output),
        *_spread(models, outputs, [case.source for case in cases]),
        *(
            []
            if options.no_ablation
            else _ablation(models["infused"], outputs["infused"], sources, references)
        ),
        *_subnetwork(options, output),
        *_probe(options.probe, output),
    ]
    write_text(output / "gallery.md", to_markdown(blocks))


def introduction(note: str, cases: str) -> list[Block]:
    """What the gallery shows, and where the sentences stand."""
    drawn = "draws the short sentences that the infused model gains most on"
    text = f"{note} Written by `experiments/gallery.py`, which {drawn}; sentences that differ stand in"
    return [Heading("Gallery", 1), Paragraph(f"{text} [{cases}]({cases}).")]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("baseline", type=Path, help="model folder")
    parser.add_argument("infused", type=Path, help="model folder")
    parser.add_argument("--src", type=Path, required=True, help="source text")
    parser.add_argument("--ref", type=Path, required=True, help="its translation")
    parser.add_argument("--train", type=Path, help="source text of training, to know rare words")
    parser.add_argument("--lines", type=int, help="only so many lines")
    parser.add_argument("--no-ablation", action="store_true", help="leave out what translates once a factor")
    parser.add_argument(
        "--masks", type=Path, help="encoder fine-tuned with masks, to draw one of its sub-networks"
    )
    parser.add_argument("--plain", type=Path, help="the same fine-tuned without syntax, beside it")
    parser.add_argument("--sentence", help="what both read")
    parser.add_argument("--network", default="dependency parent 1", help="sub-network; default: %(default)s")
    parser.add_argument(
        "--probe", action="append", default=[], metavar="NAME=FILE", type=_named,
        help="scores that `syntaxformer probe -o` wrote, for a curve; repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--cases", help="file beside the gallery that shows sentences; default: write cases.md"
    )
    parser.add_argument("--note", help="first sentence of the gallery: which models, which text")
    parser.add_argument("-o", "--output", type=Path, default=Path("gallery"), help="folder")
    options = parser.parse_args()
    if options.masks is not None and not options.sentence:
        parser.error("--masks: expected --sentence, what the model reads.")
    return options


def _translate(translator: Translator, lines: Sequence[str]) -> list[str]:
    return [best[0].text for best in translator.translate(lines)]


def _attention(models: dict[str, Translator], cases: Sequence[Case], output: Path) -> list[Block]:
    """Figure 3 of Sundararaman et al. (2019), on short sentences where the infused model gains most."""
    short = [case for case in cases if 5 <= len(case.source) <= 14]
    chosen = sorted(short, key=lambda case: -case.gain())[:N_FIGURES]
    blocks: list[Block] = [Heading("Attention of the last decoder layer, mean over heads")]
    for number, case in enumerate(chosen, 1):
        file = f"attention_{number}.png"
        maps = {name: cross_attention(one, case.source.text) for name, one in models.items()}
        draw_attention(maps, output / file)
        blocks.append(Figure(file, f"{case.source.text} ({case.gain():+.0f} chrF)"))
    return blocks


def _spread(models: dict[str, Translator], outputs: dict[str, list[str]], sentences: Sequence) -> list[Block]:
    """Is attention more widely distributed? Over all lines."""
    found = {name: attention_spread(one, sentences, targets=outputs[name]) for name, one in models.items()}
    rows = []
    for measure in MEASURES:
        intervals = [one.interval(measure) for one in found.values()]
        intervals.append(found["infused"].difference(found["baseline"], measure))
        rows.append([measure, *(f"{one.mean:.3f} [{one.low:.3f}, {one.high:.3f}]" for one in intervals)])
    text = (
        "Entropy in bits, mean distance of two words drawn from a target piece's attention in words and in "
        "tree edges, share of the weight on words; last layer, mean over heads, 95 % bootstrap over "
        "sentences."
    )
    return [
        Heading("How widely attention is spread"),
        Paragraph(text),
        Table(["", *found, "difference"], rows),
    ]


def _ablation(
    translator: Translator, intact: list[str], sources: Sequence[str], references: Sequence[str]
) -> list[Block]:
    """BLEU with one factor spoiled after the other."""
    factors = translator.encoder.factors
    wanted = [(way, (name,)) for way in ("shuffle", "blank") for name in factors]
    wanted += [(way, factors) for way in ("shuffle", "blank")]
    info = translator.info
    references = translator.as_written([info.preparation(info.tgt).clean(one) for one in references])
    how = scoring(info)
    rows = [["none", "", f"{score_translations(intact, references, **how).bleu:.2f}", "", ""]]
    for way, names in wanted:
        output = _translate(ablate_translator(translator, Ablation(**{way: names})), sources)
        found = compare_translations(intact, output, references, **how)
        bleu = score_translations(output, references, **how).bleu
        rows.append(
            [way, ", ".join(names), f"{bleu:.2f}", f"{found.difference:+.2f}", f"{found.p_value:.3f}"]
        )
    header = ["spoiled", "factors", "BLEU", "Δ", "p (sentences)"]
    return [Heading("Does the infused model use its factors?"), Table(header, rows)]


def _subnetwork(options: argparse.Namespace, output: Path) -> list[Block]:
    """Figure 2 of Bai et al. (2021): one sub-network, the plain model beside it, topical weights by layer."""
    if options.masks is None:
        return []
    view = subnetwork_view(Classifier.from_folder(options.masks), options.sentence)
    plain = {}
    if options.plain is not None:
        beside = Classifier.from_folder(options.plain)
        plain["plain model"] = plain_attention_beside(view, beside, options.sentence)
    draw_subnetwork(view, output / "subnetwork.png", view.network(options.network), plain=plain)
    weights = view.topical_weights().mean(0)
    rows = [[view.networks[one], f"{weights[one]:.4f}"] for one in view.strongest(5)]
    return [
        Heading("One sub-network, the plain model, and topical weights"),
        Figure("subnetwork.png", f"{options.network}: {options.sentence}"),
        Table(["strongest sub-networks", "topical weight, mean over layers and pieces"], rows),
    ]


def _probe(named: Sequence[tuple[str, str]], output: Path) -> list[Block]:
    """UUAS and Spearman by layer, from what `syntaxformer probe -o` wrote; controls of the first file."""
    if not named:
        return []
    stored = {name: json.loads(Path(path).read_text("utf-8")) for name, path in named}
    blocks: list[Block] = [Heading("Structural probe")]
    for key, label, scale in (("uuas", "UUAS", 100), ("spearman", "Spearman", 1)):
        curves: dict[str, Curve] = {}
        for name, one in stored.items():
            found = [(_layer(score["name"]), score[key]) for score in one["scores"]]
            known = [(float(x), scale * y) for x, y in found if x is not None and y is not None]
            curves[name] = Curve([x for x, _ in known], [y for _, y in known])
        first = next(iter(stored))
        controls = [score for score in stored[first]["scores"] if _layer(score["name"]) is None]
        for control in (score for score in controls if score[key] is not None):
            x = curves[first].x
            curves[control["name"]] = Curve(x, [scale * control[key]] * len(x))
        file = f"probe_{key}.png"
        draw_curves(curves, output / file, "layer (0: embeddings)", label)
        blocks.append(Figure(file, f"{label} of distance probes, rank {stored[first]['rank']}"))
    return blocks


def _named(text: str) -> tuple[str, str]:
    name, _, path = text.partition("=")
    if not path:
        raise argparse.ArgumentTypeError(f"expected NAME=FILE, got {text}.")
    return name, path


def _layer(name: str) -> int | None:
    """0 for "embeddings", n for "layer n"; None for a control."""
    if name == "embeddings":
        return 0
    number = name.removeprefix("layer ")
    return int(number) if number.isdigit() else None


if __name__ == "__main__":
    main()
