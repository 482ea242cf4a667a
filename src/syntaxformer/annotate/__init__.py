"""Text to sentences: taggers, parsers and parsed files behind one interface, and annotated corpora on disk.

Importing this room imports no tagger; `load_annotator` imports what it is asked for.
"""

from syntaxformer.annotate.annotated_before import AnnotatedBefore
from syntaxformer.annotate.annotator import Annotator
from syntaxformer.annotate.phrases import WithPhrases, with_constituency
from syntaxformer.annotate.registry import annotator_identity, load_annotator
from syntaxformer.annotate.splits import annotator_for, annotator_in_chunks
from syntaxformer.annotate.store import (
    AnnotatedCorpus,
    Columns,
    annotate_cached,
    annotate_to_file,
    read_annotations,
    write_annotations,
)
from syntaxformer.annotate.words_as_given import WordsAsGiven

__all__ = [
    "AnnotatedBefore",
    "AnnotatedCorpus",
    "Annotator",
    "Columns",
    "WithPhrases",
    "WordsAsGiven",
    "annotate_cached",
    "annotate_to_file",
    "annotator_for",
    "annotator_identity",
    "annotator_in_chunks",
    "load_annotator",
    "read_annotations",
    "with_constituency",
    "write_annotations",
]
