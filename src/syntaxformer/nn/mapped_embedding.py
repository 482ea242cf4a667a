"""A narrow embedding table whose rows are mapped to the width wanted: for tables that begin pretrained."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor, nn

__all__ = ["MappedEmbedding"]


class MappedEmbedding(nn.Embedding):
    """e = W t, with t a row of the table and W learned.

    Args:
        n_rows: Rows of the table.
        table_width: Columns of the table.
        width: Columns of the result.
        padding_id: Row that is zero and stays so.
    """

    def __init__(self, n_rows: int, table_width: int, width: int, padding_id: int | None = None) -> None:
        super().__init__(n_rows, table_width, padding_id)
        self.map = nn.Linear(table_width, width, bias=False)

    def forward(self, input: Int[Tensor, "batch pieces"]) -> Float[Tensor, "batch pieces width"]:
        """Look up and map."""
        return self.map(super().forward(input))
