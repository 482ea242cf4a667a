"""Which treebank files train and test each bundled pipeline, their licences, and how they are prepared."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import starmap
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
        steps: Updates of tagger and parser.
        form_steps: Updates of lemmas and features.
        lowercase: Whether all is lower-cased.
        common_subtypes: The only subtypes of relations that are kept; None for all.
        description: Entries of `meta.json`.
    """

    train: tuple[str, ...]
    dev: str
    test: str
    steps: int
    form_steps: int
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
        sentences = map(_as_gsd, read_conllu(source)) if "_pud" in source.name else read_conllu(source)
        sentences = enumerate(map(self._prepare, sentences))
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


def _as_gsd(sentence: Sentence) -> Sentence:
    """A sentence of German PUD with the features of German GSD, as far as rules can tell them.

    PUD names no form of finite verbs, infinitives and passive auxiliaries, calls participles past tense, and
    gives adverbs and determiners a degree.
    """
    columns = (sentence.feats or ("_",) * len(sentence.words), sentence.upos or (), sentence.deprels or ())
    return replace(sentence, feats=tuple(starmap(_gsd_feats, zip(*columns, strict=True))))


def _gsd_feats(feats: str, upos: str, deprel: str) -> str:
    found = dict(one.split("=") for one in feats.split("|") if "=" in one)
    if upos in ("VERB", "AUX"):
        is_participle = found.get("VerbForm") == "Part" or ("Tense" in found and "Mood" not in found)
        found["VerbForm"] = "Part" if is_participle else "Fin" if "Mood" in found else "Inf"
        if is_participle:
            found.pop("Tense", None)
        if deprel == "aux:pass":
            found["Voice"] = "Pass"
    if upos in ("ADV", "DET"):
        found.pop("Degree", None)
    if upos == "PRON" and "Person" in found:
        found.setdefault("PronType", "Prs")
    if found.get("Gender[psor]") in ("Masc", "Neut"):
        found["Gender[psor]"] = "Masc,Neut"
    return "|".join(f"{name}={found[name]}" for name in sorted(found, key=str.lower)) or "_"


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

VERSION = "1.1.0"


def _description(code: str, language: str, sources: tuple[dict[str, str], ...]) -> dict[str, Any]:
    treebanks = " and ".join(source["name"] for source in sources)
    what = "universal parts of speech, lemmas, features and dependencies"
    return {
        "name": f"syntaxformer_{code}",
        "version": VERSION,
        "description": f"{language} {what}, trained on {treebanks}.",
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
        form_steps=2500,
        description=_description("en", "English", (EWT,)),
    ),
    "de": Language(
        # GSD twice: it is the smaller one, and its conventions are the ones tested.
        train=("de_pud-ud-test.conllu.gz", "de_gsd-ud-dev.conllu.gz", "de_gsd-ud-dev.conllu.gz"),
        dev="de_gsd-ud-dev.conllu.gz",
        test="de_gsd-ud-test.conllu.gz",
        steps=900,
        form_steps=1200,
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
