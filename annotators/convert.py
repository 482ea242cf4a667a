"""Which treebank files train and test each bundled pipeline, their licences, and how they are prepared."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from syntaxformer.trees import Sentence, read_conllu, write_conllu


@dataclass(frozen=True, slots=True)
class Language:
    """Files of a pipeline and how they are read.

    Args:
        train: Files that are learned; one that is named twice counts double.
        dev: Chooses the best state, unless it is learned, too.
        test: Scores that `meta.json` records.
        steps: Updates.
        lowercase: Whether all is lower-cased.
        common_subtypes: The only subtypes of relations that are kept; None for all.
        description: Entries of `meta.json`.
    """

    train: tuple[str, ...]
    dev: str
    test: str
    steps: int
    lowercase: bool = False
    common_subtypes: frozenset[str] | None = None
    description: Mapping[str, Any] = field(default_factory=dict)

    def prepared(self, source: Path, target: Path, every: int | None = None, keep: bool = True) -> Path:
        """Write a file as this language is trained on it.

        Args:
            source: A CoNLL-U file.
            target: Where it is written.
            every: With a number, only each n-th sentence is kept, or with `keep=False` all others.
            keep: See `every`.
        """
        sentences = enumerate(map(self._prepare, read_conllu(source)))
        kept = (one for place, one in sentences if every is None or (place % every == 0) == keep)
        write_conllu(target, kept)
        return target

    def _prepare(self, sentence: Sentence) -> Sentence:
        if self.common_subtypes is not None:
            known = (
                one if one in self.common_subtypes else one.partition(":")[0]
                for one in sentence.deprels or ()
            )
            sentence = replace(sentence, deprels=tuple(known))
        if not self.lowercase:
            return sentence
        words = tuple(word.lower() for word in sentence.words)
        return replace(sentence, text=sentence.text.lower(), words=words)


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
        steps=4500,
        description=_description("en", "English", (EWT,)),
    ),
    "de": Language(
        # GSD twice: it is the smaller one, and its conventions are the ones tested.
        train=("de_pud-ud-test.conllu.gz", "de_gsd-ud-dev.conllu.gz", "de_gsd-ud-dev.conllu.gz"),
        dev="de_gsd-ud-dev.conllu.gz",
        test="de_gsd-ud-test.conllu.gz",
        steps=900,
        # PUD marks more subtypes than GSD (acl:relcl, flat:name ...): only what both annotate is kept.
        common_subtypes=frozenset(
            ("aux:pass", "compound:prt", "det:poss", "nsubj:pass", "obl:agent", "obl:arg")
        ),
        description=_description("de", "German", (GSD, PUD)),
    ),
}
# Corpora such as IWSLT'14 come in lower case, where German nouns no longer look like nouns.
LANGUAGES["de_lower"] = replace(
    LANGUAGES["de"],
    lowercase=True,
    description=_description("de_lower", "German, all in lower case,", (GSD, PUD)),
)
