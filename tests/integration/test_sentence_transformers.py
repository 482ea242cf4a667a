"""An infused encoder inside sentence-transformers: the vectors of a plain one while its gates are closed, saved, loaded,
in a new process, and trained by its trainer."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

import syntaxformer as sf
from syntaxformer.base.errors import ConfigError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true:UserWarning"),
]

TEXTS = [
    "A man plays the guitar.",
    "",
    " \r\n",
    "Zwei Hunde — spielen!",
    "a b " * 300,
    "Nobody doesn't like it.",
]
PROMPTS = {"query": "query: "}


@pytest.fixture(scope="module")
def checkpoint(minilm):
    return str(minilm)


@pytest.fixture(scope="module")
def plain(checkpoint):
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(checkpoint, device="cpu")


def infused(checkpoint, infuse, **options):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

    model = AutoModel.from_pretrained(checkpoint)
    model = model if infuse == "none" else sf.infuse(model, infuse)
    collator = sf.SyntaxCollator(
        AutoTokenizer.from_pretrained(checkpoint), model, annotator="en+phrases", max_length=256
    )
    modules = [sf.SyntaxEncoder(model, collator), Pooling(384, **options), Normalize()]
    return SentenceTransformer(modules=modules, device="cpu", trust_remote_code=True, prompts=PROMPTS)


def largest(first, second):
    return float(np.abs(np.asarray(first) - np.asarray(second)).max())


@pytest.mark.parametrize("infuse", ["none", "masks,relation_bias,pos_add", "lisa,pos_concat"])
def test_vectors_are_those_of_the_plain_encoder(checkpoint, plain, tmp_path, infuse):
    from sentence_transformers import SentenceTransformer

    model, expected = infused(checkpoint, infuse), plain.encode(TEXTS)
    assert largest(model.encode(TEXTS), expected) <= 1e-6
    assert model[0].collator.n_truncated == 1
    prompted = model.encode(TEXTS, prompt_name="query"), plain.encode(TEXTS, prompt="query: ")
    assert largest(*prompted) <= 1e-6
    model.save(str(tmp_path / "own"))
    with pytest.raises(ValueError, match="trust_remote_code=True"):
        SentenceTransformer(str(tmp_path / "own"), device="cpu")
    loaded = SentenceTransformer(str(tmp_path / "own"), device="cpu", trust_remote_code=True)
    assert largest(loaded.encode(TEXTS), expected) <= 1e-6
    assert (loaded.prompts["query"], loaded.max_seq_length) == ("query: ", 256)
    with pytest.raises(ConfigError, match=r"^model_kwargs: expected .*, got dtype"):
        SentenceTransformer(str(tmp_path / "own"), trust_remote_code=True, model_kwargs={"dtype": "bfloat16"})


def test_a_trained_encoder_is_the_same_in_a_new_process(checkpoint, tmp_path):
    """Trained by the trainer of sentence-transformers, whose losses also merge columns and cut padding off."""
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer.losses import (
        CachedMultipleNegativesRankingLoss,
        CoSENTLoss,
    )

    model = infused(checkpoint, "masks,pos_add")
    before = model.encode(TEXTS)
    firsts, seconds = (
        ["A man plays.", "A small dog barks loudly."] * 4,
        ["Music is played here.", "A cat."] * 4,
    )
    rows = Dataset.from_dict({"sentence1": firsts, "sentence2": seconds, "score": [0.9, 0.1] * 4})
    cached = CachedMultipleNegativesRankingLoss(model, mini_batch_size=2)
    for name, loss, columns in (("a", CoSENTLoss(model), [*rows.column_names]), ("b", cached, ["sentence1", "sentence2"])):  # fmt: skip
        arguments = SentenceTransformerTrainingArguments(
            str(tmp_path / name), max_steps=2, per_device_train_batch_size=4, learning_rate=1e-3, report_to="none",
            use_cpu=True, disable_tqdm=True, save_steps=1,
        )  # fmt: skip
        trainer = SentenceTransformerTrainer(model, arguments, train_dataset=rows.select_columns(columns), loss=loss)  # fmt: skip
        trainer.train()
    after = model.encode(TEXTS)
    assert largest(after, before) > 1e-3
    gates = [gate().abs().max().item() for gate in model[0].model.infusion.gates.values()]
    assert min(gates) > 0
    trainer.train(resume_from_checkpoint=str(tmp_path / "b" / "checkpoint-2"))
    folder = str(tmp_path / "b" / "checkpoint-2")
    loaded = SentenceTransformer(folder, device="cpu", trust_remote_code=True)
    assert largest(loaded.encode(TEXTS), after) <= 1e-6
    script = (
        "import sys, numpy; from sentence_transformers import SentenceTransformer as S\n"
        "model = S(sys.argv[1], device='cpu', trust_remote_code=True)\n"
        "numpy.save(sys.argv[2], model.encode(eval(sys.argv[3])))"
    )
    new = str(tmp_path / "new.npy")
    subprocess.run([sys.executable, "-c", script, folder, new, repr(TEXTS)], check=True)
    assert largest(np.load(new), after) <= 1e-6
    states = sf.pipeline(folder, "feature-extraction", device="cpu")(TEXTS)
    means = torch.stack([torch.tensor(of_text[0]).mean(0) for of_text in states])
    assert largest(torch.nn.functional.normalize(means), after) <= 1e-6


def test_what_people_do_with_vectors(checkpoint):
    from sentence_transformers.util import semantic_search

    model = infused(checkpoint, "relation_bias,pos_add", include_prompt=False)
    corpus = ["A man is eating food.", "A monkey plays drums.", "The girl carries a baby."]
    vectors = model.encode(corpus)
    (hits,) = semantic_search(model.encode(["Someone makes music."]), vectors, top_k=2)
    assert hits[0]["corpus_id"] == 1
    assert model.similarity(vectors, vectors).diagonal().tolist() == pytest.approx([1.0] * 3, abs=1e-5)
    batch = model.preprocess(corpus, prompt="query: ")
    assert batch["prompt_length"] == 3  # [CLS] query :
    pool = model.start_multi_process_pool(["cpu", "cpu"])
    assert largest(model.encode(corpus * 2, pool=pool), np.vstack([vectors, vectors])) <= 1e-5
    model.stop_multi_process_pool(pool)
    with pytest.raises(TypeError, match=r"^texts: expected strings, got tuple"):
        model.encode([("a", "b")])
