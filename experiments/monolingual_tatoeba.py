"""German lines of Tatoeba alone, from pairs that the 8,280 of a run with data.fraction=0.05 do not have.

    python experiments/split_tatoeba.py ../shared/data/tatoeba runs/tatoeba
    python experiments/monolingual_tatoeba.py runs/tatoeba runs/tatoeba/mono.de 20000

No line is a target of dev, of test or of the 8,280 pairs, none stands twice, and their order is random.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from syntaxformer.base.files import write_text
from syntaxformer.translation.corpora import read_train
from syntaxformer.translation.prepare import nested_fraction
from syntaxformer.translation.recipe import load_recipe

SEED, FRACTION = 20261125, 0.05


def main(folder: Path, output: Path, n_lines: int) -> None:
    """Read FOLDER/{train,dev,test}.{en,de}, write OUTPUT."""
    every = read_train(load_recipe("tatoeba", [f"data.dir={folder}"]).data)
    known = set(nested_fraction(every, FRACTION).tgt)
    others = sorted(set(every.tgt) - known)
    chosen = random.Random(SEED).sample(others, n_lines)
    write_text(output, "".join(f"{line}\n" for line in chosen))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
