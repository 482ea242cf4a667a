from __future__ import annotations

import subprocess
import sys

import syntaxformer.syntax as align


def test_all_is_the_public_surface():
    assert sorted(align.__all__) == sorted(set(align.__all__))
    assert all(hasattr(align, name) for name in align.__all__)


def test_needs_numpy_only():
    heavy = {"torch", "transformers", "tokenizers", "spacy"}
    code = f"import sys, syntaxformer.syntax; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
