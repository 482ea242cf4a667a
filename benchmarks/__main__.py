"""All speed measurements in one run: `python -m benchmarks [--data DIR]`, which `make bench` calls.

Ours stands beside a plain twin in every row, both timed in turns in this process: compare the ratios, since
absolute numbers change with the machine and its load.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    arguments = parser.parse_args()
    results = measure(arguments.data)
    for name, target, value in rows(results):
        print(f"{name:<58} {value:>12}   {target}")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1), "utf-8")


def measure(data: Path) -> dict[str, dict]:
    import alignment
    import annotation
    import relations
    import syntax_attention
    import training

    text = data / "multi30k" / "train.en.gz"
    lines = annotation.sample_lines(str(text) if text.exists() else None, 3000)
    return {
        "training": training.run(data),
        "annotation": annotation.annotation_speed(lines),
        "alignment": alignment.run(),
        "relations": relations.run(),
        # Last: it sets PyTorch to one thread.
        "syntax_attention": syntax_attention.run(),
    }


def rows(results: dict[str, dict]) -> list[tuple[str, str, str]]:
    training, annotation, alignment = results["training"], results["annotation"], results["alignment"]
    table = []
    for precision in ("fp32", "bf16"):
        if precision in training:
            measured = training[precision]
            table += [
                (f"training {precision}, target pieces/s", "", f"{measured['ours_pieces_per_s']:,}"),
                (f"training {precision}, against the bare loop", ">= 0.90", f"{measured['ratio']:.2f}x"),
            ]
    table += [
        ("padding, share of all cells", "< 5 %", f"{100 * training['padding_share']['both']:.1f} %"),
        ("annotation, words/s", "", f"{annotation['words_per_s']:,}"),
        ("annotation, against bare spaCy", ">= 0.90", f"{annotation['ratio']:.2f}x"),
        ("alignment, tokenizer output to words, pieces/s", ">= 200,000", f"{alignment['pieces_per_s']:,}"),
    ]
    attention, n_sentences = results["syntax_attention"], results["relations"]["sentences_per_s"]
    step, memory = attention["step_ratio"]["preserving"], attention["memory_ratio"]["preserving"]
    return [
        *table,
        ("relations of both trees, sentences/s", ">= 20,000", f"{n_sentences:,}"),
        ("infused BERT, fine-tuning step, time against vanilla", "<= 1.15", f"{step:.2f}x"),
        ("infused BERT, fine-tuning step, memory against vanilla", "<= 1.30", f"{memory:.2f}x"),
        *(
            (f"infused BERT, time against vanilla at {n_pieces} pieces", "", f"{steps['ratio']:.2f}x")
            for n_pieces, steps in attention["step_by_pieces"].items()
        ),
        (
            "syntax attention against the loop over masks",
            ">= 30",
            f"{attention['times_faster_than_loop']:.0f}x",
        ),
    ]


if __name__ == "__main__":
    main()
