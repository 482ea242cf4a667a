"""An export translates, aligns and scores as the trained model does; what it cannot do it refuses."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest

from syntaxformer.base.errors import BackendMissingError, CheckpointError, ConfigError
from syntaxformer.base.files import verify_manifest, write_manifest
from syntaxformer.nn import INFUSION_KINDS, InfusedEmbedding, plan_widths
from syntaxformer.translation.ctranslate2_decoder import read_export, read_names
from syntaxformer.translation.decoding import Search
from syntaxformer.translation.export_ctranslate2 import (
    QUANTIZATIONS,
    export_translator,
    fold_embedding,
    unique_names,
    why_not,
)
from syntaxformer.translation.model import SyntaxTransformerConfig

pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed")
KINDS = sorted(INFUSION_KINDS.keys() - {"pos_encoder"})
WORDS = ["the", "cat", "sat", "cats", "dog", "mat", ".", "👍", "￨", "%", "unseen"]


def _lines(n: int) -> list[str]:
    chosen = random.Random(3)
    return [" ".join(chosen.choices(WORDS, k=chosen.randint(1, 7))) for _ in range(n)]


def _translations(translator, lines, **settings):
    """Greedy unless told: then there is one way to search, and all must be the same."""
    return list(translator.translate(lines, **{"beam_size": 1, "scored": True, **settings}))


def _assert_same(ours, exported):
    for one, other in zip(ours, exported, strict=True):
        assert other[0].text == one[0].text
        assert other[0].score == pytest.approx(one[0].score, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_embedding_infusion(twins, tmp_path, kind):
    ours, others = (_translations(model, _lines(23)) for model in twins(kind))
    verify_manifest(tmp_path / "exported")
    assert read_export(tmp_path / "exported").largest_difference < 1e-4
    assert len({one[0].text for one in ours}) > 4  # the translations differ from each other
    _assert_same(ours, others)


@pytest.mark.slow
def test_beam_search(twins):
    """Random weights are sure of nothing, so some lines may end elsewhere: scores of the others agree.

    Without a length penalty, since with one ever longer repetitions win until one of them stops.
    """
    settings, models = {"beam_size": 3, "length_penalty": 0.0}, twins("sum_then_concat", end_bias=5.0)
    ours, others = (_translations(model, _lines(23), **settings) for model in models)
    same = sum(
        one[0].text == other[0].text and other[0].score == pytest.approx(one[0].score, abs=1e-4)
        for one, other in zip(ours, others, strict=True)
    )
    assert same >= 20


@pytest.mark.parametrize(
    "changed",
    [{"norm": "post"}, {"activation": "gelu"}, {"activation": "silu", "encoder_layers": 1}, {"share_source_embedding": False}, {"parse_task": {"labels": ["<none>", "<unk>", "(S"], "weight": 1.0}}],
    ids=str,
)  # fmt: skip
def test_shapes_of_the_network(model_folder, load, tmp_path, changed):
    exported = export_translator(model_folder("add", **changed), tmp_path / "exported")
    assert read_export(exported).largest_difference < 1e-4


@pytest.mark.slow
def test_factors_with_too_many_combinations_have_own_streams(model_folder, load, tmp_path, monkeypatch):
    monkeypatch.setattr("syntaxformer.translation.export_ctranslate2.LARGEST_TABLE", 100)
    for kind in ("sum_then_concat", "concat"):
        trained = model_folder(kind)
        exported = export_translator(trained, tmp_path / kind)
        assert read_export(exported).streams == [["pos"], ["case"], ["subword"]]
        assert read_export(exported).largest_difference < 1e-4
        lines = _lines(11)
        _assert_same(_translations(load(trained), lines), _translations(load(exported), lines))
        trained.rename(tmp_path / f"old-{kind}")


def test_user_factors_with_the_separator_in_their_values(twins):
    models, lines = twins("add", ("pos", "tone")), ["the cat", "cats sit ￨"]
    factors = {"tone": [["h￨/i", "l"], ["l", "h￨/i", "h￨/i"]]}
    ours, others = (_translations(model, lines, user_factors=factors) for model in models)
    _assert_same(ours, others)
    other_tones = _translations(models[1], lines, user_factors={"tone": [["l", "l"], ["l", "l", "l"]]})
    assert other_tones[0][0].score != others[0][0].score


@pytest.mark.parametrize("quantization", QUANTIZATIONS)
def test_quantizations_translate(twins, tmp_path, quantization):
    _, exported = twins("sum_then_concat", quantization=quantization)
    assert read_export(tmp_path / "exported").quantization == quantization
    texts = [best[0].text for best in exported.translate([*_lines(11), "", "  "])]
    assert texts[11:] == ["", ""]
    assert sum(map(bool, texts[:11])) > 5, "rounding may end a line of an untrained network at once"


@pytest.mark.parametrize("beam_size", [1, 4])
def test_the_result_does_not_depend_on_the_batch(twins, beam_size):
    (_, translator), lines = twins("concat"), _lines(13)
    one = [best[0].text for best in translator.translate(lines, beam_size, batch_size=1)]
    assert [best[0].text for best in translator.translate(lines, beam_size, batch_size=5)] == one
    assert [best[0].text for best in translator.translate(lines[::-1], beam_size)][::-1] == one


@pytest.mark.parametrize("length_penalty", [0.0, 0.6])
def test_n_best_is_sorted_by_scores_that_are_those_of_the_trained_model(twins, length_penalty):
    settings = {"beam_size": 3, "n_best": 3, "length_penalty": length_penalty}
    ours, others = (_translations(model, ["the cat sat", "dog"], **settings) for model in twins("add"))
    for one, other in zip(ours, others, strict=True):
        scores = [hypothesis.score for hypothesis in other]
        assert scores == sorted(scores, reverse=True)
        known = {hypothesis.text: hypothesis.score for hypothesis in one}
        shared = [hypothesis for hypothesis in other if hypothesis.text in known]
        assert shared
        for hypothesis in shared:
            assert hypothesis.score == pytest.approx(known[hypothesis.text], abs=1e-4)


def test_no_output_is_longer_than_its_own_limit(plain_export, load):
    """A short line beside a long one: 2 · pieces + 10, as in PyTorch."""
    translator = load(plain_export)
    source = translator.encode(["cat", "the cat sat on the mat ." * 3])
    outputs = translator.decoder.decode(source, [1, 0], Search(**translator.info.decoding.model_dump()))
    for row, (best,) in zip([1, 0], outputs, strict=True):
        assert len(best.pieces) < 2 * source.lengths[row] + 10


def test_special_values_stand_in_every_stream(model_folder, tmp_path):
    exported = export_translator(model_folder("sum_then_concat"), tmp_path / "exported")
    for place in (0, 1):
        assert {"<unk>", "<s>", "</s>"} <= set(read_names(exported, "source", place))
    config = json.loads((exported / "config.json").read_text())
    assert (config["decoder_start_token"], config["eos_token"]) == ("<s>", "</s>")
    assert config["layer_norm_epsilon"] == 1e-5


def test_tables_by_hand():
    """[e ; f_pos + f_case] of 3 pieces, 2 + 2 values of pos and 2 + 2 of case."""
    from syntaxformer.syntax import FactorVocabulary

    plan = plan_widths("sum_then_concat", 5, ("pos", "case"), width=2)
    vocabularies = {"pos": FactorVocabulary("pos", ("A", "B")), "case": FactorVocabulary("case", ("0", "1"))}
    embedding = InfusedEmbedding(plan, 3, {"pos": 4, "case": 4})
    streams, concatenated = fold_embedding(
        embedding, ["a", "b", "c"], vocabularies, {"unk": "<unk>", "bos": "<s>", "eos": "</s>"}
    )
    assert concatenated
    words, features = streams
    np.testing.assert_allclose(words.table, embedding.word.weight.detach().numpy(), rtol=1e-6)
    pos, case = (embedding.factors[name].weight.detach().numpy() for name in ("pos", "case"))
    assert features.names[3 * 4 + 2] == "B/0"
    np.testing.assert_allclose(features.table[3 * 4 + 2], pos[3] + case[2], rtol=1e-6)
    assert features.names[-3:] == ["<unk>", "<s>", "</s>"]
    np.testing.assert_allclose(features.table[-3], pos[1] + case[1], rtol=1e-6)
    np.testing.assert_allclose(features.table[-1], pos[0] + case[0], rtol=1e-6)


def test_one_large_factor_is_concatenated_as_small_ones_are(monkeypatch):
    from syntaxformer.syntax import FactorVocabulary

    monkeypatch.setattr("syntaxformer.translation.export_ctranslate2.LARGEST_TABLE", 1)
    embedding = InfusedEmbedding(plan_widths("concat", 5, ("pos",), width=2), 3, {"pos": 4})
    vocabularies = {"pos": FactorVocabulary("pos", ("A", "B"))}
    specials = {"unk": "<unk>", "bos": "<s>", "eos": "</s>"}
    (words, features), concatenated = fold_embedding(embedding, ["a", "b", "c"], vocabularies, specials)
    assert concatenated
    assert (words.table.shape[1], features.table.shape[1]) == (3, 2)


def test_names_are_unique_and_without_the_separator():
    names = unique_names(["a", "￨", "a", "<U+FFE8>", "x￨y"])
    assert names == ["a", "<U+FFE8>_", "a_", "<U+FFE8>", "x<U+FFE8>y"]


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"lisa": {"weight": 0.1}}, "lisa"), ({"masks": {}}, "masks"), ({"relation_bias": {}}, "relation_bias"),
        ({"infusion": {"kind": "pos_encoder"}}, "pos_encoder"),
    ],
)  # fmt: skip
def test_what_cannot_be_exported_is_refused_by_name(changed, name):
    (reason,) = why_not(SyntaxTransformerConfig(**changed))
    assert reason.startswith(f"{name}: expected a model that CTranslate2 can compute, got one with ")
    assert reason.endswith(". Translate with the trained folder.")


def test_an_export_that_computes_something_else_is_not_written(model_folder, tmp_path, monkeypatch):
    monkeypatch.setattr("syntaxformer.translation.export_ctranslate2.largest_difference", lambda *_: 0.5)
    with pytest.raises(CheckpointError, match=r"^export: expected log-probabilities within 0\.001 of the"):
        export_translator(model_folder(), tmp_path / "exported")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_arguments(model_folder, tmp_path):
    trained = model_folder()
    with pytest.raises(ConfigError, match=r"^quantization: expected one of float32, int8, .*, got 'int4'\.$"):
        export_translator(trained, tmp_path / "exported", "int4")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(ConfigError, match=r"^output: expected a new folder, got .*mine, which holds other"):
        export_translator(trained, tmp_path / "mine", overwrite=True)
    exported = export_translator(trained, tmp_path / "exported")
    with pytest.raises(ConfigError, match=r"^output: .*, an older export\. Give --overwrite\.$"):
        export_translator(trained, exported)
    assert export_translator(trained, exported, "int8", overwrite=True) == exported
    assert read_export(exported).quantization == "int8"
    with pytest.raises(ConfigError, match=r"^model: expected a folder that `train` wrote, got an export, "):
        export_translator(exported, tmp_path / "again")


def test_a_missing_backend(plain_export, tmp_path, load, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    for call in (load, lambda folder: export_translator(folder, tmp_path / "again")):
        with pytest.raises(BackendMissingError, match=r"^CTranslate2, which exported models need, is not i"):
            call(plain_export)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("syntaxformer.json", {"backend": "onnx"}, "backend: expected one of pytorch, ctranslate2, got 'on"),
        ("export.json", {"streams": [["pos"]]}, "export.json: expected the factors pos, case, subword of "),
        ("export.json", {"streams": 5}, "export.json: streams: "),
        ("source_2_vocabulary.json", "{", "source_2_vocabulary.json: expected JSON, got: "),
        ("source_2_vocabulary.json", "[1]", "source_2_vocabulary.json: expected different strings"),
        ("source_2_vocabulary.json", None, ": expected a source vocabulary, found none"),
    ],
)
def test_altered_exports(model_folder, tmp_path, load, name, content, problem):
    file = export_translator(model_folder("sum_then_concat"), tmp_path / "exported") / name
    if isinstance(content, dict):
        content = json.dumps({**json.loads(file.read_text()), **content})
    file.unlink() if content is None else file.write_text(content)
    write_manifest(file.parent)
    with pytest.raises(CheckpointError, match=problem):
        load(file.parent)


def test_a_broken_network_and_a_device_that_is_not_there(plain_export, tmp_path, load):
    exported = shutil.copytree(plain_export, tmp_path / "exported")
    with pytest.raises(ConfigError, match=r"^device: expected a device of this machine, got quantum\."):
        load(exported, device="quantum")
    with pytest.raises(ConfigError, match=r"^device: expected cpu or cuda, without :bf16, for an export,"):
        load(exported, device="cpu:bf16")
    (exported / "model.bin").write_bytes(b"x" * 50)
    write_manifest(exported)
    with pytest.raises(CheckpointError, match=r"exported: expected a CTranslate2 model, got: "):
        load(exported)


@pytest.mark.slow
def test_no_n_gram_twice(twins):
    """Two bigrams of a translation are never the same, as in PyTorch; without the setting, some are."""
    models = twins("none", end_bias=0.0)
    sides = [_translations(model, _lines(19), no_repeat_ngram_size=2) for model in models]
    free = _translations(models[1], _lines(19))
    _assert_same(*sides)

    def repeats(found):
        pieces = [list(one[0].pieces) for one in found]
        return sum(len({*pairwise(p)}) < len(p) - 1 for p in pieces)

    assert repeats(sides[1]) == 0 < repeats(free)


def test_an_export_does_not_sample_and_one_of_an_older_folder_does_not_align(plain_export, load):
    exported = load(plain_export)
    with pytest.raises(ConfigError, match=r"^temperature: expected none with an export, .*, got 0\.7\."):
        list(exported.translate(["the cat"], temperature=0.7))
    with pytest.raises(ConfigError, match="export the folder again"):
        list(exported.translate(["cats"], alignments=True))


def test_an_export_translates_without_torch_and_transformers(plain_export):
    script = (
        "import sys\nfrom syntaxformer.translation.translator import Translator\n"
        f"texts = list(Translator.load({str(plain_export)!r}).translate(['the cat sat .']))\n"
        "print(len(texts), sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "1 []\n"


@pytest.mark.slow
def test_beginnings_and_shortest_translations_are_those_of_pytorch(twins):
    model, exported = twins("sum_then_concat")
    lines, prefixes = ["the cat sat .", "cats sit .", "", "a dog"], ["mat cat", "", "", "dog . dog . dog"]
    for settings in ({"prefixes": prefixes}, {"min_length": 17}, {"prefixes": prefixes, "min_length": 40}):
        ours = _translations(model, lines, **settings)
        _assert_same(ours, _translations(exported, lines, **settings))
        assert min(len(ours[row][0].pieces) for row in (0, 1, 3)) > settings.get("min_length", 0)
    texts, settings = ["a cat . the dog . cats sit ."], {"split_sentences": "always", "n_best": 1}
    _assert_same(*(_translations(one, texts, **settings) for one in (model, exported)))
    for one in (model, exported):
        (best,) = next(one.translate(lines[:1], prefixes=["mat cat"], n_best=1))
        assert best.text.startswith("mat cat")


@pytest.mark.slow
def test_coverage_is_counted_by_the_search_of_an_export_with_beams(plain_export, load):
    exported, lines = load(plain_export), _lines(5)
    settings = {"beam_size": 4, "n_best": 4, "scored": True}
    plain, covering = (list(exported.translate(lines, coverage_penalty=p, **settings)) for p in (1e-9, 2.0))
    for before, after in zip(plain, covering, strict=True):
        scores = [best.score for best in after]
        assert scores == sorted(scores, reverse=True)
        assert scores[0] <= before[0].score + 1e-6  # log(min(coverage, 1)) is at most 0
    assert plain != covering
    with pytest.raises(ConfigError, match="coverage_penalty: expected none without beams"):
        list(exported.translate(lines, beam_size=1, coverage_penalty=1.0))


ALIGNED = ["the cat sat on the mat .", "cats", "a dog and the cat", "", "sat sat . cat", "mat the dog"]


@pytest.mark.parametrize(("layer", "head", "shift"), [(0, 1, False), (1, 0, True)])
def test_attention_and_links_are_those_of_the_network(twins, layer, head, shift):
    models = twins("none", end_bias=4.0, stored={"alignment": {"layer": layer, "head": head, "shift": shift}})
    ours, others = ([*one.translate(ALIGNED, beam_size=2, n_best=2, alignments=True)] for one in models)
    n_same = 0
    for row, line in enumerate(zip(ours, others, strict=True)):
        for one, other in zip(*line, strict=True):
            if one.text == other.text != "":
                n_same += 1
                n = len(other.pieces)  # without the end piece
                np.testing.assert_allclose(one.attention.weights[:n], other.attention.weights, atol=1e-4)
                assert one.alignment == other.alignment, ALIGNED[row]
    assert n_same >= 4


def test_a_head_that_is_not_there_is_refused(twins):
    with pytest.raises(ConfigError, match=r"alignment: expected a head .* got layer 1, head 2"):
        twins("none", stored={"alignment": {"layer": 1, "head": 2}})


@pytest.mark.parametrize("style", ["append", "replace"])
def test_an_export_takes_terms_as_its_model_does(twins, style):
    trained, exported = twins("add", ("term",), stored={"terms": style})
    lines, terms = ["the cat sat", "cats sit on the mat", "a dog", ""], {"cat": "Katze", "mat": "eine Matte"}
    ours, others, without = (
        [best[0] for best in model.translate(lines, beam_size=1, terms=given, scored=True)]
        for model, given in ((trained, terms), (exported, terms), (exported, None))
    )
    assert [best.text for best in ours] == [best.text for best in others]
    scores, same, plain = ([best.score for best in each] for each in (ours, others, without))
    assert same == pytest.approx(scores, abs=1e-4)
    stayed = [a == pytest.approx(b, abs=1e-6) for a, b in zip(same, plain, strict=True)]
    assert stayed == [False, False, True, True]


LINES = ["the cat sat", "cats ￨ %", "", "a dog and the cat run on the mat .", "unseen 👍"]
TEXTS = [["a dog .", "cats"], ["", "the mat"], ["dog"], ["cats sat on a mat"] * 2, ["👍 %"]]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["none", "sum_then_concat", "prepend"])
@pytest.mark.parametrize(("quantization", "tolerance"), [("float32", 1e-4), ("int8", 0.02)])
def test_scores_of_an_export(twins, kind, quantization, tolerance):
    models = twins(kind, quantization=quantization)
    ours, others = (list(model.score(LINES, TEXTS, batch_size=2)) for model in models)
    for line, of_export in zip(ours, others, strict=True):
        for score, other in zip(line, of_export, strict=True):
            assert other.pieces == score.pieces
            assert other.log_probs == pytest.approx(score.log_probs, abs=tolerance, rel=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("verb", [("evaluate", "--ref"), ("score", "--tgt")])
def test_an_export_is_scored_without_torch(model_folder, tmp_path, verb):
    """Importing it, or a classifier, takes longer than the work on a few lines."""
    exported = export_translator(model_folder(), tmp_path / "exported", "int8")
    for name, lines in {"s.en": LINES, "t.de": ["cats"] * len(LINES)}.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    script = """
import sys
from syntaxformer.cli.main import app
app(sys.argv[1:], standalone_mode=False)
heavy = ("torch", "transformers", "sklearn", "scipy.stats", "syntaxformer.study.ablation", "syntaxformer.encoders.classifier")
print([name for name in heavy if name in sys.modules])
"""  # fmt: skip
    arguments = [verb[0], exported, "--src", tmp_path / "s.en", verb[1], tmp_path / "t.de"]
    done = subprocess.run([sys.executable, "-c", script, *map(str, arguments)], capture_output=True, text=True, check=True)  # fmt: skip
    assert done.stdout.splitlines()[-1] == "[]"
