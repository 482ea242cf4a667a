"""No English sentence stands in two parts."""

from __future__ import annotations

import importlib.util
from pathlib import Path

FILE = Path(__file__).resolve().parents[3] / "experiments" / "split_tatoeba.py"


def test_parts_share_no_source():
    found = importlib.util.spec_from_file_location("split_tatoeba", FILE)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    module.N_DEV, module.N_TEST = 5, 7
    pairs = [(f"s{number % 31}", f"t{number}") for number in range(97)]
    parts = module.split_pairs(pairs)
    sources = {name: {source for source, _ in part} for name, part in parts.items()}
    assert [len(sources[name]) for name in ("dev", "test", "train")] == [5, 7, 19]
    assert not sources["dev"] & sources["test"] | sources["train"] & (sources["dev"] | sources["test"])
    assert [len(parts[name]) for name in ("dev", "test")] == [5, 7]
    assert set(parts["train"]) <= set(pairs)
    assert len(parts["train"]) == sum(source in sources["train"] for source, _ in pairs)
    assert parts == module.split_pairs(pairs)
