"""`annotate_dataset`: a column that survives what `datasets` does, made once, of texts that are there."""

from __future__ import annotations

import pytest
from datasets import (
    Dataset,
    DatasetDict,
    Features,
    IterableDataset,
    IterableDatasetDict,
    Value,
    concatenate_datasets,
    load_from_disk,
)

import syntaxformer as sf
from syntaxformer.annotate.dataset import parts_of
from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.trees.sentence import COLUMNS, Sentence
from table_annotator import TableAnnotator

TEXTS = ["the cat sat .", "cats sit"]


class Counting(TableAnnotator):
    def __init__(self, version="3"):
        self.version, self.seen = version, []

    def stream(self, lines, *, n_processes=1):
        lines = list(lines)
        self.seen += lines
        return super().stream(lines)


def rows(texts=TEXTS, **more):
    return Dataset.from_dict({"sentence": texts, "label": list(range(len(texts))), **more})


def test_a_cell_is_the_annotation():
    done = sf.annotate_dataset(rows(), "sentence", TableAnnotator())
    assert done.column_names == ["sentence", "label", "syntax"]
    assert set(done.features["syntax"]) == {"annotator", "text", "words", "starts", "ends", *COLUMNS}
    assert done[1] == {
        "sentence": "cats sit",
        "label": 1,
        "syntax": {
            "annotator": "table 3", "text": "cats sit", "words": None, "starts": [0, 5], "ends": [4, 8], "upos": ["NOUN", "VERB"],
            "xpos": None, "deprels": ["root", "dep"], "governors": [-1, 0], "lemmas": None, "feats": None, "constituency": None,
        },
    }  # fmt: skip
    read = [Sentence.from_dict(annotation) for row in done for annotation in parts_of(row["syntax"])]
    assert read == TableAnnotator().annotate(TEXTS)


def test_pairs_have_two():
    pairs = Dataset.from_dict({"premise": TEXTS, "hypothesis": ["the cat purrs", "cats"]})
    done = sf.annotate_dataset(pairs, ("premise", "hypothesis"), TableAnnotator())
    said = [[annotation["text"] for annotation in row["syntax"]] for row in done]
    assert said == [["the cat sat .", "the cat purrs"], ["cats sit", "cats"]]
    assert sf.annotate_dataset(done, ("premise", "hypothesis"), TableAnnotator()) is done
    twice = sf.annotate_dataset(pairs, ("premise", "premise"), TableAnnotator())
    assert [[annotation["text"] for annotation in row["syntax"]] for row in twice] == [[t, t] for t in TEXTS]


def test_it_stays_through_what_datasets_does(tmp_path):
    parts = DatasetDict(train=rows(), dev=rows(["cats"]))
    done = sf.annotate_dataset(parts, "sentence", TableAnnotator())
    assert isinstance(done, DatasetDict)
    done.save_to_disk(tmp_path / "stored")
    read = load_from_disk(tmp_path / "stored")
    mapped = read.map(lambda row: {"length": len(row["syntax"]["starts"])}).shuffle(seed=1)
    assert sorted(mapped["train"]["length"]) == [2, 4]
    assert read["train"].features == done["train"].features
    annotator = Counting()
    again = sf.annotate_dataset(read, "sentence", annotator)
    assert annotator.seen == []
    assert again["dev"][0] == done["dev"][0]
    tensors = read["train"].with_format("torch")[0]["syntax"]
    assert Sentence.from_dict(tensors) == TableAnnotator().annotate(TEXTS)[0]


def test_only_rows_that_this_annotator_has_not_annotated_are_annotated(tmp_path, monkeypatch):
    monkeypatch.setenv("SYNTAXFORMER_CACHE", str(tmp_path))
    done = sf.annotate_dataset(rows(), "sentence", Counting("3"))
    grown = concatenate_datasets([rows(["the cat"]), done, rows(["purrs"])])
    annotator = Counting("3")
    again = sf.annotate_dataset(grown, "sentence", annotator)
    assert annotator.seen == ["the cat", "purrs"]
    assert [row["syntax"]["text"] for row in again] == ["the cat", *TEXTS, "purrs"]
    changed = done.map(lambda row: {"sentence": row["sentence"].replace("cats", "cat")})
    annotator = Counting("3")
    sf.annotate_dataset(changed, "sentence", annotator)
    assert annotator.seen == ["cat sit"]
    annotator = Counting("4")
    newer = sf.annotate_dataset(done, "sentence", annotator)
    assert annotator.seen == TEXTS
    assert newer[0]["syntax"]["annotator"] == "table 4"


def test_rows_without_text():
    annotator = Counting()
    for texts, message in (
        (["a", None, "", "b"], r"got None in row 1, 2 \(from 0; 2 in all\)"),
        (["a", " \n"], r"got ' \\n' in row 1 \(from 0; 1 in all\)"),
        ([""] * 9, r"got '' in row 0, 1, 2, 3, 4, … \(from 0; 9 in all\)"),
    ):
        with pytest.raises(DataError, match=f"^dev, column 'sentence': .*{message}"):
            sf.annotate_dataset(DatasetDict(train=rows(), dev=rows(texts)), "sentence", annotator)
    assert annotator.seen == [], "all parts are looked at before any is annotated"
    pairs = Dataset.from_dict({"premise": TEXTS, "hypothesis": [3, 4]})
    with pytest.raises(DataError, match=r"^column 'hypothesis': .*got 3 in row 0, 1 "):
        sf.annotate_dataset(pairs, ("premise", "hypothesis"), TableAnnotator())


def test_a_column_a_data_set_and_an_annotator_that_are_none():
    with pytest.raises(DataError, match=r"^text: expected a column .*, got 'sentnce'\. Nearest: sentence\.$"):
        sf.annotate_dataset(rows(), "sentnce", TableAnnotator())
    with pytest.raises(TypeError, match=r"^dataset: .*got list"):
        sf.annotate_dataset([{"text": "a"}])
    stream, both = rows().to_iterable_dataset(), DatasetDict(dev=rows())
    refused = [(rows(), "remove_columns"), (both, "cache_file_name"), (stream, "desc"), (stream, "num_proc")]
    for dataset, option in refused:
        with pytest.raises(TypeError, match=f"^{option}: expected options of map"):
            sf.annotate_dataset(dataset, "sentence", TableAnnotator(), **{option: 1})
    with pytest.raises(ConfigError, match=r"^annotator: expected de, "):
        sf.annotate_dataset(rows(), "sentence", "englsh")


@pytest.mark.parametrize("column", [["a", "b"], "of pairs"])
def test_a_column_of_that_name_that_is_another(column):
    dataset = rows(syntax=column) if isinstance(column, list) else rows(other=TEXTS)
    if column == "of pairs":
        dataset = sf.annotate_dataset(dataset, ("sentence", "other"), TableAnnotator())
    with pytest.raises(DataError, match=r"^column 'syntax': "):
        sf.annotate_dataset(dataset, "sentence", TableAnnotator())


def test_an_empty_set():
    done = sf.annotate_dataset(rows([]), "sentence", TableAnnotator())
    full = sf.annotate_dataset(rows(), "sentence", TableAnnotator())
    assert (len(done), done.features["syntax"]) == (0, full.features["syntax"])


def test_each_part_has_its_parsed_file(tmp_path):
    for split, word in (("train", "cats"), ("dev", "dogs")):
        (tmp_path / f"{split}.conllu").write_text(
            f"# text = {word}\n1\t{word}\t_\tNOUN\t_\t_\t0\troot\t_\t_\n\n"
        )
    parts = DatasetDict(train=rows(["cats"]), dev=rows(["dogs"]))
    done = sf.annotate_dataset(parts, "sentence", f"conllu:{tmp_path}/{{split}}.conllu")
    assert done["dev"][0]["syntax"]["upos"] == ["NOUN"]
    assert done["dev"][0]["syntax"]["text"] == "dogs"


def test_what_map_takes_and_its_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SYNTAXFORMER_CACHE", str(tmp_path / "cache"))
    rows().save_to_disk(tmp_path / "stored")
    shown = []
    before = Dataset.map
    monkeypatch.setattr(Dataset, "map", lambda self, *a, **how: shown.append(how) or before(self, *a, **how))
    options = {"batch_size": 1, "desc": "parsing", "cache_file_name": str(tmp_path / "done.arrow")}
    first = sf.annotate_dataset(
        load_from_disk(tmp_path / "stored"), "sentence", Counting("3"), num_proc=1, **options
    )
    assert {name: shown[0][name] for name in options} == options
    monkeypatch.setenv("SYNTAXFORMER_CACHE", str(tmp_path / "another"))
    for version, seen in (("3", []), ("4", TEXTS)):  # the fingerprint depends on the annotator
        annotator, more = Counting(version), {} if version == "4" else options
        again = sf.annotate_dataset(load_from_disk(tmp_path / "stored"), "sentence", annotator, **more)
        assert annotator.seen == seen
    assert first[1]["syntax"]["upos"] == again[1]["syntax"]["upos"]
    annotator = Counting("3")
    sf.annotate_dataset(
        load_from_disk(tmp_path / "stored"), "sentence", annotator, load_from_cache_file=False
    )
    assert annotator.seen == TEXTS


@pytest.mark.parametrize("known", [True, False])
def test_a_stream_is_annotated_as_it_is_read(known):
    read = []

    def texts():
        for text in [*TEXTS, "cats", "purrs"]:
            read.append(text)
            yield {"sentence": text}

    annotator = Counting()
    stream = IterableDataset.from_generator(
        texts, features=Features({"sentence": Value("string")}) if known else None
    )
    done = sf.annotate_dataset(stream, "sentence", annotator, batch_size=2)
    assert (read, annotator.seen) == ([], [])
    row = next(iter(done))
    assert read == annotator.seen == TEXTS
    assert row["syntax"] == sf.annotate_dataset(rows(), "sentence", TableAnnotator())[0]["syntax"]
    assert [row["syntax"]["text"] for row in done] == [*TEXTS, "cats", "purrs"]
    pairs = sf.annotate_dataset(IterableDatasetDict(dev=stream), ("sentence", "sentence"), annotator)["dev"]
    assert [annotation["text"] for annotation in next(iter(pairs))["syntax"]] == [TEXTS[0]] * 2
    broken = IterableDataset.from_generator(lambda: iter([{"sentence": "a"}] * 3 + [{"sentence": " "}]))
    with pytest.raises(DataError, match=r"column 'sentence': .*got ' ' in row 3 "):
        list(sf.annotate_dataset(broken, "sentence", annotator, batch_size=2))
    with pytest.raises(DataError, match=r"^text: expected a column .*, got 'text'"):
        list(sf.annotate_dataset(broken, "text", annotator))
