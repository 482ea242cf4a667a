"""Ensembles: the mean of log-probabilities by hand, a plain twin of the search, and what does not fit together."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from typer.testing import CliRunner

from syntaxformer.base.errors import AlignmentError, ConfigError
from syntaxformer.cli.main import app
from syntaxformer.translation.decoding import never_output
from syntaxformer.translation.model import CACHE
from syntaxformer.translation.source import source_batch
from syntaxformer.translation.torch_decoder import Ensembling
from syntaxformer.translation.translator import Translator

START, END = 1, 2
LINES = ["the cat sat", "", "cats", "a dog"]


class Toy:
    """Gives logits that depend on the last piece alone; notes what it has read."""

    config = SimpleNamespace(decoder_start_token_id=START)

    def __init__(self, table):
        self.table, self.read = torch.tensor(table), []

    def __call__(self, decoder_input_ids, encoder_outputs=None, **given):
        if encoder_outputs is None:
            assert decoder_input_ids.tolist() == [[START], [START]]
            return SimpleNamespace(encoder_last_hidden_state=torch.tensor([[[0.5]], [[0.75]]]))
        self.read.append((encoder_outputs.last_hidden_state.flatten().tolist(), given))
        return SimpleNamespace(logits=self.table[decoder_input_ids])


def test_the_mean_of_log_probabilities_by_hand():
    """With p = (1/2, 1/4, 1/4), q = (1/8, 1/8, 3/4) and r = (1/4, 1/2, 1/4), the mean is log ∛(p q r)."""
    first = torch.tensor([[0.5, 0.25, 0.25]] * 4).log()
    toys = Toy([[1.0, 1.0, 6.0], [0.0, 0.0, 0.0]]), Toy([[2.0, 4.0, 2.0], [0.0, 0.0, 0.0]])
    for toy in toys:
        toy.table = toy.table.log()
    mask = torch.tensor([[1, 1, 0], [1, 1, 1]])
    batch = {"input_ids": torch.ones_like(mask), "attention_mask": mask}
    mean = Ensembling(toys, [batch, batch], ["own", "other"], n_beams=2)
    found = mean(torch.tensor([[1, 0]] * 4), first)
    wanted = torch.tensor([1 / 2 * 1 / 8 * 1 / 4, 1 / 4 * 1 / 8 * 1 / 2, 1 / 4 * 3 / 4 * 1 / 4]) ** (1 / 3)
    torch.testing.assert_close(found.exp(), wanted.expand(4, 3))
    barred = first.masked_fill(torch.tensor([False, True, False]), -torch.inf)
    barred = mean(torch.tensor([[1, 0]] * 4), barred)
    assert barred[:, 1].isneginf().all()
    assert barred[:, [0, 2]].equal(found[:, [0, 2]])
    (memory, given), _ = toys[1].read
    assert memory == [0.5, 0.5, 0.75, 0.75]  # two beams of each line
    assert given["attention_mask"].tolist() == [[1, 1, 0]] * 2 + [[1, 1, 1]] * 2
    assert given[CACHE] == "other"


def _ensemble(monkeypatch, *members: Translator) -> Translator:
    """As `load_ensemble` makes it, of translators that are in memory."""
    fresh = {str(place): Translator(one.model, one.encoder, one.info, one.annotator) for place, one in enumerate(members)}  # fmt: skip
    monkeypatch.setattr(Translator, "load", lambda folder: fresh[folder])
    return Translator.load_ensemble(list(fresh))


@pytest.fixture
def other(new_translator):
    """Other weights than `plain`, and another kind of input."""
    translator = new_translator("concat_pos")
    with torch.no_grad():
        torch.manual_seed(7)
        for weight in translator.model.parameters():
            weight.add_(0.05 * torch.randn_like(weight))
        translator.model.decoder.embedding.weight[END] *= 2  # so that some translations end by themselves
    return translator


def _found(translator, **settings):
    found = translator.translate(LINES, **{"n_best": 2, "scored": True, **settings})
    return [[(one.text, pytest.approx(one.score, abs=1e-4)) for one in best] for best in found]


@pytest.mark.parametrize("settings", [{}, {"beam_size": 1, "n_best": 1}, {"temperature": 1.0, "seed": 3}])
def test_a_model_with_itself_is_the_model(infused, monkeypatch, settings):
    joint = _ensemble(monkeypatch, infused, infused)
    assert _found(joint, **settings) == _found(infused, **settings)


@torch.inference_mode()
def _twin(members, line: str, n_beams: int) -> tuple[list[int], float]:
    """Beam search without a cache and without batches: every step reads everything again."""
    texts = [one.encode([line]) for one in members]
    batches = [source_batch(text, [0], 0) for text in texts]
    limit = 2 * int(texts[0].lengths[0]) + 10
    barred = never_output(members[0].encoder.target_tokenizer)
    running, ended = [(0.0, [])], []
    for step in range(1, limit + 1):
        following = []
        for score, made in running:
            pieces = torch.tensor([[START, *made]])
            logits = [one.model(**batch, decoder_input_ids=pieces).logits[0, -1] for one, batch in zip(members, batches, strict=True)]  # fmt: skip
            mean = sum(one.log_softmax(-1) for one in logits) / len(members)
            mean[barred] = -torch.inf
            if step == limit:
                mean[torch.arange(len(mean)) != END] = -torch.inf
            following += [(score + gain, [*made, piece]) for piece, gain in enumerate(mean.tolist())]
        best = sorted(following, reverse=True)[: 2 * n_beams]
        ended += [(score / step, made) for score, made in best[:n_beams] if made[-1] == END]
        ended = sorted(ended, reverse=True)[:n_beams]
        running = [one for one in best if one[1][-1] != END][:n_beams]
        if len(ended) == n_beams and ended[-1][0] >= running[0][0] / step:
            break
    return ended[0][1], ended[0][0]


@pytest.mark.parametrize("n_beams", [1, 3])
def test_two_models_are_their_plain_twin(plain, other, monkeypatch, n_beams):
    joint = _ensemble(monkeypatch, plain, other)
    found = list(joint.translate(LINES, n_beams, scored=True))
    assert found[1][0].text == ""
    for line, (best, *_) in zip(LINES, found, strict=True):
        if line in LINES[2:]:
            pieces, score = _twin((plain, other), line, n_beams)
            assert list(best.pieces) == pieces
            assert best.score == pytest.approx(score, abs=1e-5)
    alone = [[best.text for best, *_ in one.translate(LINES, n_beams)] for one in (plain, other)]
    assert [best.text for best, *_ in found] not in alone


def test_each_member_takes_its_own_user_factors(plain, new_translator, monkeypatch):
    lines = ["the cat sat on the mat .", "cats sit .", "a dog and the cat run"]
    own = new_translator("concat_pos", ("mood",), {"mood": [line.split() for line in lines]})
    joint = _ensemble(monkeypatch, plain, own)
    with pytest.raises(ConfigError, match="expected values of mood"):
        list(joint.translate(["cats"]))
    with pytest.raises(AlignmentError):
        list(joint.translate(["cats"], user_factors={"mood": [["a", "b"]]}))
    assert len(list(joint.translate(["cats"], user_factors={"mood": [["cats"]]}))) == 1


def test_what_does_not_fit_is_refused(plain, new_translator, monkeypatch):
    more = new_translator()
    more.encoder.tokenizer.backend_tokenizer.add_special_tokens(["<bt>"])
    for one in (more, new_translator(tgt="fr"), new_translator(lowercase=True)):
        with pytest.raises(ConfigError, match=r"^1: expected the languages and the target pieces of 0, got others\. .*subwords"):  # fmt: skip
            _ensemble(monkeypatch, plain, one)
    exported = new_translator(backend="ctranslate2")
    exported.decoder = SimpleNamespace(decode=None)
    monkeypatch.setattr(Translator, "load", {"a": plain, "b": exported}.get)
    for folders in (["a", "b"], ["b", "a"]):
        with pytest.raises(ConfigError, match="exported to ctranslate2, which gives no attention, states"):
            Translator.load_ensemble(folders)


def test_paths_are_models_or_the_text(new_translator, save_translator, tmp_path):
    one, two = (save_translator(new_translator(), tmp_path / name) for name in "ab")
    (tmp_path / "in.en").write_text("the cat\ncats sit .\n")
    run = CliRunner().invoke
    alone = run(app, ["translate", str(one), str(tmp_path / "in.en")])
    assert alone.exit_code == 0
    both = run(app, ["translate", str(one), str(two), str(tmp_path / "in.en")])
    assert both.stdout == alone.stdout
    assert run(app, ["translate", str(one), str(two)], input="the cat\ncats sit .\n").stdout == alone.stdout
    lost = run(app, ["translate", str(one), str(tmp_path / "lost"), str(tmp_path / "in.en")])
    assert f"{tmp_path / 'lost'}: expected a folder, found none" in str(lost.exception)
