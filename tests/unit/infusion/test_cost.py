"""What is measured of an infusion: against numbers that can be worked out by hand."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
import torch
import transformers as hf

import syntaxformer as sf
import tiny_hosts
from syntaxformer.base.errors import ConfigError
from syntaxformer.infusion import cost
from syntaxformer.infusion.config import InfusionConfig
from syntaxformer.nn import plan_widths
from syntaxformer.translation.model import SyntaxTransformerConfig

BERT = hf.BertConfig(**tiny_hosts.BERT)
MEASURED = runpy.run_path(str(Path(__file__).parents[3] / "benchmarks" / "infusion_cost.py"))
CPU = torch.device("cpu")
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


def test_where_nothing_is_infused():
    plain, same = cost.twins(BERT, InfusionConfig())
    with pytest.raises(ConfigError, match=r"^model: expected an infused one, got a plain Bert"):
        cost.parameter_counts(same, plain)
    with pytest.raises(ConfigError, match=r"^model:"):
        sf.parameter_report(plain)
    bare = _translator()
    bare.update({"infusion": None, "factor_sizes": None})
    plain, same = cost.twins(bare, InfusionConfig())
    assert cost.parameter_report(same, plain).split() == ["backbone", f"{plain.num_parameters():,}"]


def test_models_that_take_no_syntax_are_refused():
    with pytest.raises(ConfigError, match="got the decoder-only GPT2"):
        cost.twins(
            hf.GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=11, bos_token_id=1, eos_token_id=1),
            InfusionConfig.parse("masks"),
        )
    with pytest.raises(ConfigError, match=r"^model: expected a supported encoder, got one of the kind 'vit'"):
        cost.twins(hf.ViTConfig(), InfusionConfig.parse("masks"))


def test_a_checkpoint(monkeypatch, tmp_path, capsys):
    BERT.save_pretrained(tmp_path)
    arguments = ["--infuse", "masks,lisa", "--pieces", "5", "7", "--rounds", "1", "--device", "cpu"]
    monkeypatch.setattr(sys, "argv", ["x", str(tmp_path), *arguments])
    MEASURED["main"]()
    lines = capsys.readouterr().out.splitlines()
    assert "topical attention" in lines[1]
    rows = [line for line in lines if " x " in line][1:]
    assert [row.split()[:3] for row in rows] == [["102", "x", "5"]] * 3 + [["73", "x", "7"]] * 3
    plain, infused, times = map(float, rows[2].split()[-3:])  # peak memory does not vary
    assert times == pytest.approx(infused / plain, rel=0.05)  # of printed, rounded figures
    assert infused > plain > 0


def test_a_step_learns_the_added_tasks_and_use_does_not():
    _, infused = cost.twins(_translator(**TASKS), InfusionConfig())
    batch = MEASURED["random_batch"](infused, 3, 7)
    assert {name: (labels.shape, int(labels.max())) for name, labels in batch.items() if name in ("target_tags", "parse")} == {
        "target_tags": ((3, 7), 2), "parse": ((3, 14), 4),
    }  # fmt: skip
    work, seen = MEASURED["Work"](infused, batch, torch.float32), []
    infused.register_forward_hook(lambda *called: seen.append(called[-1].tallies))
    work.step()
    work.use()
    assert [set(tallies or ()) for tallies in seen] == [{"target_pos_accuracy", "parse_accuracy"}, set()]


@pytest.mark.parametrize(
    ("config", "names", "arguments"),
    [
        (
            BERT,
            "masks,lisa,pos_add",
            {"input_ids", "labels", "syntax", "governors", "first_pieces", "factor_ids"},
        ),
        (BERT, "relation_bias", {"input_ids", "labels", "syntax"}),
        (_translator(), "none", {"input_ids", "labels", "factor_ids"}),
    ],
)
def test_a_batch_has_what_its_model_reads(config, names, arguments):
    _, infused = cost.twins(config, InfusionConfig.parse(names).fitted())
    batch = MEASURED["random_batch"](infused, 3, 7)
    assert set(batch) == arguments
    assert MEASURED["Work"](infused, batch, torch.float32).step().isfinite()


def test_random_relations_are_those_of_trees():
    options = InfusionConfig.parse("masks").tree_options
    relations = MEASURED["random_relations"](3, 7, options)
    assert relations.shape == (3, 2, 7, 7)
    parents = (relations == 1).sum(-2)  # each word but the first has one
    assert parents.tolist() == [[[0, 1, 1, 1, 1, 1, 1]] * 2] * 3


def test_what_a_step_holds_is_weights_twice_for_adam_and_what_it_makes():
    model = torch.nn.Linear(1000, 1000, bias=False)

    class Loss(torch.nn.Module):
        device = CPU

        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, states):
            return hf.modeling_outputs.SequenceClassifierOutput(loss=self.inner(states).sum())

    work = MEASURED["Work"](Loss(), {"states": torch.zeros(1, 1000)}, torch.float32)
    work.step()
    # weights, two states of Adam, and the gradient; all else is small
    assert work.peak_mib() * 2**20 == pytest.approx(4 * 4_000_000, rel=0.01)
