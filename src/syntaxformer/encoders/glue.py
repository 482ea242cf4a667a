"""The tasks of the GLUE benchmark as data: files, columns, labels, metrics, submission files.

Source: Wang et al. (2018); file layouts as GLUE distributes them.
"""

from __future__ import annotations

from syntaxformer.encoders.task_table import Task

__all__ = ["GLUE_TASKS"]

_SPLITS = {"train": ("train.tsv",), "dev": ("dev.tsv",), "test": ("test.tsv",)}
_TWO = (("sentence1", "premise"), ("sentence2", "hypothesis"))
_ENTAILMENT = ("entailment", "not_entailment")
_COLA = ("source", "label", "star", "sentence")

_MNLI = Task(
    name="mnli",
    title="MNLI",
    labels=("entailment", "neutral", "contradiction"),
    metrics=("accuracy",),
    texts=_TWO,
    label=("gold_label", "label"),
    trees=(("sentence1_parse", "sentence1_binary_parse"), ("sentence2_parse", "sentence2_binary_parse")),
    no_label=("-",),
    files={
        "train": ("train.tsv", "multinli_1.0_train.jsonl", "multinli_1.0_train.txt"),
        "dev": (
            "dev_matched.tsv",
            "multinli_1.0_dev_matched.jsonl",
            "multinli_1.0_dev_matched.txt",
            "dev_matched.noparse.jsonl",
        ),
        "dev_mismatched": (
            "dev_mismatched.tsv",
            "multinli_1.0_dev_mismatched.jsonl",
            "multinli_1.0_dev_mismatched.txt",
        ),
        "test": ("test_matched.tsv",),
        "test_mismatched": ("test_mismatched.tsv",),
        "diagnostic": ("diagnostic.tsv", "../diagnostic/diagnostic.tsv"),
    },
    submission={"test": "MNLI-m.tsv", "test_mismatched": "MNLI-mm.tsv", "diagnostic": "AX.tsv"},
    aliases=("mnli-m",),
)

GLUE_TASKS = (
    Task(
        name="cola",
        title="CoLA",
        labels=("0", "1"),
        metrics=("matthews",),
        texts=(("sentence",),),
        files={
            "train": ("train.tsv", "in_domain_train.tsv"),
            "dev": ("dev.tsv", "in_domain_dev.tsv"),
            "test": ("test.tsv",),
        },
        headerless={"train": _COLA, "dev": _COLA},
        submission={"test": "CoLA.tsv"},
    ),
    Task(
        name="sst2",
        title="SST-2",
        labels=("0", "1"),
        metrics=("accuracy",),
        texts=(("sentence",),),
        files=_SPLITS,
        submission={"test": "SST-2.tsv"},
    ),
    Task(
        name="mrpc",
        title="MRPC",
        labels=("0", "1"),
        metrics=("f1", "accuracy"),
        texts=(("#1 String", "sentence1"), ("#2 String", "sentence2")),
        label=("Quality", "label"),
        files={
            "train": ("train.tsv", "msr_paraphrase_train.txt"),
            "dev": ("dev.tsv",),
            "test": ("test.tsv",),
            "test_labeled": ("test_labeled.tsv", "msr_paraphrase_test.txt"),
        },
        submission={"test": "MRPC.tsv"},
    ),
    Task(
        name="stsb",
        title="STS-B",
        labels=None,
        metrics=("pearson", "spearman"),
        texts=_TWO,
        label=("score", "label"),
        files=_SPLITS,
        score_range=(0.0, 5.0),
        submission={"test": "STS-B.tsv"},
    ),
    Task(
        name="qqp",
        title="QQP",
        labels=("0", "1"),
        metrics=("f1", "accuracy"),
        texts=(("question1",), ("question2",)),
        label=("is_duplicate", "label"),
        files=_SPLITS,
        tolerant=True,
        submission={"test": "QQP.tsv"},
    ),
    _MNLI,
    Task(
        name="qnli",
        title="QNLI",
        labels=_ENTAILMENT,
        metrics=("accuracy",),
        texts=(("question",), ("sentence",)),
        files=_SPLITS,
        submission={"test": "QNLI.tsv"},
    ),
    Task(
        name="rte",
        title="RTE",
        labels=_ENTAILMENT,
        metrics=("accuracy",),
        texts=_TWO,
        files=_SPLITS,
        submission={"test": "RTE.tsv"},
    ),
    Task(
        name="wnli",
        title="WNLI",
        labels=("0", "1"),
        metrics=("accuracy",),
        texts=_TWO,
        files=_SPLITS,
        submission={"test": "WNLI.tsv"},
    ),
)
