"""An annotated text chunk by chunk, with the user's own columns; nothing of it stays in memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, overload

import numpy as np

from syntaxformer.base.errors import AlignmentError
from syntaxformer.base.files import count_lines
from syntaxformer.syntax import CodedColumn, WordColumns, read_user_column
from syntaxformer.translation.parallel import CorpusConfig, ParallelText, find_file

if TYPE_CHECKING:
    from syntaxformer.annotate import AnnotatedCorpus, Annotator

__all__ = ["CHUNK_LINES", "AnnotatedChunks"]

CHUNK_LINES = 10_000


class AnnotatedChunks(Sequence[WordColumns]):
    """An annotated text in chunks of `CHUNK_LINES`, each made when it is asked for; see `annotated_columns`.

    The text is annotated, or its annotation looked up, when the first chunk is asked for.
    """

    def __init__(
        self,
        text: ParallelText,
        annotator: Annotator,
        config: CorpusConfig,
        split: str,
        user_columns: Sequence[str],
        processes: int,
        constituency: bool,
    ) -> None:
        self.text, self.annotator, self.config, self.split = text, annotator, config, split
        self.user_columns, self.processes, self.constituency = user_columns, processes, constituency

    def __len__(self) -> int:
        return -(-len(self.text) // CHUNK_LINES)

    @overload
    def __getitem__(self, index: int) -> WordColumns: ...
    @overload
    def __getitem__(self, index: slice) -> list[WordColumns]: ...
    def __getitem__(self, index: int | slice) -> WordColumns | list[WordColumns]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(f"chunk: expected 0 to {len(self) - 1}, got {index}.")
        start = index * CHUNK_LINES
        lines = self.text.src[start : start + CHUNK_LINES]
        chunk = WordColumns.from_corpus(self._corpus, lines, start, constituency=self.constituency)
        words = slice(*self._borders[index : index + 2]) if self.user_columns else slice(0)
        for name, values in self._user_values.items():
            chunk = chunk.with_user_column(name, values[words])
        return chunk

    @cached_property
    def _corpus(self) -> AnnotatedCorpus:
        from syntaxformer.annotate import annotate_cached, annotator_for

        annotator = annotator_for(self.annotator, self.split)
        return annotate_cached(
            self.text.src, annotator, self.config.cache, n_processes=self.processes, progress=True
        )

    @cached_property
    def _borders(self) -> list[int]:
        """Words before each chunk."""
        starts = range(0, len(self.text), CHUNK_LINES)
        sizes = [int(self._corpus.columns(start, start + CHUNK_LINES).row_offsets[-1]) for start in starts]
        return np.cumsum([0, *sizes]).tolist()

    @cached_property
    def _user_values(self) -> dict[str, CodedColumn]:
        """The user's own columns, whole."""
        text, found = self.text, {}
        for name in self.user_columns:
            path = find_file(self.config.dir or Path(), self.split, self.config.factor_files[name])
            if (n_lines := count_lines(path)) != text.n_file_lines:
                raise AlignmentError(
                    f"factor file: expected {text.n_file_lines} lines, one for each line of "
                    f"{text.src_path}, got {n_lines}.",
                    path,
                )
            found[name] = read_user_column(path, self._corpus, text.src_path, text.rows)
        return found
