"""A spaCy pipeline small enough to train in a second; its tags are poor, its columns are whole."""

import pytest
import spacy
from spacy.tokens import Doc
from spacy.training import Example

WORDS = ["John", "slipped", "in", "front", "of", "anyone", "."]
GOVERNORS = [1, 1, 3, 1, 5, 3, 1]
DEPRELS = ["nsubj", "ROOT", "case", "obl", "case", "nmod", "punct"]
UPOS = ["PROPN", "VERB", "ADP", "NOUN", "ADP", "PRON", "PUNCT"]


def make_pipeline(n_updates=8):
    nlp = spacy.blank("en")
    nlp.add_pipe("tok2vec", config={"model": {"width": 16, "depth": 2, "embed_size": 50}})
    listener = {"@architectures": "spacy.Tok2VecListener.v1", "width": 16}
    nlp.add_pipe("morphologizer", config={"model": {"tok2vec": listener}})
    nlp.add_pipe("parser", config={"model": {"tok2vec": listener, "hidden_width": 16}, "min_action_freq": 1})
    nlp.meta.update(name="tiny", version="1.2.3")
    reference = Doc(nlp.vocab, words=WORDS, pos=UPOS, heads=GOVERNORS, deps=DEPRELS)
    examples = [Example(Doc(nlp.vocab, words=WORDS), reference)] * 4
    optimizer = nlp.initialize(lambda: examples)
    for _ in range(n_updates):
        nlp.update(examples, sgd=optimizer)
    return nlp


@pytest.fixture(scope="session")
def pipeline_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pipelines") / "tiny"
    make_pipeline().to_disk(folder)
    return folder


@pytest.fixture(scope="session")
def annotator(pipeline_folder):
    from syntaxformer.annotate import load_annotator

    return load_annotator(f"spacy:{pipeline_folder}")
