"""What a task of language understanding is: a row of data. The rows stand in `glue`, `nli` and `sst`.

A task names its label set, its official metrics, and where texts, labels and trees stand in its official
files. No task is a class of its own; what reads the files is `read_split`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Task"]

Names = tuple[str, ...]
"""Names that a column or a file may have, the official one first."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task.

    Args:
        name: On the command line.
        title: In papers, and the name of the folder in the GLUE distribution.
        labels: Label names in the order of their numbers, as the files have them; None for scores.
        metrics: Official metrics; the mean of them chooses the best epoch.
        texts: For each of one or two texts the names of its column.
        files: Split → names of its file, with or without ".gz".
        label: Names of the label column.
        trees: For each text the names of its tree column, if there is one.
        index: Names of the column that numbers the examples of a test set.
        headerless: Split → columns, for files without a header line.
        no_label: Labels that mean that there is none: such a row is left out, and counted.
        score_range: Smallest and largest score; scores that are predicted are clipped to it.
        tolerant: Rows with too many cells or an empty text are left out and counted, not refused: the
            official file has some.
        treebank: The files are sentiment trees, one a line.
        binary: A treebank's labels 0, 1 | 3, 4 are read as two classes and neutral trees are left out.
        submission: Split → name of the file that the GLUE server takes.
        aliases: Further names on the command line.
    """

    name: str
    title: str
    labels: Names | None
    metrics: Names
    texts: tuple[Names, ...]
    files: Mapping[str, Names]
    label: Names = ("label",)
    trees: tuple[Names, ...] = ()
    index: Names = ("index", "id", "idx", "pairID", "pair_ID")
    headerless: Mapping[str, Names] = field(default_factory=dict)
    no_label: Names = ()
    score_range: tuple[float, float] | None = None
    tolerant: bool = False
    treebank: bool = False
    binary: bool = False
    submission: Mapping[str, str] = field(default_factory=dict)
    aliases: Names = ()

    @property
    def is_regression(self) -> bool:
        """Whether labels are scores."""
        return self.labels is None
