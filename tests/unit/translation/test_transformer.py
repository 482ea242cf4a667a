"""The translation model: parameter counts by hand, tying, loss, padding, beams, round trip."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from syntaxformer.nn import INFUSION_KINDS, plan_widths
from syntaxformer.translation.model import CACHE, SyntaxTransformer, SyntaxTransformerConfig, TranslationCache

V, D, FF, HEADS, N_ENC, N_DEC = 53, 28, 31, 2, 2, 3
SIZES = {"pos": 20, "case": 4, "subword": 6}


def _model(kind: str = "none", **settings: object) -> SyntaxTransformer:
    torch.manual_seed(7)
    plan = plan_widths(
        kind, D, width=5, widths={"pos": 3, "case": 1, "subword": 1} if kind == "concat" else None
    )
    shape = {"d_model": D, "d_ff": FF, "n_heads": HEADS, "encoder_layers": N_ENC, "decoder_layers": N_DEC}
    config = SyntaxTransformerConfig(
        vocab_size=V, infusion=plan.as_dict(), factor_sizes=SIZES, **{**shape, **settings}
    )
    return SyntaxTransformer(config).eval()


def _batch(kind: str = "none", src: int = 11, tgt: int = 5, batch: int = 3) -> dict[str, torch.Tensor]:
    torch.manual_seed(2)
    inputs = {"input_ids": torch.randint(4, V, (batch, src)), "labels": torch.randint(4, V, (batch, tgt))}
    n_factors = len(INFUSION_KINDS[kind].default_factors)
    if n_factors:
        inputs["factor_ids"] = torch.randint(0, 4, (batch, src, n_factors))
    return inputs


def _n_parameters(kind: str) -> int:
    """By hand: attention 4(D² + D), feed-forward 2·D·FF + FF + D, a norm 2D; tables as the kind says."""
    attention, feed_forward, norm = 4 * (D * D + D), 2 * D * FF + FF + D, 2 * D
    layers = N_ENC * (attention + feed_forward + 2 * norm) + N_DEC * (2 * attention + feed_forward + 3 * norm)
    tables = {
        "none": V * D,  # source, target and output share one
        "add": V * D + 20 * D,
        "concat": V * D + V * (D - 5) + 20 * 3 + 4 + 6,
        "concat_pos": V * D + V * (D - 5) + 20 * 5,
        "sum_then_concat": V * D + V * (D - 5) + (20 + 4 + 6) * 5,
    }
    return layers + 2 * norm + tables[kind]


@pytest.mark.parametrize("kind", ["none", "add", "concat", "concat_pos", "sum_then_concat"])
def test_parameter_counts(kind: str) -> None:
    assert sum(parameter.numel() for parameter in _model(kind).parameters()) == _n_parameters(kind)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_loss_is_cross_entropy_per_piece(norm: str) -> None:
    model, batch = _model(norm=norm), _batch()
    batch["labels"][1, 3:] = -100
    output = model(**batch)
    picked = output.logits.log_softmax(-1).gather(-1, batch["labels"].clamp(min=0)[..., None])[..., 0]
    torch.testing.assert_close(output.loss, -picked[batch["labels"] >= 0].mean())
    torch.testing.assert_close(model(**batch, num_items_in_batch=2).loss, output.loss * 13 / 2)


def test_smoothing_in_training_only() -> None:
    model, batch = _model(label_smoothing=0.1, dropout=0.0, attention_dropout=0.0), _batch()
    plain = model(**batch)
    smoothed = model.train()(**batch).loss
    logs = plain.logits.log_softmax(-1)
    torch.testing.assert_close(smoothed, 0.9 * plain.loss - 0.1 * logs.mean())


def test_padding_has_no_influence() -> None:
    model, batch = _model("sum_then_concat"), _batch("sum_then_concat")
    alone = model(
        **{name: tensor[:1, :7] if name != "labels" else tensor[:1] for name, tensor in batch.items()}
    ).logits
    batch["attention_mask"] = torch.ones(3, 11, dtype=torch.long)
    batch["attention_mask"][0, 7:] = 0
    torch.testing.assert_close(model(**batch).logits[0], alone[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["past_key_values", "cache"])
def test_a_cache_is_taken_under_its_old_name_and_its_new_one(name: str) -> None:
    model, batch = _model(), _batch()
    first, cache = (
        {"input_ids": batch["input_ids"], "decoder_input_ids": torch.tensor([[2]] * 3)},
        TranslationCache(),
    )
    whole = model(**first | {"decoder_input_ids": torch.tensor([[2, 5]] * 3)}).logits
    assert model(**first, **{name: cache})[CACHE] is cache
    step = model(**first | {"decoder_input_ids": torch.tensor([[5]] * 3)}, **{name: cache}).logits
    torch.testing.assert_close(step[:, 0], whole[:, 1])


def test_a_cache_of_fixed_length_is_refused() -> None:
    """Its empty slots would be attended to."""
    with pytest.raises(ValueError, match=r"^past_key_values: expected a cache that grows, got one of fixed"):
        _model().generate(input_ids=_batch()["input_ids"], cache_implementation="static", max_new_tokens=6)


@pytest.mark.parametrize("kind", ["none", "sum_then_concat"])
def test_save_and_load(kind: str, tmp_path: Path) -> None:
    model, batch = _model(kind), _batch(kind)
    model.save_pretrained(tmp_path)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".json", ".safetensors"]
    again = SyntaxTransformer.from_pretrained(tmp_path).eval()
    torch.testing.assert_close(again(**batch).logits, model(**batch).logits, atol=0, rtol=0)
    tied = again.encoder.embedding.word.weight is again.decoder.embedding.weight
    assert tied == (kind == "none")
    assert again.output.weight is again.decoder.embedding.weight


def test_glorot_bounds() -> None:
    model = _model("sum_then_concat")
    layer = model.encoder.layers[0]
    for weight, bound in (
        (layer.self_attention.query_key_value.weight, math.sqrt(6 / (2 * D))),
        (layer.feed_forward.inner.weight, math.sqrt(6 / (D + FF))),
        (model.encoder.embedding.factors["pos"].weight, math.sqrt(6 / (V + 5))),
    ):
        assert 0.8 * bound < float(weight.detach().abs().max()) <= bound
    assert float(model.encoder.embedding.word.weight[0].detach().abs().max()) == 0


@pytest.mark.parametrize("times", [2, 3])
def test_only_projections_of_attention_begin_as_one_of_several(times: int) -> None:
    """A position-wise network of two or three times the width has the bound of its own shape."""
    torch.manual_seed(5)
    config = SyntaxTransformerConfig(
        vocab_size=V, d_model=28, d_ff=times * 28, n_heads=2, encoder_layers=1, decoder_layers=1
    )
    layer = SyntaxTransformer(config).decoder.layers[0]
    for weight, bound in (
        (layer.feed_forward.inner.weight, math.sqrt(6 / (28 + times * 28))),
        (layer.self_attention.query_key_value.weight, math.sqrt(6 / (28 + 28))),
        (layer.cross_attention.key_value.weight, math.sqrt(6 / (28 + 28))),
        (layer.cross_attention.query.weight, math.sqrt(6 / (28 + 28))),
    ):
        assert 0.98 * bound < float(weight.detach().abs().max()) <= bound


@pytest.mark.parametrize("n_pieces", [1009, 4001])
def test_one_hot_tags_begin_on_the_scale_of_words(n_pieces: int, tmp_path: Path) -> None:
    """Word part W e: σ_W √d σ_e, where σ_W ≈ 1/√d; tag part: a column of W."""
    torch.manual_seed(5)
    plan = plan_widths("onehot_concat", 256)
    model = SyntaxTransformer(
        SyntaxTransformerConfig(
            vocab_size=n_pieces, d_model=256, d_ff=31, n_heads=2, encoder_layers=1, decoder_layers=1,
            infusion=plan.as_dict(), factor_sizes={"pos": 20},
        )
    )  # fmt: skip
    embedding = model.encoder.embedding
    weight = embedding.map.weight.detach()
    words, tags = embedding.word.weight[1:].detach() @ weight[:, :256].T, weight[:, 256:]
    assert float(tags.std() / words.std()) == pytest.approx(1, abs=0.1)
    assert float(weight[:, :256].abs().max()) > 0.9 * math.sqrt(6 / (256 + 276))
    model.save_pretrained(tmp_path)
    torch.testing.assert_close(
        SyntaxTransformer.from_pretrained(tmp_path).encoder.embedding.map.weight, weight
    )


@pytest.mark.parametrize(
    ("keyword", "value"),
    [
        ("token_type_ids", torch.ones(3, 11, dtype=torch.long)),
        ("decoder_inputs_embeds", torch.ones(3, 5, D)),
        ("decoder_attention_mask", torch.tensor([[1, 1, 1, 0, 0]] * 3)),
        ("inputs_embeds", torch.ones(3, 11, D)),
    ],
)
def test_keywords_that_would_change_the_result_are_refused(keyword: str, value: object) -> None:
    model, batch = _model(), _batch()
    with pytest.raises(ValueError, match=keyword):
        model(**batch, **{keyword: value})
    assert model(**batch, **{keyword: None}).loss is not None
