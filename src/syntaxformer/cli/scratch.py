"""`syntaxformer scratch`: an untrained encoder over GloVe vectors, to fine-tune like a pretrained one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option, echo


def scratch(
    train: Annotated[
        list[Path], Option(help="Text or trees whose words form the vocabulary, plain or .gz; repeatable.")
    ],
    output: Annotated[Path, Option("-o", "--output", help="New or empty folder for the checkpoint.")],
    glove: Annotated[
        Path | None, Option(help="GloVe text file, plain or .gz. Default: random vectors.")
    ] = None,
    layers: Annotated[int, Option(max=1024, help="Number of layers.")] = 12,
    width: Annotated[int, Option(max=2**16, help="Width of the hidden states.")] = 512,
    heads: Annotated[int, Option(max=1024, help="Number of attention heads, a divisor of the width.")] = 8,
    feed_forward: Annotated[int, Option(max=2**18, help="Inner width of the feed-forward layers.")] = 2048,
    dropout: Annotated[float, Option(help="Dropout probability.")] = 0.1,
    max_length: Annotated[int, Option(max=2**20, help="Number of positions.")] = 512,
    min_count: Annotated[int, Option(min=1, help="Rarer words become unknown.")] = 1,
    lowercase: Annotated[bool, Option("--lowercase", help="Read all text in lower case.")] = False,
    seed: Annotated[int, Option(min=0, max=2**32 - 1, help="Seed of the random initialisation.")] = 1,
) -> None:
    """Make an untrained Transformer encoder with GloVe word vectors, the "Transformer" of Bai et al. (2021).

    syntaxformer scratch --train SNLI/train.txt --glove glove.840B.300d.txt -o encoders/glove

    syntaxformer finetune --task snli --data SNLI --model encoders/glove --infuse masks -o runs/snli
    """
    from syntaxformer.encoders.scratch import EncoderShape, build_scratch_encoder

    shape = EncoderShape(layers, width, heads, feed_forward, dropout, max_length)
    more = {"min_count": min_count, "lowercase": lowercase, "seed": seed}
    echo(build_scratch_encoder(train, output, glove, shape, **more))
