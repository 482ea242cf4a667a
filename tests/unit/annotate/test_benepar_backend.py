"""The benepar backend: grammatical sentences by hand, and a real benepar model, tiny and untrained."""

import builtins
import logging
from types import SimpleNamespace

import pytest

from syntaxformer.annotate import Annotator, load_annotator
from syntaxformer.annotate.backends.benepar import BeneparParser, grammatical_sentences
from syntaxformer.base.errors import BackendMissingError, ConfigError, DataError
from syntaxformer.trees import Sentence, leaves_of, parse_tree, write_conllu

pytest.importorskip("benepar", reason="benepar is not installed")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model folder as benepar's releases are: BERT with 62 positions, a tagger and a chart parser."""
    import torch
    from benepar.nkutil import HParams
    from benepar.parse_chart import ChartParser
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, BertTokenizerFast

    from syntaxformer.annotate.backends.benepar import _special_pieces

    folder = tmp_path_factory.mktemp("benepar") / "tiny"
    characters = "abcdefghijklmnopqrstuvwxyz.()"
    vocabulary = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *characters,
        *(f"##{one}" for one in characters),
    ]
    tokenizer = Tokenizer(
        models.WordPiece({piece: place for place, piece in enumerate(vocabulary)}, unk_token="[UNK]")
    )
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "pad", "cls", "sep", "mask")}
    BertTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=64,
    )  # fmt: skip
    torch.manual_seed(3)
    BertModel(config).save_pretrained(folder)
    hparams = HParams(
        use_chars_lstm=False, use_pretrained=True, pretrained_model=str(folder), use_encoder=True, d_model=16,
        num_layers=1, num_heads=2, d_kv=4, d_ff=16, encoder_max_len=64, morpho_emb_dropout=0.0, relu_dropout=0.0,
        residual_dropout=0.0, attention_dropout=0.0, d_label_hidden=8, d_tag_hidden=8, predict_tags=True,
        tag_loss_scale=1.0, force_root_constituent=True,
    )  # fmt: skip
    labels = ["", "S", "NP", "VP", "WHNP", "WHADJP", "SINV", "SQ"]
    with _special_pieces():
        parser = ChartParser(
            {"UNK": 0, "NN": 1, "VB": 2}, {label: place for place, label in enumerate(labels)}, {}, hparams
        )
    torch.save(parser.state_dict(), folder / "benepar_model.bin")
    config.benepar = dict(parser.config)
    config.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def annotator(model, tmp_path_factory):
    return load_annotator(f"benepar:{model}+words=en+max_words=20")


LINES = ["The dog (barks). Dogs bark.", "", "Dogs bark", "dog " * 45, "ab" * 300]


def test_phrases_over_the_words_of_another_annotator(annotator):
    assert isinstance(annotator, Annotator)
    assert annotator.provides == {*load_annotator("en").provides, "constituency"}
    assert annotator.version.startswith("benepar-0.2.0+")
    base = load_annotator("en").annotate(LINES)
    sentences = annotator.annotate(LINES)
    for sentence, plain in zip(sentences, base, strict=True):
        assert (sentence.words, sentence.offsets, sentence.governors) == (
            plain.words,
            plain.offsets,
            plain.governors,
        )
        if sentence.words:
            assert leaves_of(parse_tree(sentence.constituency)) == sentence.words
    assert sentences[1].constituency is None
    assert parse_tree(sentences[0].constituency).label == "S"
    assert sentences == [annotator.annotate([line])[0] for line in LINES]


def test_given_words_stay_as_they_are(annotator):
    first, second = annotator.annotate_words([["can't", "(", "3/4."], ["Dogs"]])
    assert first.words == leaves_of(parse_tree(first.constituency)) == ("can't", "(", "3/4.")
    assert leaves_of(parse_tree(second.constituency)) == ("Dogs",)


def test_transformers_are_left_as_they_were(annotator):
    from transformers import PreTrainedTokenizerBase

    assert not hasattr(PreTrainedTokenizerBase, "build_inputs_with_special_tokens")


def test_what_the_model_cannot_parse_gets_a_flat_tree_and_is_counted(annotator, caplog):
    lines = ["Dogs bark", "abcdefghijklmnopqrstuvwxyz " * 9]  # 234 pieces, the model has 62 positions
    with caplog.at_level(logging.WARNING):
        good, bad = annotator.annotate(lines)
    assert bad.constituency.startswith("(S (X abcdef")
    assert good == annotator.annotate(lines[:1])[0]
    assert "benepar failed on 1 sentence(s), which get flat trees; the last began 'abcdef" in caplog.text


@pytest.mark.parametrize(
    ("governors", "max_words", "parts"),
    [
        ((1, -1, 1), 9, [(0, 3)]),
        ((1, -1, -1, 2), 9, [(0, 2), (2, 4)]),
        ((-1, -1, -1), 9, [(0, 1), (1, 2), (2, 3)]),
        ((2, -1, -1), 9, [(0, 3)]),  # an arc over the second root
        ((-1, 0, 0, 0, 0), 2, [(0, 2), (2, 4), (4, 5)]),
        (None, 9, [(0, 4)]),
        (None, 3, [(0, 3), (3, 4)]),
        ((), 3, []),
    ],
)
def test_a_line_is_cut_where_no_arc_goes_over(governors, max_words, parts):
    n_words = 4 if governors is None else len(governors)
    sentence = Sentence.from_words(["w"] * n_words, governors=governors)
    assert list(grammatical_sentences(sentence, max_words)) == parts


def test_spaces_are_those_of_the_text(tmp_path):
    seen = []

    class Spy:
        def parse_sents(self, inputs):
            seen.extend(inputs)
            raise ValueError("no")

    path = tmp_path / "dogs.conllu"
    write_conllu(path, [Sentence.from_words(["Dogs", "bark", "."], governors=(1, -1, 1))])
    parser = BeneparParser(Spy(), lambda **given: SimpleNamespace(**given), load_annotator(f"conllu:{path}"))
    assert parser.parse_lines(["Dogs bark."])[0].constituency == "(S (X Dogs) (X bark) (X .))"
    assert seen[0].words == ["Dogs", "bark", "."]
    assert seen[0].space_after == [True, False, False]


def test_a_missing_package_is_named(monkeypatch):
    original = builtins.__import__

    def refuse(name, *rest):
        if name == "benepar":
            raise ImportError(name)
        return original(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(BackendMissingError) as caught:
        load_annotator("benepar:benepar_en3")
    assert str(caught.value) == "the package benepar is not installed. Run: python -m pip install benepar"


def test_a_missing_model_is_named():
    with pytest.raises(BackendMissingError) as caught:
        load_annotator("benepar:benepar_en3")
    assert str(caught.value) == (
        "the benepar model 'benepar_en3' is not installed. "
        "Run: python -c \"import benepar; benepar.download('benepar_en3')\"  # some 0.1 GB for T5-small to 2 GB for XLM-R"
    )


def test_folders_that_are_no_model(tmp_path):
    with pytest.raises(DataError, match=r"none: annotator: expected a benepar model, found none\."):
        load_annotator(f"benepar:{tmp_path}/none")
    with pytest.raises(DataError, match=r"annotator: expected a benepar model, got: "):
        load_annotator(f"benepar:{tmp_path}")


def test_a_language_without_words_is_refused(model):
    with pytest.raises(ConfigError) as caught:
        load_annotator(f"benepar:{model}")
    assert str(caught.value) == (
        f"annotator benepar: expected +words=ANNOTATOR after {str(model)!r}, got none, and no pipeline for its "
        "language is bundled. Give one that tokenizes it, such as +words=spacy:NAME."
    )
