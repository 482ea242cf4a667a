"""Translators of models with data.protect: what they put back, choose, mend and say; also as an export."""

from __future__ import annotations

import random
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from folder_deeds import keys
from odd_input import ODD_KINDS, odd_line
from syntaxformer.base.errors import CheckpointError, ConfigError
from syntaxformer.base.files import write_manifest
from syntaxformer.cli.main import app
from syntaxformer.serve.engines import TranslatorEngine
from syntaxformer.serve.schemas import TranslateSettings
from syntaxformer.study.attention import cross_attention
from syntaxformer.translation.alignment import add_head
from syntaxformer.translation.backtranslation import backtranslate
from syntaxformer.translation.checkpoint import add_symbols
from syntaxformer.translation.decoding import DecodingConfig, Hypothesis
from syntaxformer.translation.export_ctranslate2 import export_translator
from syntaxformer.translation.model import SyntaxTransformer, SyntaxTransformerConfig
from syntaxformer.translation.model_folder import FolderInfo
from syntaxformer.translation.protection import SYMBOLS
from syntaxformer.translation.source import SourceEncoder
from syntaxformer.translation.subwords import SubwordConfig, train_subwords
from syntaxformer.translation.translator import Translator, say_once
from tiny_translator import save_translator

LINES = ["The cat {0} sat.", "", "see <b>it</b> at 12,345.67", "no value"]
TOKENIZER = add_symbols(
    train_subwords(["The cat sat. see it at no value (x)", "a b c d e"] * 9, SubwordConfig(vocab_size=320)),
    SYMBOLS,
)
INFO = {
    "src": "en", "tgt": "de", "annotator": None, "annotator_version": None, "factors": [], "protect": ODD_KINDS,
    "decoding": DecodingConfig(beam_size=3, batch_size=7),
}  # fmt: skip


class Copier:
    """Copies its source; `faults` say what the n-th translation of each line does to its first symbol."""

    n_ahead, longest = 0, 99

    def __init__(self, *faults: str) -> None:
        self.faults, self.n_best, self.symbols = faults, [], []

    def decode(self, source, rows, search):
        self.n_best.append(search.n_best)
        self._note(source, [(row, source.prefix_of(row)) for row in rows])
        return [[self._copy(source, row, fault) for fault in self.faults[: search.n_best]] for row in rows]

    def score(self, source, pairs, batch_size):
        self._note(source, pairs)
        return [[0.0] * len(pieces) for _, pieces in pairs]

    def _note(self, source, pairs):
        """Note the symbols of each line and of its translation."""
        for row, translation in pairs:
            line = source.pieces[source.splits[row] : source.splits[row + 1]].tolist()
            sides = (TOKENIZER.convert_ids_to_tokens(list(side)) for side in (line, translation))
            self.symbols.append([[piece for piece in side if piece in SYMBOLS] for side in sides])

    def _copy(self, source, row, fault):
        pieces = source.pieces[source.splits[row] : source.splits[row + 1]].tolist()
        symbols = {*TOKENIZER.convert_tokens_to_ids(list(SYMBOLS))}
        if first := [at for at, piece in enumerate(pieces) if piece in symbols][:1]:
            times = {"lose": 0, "double": 2, "": 1}[fault]
            pieces[first[0] : first[0] + 1] = [pieces[first[0]]] * times
        return Hypothesis(pieces=pieces)


def _translator(*faults: str, **info) -> Translator:
    return Translator(Copier(*faults), SourceEncoder(TOKENIZER), FolderInfo(**{**INFO, **info}))


@pytest.mark.parametrize("settings", [{}, {"lowercase": True}, {"moses": True}])
def test_every_value_comes_back_once_and_unchanged(settings):
    rng = random.Random(5)
    lines = [odd_line(rng, ("the cat sat.", ""))[0] for _ in range(200)]
    for line, (best,) in zip(lines, _translator("", **settings).translate(lines, 1), strict=True):
        assert best.repairs == ()
        copy = line.replace("the", "The").replace("The", "the")
        assert best.text.replace(" ", "") == copy.replace(" ", "") if settings else best.text == copy


def test_the_best_translation_that_keeps_all_values_is_chosen(caplog):
    translator = _translator("lose", "double", "")
    assert [best.text for (best,) in translator.translate(LINES)] == LINES
    assert translator.decoder.n_best == [3]
    assert "protected" not in caplog.text


def test_without_one_the_best_is_mended_and_said(caplog):
    say_once.cache_clear()
    translator = _translator("lose", "double", "lose")
    found = [best for (best,) in translator.translate(LINES)]
    assert [best.text for best in found] == [
        "The cat  sat. {0}", "", "see it</b> at 12,345.67 <b>", "no value"
    ]  # fmt: skip
    assert [best.repairs for best in found] == [(("lost", "{0}"),), (), (("lost", "<b>"),), ()]
    assert "2 lines whose translation lost or doubled a protected value" in caplog.text


def test_entities_are_undone_once_before_values_are_numbered():
    """The symbols of a line depend on its characters: those of a translation, or of its beginning, are the same."""
    translator = _translator("", unescape=True, protect=("placeholder",))
    line = "a &amp;lt; b {0}"
    list(translator.score([line], ["{0} a"]))
    list(translator.translate([line], prefixes=["{0} a"]))
    source = translator.encode([line], prefixes=["{0} a"])
    translator.search([line], source, translator.info.decoding)
    (symbol,) = translator.decoder.symbols[0][0]
    assert translator.decoder.symbols == [[[symbol], [symbol]]] * 3


def test_n_best_lists_and_samples_are_all_mended():
    translator = _translator("double", "")
    found = list(translator.translate(LINES[:1], 2, n_best=2))
    assert [best.text for best in found[0]] == ["The cat {0} sat."] * 2
    assert [best.repairs for best in found[0]] == [(("doubled", "{0}"),), ()]
    (((best,)),) = translator.translate(LINES[:1], temperature=1.0)
    assert best.repairs == (("doubled", "{0}"),)
    assert translator.decoder.n_best == [2, 1]


def test_more_values_than_symbols_stay_text_and_are_said():
    line = " ".join(f"{{{number}}}" for number in range(23))
    ((best,),) = _translator("").translate([line])
    assert best.text == line
    assert best.repairs == tuple(("one too many", f"{{{number}}}") for number in (20, 21, 22))


def test_a_line_that_was_cut_gets_nothing_of_its_rest(recwarn):
    line = f"{'x ' * 1000}{{0}} {'x ' * 1000}"
    translator = _translator("")
    ((best,),) = translator.translate([line])
    assert best.repairs == (("lost", "{0}"),)
    assert "{0}" not in best.text


def test_service_and_backtranslation(tmp_path):
    engine = TranslatorEngine.__new__(TranslatorEngine)
    engine.translator = _translator("lose", backend="ctranslate2")
    engine.paces, engine.batch_s = (0.0, 0.0), 1.0
    answers = engine.translate(TranslateSettings(beam_size=1), ["a {0}", "a"])
    repairs = [(answer.text, answer.repairs) for answer in answers]
    assert repairs == [("a {0}", [["lost", "{0}"]]), ("a", None)]
    (tmp_path / "model").mkdir()
    write_manifest(tmp_path / "model")
    (tmp_path / "mono.en").write_text("see b {0} c\n\nno value a b c\n")
    files, reason = (tmp_path / "model", tmp_path / "mono.en"), "with what data.protect could not keep"
    assert backtranslate(_translator("lose"), *files, tmp_path / "pairs")["left_out"][reason] == 1
    assert reason not in backtranslate(_translator(""), *files, tmp_path / "more")["left_out"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A model folder with random weights."""
    torch.manual_seed(5)
    shape = {"d_model": 22, "d_ff": 17, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 1}
    model = SyntaxTransformer(SyntaxTransformerConfig(vocab_size=len(TOKENIZER), **shape))
    with torch.no_grad():
        table = model.decoder.embedding.weight.mul_(4)
        end = table[TOKENIZER.eos_token_id]  # which is likely after a few pieces
        model.decoder.norm.bias.copy_(3 * end / end.norm() ** 2)
    translator = Translator(model.eval(), SourceEncoder(TOKENIZER), FolderInfo(**INFO, symbols=("cat",)))
    return save_translator(translator, tmp_path_factory.mktemp("protected") / "model")


def _run(*arguments: object):
    return CliRunner().invoke(app, [*map(str, arguments)])


@pytest.mark.skipif(find_spec("ctranslate2") is None, reason="needs ctranslate2")
def test_an_export_keeps_what_the_folder_keeps_and_the_report_names_the_rest(folder, tmp_path):
    exported = export_translator(folder, tmp_path / "export")
    (tmp_path / "text.en").write_text("".join(f"{line}\n" for line in LINES))
    outputs = []
    for number, model in enumerate((folder, exported)):
        table = tmp_path / f"{number}.tsv"
        done = _run("translate", model, tmp_path / "text.en", "--report", table, "--device", "cpu")
        assert done.exit_code == 0, done.output
        outputs.append((done.stdout, table.read_text()))
    assert outputs[0] == outputs[1]
    text, table = outputs[0][0].splitlines(), [row.split("\t") for row in outputs[0][1].splitlines()]
    assert {number for number, *_ in table} <= {"1", "3"}
    for number, value in (("1", "{0}"), ("3", "<b>"), ("3", "</b>"), ("3", "12,345.67")):
        assert text[int(number) - 1].count(value) == 1
    assert ["1", "lost", "{0}"] in table
    assert not {*SYMBOLS} & {*"".join(text)}


def test_the_report_is_refused_where_nothing_is_protected_or_it_is_an_input(folder, tmp_path):
    (tmp_path / "text.en").write_text("a\n")
    done = _run("translate", folder, tmp_path / "text.en", "--report", tmp_path / "text.en")
    assert isinstance(done.exception, ConfigError)
    plain = shutil.copytree(folder, tmp_path / "plain")
    keys("syntaxformer.json", protect=[])(plain)
    write_manifest(plain)
    done = _run("translate", plain, tmp_path / "text.en", "--report", tmp_path / "r.tsv")
    assert "expected a model trained with data.protect" in str(done.exception)
    with pytest.raises(ConfigError, match="expected the languages and the target pieces"):
        Translator.load_ensemble([folder, plain])
    twins = Translator.load_ensemble([folder, folder])
    assert [best.text.count("{0}") for (best,) in twins.translate(LINES)] == [1, 0, 0, 0]


def test_attention_shows_the_symbols_of_both_sides(folder):
    cross = cross_attention(Translator.load(folder, device="cpu"), LINES[0], translation="x {0}")
    (symbol,) = {*SYMBOLS} & {*cross.src_pieces}
    assert symbol in cross.tgt_pieces


def test_an_older_folder_gets_its_head_by_text_with_the_same_symbols(folder, tmp_path, monkeypatch):
    """A symbol of one side is otherwise an accidental one of the other, which no head aligns."""
    shutil.copytree(folder, tmp_path / "older")
    seen = []
    monkeypatch.setattr(
        "syntaxformer.translation.alignment.choose_head", lambda _, dev, train: seen.append(dev)
    )
    add_head(tmp_path / "older", ["a {0}", "see b"], ["{0} c", "c"])
    sides = (TOKENIZER.convert_ids_to_tokens(side.pieces.tolist()) for side in (seen[0].src, seen[0].tgt))
    src, tgt = ([piece for piece in side if piece in SYMBOLS] for side in sides)
    assert len(src) == 1
    assert src == tgt


@pytest.mark.parametrize("protect", [["(a"], ["a{0,999}"], ["x*"], ["url"] * 21, ["a" * 101 + "+"]])
def test_a_folder_whose_patterns_may_hang_is_refused(folder, tmp_path, protect):
    altered = shutil.copytree(folder, tmp_path / "altered")
    keys("syntaxformer.json", protect=protect)(altered)
    write_manifest(altered)
    with pytest.raises(CheckpointError, match=r"protect"):
        Translator.load(altered, device="cpu")


def test_references_are_compared_with_their_values():
    translator = _translator("", rewrites_target=True)
    assert translator.as_written(["see 12 <b>"]) == ["see 12 <b>"]
