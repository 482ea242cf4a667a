"""Universal Dependencies files as flat sentences of surface words, ready for spaCy.

Reads CoNLL-U (plain or .gz). It is not the package's CoNLL-U reader: it keeps only what training a
tagger and a parser needs, and it can merge multiword tokens into the surface token a tokenizer sees.
"""

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from spacy.tokens import Doc
from spacy.vocab import Vocab


@dataclass(frozen=True, slots=True)
class GoldSentence:
    """One annotated sentence; governors are 0-based, a root governs itself (spaCy's convention)."""

    document: str
    words: tuple[str, ...]
    spaces: tuple[bool, ...]
    upos: tuple[str, ...]
    governors: tuple[int, ...]
    deprels: tuple[str, ...]

    @property
    def text(self) -> str:
        """The raw text: the words with the spaces they stood between."""
        return "".join(word + " " * space for word, space in zip(self.words, self.spaces, strict=True))


@dataclass(slots=True)
class _Block:
    """The lines of one sentence: word rows, and the multiword ranges that cover them."""

    document: str
    rows: list[list[str]]
    ranges: dict[int, tuple[int, list[str]]]


def read_treebank(path: Path, *, merge_multiword: bool) -> list[GoldSentence]:
    """All sentences of one CoNLL-U file.

    Args:
        path: a `.conllu` or `.conllu.gz` file.
        merge_multiword: one word for each multiword token (German "zum"), instead of its syntactic
            words (English "do", "n't"): whichever the language's spaCy tokenizer produces.
    """
    build = _surface_sentence if merge_multiword else _word_sentence
    return [build(block) for block in _blocks(path)]


def to_doc(sentence: GoldSentence, vocab: Vocab) -> Doc:
    """The sentence as a gold-annotated spaCy Doc whose text is the raw text."""
    return Doc(
        vocab,
        words=list(sentence.words),
        spaces=list(sentence.spaces),
        pos=list(sentence.upos),
        heads=list(sentence.governors),
        deps=list(sentence.deprels),
        user_data={"document": sentence.document},
    )


def _blocks(path: Path) -> Iterator[_Block]:
    document, block = "", _Block("", [], {})
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            fields = line.rstrip("\n").split("\t")
            if line.startswith("# newdoc"):
                document = line.rpartition("=")[2].strip()
            elif len(fields) == 10:
                _add_row(block, fields)
            elif not line.strip() and block.rows:
                block.document = document
                yield block
                block = _Block("", [], {})
    if block.rows:
        block.document = document
        yield block


def _add_row(block: _Block, fields: list[str]) -> None:
    first, dash, last = fields[0].partition("-")
    if dash:
        block.ranges[int(first)] = (int(last), fields)
    elif "." not in first:  # empty nodes ("8.1") belong to the enhanced graph, not to the tree
        block.rows.append(fields)


def _space_after(fields: list[str]) -> bool:
    return "SpaceAfter=No" not in fields[9].split("|")


def _word_sentence(block: _Block) -> GoldSentence:
    spaces = [_space_after(row) for row in block.rows]
    for first, (last, fields) in block.ranges.items():
        spaces[first - 1 : last] = [False] * (last - first) + [_space_after(fields)]
    return _assemble(block, block.rows, spaces, list(range(len(block.rows))))


def _surface_sentence(block: _Block) -> GoldSentence:
    """Each multiword token becomes the row of its first word that is governed from outside it."""
    rows: list[list[str]] = []
    spaces: list[bool] = []
    surface_of_word: list[int] = []
    start = 1
    while start <= len(block.rows):
        end, fields = block.ranges.get(start, (start, block.rows[start - 1]))
        inside = block.rows[start - 1 : end]
        outward = next(row for row in inside if not start <= int(row[6]) <= end)
        surface_of_word += [len(rows)] * len(inside)
        rows.append([outward[0], fields[1], *outward[2:]])
        spaces.append(_space_after(fields))
        start = end + 1
    return _assemble(block, rows, spaces, surface_of_word)


def _assemble(block: _Block, rows: list[list[str]], spaces: list[bool], index_of: list[int]) -> GoldSentence:
    return GoldSentence(
        document=block.document,
        words=tuple(row[1] for row in rows),
        spaces=(*spaces[:-1], False),
        upos=tuple(row[3] for row in rows),
        governors=tuple(
            index_of[int(row[6]) - 1] if row[6] != "0" else here for here, row in enumerate(rows)
        ),
        deprels=tuple("ROOT" if row[6] == "0" else row[7] for row in rows),
    )
