"""Scores of given translations by translators that began as pretrained ones, with their codes and first pieces."""

from __future__ import annotations

import pytest
import torch

from parallel_files import write_sides
from pretrained_translators import everyday_pairs, make_translator
from syntaxformer.translation.model import shift_right
from syntaxformer.translation.recipe import load_recipe
from syntaxformer.translation.source import encode_pieces
from syntaxformer.translation.training import train_translator
from syntaxformer.translation.translator import Translator

SETTINGS = (
    "data.dev=dev", "training.max_steps=1", "training.eval_every=1", "training.max_batch_tokens=300", "data.max_pieces=100",
    "training.precision=fp32", "training.tensorboard=false", "training.best_by=loss", "decoding.max_length_factor=0.5",
    "infusion.kind=none", "decoding.beam_size=3",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["marian", "mbart", "bart", "t5", "nllb"])
def test_scores_are_those_of_labels_and_of_the_search(tmp_path, kind):
    for split, pairs in (("train", everyday_pairs(24)), ("dev", everyday_pairs(32)[24:])):
        write_sides(tmp_path, *zip(*pairs, strict=True), split)
    start = make_translator(kind, tmp_path / "start")
    where = (f"model.init_from={start}", f"data.dir={tmp_path}", f"output={tmp_path / 'run'}")
    train_translator(load_recipe("finetune_translator", [*where, *SETTINGS]))
    translator = Translator.load(tmp_path / "run", device="cpu")
    lines, texts = zip(*everyday_pairs(5), strict=True)
    first = translator.model.generation_config.forced_bos_token_id
    for score, line, text in zip(translator.score(lines, texts), lines, texts, strict=True):
        (labels,) = encode_pieces(translator.encoder.target_tokenizer, [text])
        ids = torch.tensor([labels.ids])
        with torch.inference_mode():
            source = torch.from_numpy(translator.encode([line]).pieces).long()[None]
            read = shift_right(ids, translator.model.config)  # as in training; mBART's own shift differs
            log_probs = translator.model(input_ids=source, decoder_input_ids=read).logits.log_softmax(-1)
        expected = log_probs.gather(-1, ids[..., None])[0, :, 0].tolist()
        expected[0] = expected[0] if first is None else 0.0
        assert score[0].log_probs == pytest.approx(expected, abs=1e-5)
    n_same = 0
    for line, best in zip(lines, translator.translate(lines, n_best=3, scored=True), strict=True):
        (scores,) = translator.score([line], [[each.text for each in best]])
        for hypothesis, score in zip(best, scores, strict=True):
            ids = translator.encoder.target_tokenizer.convert_tokens_to_ids(list(score.pieces))
            if ids == list(hypothesis.pieces):
                assert score.mean == pytest.approx(hypothesis.score, abs=1e-5)
                n_same += 1
    assert n_same or kind != "t5"
