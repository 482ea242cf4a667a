"""An untrained Transformer encoder over GloVe vectors, as in Bai et al.'s (2021) "Transformer" rows.

It is written as an ordinary checkpoint folder, so that fine-tuning and every infusion work as on a pretrained
checkpoint. The network is ELECTRA's encoder: that of BERT, with a projection from the embeddings' width.

    python experiments/scratch_encoder.py --train SNLI/train.txt --glove glove.840B.300d.txt -o encoders/glove
    syntaxformer finetune --task snli --data SNLI --model encoders/glove --infuse masks --set preset=paper
      -o runs/snli   # in one line
"""

from __future__ import annotations

import argparse
import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import ElectraConfig, ElectraModel, PreTrainedTokenizerFast

from syntaxformer.base.config import MAX_SEED
from syntaxformer.base.errors import ConfigError, DataError, SyntaxformerError
from syntaxformer.base.files import atomic_folder, make_readable, read_lines
from syntaxformer.runs.loading import quiet_loading
from syntaxformer.runs.tokenizer_rules import WORDS
from syntaxformer.trees import leaves_of, read_ptb

_log = logging.getLogger("syntaxformer.data")

SPECIALS = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}

_OPENS_TREE = re.compile(r"\s*\(\s*(?:[A-Z\d-]*\s*\(|\d \S+\)$)")
"""How a file of SST's or of Penn's trees begins: with two phrases, or with one word that has a number."""


@dataclass(frozen=True, slots=True)
class EncoderShape:
    """Sizes of the encoder. The defaults are those of Bai et al.'s (2021) appendix A.1.

    Source: Bai et al. (2021), appendix A.1. The paper states neither the number of heads nor the feed-forward
    width. The classifier's hidden layer is `head_width` of `finetune`.

    Args:
        heads: Number of attention heads, a divisor of `width`.
        feed_forward: Inner width of the feed-forward layers.
        max_length: Number of positions.
        embedding_width: Width of the word vectors, if no file gives it.
    """

    layers: int = 12
    width: int = 512
    heads: int = 8
    feed_forward: int = 2048
    dropout: float = 0.1
    max_length: int = 512
    embedding_width: int = 300


def build_scratch_encoder(
    train: Sequence[Path],
    output: Path,
    vectors: Path | None = None,
    shape: EncoderShape | None = None,
    *,
    min_count: int = 1,
    lowercase: bool = False,
    seed: int = 1,
) -> str:
    """Write an untrained encoder with GloVe word embeddings into a new folder.

    The words of `train`, text files or files of bracketed trees, become the vocabulary; those that occur less
    often than `min_count` become unknown. Without a GloVe file, `vectors`, embeddings are initialised at
    random with the seed.

    Returns:
        One line with the sizes and the number of words that have a vector.

    Raises:
        ConfigError: The sizes do not fit, the seed is invalid, or the folder is not empty.
        DataError: A file cannot be read, has no words, or is not a GloVe file.
    """
    shape = shape or EncoderShape()
    _check(shape, output, seed)
    words = count_words(chain.from_iterable(map(_texts, train)), lowercase)
    kept = [word for word, count in words.most_common() if count >= min_count]
    if not kept:
        raise DataError(
            f"expected words that occur {min_count} times or more, got none.", train[0] if train else None
        )
    spellings = chain.from_iterable(map(_spellings, kept))
    found = read_word_vectors(vectors, spellings) if vectors is not None else None
    if found is not None and not found:
        raise DataError(
            f"word vectors: expected vectors of some of the text's {len(kept):,} words, got none. "
            "Check that language and spelling are the text's."
        )
    tokenizer = word_tokenizer(kept, shape.max_length, lowercase)
    width = shape.embedding_width if found is None else len(next(iter(found.values())))
    model = _model(shape, len(tokenizer), width, seed)
    report = f"{len(kept):,} words of {sum(words.values()):,} in the text"
    if found is not None:
        report += ", " + _fill(model, tokenizer, kept, found, words, seed)
    with quiet_loading(), atomic_folder(output) as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        for file in folder.iterdir():
            make_readable(file)
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    return f"{output}: {n_parameters / 1e6:.1f}M parameters, {report}"


def _texts(path: Path) -> Iterator[str]:
    """The lines of a file, or the words of its trees: neither labels nor brackets are words."""
    first = next((line for line in read_lines(path) if line.strip()), "")
    if not _OPENS_TREE.match(first):
        return iter(read_lines(path))
    _log.info("%s: a file of trees, of which only the words are taken", path)
    return (" ".join(leaves_of(tree)) for tree in read_ptb(path))


def count_words(lines: Iterable[str], lowercase: bool) -> Counter[str]:
    """Count the words of lines, split as the tokenizer will split them."""
    cutter, normalizer = _cutter(), _normalizer(lowercase)
    counts: Counter[str] = Counter()
    for line in lines:
        text = normalizer.normalize_str(line)
        counts.update(word for word, _ in cutter.pre_tokenize_str(text))
    return counts


def word_tokenizer(words: Sequence[str], max_length: int, lowercase: bool) -> PreTrainedTokenizerFast:
    """A tokenizer whose pieces are whole words, with BERT's special pieces."""
    names = list(SPECIALS.values())
    pieces = [*names, *(word for word in words if word not in names)]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIALS["unk_token"]))
    tokenizer.normalizer = _normalizer(lowercase)
    tokenizer.pre_tokenizer = _cutter()
    cls, sep = SPECIALS["cls_token"], SPECIALS["sep_token"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=f"{cls} $A {sep} $B:1 {sep}:1",
        special_tokens=[(cls, vocabulary[cls]), (sep, vocabulary[sep])],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=max_length,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **SPECIALS,
    )


def _spellings(word: str) -> tuple[str, ...]:
    """The word as it is, in lower case, and both with a straight apostrophe."""
    straight = word.replace("’", "'")
    return word, word.lower(), straight, straight.lower()


def _normalizer(lowercase: bool) -> normalizers.Normalizer:
    return normalizers.Sequence([normalizers.NFC(), *([normalizers.Lowercase()] if lowercase else [])])


def _cutter() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Split(Regex(WORDS), behavior="removed", invert=True)


def _check(shape: EncoderShape, output: Path, seed: int) -> None:
    problems = [
        f"{name}: expected at least 1, got {getattr(shape, name)}."
        for name in ("layers", "width", "heads", "feed_forward", "max_length", "embedding_width")
        if getattr(shape, name) < 1
    ]
    if not problems and shape.width % shape.heads:
        problems.append(f"heads: expected a divisor of the width {shape.width}, got {shape.heads}.")
    if not 0 <= shape.dropout < 1:
        problems.append(f"dropout: expected 0 to 1, below 1, got {shape.dropout}.")
    if not 0 <= seed <= MAX_SEED:
        problems.append(f"seed: expected 0 to {MAX_SEED}, got {seed}.")
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        problems.append(f"output: expected a new or empty folder, got {output}. Give another, or delete it.")
    if problems:
        raise ConfigError(problems)


def _model(shape: EncoderShape, n_pieces: int, embedding_width: int, seed: int) -> ElectraModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return ElectraModel(
            ElectraConfig(
                vocab_size=n_pieces,
                embedding_size=embedding_width,
                hidden_size=shape.width,
                num_hidden_layers=shape.layers,
                num_attention_heads=shape.heads,
                intermediate_size=shape.feed_forward,
                hidden_dropout_prob=shape.dropout,
                attention_probs_dropout_prob=shape.dropout,
                classifier_dropout=shape.dropout,
                max_position_embeddings=shape.max_length,
                pad_token_id=0,
            )
        )


def _fill(
    model: ElectraModel,
    tokenizer: PreTrainedTokenizerFast,
    words: Sequence[str],
    found: Mapping[str, NDArray[np.float32]],
    counts: Counter[str],
    seed: int,
) -> str:
    """Fill the table, with random vectors of the same spread for words without one; return a report."""
    table = model.get_input_embeddings().weight
    spread = float(np.stack(list(found.values())).std())
    noise = torch.randn(table.shape, generator=torch.Generator().manual_seed(seed)) * spread
    spellings = {word: next(filter(found.__contains__, _spellings(word)), None) for word in words}
    with torch.no_grad():
        table.copy_(noise)
        table[tokenizer.pad_token_id] = 0
        for word, spelling in spellings.items():
            if spelling is not None:
                table[tokenizer.convert_tokens_to_ids(word)] = torch.from_numpy(found[spelling])
    covered = [word for word, spelling in spellings.items() if spelling is not None]
    n_other = sum(spelling != word for word, spelling in spellings.items() if spelling is not None)
    share = sum(counts[word] for word in covered) / sum(counts.values())
    return (
        f"{len(covered):,} of them with a vector ({n_other:,} by another spelling), "
        f"{share:.1%} of the running words"
    )


def read_word_vectors(path: str | Path, words: Iterable[str]) -> dict[str, NDArray[np.float32]]:
    """Read the vectors of some words; if a word is repeated, its first vector counts.

    A header as in word2vec files is skipped.

    Raises:
        DataError: The file cannot be read or has no vectors, a line has another number of values than the
            first, or a value of a wanted word is not a finite number.
    """
    if Path(path).suffix == ".zip":
        raise DataError("word vectors: expected a text file, got an archive. Unpack it.", path)
    wanted, found = set(words), dict[str, NDArray[np.float32]]()
    width = n_duplicates = 0
    for number, line in enumerate(read_lines(path), 1):
        line = line.rstrip(" ")
        if not line or (number == 1 and re.fullmatch(r"\d+ \d+", line)):
            continue
        is_first, width = not width, width or max(1, line.count(" "))
        word, *numbers = line.rsplit(" ", width)  # a few of GloVe's words contain spaces (". . .")
        n_duplicates += word in found
        is_read = is_first or (word in wanted and word not in found)
        vector = _vector(numbers) if is_read else None
        one_too_many = " " in word and _vector([word.rpartition(" ")[2]]) is not None
        if len(numbers) != width or one_too_many or (is_read and vector is None):
            what = f"a word and {width} finite numbers, as many as in the first line"
            raise DataError(f"word vectors: expected {what}, got {line[:60]!r}.", path, number)
        if vector is not None and word in wanted:
            found[word] = vector
    if not width:
        raise DataError("word vectors: expected a word and its numbers on each line, got no line.", path)
    if n_duplicates:
        _log.info("%s: %d lines repeat a word; the first vector of a word counts", path, n_duplicates)
    return found


def _vector(parts: list[str]) -> NDArray[np.float32] | None:
    """The numbers as a vector; None if one of them is not a finite number."""
    try:
        with np.errstate(over="ignore"):
            vector = np.array(parts, dtype=np.float64).astype(np.float32)
    except ValueError:
        return None
    return vector if np.isfinite(vector).all() else None


def main(arguments: Sequence[str] | None = None) -> None:
    """Write an encoder, or say in one line why not."""
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument(
        "--train", type=Path, action="append", required=True, help="text or trees; repeatable"
    )
    parser.add_argument("-o", "--output", type=Path, required=True, help="new or empty folder")
    parser.add_argument("--glove", type=Path, help="GloVe text file, plain or .gz; default: random vectors")
    sizes = {
        flag: flag.strip("-").replace("-", "_")
        for flag in ("--layers", "--width", "--heads", "--feed-forward", "--dropout", "--max-length")
    }
    for flag, name in sizes.items():
        default = EncoderShape.__dataclass_fields__[name].default
        parser.add_argument(flag, type=type(default), default=default)
    parser.add_argument("--min-count", type=int, default=1, help="rarer words become unknown")
    parser.add_argument("--lowercase", action="store_true", help="read all text in lower case")
    parser.add_argument("--seed", type=int, default=1, help="of the random initialisation")
    options = vars(parser.parse_args(arguments))
    shape = EncoderShape(**{name: options.pop(name) for name in sizes.values()})
    train, output, glove = (options.pop(name) for name in ("train", "output", "glove"))
    try:
        print(build_scratch_encoder(train, output, glove, shape, **options))
    except SyntaxformerError as error:
        raise SystemExit(f"error: {error}") from error


if __name__ == "__main__":
    main()
