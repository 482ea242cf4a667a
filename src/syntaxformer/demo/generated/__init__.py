"""A bundled English-German corpus that a synchronous grammar generates, and a digit-reversal toy.

Nothing is copied from anywhere: the lexicon and the grammar are in this package, and they give gold trees for
both sides. It shows what syntax is good for in minutes; it is no benchmark.
"""

from __future__ import annotations

from syntaxformer.demo.generated.corpus import DemoPair, DemoSplits, demo_corpus, split, write_demo
from syntaxformer.demo.generated.digits import DigitPair, digit_pairs

__all__ = ["DemoPair", "DemoSplits", "DigitPair", "demo_corpus", "digit_pairs", "split", "write_demo"]
