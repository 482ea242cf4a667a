"""The annotator of these tests."""

from __future__ import annotations

import pytest

from table_annotator import TableAnnotator


@pytest.fixture
def annotator() -> TableAnnotator:
    return TableAnnotator()
