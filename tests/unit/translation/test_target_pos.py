"""The decoder's second task: the tag of the piece that it is about to write."""

from __future__ import annotations

import torch

from syntaxformer.translation.checkpoint import take_weights
from syntaxformer.translation.checkpoint_pieces import Checkpoint
from syntaxformer.translation.model import SyntaxTransformer, SyntaxTransformerConfig, label_task

SHAPE = {"vocab_size": 19, "d_model": 12, "d_ff": 17, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 1}
TAGS = {"tags": ["<none>", "<unk>", "NOUN", "VERB", "DET"], "weight": 0.5}
SRC = torch.tensor([[5, 7, 2], [11, 2, 0]])
LABELS = torch.tensor([[3, 4, 2, -100], [6, 8, 9, 2]])
TAG_LABELS = torch.tensor([[2, 3, -100, -100], [4, 2, 3, -100]])


def _model(**settings):
    torch.manual_seed(3)
    return SyntaxTransformer(SyntaxTransformerConfig(**SHAPE, **settings))


def test_the_loss_is_a_weighted_mean_over_tagged_pieces_and_hits_are_counted():
    logits = torch.zeros(1, 3, 2)
    logits[0, 0, 1] = logits[0, 1, 1] = 2.0
    task = label_task("target_pos", logits, torch.tensor([[1, 0, -100]]), 0.5)
    right, wrong = torch.log1p(torch.exp(torch.tensor(-2.0))), torch.log1p(torch.exp(torch.tensor(2.0)))
    torch.testing.assert_close(task.loss, 0.5 * (right + wrong) / 2)
    assert (task.name, task.right, task.total) == ("target_pos_accuracy", 1, 2)


def test_the_head_adds_its_parameters_and_teaches_in_training_only():
    plain, tagged = _model(), _model(target_pos=TAGS)
    count = lambda model: sum(one.numel() for one in model.parameters())  # noqa: E731
    assert count(tagged) - count(plain) == 12 * 5 + 5
    tagged.load_state_dict(plain.state_dict(), strict=False)
    given = {"input_ids": SRC, "labels": LABELS, "target_tags": TAG_LABELS}
    torch.testing.assert_close(tagged.eval()(**given).loss, plain.eval()(input_ids=SRC, labels=LABELS).loss)
    assert tagged(**given).tallies["target_pos_accuracy"][1] == 5
    for model in (plain, tagged):  # dropout would draw from another state
        model.train()
        for module in model.modules():
            if hasattr(module, "p"):
                module.p = 0.0
    with_task, without = tagged(**given), tagged(input_ids=SRC, labels=LABELS)
    assert without.tallies is None
    assert with_task.loss > without.loss
    with_task.loss.backward()
    assert tagged.target_tagger.weight.grad.abs().sum() > 0


def test_the_head_is_not_run_in_translation():
    model = _model(target_pos=TAGS).eval()

    def refuse(*_):
        raise AssertionError("the tag head ran")

    model.target_tagger.register_forward_hook(refuse)
    assert model.generate(input_ids=SRC, max_new_tokens=3, num_beams=2).shape[0] == 2


def test_training_goes_on_from_a_model_with_the_head_or_without(tmp_path):
    """The head begins anew: the tags of other data may be others, or the same in another order."""
    start = Checkpoint(str(tmp_path), None, None, 0, SHAPE["vocab_size"])
    for before, after in (({}, {"target_pos": TAGS}), ({"target_pos": TAGS}, {})):
        other, model = _model(**before), _model(**after)
        torch.nn.init.ones_(other.encoder.layers[0].feed_forward.inner.weight)
        other.save_pretrained(tmp_path)
        take_weights(model, start)
        assert (model.encoder.layers[0].feed_forward.inner.weight == 1).all()
