"""Text to sentences: taggers, parsers and parsed files behind one interface, and annotated corpora on disk.

Importing this room imports no tagger; `load_annotator` imports the one that it loads.
"""

from syntaxformer.annotate.annotator import Annotator, annotator_for
from syntaxformer.annotate.dataset import annotate_dataset
from syntaxformer.annotate.registry import (
    WithPhrases,
    WordsAsGiven,
    annotator_identity,
    load_annotator,
    prepare,
    with_constituency,
)
from syntaxformer.annotate.store import (
    AnnotatedBefore,
    AnnotatedCorpus,
    AnnotatedInOrder,
    Columns,
    annotate_cached,
    annotate_to_file,
    read_annotations,
    write_annotations,
)

__all__ = [
    "AnnotatedBefore",
    "AnnotatedCorpus",
    "AnnotatedInOrder",
    "Annotator",
    "Columns",
    "WithPhrases",
    "WordsAsGiven",
    "annotate_cached",
    "annotate_dataset",
    "annotate_to_file",
    "annotator_for",
    "annotator_identity",
    "load_annotator",
    "prepare",
    "read_annotations",
    "with_constituency",
    "write_annotations",
]
