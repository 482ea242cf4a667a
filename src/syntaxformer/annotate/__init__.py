"""Text to sentences: taggers, parsers and parsed files behind one interface.

Importing this room imports no tagger; `load_annotator` imports what it is asked for.
"""

from syntaxformer.annotate.annotator import Annotator
from syntaxformer.annotate.registry import load_annotator

__all__ = ["Annotator", "load_annotator"]
