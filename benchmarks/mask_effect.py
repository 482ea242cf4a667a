"""How much of the parse reaches the states of a checkpoint through syntax masks, before any training.

Run: HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 python benchmarks/mask_effect.py runs/minilm --data glue/CoLA

For each way to mask: ‖H(parse) - H(shuffled)‖ / ‖H(parse)‖ over the pieces of some sentences, where H are
last states and shuffled are the same relations dealt out anew among the pairs of pieces of a sentence: what
they give as well is not syntax. Beside it ‖H(parse) - H(plain)‖ / ‖H(plain)‖, how far the masks move
the states.
"""

from __future__ import annotations

import argparse
import itertools

import torch
from torch import Tensor
from transformers import AutoModel
from transformers.utils import logging as hf_logging

import syntaxformer as sf
from syntaxformer.encoders.collator import SyntaxCollator, SyntaxExample
from syntaxformer.encoders.official_data import read_any_split
from syntaxformer.encoders.pretrained import load_tokenizer
from syntaxformer.encoders.tasks import find_task

OPEN = 9.0
"""Weight of an open gate: tanh(9) is 1 in fp32."""


@torch.inference_mode()
def last_states(
    checkpoint: str,
    examples: list[SyntaxExample],
    config: sf.InfusionConfig,
    weight: float = OPEN,
    is_shuffled: bool = False,
) -> Tensor:
    """States of all pieces `[pieces, d_model]`, gates with this weight; relations as they are or shuffled."""
    torch.manual_seed(1)  # topical parameters are drawn
    model = AutoModel.from_pretrained(checkpoint).eval()
    sf.infuse(model, config)
    for gate in model.infusion.gates.values():
        gate.weight.fill_(weight)
    batch = SyntaxCollator(load_tokenizer(checkpoint, 128), config)(examples)
    for trees, n_pieces in zip(batch["syntax"], batch["attention_mask"].sum(1), strict=True):
        for relations in trees[:, :n_pieces, :n_pieces] if is_shuffled else ():
            pairs = ~torch.eye(int(n_pieces), dtype=torch.bool)
            relations[pairs] = relations[pairs][torch.randperm(int(pairs.sum()))]
    return model(**batch).last_hidden_state[batch["attention_mask"].bool()]


def distance(states: Tensor, reference: Tensor) -> float:
    return ((states - reference).norm() / reference.norm()).item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint")
    parser.add_argument("--data", required=True, help="folder of CoLA")
    parser.add_argument("--lines", type=int, default=64)
    given = parser.parse_args()
    dev = read_any_split(find_task("cola"), given.data, "dev").examples[: given.lines]
    parsed = sf.load_annotator("en+phrases").annotate([one.texts[0] for one in dev])
    examples = [SyntaxExample((one,)) for one in parsed]
    print(f"{'preset':<10} {'mode':<14} {'D':>2} {'topical':<7} {'parse, not shuffled':>19} {'moved':>6}")
    choices = itertools.product(
        ("paper", "preserving"), ("multiplicative", "additive"), (15, 5, 2), (True, False)
    )
    for preset, mode, farthest, topical in choices:
        masks = {"mode": mode, "max_distance": farthest, "topical": topical}
        infusion = sf.InfusionConfig(preset=preset, masks=masks)
        states = last_states(given.checkpoint, examples, infusion)
        syntax = distance(last_states(given.checkpoint, examples, infusion, is_shuffled=True), states)
        plain = last_states(given.checkpoint, examples, sf.InfusionConfig(masks=masks), weight=0.0)
        moved = distance(states, plain)
        print(
            f"{preset:<10} {mode:<14} {farthest:>2} {topical!s:<7} {syntax:>19.4f} {moved:>6.3f}", flush=True
        )


if __name__ == "__main__":
    hf_logging.disable_progress_bar()
    main()
