"""Natural-language inference outside GLUE, as data: SNLI, SICK. Their tree columns are used as constituency.

Source: Bowman et al. (2015); Marelli et al. (2014).
"""

from __future__ import annotations

from syntaxformer.encoders.task_table import Task

__all__ = ["NLI_TASKS"]

_LABELS = ("entailment", "neutral", "contradiction")
_PAIR = (("sentence1", "premise"), ("sentence2", "hypothesis"))
_TREES = (("sentence1_parse", "sentence1_binary_parse"), ("sentence2_parse", "sentence2_binary_parse"))
_SICK_PAIR = (("sentence1", "sentence_A"), ("sentence2", "sentence_B"))
_SICK_FILES = {
    "train": ("train.jsonl", "SICK_train.txt"),
    "dev": ("trial.jsonl", "SICK_trial.txt"),
    "test": ("test.jsonl", "SICK_test_annotated.txt"),
}


def _snli_files(split: str, *more: str) -> tuple[str, ...]:
    return (f"snli_1.0_{split}.jsonl", f"snli_1.0_{split}.txt", f"{split}.tsv", *more)


NLI_TASKS = (
    Task(
        name="snli",
        title="SNLI",
        labels=_LABELS,
        metrics=("accuracy",),
        texts=_PAIR,
        label=("gold_label", "label"),
        trees=_TREES,
        index=("pairID", "index", "idx"),
        no_label=("-",),
        tolerant=True,
        files={
            "train": _snli_files("train"),
            "dev": _snli_files("dev", "dev.noparse.jsonl"),
            "test": _snli_files("test", "test.noparse_lc_nopunct.jsonl"),
        },
    ),
    Task(
        name="sick",
        title="SICK",
        labels=_LABELS,
        metrics=("accuracy",),
        texts=_SICK_PAIR,
        label=("gold_label", "entailment_judgment", "entailment_label", "label"),
        trees=_TREES,
        files=_SICK_FILES,
        aliases=("sick-e",),
    ),
    Task(
        name="sick_relatedness",
        title="SICK-R",
        labels=None,
        metrics=("pearson", "spearman"),
        texts=_SICK_PAIR,
        label=("relatedness", "relatedness_score"),
        trees=_TREES,
        files=_SICK_FILES,
        score_range=(1.0, 5.0),
        aliases=("sick-r",),
    ),
)
