"""The decoder's other tasks: the tag of the piece that it is about to write, and the parse of its source."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from syntaxformer.syntax import WordColumns
from syntaxformer.syntax.inputs import SyntaxInputs
from syntaxformer.translation.batches import EncodedPairs, TranslationCollator
from syntaxformer.translation.checkpoint import Checkpoint, take_weights
from syntaxformer.translation.model import SyntaxTransformer, SyntaxTransformerConfig, label_task
from syntaxformer.translation.prepare import parse_labels
from syntaxformer.translation.source import EncodedText, SourceEncoder
from syntaxformer.translation.subwords import SubwordConfig, train_subwords
from syntaxformer.trees import Sentence
from syntaxformer.trees.phrase_structure import brackets_of_parse, linearised

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


TASK = {"labels": ["<none>", "<unk>", ")", "(S", "(NP", "PRON", "VERB"], "weight": 0.5}
MASK = torch.tensor([[1, 1, 1], [1, 1, 0]])
PARSE = torch.tensor([[3, 4, 5, 2, 6, 2], [3, 6, 2, -100, -100, -100]])
GIVEN = {"input_ids": SRC, "attention_mask": MASK, "labels": LABELS}


@pytest.mark.parametrize(
    ("tree", "sequence"),
    [
        ("(S (NP (PRON I)) (VP (VERB ran) (ADV off)))", "(S (NP PRON ) (VP VERB ADV ) )"),
        ("(VERB go)", "VERB"),
        ("(NP the dog)", "(NP X X )"),
        ("(S (X (X a)) b)", "(S (X X ) X )"),
    ],
)
def test_a_tree_as_a_sequence_by_hand(tree, sequence):
    assert linearised(tree) == sequence.split()


def test_a_parse_is_converted_first():
    sentence = Sentence.from_words(
        ["I", "ran"],
        upos=("PRON", "VERB"),
        governors=(1, -1),
        deprels=("nsubj", "root"),
        constituency=brackets_of_parse,
    )
    assert linearised("( (S (NP-SBJ-119 (PRP It)) (VP=2 (VBZ is)) (-LRB- -LRB-)))") == [
        *("(S", "(NP", "PRP", ")", "(VP", "VBZ", ")", "-LRB-", ")")
    ], "without functions, indices and the outer bracket"
    assert linearised(sentence.tree_source) == ["(S", "(NP", "PRON", ")", "(VP", "VERB", ")", ")"]


def test_the_loss_by_hand():
    """Row 0 of the labels is the tag of the task: the decoder reads it, then each label, and writes the next."""
    model = _model(parse_task=TASK, dropout=0.0, attention_dropout=0.0).train()
    table, memory = model.parse_labels, model.encoder(SRC, MASK).last_hidden_state
    losses = []
    for row, labels in enumerate(PARSE.tolist()):
        labels = [one for one in labels if one >= 0]
        before = torch.tensor([[0, *labels[:-1]]])
        states = model.decoder(before, memory[row : row + 1], MASK[row : row + 1], table=table)
        logits = states.last_hidden_state[0] @ table.weight.T
        losses += [
            F.cross_entropy(one, torch.tensor(label)) for one, label in zip(logits, labels, strict=True)
        ]
    plain, both = model(**GIVEN).loss, model(**GIVEN, parse=PARSE)
    torch.testing.assert_close(both.loss, plain + 0.5 * torch.stack(losses).mean())
    assert both.tallies["parse_accuracy"][1] == 9
    both.loss.backward()
    assert table.weight.grad.abs().sum() > 0
    assert model.eval()(**GIVEN, parse=PARSE).loss == model(**GIVEN).loss  # in training only


def test_a_weight_of_0_is_the_baseline_to_the_last_bit():
    plain, other = _model(), _model(parse_task={**TASK, "weight": 0.0})
    named = dict(other.named_parameters())
    assert {*named} - {name for name, _ in plain.named_parameters()} == {"parse_labels.weight"}
    assert all(torch.equal(tensor, named[name]) for name, tensor in plain.named_parameters())
    grads = []
    for model, given in ((plain, GIVEN), (other, {**GIVEN, "parse": PARSE})):
        torch.manual_seed(5)
        model.train()(**given).loss.backward()
        grads.append({name: one.grad for name, one in model.named_parameters() if one.grad is not None})
    assert grads[0].keys() == grads[1].keys()
    assert all(torch.equal(grads[0][name], grads[1][name]) for name in grads[0])


def test_it_is_stored_and_no_part_of_translating(tmp_path):
    model = _model(parse_task=TASK).eval()
    model.save_pretrained(tmp_path)
    again = SyntaxTransformer.from_pretrained(tmp_path)
    assert torch.equal(again.parse_labels.weight, model.parse_labels.weight)
    again.parse_labels.register_forward_hook(lambda *_: pytest.fail("the table of labels was read"))
    assert again.generate(input_ids=SRC, max_new_tokens=3, num_beams=2).shape[0] == 2


def _pairs():
    lines = ["I ran", "", "I"]
    trees = ["(S (NP (PRON I)) (VP (VERB ran)))", None, "(NP (PRON I))"]
    sentences = [
        Sentence.from_words(line.split(), constituency=tree) for line, tree in zip(lines, trees, strict=True)
    ]
    columns = WordColumns.from_sentences(sentences)
    labels = parse_labels([columns])
    encoder = SourceEncoder(train_subwords(["I ran off"], SubwordConfig(vocab_size=301)))
    encoder.syntax = SyntaxInputs(brackets=labels)
    assert encoder.syntax.needs == ("constituency",)
    src = encoder.encode(lines, columns)
    return labels, EncodedPairs(src, EncodedText(src.pieces, src.splits, src.factors))


def test_labels_of_lines_reach_the_batch():
    labels, pairs = _pairs()
    assert labels == (")", "(NP", "PRON", "(S", "(VP", "VERB")
    batch = TranslationCollator(pairs, 0)([2, 0])
    names = ["<none>", "<unk>", *labels]
    written = [[names[one] for one in row if one >= 0] for row in batch["parse"].tolist()]
    assert written == [["(NP", "PRON", ")"], ["(S", "(NP", "PRON", ")", "(VP", "VERB", ")", ")"]]
    assert "syntax" not in batch
    chosen = EncodedPairs(pairs.src.select([2, 0]), pairs.tgt.select([2, 0]))
    assert torch.equal(TranslationCollator(chosen, 0)([0, 1])["parse"], batch["parse"])
    turned = EncodedPairs(pairs.src.select([2, 1, 0]), pairs.tgt)
    again = TranslationCollator(turned, 0)([0, 2])
    assert torch.equal(again["parse"], batch["parse"])


def test_only_the_share_of_the_batches_has_it():
    class Draws:
        def uniform(self, what, ids, words):
            return torch.tensor([ids / 4])

    _, pairs = _pairs()
    collate = TranslationCollator(pairs, 0, parse_share=0.5, draws=Draws())
    assert ["parse" in collate([row]) for row in (0, 2)] == [True, False]
