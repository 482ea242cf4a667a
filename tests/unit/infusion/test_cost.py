"""What is measured of an infusion: against numbers that can be worked out by hand."""

from __future__ import annotations

import pytest
import transformers as hf

import tiny_hosts
from syntaxformer.base.errors import ConfigError
from syntaxformer.infusion import cost
from syntaxformer.infusion.config import InfusionConfig
from syntaxformer.nn import plan_widths
from syntaxformer.translation.model import SyntaxTransformerConfig

BERT = hf.BertConfig(**tiny_hosts.BERT)
TASKS = {
    "target_pos": {"tags": ["a", "b", "c"], "weight": 0.5},
    "parse_task": {"labels": list("vwxyz"), "weight": 1.0},
}


def _translator(**sections):
    plan = plan_widths("sum_then_concat", 22, width=5)
    return SyntaxTransformerConfig(
        vocab_size=31, d_model=22, n_heads=2, d_ff=29, encoder_layers=2, decoder_layers=1, infusion=plan.as_dict(),
        factor_sizes={"pos": 13, "case": 4, "subword": 6}, **sections,
    )  # fmt: skip


def test_parameters_by_part_of_an_encoder():
    plain, infused = cost.twins(BERT, InfusionConfig.parse("masks,lisa"))
    counts = cost.parameter_counts(infused, plain)
    topical, lisa = 2 * 22 * 22 + 22, 11 * 11  # W_K, W_V and q, and U of the last layer
    assert counts == {
        "backbone": plain.num_parameters(), "topical attention": topical, "gates": 2, "LISA": lisa,
        "added in all": topical + 2 + lisa,
    }  # fmt: skip
    assert "1.0 million" in cost.parameter_report(infused, plain)


def test_parameters_of_added_tasks_are_no_source_words():
    plain, infused = cost.twins(_translator(lisa={}, **TASKS), InfusionConfig())
    words = 31 * 17 + (13 + 4 + 6) * 5  # a source table of 22 - 5 columns, and one for each factor
    tasks = 3 * 22 + 3 + 5 * 22
    assert cost.parameter_counts(infused, plain) == {
        "backbone": plain.num_parameters(), "LISA": 121, "target tags and parses": tasks,
        "source words and factors": words, "added in all": 121 + tasks + words,
    }  # fmt: skip
    assert plain.config.width_plan.kind == "none"
    alone = cost.parameter_counts(infused)
    assert alone["added in all"] == 121 + tasks
    assert "source words and factors" not in alone


def test_models_that_take_no_syntax_are_refused():
    with pytest.raises(ConfigError, match="got the decoder-only GPT2"):
        cost.twins(
            hf.GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=11, bos_token_id=1, eos_token_id=1),
            InfusionConfig.parse("masks"),
        )
    with pytest.raises(ConfigError, match=r"^model: expected a supported encoder, got one of the kind 'vit'"):
        cost.twins(hf.ViTConfig(), InfusionConfig.parse("masks"))
