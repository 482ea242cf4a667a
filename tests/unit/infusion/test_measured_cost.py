"""What `benchmarks/infusion_cost.py` measures: against numbers that can be worked out by hand."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
import torch
import transformers as hf

from syntaxformer.infusion.config import InfusionConfig
from syntaxformer.infusion.cost import twins
from syntaxformer.nn import plan_widths
from syntaxformer.translation.model import SyntaxTransformerConfig

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "infusion_cost.py"
COST = runpy.run_path(str(SCRIPT))
BERT = hf.BertConfig(
    hidden_size=22, num_hidden_layers=2, num_attention_heads=2, intermediate_size=29, vocab_size=31,
    max_position_embeddings=23,
)  # fmt: skip
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


def test_a_checkpoint(monkeypatch, tmp_path, capsys):
    BERT.save_pretrained(tmp_path)
    monkeypatch.setattr(
        sys,
        "argv",
        [
            "x",
            str(tmp_path),
            "--infuse",
            "masks,lisa",
            "--pieces",
            "5",
            "7",
            "--rounds",
            "1",
            "--device",
            "cpu",
        ],
    )
    COST["main"]()
    lines = capsys.readouterr().out.splitlines()
    assert "topical attention" in lines[1]
    rows = [line for line in lines if " x " in line][1:]
    assert [row.split()[:3] for row in rows] == [["102", "x", "5"]] * 3 + [["73", "x", "7"]] * 3
    plain, infused, times = map(float, rows[2].split()[-3:])  # peak memory does not vary
    assert times == pytest.approx(infused / plain, rel=0.05)  # of printed, rounded figures
    assert infused > plain > 0


def test_a_step_learns_the_added_tasks_and_use_does_not():
    _, infused = twins(_translator(**TASKS), InfusionConfig())
    batch = COST["random_batch"](infused, 3, 7)
    assert {name: (one.shape, int(one.max())) for name, one in batch.items() if name in ("target_tags", "parse")} == {
        "target_tags": ((3, 7), 2), "parse": ((3, 14), 4),
    }  # fmt: skip
    work, seen = COST["Work"](infused, batch, torch.float32), []
    infused.register_forward_hook(lambda *called: seen.append(called[-1].tallies))
    work.step()
    work.use()
    assert [set(tallies or ()) for tallies in seen] == [{"target_pos_accuracy", "parse_accuracy"}, set()]


@pytest.mark.parametrize(
    ("config", "names", "given"),
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
def test_a_batch_has_what_its_model_reads(config, names, given):
    _, infused = twins(config, InfusionConfig.parse(names).fitted())
    batch = COST["random_batch"](infused, 3, 7)
    assert set(batch) == given
    assert COST["Work"](infused, batch, torch.float32).step().isfinite()


def test_random_relations_are_those_of_trees():
    options = InfusionConfig.parse("masks").tree_options
    found = COST["random_relations"](3, 7, options)
    assert found.shape == (3, 2, 7, 7)
    parents = (found == 1).sum(-2)  # each word but the first has one
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

    work = COST["Work"](Loss(), {"states": torch.zeros(1, 1000)}, torch.float32)
    work.step()
    # weights, two states of Adam, and the gradient; all else is small
    assert work.peak_mib() * 2**20 == pytest.approx(4 * 4_000_000, rel=0.01)
