"""CoNLL-U to spaCy DocBins: gold words, one sentence a document, the raw text as its text."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from spacy.tokens import DocBin
from spacy.vocab import Vocab

from annotators.treebank import GoldSentence, read_treebank, to_doc


@dataclass(frozen=True, slots=True)
class Language:
    """Which treebank files a pipeline is trained and tested on, and how their words are read."""

    train: tuple[str, ...]
    dev: str
    test: str
    merge_multiword: bool
    lowercase: bool = False
    common_subtypes: frozenset[str] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    description: Mapping[str, Any] = field(default_factory=dict)

    def read(self, folder: Path, name: str) -> list[GoldSentence]:
        """The sentences of one file, in words and labels that all of the language's files share."""
        sentences = read_treebank(folder / name, merge_multiword=self.merge_multiword)
        if self.lowercase:
            sentences = [replace(one, words=tuple(word.lower() for word in one.words)) for one in sentences]
        return [self._with_common_labels(sentence) for sentence in sentences]

    def _with_common_labels(self, sentence: GoldSentence) -> GoldSentence:
        if self.common_subtypes is None:
            return sentence
        labels = (
            label if label in self.common_subtypes else label.partition(":")[0] for label in sentence.deprels
        )
        return replace(sentence, deprels=tuple(labels))


EWT = {
    "name": "UD English EWT",
    "url": "https://github.com/UniversalDependencies/UD_English-EWT",
    "license": "CC BY-SA 4.0",
    "author": "Natalia Silveira, Timothy Dozat, Christopher Manning, Sebastian Schuster, Ethan Chi, "
    "John Bauer, Miriam Connor, Marie-Catherine de Marneffe, Nathan Schneider, Sam Bowman, Hanzhi Zhu, "
    "Daniel Galbraith",
}
GSD = {
    "name": "UD German GSD",
    "url": "https://github.com/UniversalDependencies/UD_German-GSD",
    "license": "CC BY-SA 4.0",
    "author": "Slav Petrov, Wolfgang Seeker, Ryan McDonald, Joakim Nivre, Daniel Zeman, Adriane Boyd, "
    "Verena Blaschke",
}
PUD = {
    "name": "UD German PUD",
    "url": "https://github.com/UniversalDependencies/UD_German-PUD",
    "license": "CC BY-SA 3.0",
    "author": "Hans Uszkoreit, Vivien Macketanz, Aljoscha Burchardt, Georg Rehm, Kim Harris, "
    "Katrin Marheinecke, Slav Petrov, Tolga Kayadelen, Mohammed Attia, Ali Elkahky, Zhuoran Yu, "
    "Emily Pitler, Saran Lertpradit, Michael Mandl, Sebastian Bank, Martin Popel, Daniel Zeman",
}

VERSION = "1.0.0"


def _description(code: str, language: str, sources: tuple[dict[str, str], ...]) -> dict[str, Any]:
    treebanks = " and ".join(source["name"] for source in sources)
    return {
        "name": f"syntaxformer_{code}",
        "version": VERSION,
        "description": f"{language} universal parts of speech and dependencies, trained on {treebanks}.",
        "author": "syntaxformer",
        "url": "",
        "sources": list(sources),
    }


LANGUAGES = {
    "en": Language(
        train=("en_ewt-ud-train.conllu.gz",),
        dev="en_ewt-ud-dev.conllu.gz",
        test="en_ewt-ud-test.conllu.gz",
        merge_multiword=False,
        settings={"training.max_steps": 4500, "training.eval_frequency": 450},
        description=_description("en", "English", (EWT,)),
    ),
    "de": Language(
        # GSD twice: it is the smaller one, and its conventions are the ones tested.
        train=("de_pud-ud-test.conllu.gz", "de_gsd-ud-dev.conllu.gz", "de_gsd-ud-dev.conllu.gz"),
        dev="de_gsd-ud-dev.conllu.gz",
        test="de_gsd-ud-test.conllu.gz",
        merge_multiword=True,
        # PUD marks more subtypes than GSD (acl:relcl, flat:name ...): only what both annotate is kept.
        common_subtypes=frozenset(
            ("aux:pass", "compound:prt", "det:poss", "nsubj:pass", "obl:agent", "obl:arg")
        ),
        settings={
            "training.max_steps": 900,
            "training.eval_frequency": 150,
            "components.parser.min_action_freq": 10,
            "corpora.train.unknown_frac": 1.0,
        },
        description=_description("de", "German", (GSD, PUD)),
    ),
}
# Corpora such as IWSLT'14 come in lower case, where German nouns no longer look like nouns.
LANGUAGES["de_lower"] = replace(
    LANGUAGES["de"],
    lowercase=True,
    settings={**LANGUAGES["de"].settings, "nlp.lang": "de"},
    description=_description("de_lower", "German, all in lower case,", (GSD, PUD)),
)


def write_docbin(path: Path, sentences: Iterable[GoldSentence]) -> None:
    vocab = Vocab()
    store = DocBin(attrs=["POS", "HEAD", "DEP"], store_user_data=True)
    for sentence in sentences:
        store.add(to_doc(sentence, vocab))
    store.to_disk(path)
