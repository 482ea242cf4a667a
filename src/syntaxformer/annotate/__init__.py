"""Text to sentences: taggers, parsers and parsed files behind one interface, and annotated corpora on disk.

Importing this room imports no tagger; `load_annotator` imports the one that it loads.
"""

from syntaxformer.annotate.annotator import (
    Annotator,
    WithPhrases,
    annotator_for,
    annotator_identity,
    load_annotator,
    with_constituency,
)
from syntaxformer.annotate.corpora.cached import (
    AnnotatedBefore,
    AnnotatedInOrder,
    annotate_cached,
    annotate_to_file,
)
from syntaxformer.annotate.corpora.stored import (
    AnnotatedCorpus,
    Columns,
    read_annotations,
    write_annotations,
)
from syntaxformer.annotate.dataset import annotate_dataset
from syntaxformer.annotate.wrappers import WordsAsGiven, prepare

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
