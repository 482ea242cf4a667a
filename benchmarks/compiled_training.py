"""What `training.compile` gains: updates of a translator on Multi30k, with and without it, in turns.

    OMP_NUM_THREADS=1 python benchmarks/compiled_training.py ../shared/data/multi30k masks fp32

The arguments are the corpus, an infusion (none, masks, relation_bias, lisa, or a kind such as
sum_then_concat) and a precision. Each turn is the same three batches of the recipe `multi30k` for either
model; processor time.
"""

from __future__ import annotations

import copy
import statistics
import sys
import tempfile
import time
from functools import partial
from itertools import islice
from pathlib import Path

from timing import turns

from syntaxformer.nn import INFUSION_KINDS
from syntaxformer.translation.recipe import load_recipe
from syntaxformer.translation.training import SyntaxTrainer, build, prepare

RECIPE = Path(__file__).parents[1] / "recipes" / "multi30k.yaml"
TURNS, BATCHES = 5, 3


def main(corpus: str, infusion: str, precision: str) -> None:
    """Print seconds of each."""
    chosen = f"infusion.kind={infusion}" if infusion in INFUSION_KINDS else f"infusion.{infusion}={{}}"
    with tempfile.TemporaryDirectory() as folder:
        given = [f"data.dir={corpus}", f"output={folder}/run", "data.fraction=0.05", chosen]
        recipe = load_recipe(RECIPE, [*given, "subwords.vocab_size=4000", f"training.precision={precision}"])
        data = prepare(recipe)
        model, _ = build(recipe, data)
        models = {"plain": model, "compiled": copy.deepcopy(model)}
        trainers = {
            name: SyntaxTrainer(one, recipe, data.train, data.dev, data.encoder.tokenizer.pad_token_id)
            for name, one in models.items()
        }
        batches = list(islice(trainers["plain"].get_train_dataloader(), BATCHES))
        models["compiled"].compile(dynamic=True)
        for name, trainer in trainers.items():
            models[name].train()
            trainer.create_optimizer()
            start = time.process_time(), time.perf_counter()
            update(trainer, models[name], batches)
            spent = time.process_time() - start[0], time.perf_counter() - start[1]
            print(f"{name}: {BATCHES} first updates: {spent[0]:.1f} s of processor, {spent[1]:.0f} s in all")
        works = {name: partial(update, trainer, models[name], batches) for name, trainer in trainers.items()}
        seconds = {name: [s / BATCHES for s in taken] for name, taken in turns(works, TURNS).items()}
    plain, compiled = (statistics.median(seconds[name]) for name in ("plain", "compiled"))
    print(f"{infusion} {precision}: {plain:.3f} s, compiled {compiled:.3f} s, gain {plain / compiled:.2f}")
    print({name: [round(s, 3) for s in taken] for name, taken in seconds.items()})


def update(trainer: SyntaxTrainer, model, batches) -> None:
    """Losses, gradients and steps of the optimizer."""
    trainer.current_gradient_accumulation_steps = 1
    for batch in batches:
        trainer.training_step(model, dict(batch), None)
        trainer.optimizer.step()
        model.zero_grad()


if __name__ == "__main__":
    main(*sys.argv[1:])
