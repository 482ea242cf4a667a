"""Trains a tagger, parser and lemmatiser on a treebank, as a spaCy pipeline in a folder; scores annotators.

Words are those that the language's tokenizer makes of raw text, wherever the treebank agrees with it.
"""

# pyright: basic
# (spaCy has no complete types.)

from __future__ import annotations

import logging
import random
import string
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from itertools import chain, count
from pathlib import Path
from typing import Any

import spacy
from spacy.language import Language
from spacy.parts_of_speech import IDS as UPOS
from spacy.tokens import Doc
from spacy.training import Example
from spacy.training.batchers import minibatch_by_words
from thinc.api import Adam, fix_random_seed, use_ops, warmup_linear

from syntaxformer.annotate.annotator import Annotator
from syntaxformer.annotate.backends.spacy import spacy_annotator
from syntaxformer.base.errors import ConfigError, DataError, one_line
from syntaxformer.base.files import atomic_folder
from syntaxformer.base.progress import track
from syntaxformer.trees import ROOT, Sentence, read_conllu
from syntaxformer.trees.conllu import surface_of, tokens_of
from syntaxformer.trees.dependency import join_governors
from syntaxformer.trees.sentence import PER_WORD

_log = logging.getLogger("syntaxformer.annotator")

_CURLY = str.maketrans({"'": "\u2019", '"': "\u201d"})
_Row = dict[str, Any]
"""The words of a sentence and its columns, by name."""


def read_treebank(path: str | Path, nlp: Language | None = None) -> list[Sentence]:
    """The sentences of a CoNLL-U file with gold tags and trees.

    A multiword token ("zum" = "zu dem") that the tokenizer of `nlp` leaves whole is one word, with the tags
    and the governor of its first word that is governed from outside. Without `nlp`, nothing is joined.

    Raises:
        DataError: It is no CoNLL-U file, has fewer than two sentences, or one without tags or tree.
    """
    sentences = [sentence for sentence in read_conllu(path) if sentence.words]
    if len(sentences) < 2:
        raise DataError(f"expected two sentences or more, got {len(sentences)}. Give a treebank.", path)
    for sentence in sentences:
        lacking = [name for name in ("upos", "governors", "deprels") if getattr(sentence, name) is None]
        if lacking or (lacking := sorted(set(sentence.upos or ()) - UPOS.keys())):
            raise DataError(
                f"expected UPOS, HEAD and DEPREL of Universal Dependencies, got {sentence.text[:40]!r} "
                f"without, or with other tags: {', '.join(lacking)}. Give a treebank that has them.",
                path,
            )
    if any(sentence.feats for sentence in sentences):  # a sentence without any has none
        sentences = [replace(each, feats=each.feats or ("_",) * len(each)) for each in sentences]
    return [_in_words_of(nlp, sentence) for sentence in sentences]


def _in_words_of(nlp: Language | None, sentence: Sentence) -> Sentence:
    columns, word_forms, numbers = _row(sentence), list[tuple[int, str]](), dict[int, int]()
    for token in tokens_of(sentence):
        form, forms = surface_of(sentence, token), [sentence.words[word] for word in token]
        if nlp is None or len(token) == 1 or [word.text for word in nlp.make_doc(form)] == forms:
            numbers |= {word: len(word_forms) + number for number, word in enumerate(token)}
            word_forms += zip(token, forms, strict=True)
        else:
            numbers |= dict.fromkeys(token, len(word_forms))
            word_forms.append((next(word for word in token if columns["governors"][word] not in token), form))
    columns = {name: tuple(values[word] for word, _ in word_forms) for name, values in columns.items()}
    columns["governors"] = tuple(numbers.get(governor, ROOT) for governor in columns["governors"])
    # No word of a line has a space in it ("10 000"), but it may have a no-break space.
    columns["words"] = tuple(form.replace(" ", "\xa0") for _, form in word_forms)
    return replace(sentence, **columns, offsets=tuple(sentence.offsets[word] for word, _ in word_forms))


def _row(sentence: Sentence) -> _Row:
    return {name: values for name in ("words", *PER_WORD) if (values := getattr(sentence, name)) is not None}


def score_annotator(annotator: Annotator, sentences: Sequence[Sentence]) -> dict[str, float]:
    """Percent of the words of gold sentences whose annotation is right; the annotator is given the words.

    Punctuation counts, subtypes of relations do not. What one side lacks is not scored. Where the gold lemma
    is "_", any is right.

    Source: the CoNLL 2018 shared task, but with gold words, and with all features of a word.
    """
    right, total = Counter[str](), Counter[str]()
    annotated = annotator.annotate_words([sentence.words for sentence in sentences])
    for sides in zip(sentences, annotated, strict=True):
        upos, governors, lemmas = (
            [getattr(side, column) or () for side in sides] for column in ("upos", "governors", "lemmas")
        )
        labels = [[label.partition(":")[0] for label in side.deprels or ()] for side in sides]
        arcs = [list(zip(*pair, strict=False)) for pair in zip(governors, labels, strict=True)]
        feats = [[{*value.split("|")} for value in side.feats or ()] for side in sides]
        compared = {"UPOS": upos, "UAS": governors, "LAS": arcs, "lemma": lemmas, "feats": feats}
        for name, (gold, guessed) in compared.items():
            free = "_" if name == "lemma" else None  # any lemma is right there
            pairs = zip(gold, guessed, strict=False)
            right[name] += sum(expected in (value, free) for expected, value in pairs)
            total[name] += min(len(gold), len(guessed))
    return {name: round(100 * right[name] / total[name], 2) for name in total if total[name]}


def train_annotator(
    treebanks: Sequence[str | Path],
    dev: str | Path | None,
    output: Path,
    language: str,
    *,
    steps: int | None = None,
    width: int = 128,
    seed: int = 13,
) -> dict[str, float]:
    """Train a pipeline and write its folder, which `load_annotator` takes by its path.

    Args:
        treebanks: CoNLL-U files. Lemmas and features are learned if all of them have some.
        dev: Another one, which chooses the best of ten states; None takes the last.
        output: A folder, which is replaced.
        language: Its code, which chooses the tokenizer.
        steps: Updates; None for one for each 30 words, from 500 to 10,000.
        width: Of the network's vectors.
        seed: Of the initial weights, the order of sentences, and the copies with changes.

    Returns:
        Scores on dev, F1 of the tokenizer's words of raw text ("words"), minutes, sentences, updates.

    Raises:
        DataError: As `read_treebank`, or the folder cannot be written.
        ConfigError: All sentences of dev are learned, or a package of the language's tokenizer is missing.
    """
    start, nlp = time.monotonic(), _blank(language)
    files = [read_treebank(path, nlp) for path in treebanks]
    learned, held_out = list(chain(*files)), [] if dev is None else read_treebank(dev, nlp)
    known = {sentence.words for sentence in learned}
    if (n_known := sum(sentence.words in known for sentence in held_out)) and 20 * n_known > len(held_out):
        overlap = f"{n_known} of {len(held_out)} sentences of {dev} are in the treebank"
        if n_known == len(held_out):
            raise ConfigError(f"dev: expected sentences that are not learned, got: {overlap}. Give others.")
        _log.warning("%s: its scores are too good", overlap)
    columns = ["lemmas", "feats"]
    for file in files:
        columns = [name for name in columns if any(getattr(sentence, name) for sentence in file)]
    steps = steps or min(max(sum(map(len, learned)) // 30, 500), 10_000)
    about = {"sentences": len(learned), "updates": steps}
    _log.info("%s; learned: upos, %s, governors, deprels", about, ", ".join(columns))
    with use_ops("numpy", use_blis=False):  # in trials 1.3 times as fast as the one that spaCy chooses
        fix_random_seed(seed)
        _add_parts(nlp, columns, width, len(learned))
        rows = list(map(_row, learned))
        examples = [_example(row, nlp, columns) for row in (*rows, *_altered(rows, random.Random(seed)))]
        best = _fit(nlp, examples, held_out, steps, random.Random(seed))
    nlp.meta["name"] = output.name
    scores = {**best, "words": _agreement(nlp, held_out or learned)}
    scores |= {"minutes": round((time.monotonic() - start) / 60, 1), **about}
    nlp.meta["performance"] = scores
    with atomic_folder(output) as folder:
        nlp.to_disk(folder)
    return scores


def _blank(language: str) -> Language:
    """The tokenizer of a language, or the one for any language where spaCy has no other."""
    language = {"no": "nb"}.get(code := language.partition("-")[0], code)  # de of de-AT
    if find_spec(f"spacy.lang.{language}") is None:
        _log.warning("spaCy has no tokenizer of %r: words are cut as in any language (xx)", language)
        language = "xx"
    try:
        return spacy.blank(language)
    except ImportError as error:
        raise ConfigError(
            f"language: expected an installed tokenizer of {language!r}, got: {one_line(error)} Or take xx."
        ) from error


def _agreement(nlp: Language, sentences: Sequence[Sentence]) -> float:
    """F1 in percent of the tokenizer's words of raw text."""
    same = total = 0
    for sentence in sentences:
        words = Counter(word.text for word in nlp.make_doc(sentence.text))
        same += (words & Counter(sentence.words)).total()
        total += words.total() + len(sentence.words)
    return round(200 * same / total, 2)


def _add_parts(nlp: Language, columns: Sequence[str], width: int, n_sentences: int) -> None:
    # LOWER, not NORM: spaCy's tokenizers change the NORM of the words that they split ("n't" is "not").
    shape = {"attrs": ["LOWER", "PREFIX", "SUFFIX", "SHAPE"], "rows": [5000, 500, 2500, 800]}
    embed = {"@architectures": "spacy.MultiHashEmbed.v2", "include_static_vectors": False, **shape}
    shape = {"depth": 5, "window_size": 1, "maxout_pieces": 3}
    encode = {"@architectures": "spacy.MaxoutWindowEncoder.v2", **shape, "width": width}
    model = {"@architectures": "spacy.Tok2Vec.v2", "embed": {**embed, "width": width}, "encode": encode}
    nlp.add_pipe("tok2vec", config={"model": model})
    reads = {"@architectures": "spacy.Tok2VecListener.v1", "width": width, "upstream": "tok2vec"}
    tagger = {"@architectures": "spacy.Tagger.v2", "tok2vec": reads}
    nlp.add_pipe("morphologizer", config={"model": tagger})
    if "lemmas" in columns:
        rarest = max(1, min(3, n_sentences // 100))
        nlp.add_pipe("trainable_lemmatizer", config={"model": tagger, "min_tree_freq": rarest})
    shape = {"state_type": "parser", "extra_state_tokens": True, "hidden_width": 128, "maxout_pieces": 2}
    model = {"@architectures": "spacy.TransitionBasedParser.v2", **shape, "tok2vec": reads}
    nlp.add_pipe("parser", config={"model": model, "min_action_freq": max(1, min(20, n_sentences // 200))})


def _fit(
    nlp: Language, examples: list[Example], dev: Sequence[Sentence], steps: int, chance: random.Random
) -> dict[str, float]:
    """Train; the pipeline gets the mean weights of its best state on dev, whose scores are returned."""
    rate: Any = warmup_linear(0.002, min(250, steps // 4), steps)
    rules = {"L2": 0.01, "L2_is_weight_decay": True, "grad_clip": 1.0, "use_averages": True}
    optimizer = nlp.initialize(lambda: examples, sgd=Adam(rate, **rules))
    sizes: Any = (min(1000, int(200 * 1.002**number)) for number in count())
    orders = (chance.shuffle(examples) or examples for _ in count())
    batches = chain.from_iterable(minibatch_by_words(order, sizes) for order in orders)
    best, best_scores, best_state = -1.0, dict[str, float](), b""
    for step in track(range(1, steps + 1), "training the annotator", unit="updates"):
        nlp.update(next(batches), sgd=optimizer, drop=0.25)
        optimizer.step_schedules()
        if step == steps or (dev and step % -(-steps // 10) == 0):
            with nlp.use_params(optimizer.averages):
                scores = score_annotator(spacy_annotator(nlp, "", ""), dev)
                if (value := 0.3 * scores.get("UPOS", 0) + 0.7 * scores.get("LAS", 0)) >= best:
                    best, best_scores, best_state = value, scores, nlp.to_bytes()
            _log.info("update %d of %d, on dev: %s", step, steps, scores)
    nlp.from_bytes(best_state)
    return best_scores


def _example(row: _Row, nlp: Language, columns: Sequence[str]) -> Example:
    words, governors, none = list(row["words"]), row["governors"], ("_",) * len(row["words"])
    heads = [at if value == ROOT else value for at, value in enumerate(governors)]
    arcs = zip(governors, row["deprels"], strict=True)
    labels = ["ROOT" if governor == ROOT else deprel for governor, deprel in arcs]
    lemmas = ["" if value == "_" or "lemmas" not in columns else value for value in row.get("lemmas", none)]
    feats = [value if "feats" in columns else "" for value in row.get("feats", none)]
    tags = {"pos": list(row["upos"]), "lemmas": lemmas, "morphs": feats, "heads": heads, "deps": labels}
    return Example(Doc(nlp.vocab, words=words), Doc(nlp.vocab, words=words, **tags))


def _altered(rows: Sequence[_Row], chance: random.Random) -> Iterator[_Row]:
    """Copies of some sentences as other texts have them; of a small treebank all with rare words hidden."""
    counts = Counter(word.lower() for row in rows for word in row["words"])

    def disguised(word: str) -> str:
        if counts[word.lower()] > 1 or len(word) < 6 or not word.isalpha():
            return word
        return f"{word[0]}{''.join(chance.choices(string.ascii_lowercase, k=3))}{word[-3:]}"

    changes = {str.lower: 0.04, lambda word: word.translate(_CURLY): 0.1, disguised: float(len(rows) < 5000)}
    for number, row in enumerate(rows):
        words, none = row["words"], ("_",) * len(row["words"])
        for change, share in changes.items():
            if chance.random() < share and (other := tuple(map(change, words))) != words:
                # The lemma of a word that was changed is not learned.
                triples = zip(row.get("lemmas", none), words, other, strict=True)
                yield row | {"words": other, "lemmas": tuple(a if b == c else "_" for a, b, c in triples)}
        ends_free = row["upos"][-1] == "PUNCT" and 0 < len(words) - 1 not in row["governors"]
        if chance.random() < 0.05 and ends_free:
            yield {name: values[:-1] for name, values in row.items()}
        if chance.random() < 0.06:
            run = rows[number : number + chance.randint(2, 3)]
            shared = set(row).intersection(*run)
            joined = {name: tuple(chain(*(row_of_run[name] for row_of_run in run))) for name in shared}
            yield joined | {"governors": join_governors(row_of_run["governors"] for row_of_run in run)}
