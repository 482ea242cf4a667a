from __future__ import annotations

import subprocess
import sys


def test_needs_numpy_only():
    heavy = {"torch", "transformers", "tokenizers", "spacy"}
    code = f"import sys, syntaxformer.syntax; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
