"""Vectors of an encoder and their principal components, and a translator whose tables begin as these."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast, T5Config, T5Model

from syntaxformer.base.errors import ConfigError
from syntaxformer.cli.main import main
from syntaxformer.runs.loading import TRANSLATOR, verify_folder
from syntaxformer.translation.decoding import Hypothesis
from syntaxformer.translation.model import SyntaxTransformer
from syntaxformer.translation.pretrained_tables import (
    PieceVectors,
    contextual_vectors,
    input_vectors,
    reduce_width,
    sample_lines,
)
from syntaxformer.translation.recipe import load_recipe
from syntaxformer.translation.scoring import score_translations
from syntaxformer.translation.subwords import encoder_tokenizer
from syntaxformer.translation.training import train_translator
from syntaxformer.translation.translator import Translator

EN = ["the cat sat on the mat", "A dog ran", "cats and dogs sat", "the dog and the cat"] * 3
DE = ["die Katze saß auf der Matte", "ein Hund lief", "Katzen und Hunde saßen", "der Hund und die Katze"] * 3
REFERENCES = ["Cats , and the dog 's mat .", "A so-called cat sat !"]


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """A folder with a tiny random BERT and a WordPiece tokenizer of its own."""
    folder = tmp_path_factory.mktemp("bert")
    backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True, strip_accents=False)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    trainer = trainers.WordPieceTrainer(vocab_size=97, special_tokens=specials)
    backend.train_from_iterator(EN + DE + REFERENCES, trainer)
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    backend.enable_truncation(5)  # as sentence encoders have it: it must not cut our lines
    roles = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token"), specials, strict=True))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **roles)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(11)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=18, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=19, max_position_embeddings=23,
    )  # fmt: skip
    BertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture
def train(tmp_path):
    for split in ("train", "dev"):
        for language, lines in (("en", EN), ("de", DE)):
            (tmp_path / f"{split}.{language}").write_text("".join(f"{line}\n" for line in lines), "utf-8")

    def run(*settings, resume=False, overwrite=False, steps=2):
        given = [
            f"output={tmp_path / 'run'}", f"data.dir={tmp_path}", "data.dev=dev", "data.max_pieces=40",
            "subwords.vocab_size=330", "model.d_model=14", "model.d_ff=17", "model.n_heads=2",
            "model.encoder_layers=1", "model.decoder_layers=1", f"training.max_steps={steps}",
            "training.eval_every=1", "training.max_batch_tokens=64", "training.tensorboard=false",
            "training.precision=fp32", "infusion.width=4",
        ]  # fmt: skip
        return train_translator(load_recipe("tiny", [*given, *settings]), resume, overwrite)

    return run


@pytest.mark.slow
def test_the_source_table_begins_as_components_and_translation_works(bert, train):
    folder = train(
        f"pretrained_embeddings.source.model={bert}", "pretrained_embeddings.source.freeze=true",
        "infusion.kind=concat_pos", "annotation.annotator=en",
    )  # fmt: skip
    report = json.loads((folder / "run.json").read_text("utf-8"))["pretrained_embeddings"]["source"]
    assert (report["vectors"], report["width"]) == ("input", 10)
    assert 0 < report["explained_variance"] < 1
    table = SyntaxTransformer.from_pretrained(folder).encoder.embedding.word.weight.detach().numpy()
    own = BertModel.from_pretrained(bert).embeddings.word_embeddings.weight.detach().numpy()
    centred = own - own.mean(0)
    # Frozen, so still components of the vectors, all stretched alike; row 0 is padding.
    kept = centred @ np.linalg.svd(centred, full_matrices=False)[2][:10].T
    ours, theirs = (rows[1:] @ rows[1:].T for rows in (table, kept))
    np.testing.assert_allclose(ours / ours.std(), theirs / theirs.std(), atol=1e-3)
    assert not table[0].any()
    translator = Translator.load(folder)
    assert len(list(translator.translate(["The cat sat on the mat and the dog ran"]))) == 1
    encoded = translator.encode(["The cat sat on the mat and the dog ran"])
    assert encoded.lengths[0] > 9  # the tokenizer's own limit of 5 pieces is off
    names = translator.encoder.tokenizer.convert_ids_to_tokens(encoded.pieces.tolist())
    assert (names[0], names[1], names[-1]) == ("[CLS]", "the", "[SEP]")
    tags = [translator.encoder.vocabularies["pos"].entries[value] for value in encoded.factors[:, 0]]
    assert (tags[0], tags[1], tags[-1]) == ("<none>", "DET", "<none>")


def test_a_narrow_table_is_mapped_up_and_resumes(bert, train):
    settings = (f"pretrained_embeddings.source.model={bert}", "pretrained_embeddings.source.width=5")
    first = train(*settings, "pretrained_embeddings.source.vectors=contextual")
    report = json.loads((first / "run.json").read_text("utf-8"))["pretrained_embeddings"]
    folder = train(*settings, "pretrained_embeddings.source.vectors=contextual", resume=True, steps=3)
    assert json.loads((folder / "run.json").read_text("utf-8"))["pretrained_embeddings"] == report
    word = SyntaxTransformer.from_pretrained(folder).encoder.embedding.word
    assert (word.weight.shape[1], tuple(word.map.weight.shape)) == (5, (14, 5))
    assert word(torch.tensor([[4, 5, 6]])).shape == (1, 3, 14)


def test_contextual_vectors_of_the_target_are_those_of_whole_lines(bert, train):
    of_target = "pretrained_embeddings.target"
    folder = train(
        f"{of_target}.model={bert}", f"{of_target}.vectors=contextual", f"{of_target}.freeze=true",
        "model.d_model=18",
    )  # fmt: skip
    table = SyntaxTransformer.from_pretrained(folder).decoder.embedding.weight.detach().numpy()
    encoder, tokenizer = BertModel.from_pretrained(bert).eval(), PreTrainedTokenizerFast.from_pretrained(bert)
    tokenizer.backend_tokenizer.no_truncation()
    with torch.inference_mode():
        lines = [tokenizer.backend_tokenizer.encode(line).ids for line in DE]
        states = [encoder(torch.tensor([ids])).last_hidden_state[0] for ids in lines]
    for piece in (tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.convert_tokens_to_ids("die")):
        places = [state[place] for ids, state in zip(lines, states, strict=True)
                  for place, found in enumerate(ids) if found == piece]  # fmt: skip
        mean = torch.stack(places).mean(0).numpy()
        cosine = mean @ table[piece] / np.linalg.norm(mean) / np.linalg.norm(table[piece])
        assert cosine == pytest.approx(1, abs=1e-5)
    known = sorted({piece for ids in lines for piece in ids})
    others = sorted(set(range(1, len(table))) - set(known))
    np.testing.assert_allclose(table[others], np.tile(table[known].mean(0), (len(others), 1)), atol=1e-6)


class _Perfect:
    """A decoder that finds the pieces of the references."""

    n_ahead, longest = 0, 99

    def __init__(self, tokenizer, references):
        self.pieces = [tokenizer(line)["input_ids"] for line in references]

    def decode(self, source, rows, search):
        return [[Hypothesis(pieces=self.pieces[row])] for row in rows]


def test_a_perfect_translation_in_an_encoders_pieces_scores_100(bert, train, tmp_path, monkeypatch, capsys):
    folder = train(f"pretrained_embeddings.target.model={bert}", "model.d_model=18", "training.best_by=bleu")
    assert json.loads((folder / "run.json").read_text("utf-8"))["references"] == "refs:through_target_pieces"
    loaded = Translator.load(folder)
    perfect = _Perfect(loaded.encoder.target_tokenizer, REFERENCES)
    translator = Translator(perfect, loaded.encoder, loaded.info, loaded.annotator)
    found = [best[0].text for best in translator.translate(["a cat", "a dog"])]
    # Lower-case and with the tokenizer's own spaces, and otherwise as it was: no clean-up.
    assert found == ["cats , and the dog ' s mat .", "a so - called cat sat !"]
    assert translator.as_written(REFERENCES) == found
    assert score_translations(found, REFERENCES).bleu < 100
    monkeypatch.setattr(Translator, "load", lambda *args, **further: translator)
    for name, lines in (("src", ["a cat", "a dog"]), ("ref", REFERENCES)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    sides = ["--src", str(tmp_path / "src"), "--ref", str(tmp_path / "ref"), "--baseline", str(folder)]
    monkeypatch.setattr("sys.argv", ["syntaxformer", "evaluate", str(folder), *sides, "--json"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert not caught.value.code
    report = json.loads(capsys.readouterr().out)
    assert round(report["bleu"], 6) == 100
    assert report["bleu_signature"].endswith("|refs:through_target_pieces")
    assert report["difference"] == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("source.model=BERT model.d_model=20 infusion.kind=none", "pretrained_embeddings.source: expected at most 18 columns"),
        ("source.model=BERT source.width=15", "pretrained_embeddings.source.width: expected at most the word width, 14, got 15."),
        ("target.model=BERT target.width=9", "pretrained_embeddings.target.width: expected d_model = 14"),
        ("source.model=BERT subwords.tokenizer=other", "subwords.tokenizer: expected none with pretrained_embeddings"),
        ("source.model=/none", "pretrained_embeddings: expected an encoder at /none, which is no folder here, got: "),
        ("pretrained_embeddings={}", "pretrained_embeddings: expected source, target or both, got neither."),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_one_line(bert, train, settings, message):
    tables = ("source.", "target.")
    with pytest.raises(ConfigError) as caught:
        train(*(
            f"pretrained_embeddings.{setting}" * setting.startswith(tables) or setting
            for setting in settings.replace("BERT", str(bert)).split()
        ))  # fmt: skip
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("n_rows", [31, 1200])
def test_an_encoder_of_another_tokenizer_is_one_line(bert, train, tmp_path, n_rows):
    shape = BertConfig(vocab_size=n_rows, hidden_size=18, num_hidden_layers=1, num_attention_heads=2)
    BertModel(shape).save_pretrained(tmp_path / "other")
    PreTrainedTokenizerFast.from_pretrained(bert).save_pretrained(tmp_path / "other")
    message = rf"got an encoder with {n_rows} rows, which belongs to another tokenizer\."
    with pytest.raises(ConfigError, match=message):
        train(f"pretrained_embeddings.source.model={tmp_path / 'other'}")


@pytest.mark.parametrize("vectors", ["input", "contextual"])
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda weights: {f"foo.{name}": value for name, value in weights.items()}, "missing: embeddings."),
        (lambda weights: {name: value for name, value in weights.items() if "word_emb" not in name}, "missing: embeddings.word_embeddings.weight (1 in all)."),
        (None, "pretrained_embeddings: expected an encoder at "),
    ],
)  # fmt: skip
def test_an_encoder_without_its_weights_is_one_line(bert, train, tmp_path, damage, message, vectors):
    folder = shutil.copytree(bert, tmp_path / "damaged")
    file = folder / "model.safetensors"
    if damage is None:
        file.write_bytes(file.read_bytes()[:3000])
    else:
        save_file(damage(load_file(file)), file, {"format": "pt"})
    of_source = "pretrained_embeddings.source"
    with pytest.raises(ConfigError) as caught:
        train(f"{of_source}.model={folder}", f"{of_source}.vectors={vectors}")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_pooler_need_not_be_there_and_other_layers_only_for_their_states(bert, train, tmp_path):
    folder = shutil.copytree(bert, tmp_path / "part")
    file, of_source = folder / "model.safetensors", "pretrained_embeddings.source"
    weights = {name: value for name, value in load_file(file).items() if "pooler" not in name}
    save_file(weights, file, {"format": "pt"})
    train(f"{of_source}.model={folder}", f"{of_source}.vectors=contextual", f"{of_source}.width=5")
    weights = {name: value for name, value in weights.items() if "encoder.layer" not in name}
    save_file(weights, file, {"format": "pt"})
    train(f"{of_source}.model={folder}", overwrite=True)
    with pytest.raises(ConfigError, match=r"missing: encoder\.layer\.0\."):
        train(f"{of_source}.model={folder}", f"{of_source}.vectors=contextual", overwrite=True)


def test_weights_in_pickle_are_not_read(bert, train, tmp_path):
    folder = shutil.copytree(bert, tmp_path / "pickled")
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"pretrained_embeddings: expected an encoder at .*pickled"):
        train(f"pretrained_embeddings.source.model={folder}")


def test_states_of_the_encoder_of_an_encoder_decoder(bert, tmp_path, train):
    tokenizer = PreTrainedTokenizerFast.from_pretrained(bert)
    shape = {"d_model": 18, "d_kv": 9, "d_ff": 19, "num_layers": 1, "num_decoder_layers": 1, "num_heads": 2}
    T5Model(T5Config(vocab_size=len(tokenizer), **shape)).save_pretrained(tmp_path / "t5")
    tokenizer.save_pretrained(tmp_path / "t5")
    section = "pretrained_embeddings.source"
    settings = f"{section}.model={tmp_path / 't5'}", f"{section}.vectors=contextual", f"{section}.width=5"
    report = json.loads((train(*settings) / "run.json").read_text("utf-8"))["pretrained_embeddings"]["source"]
    assert 0 < report["pieces_with_vector"] <= len(tokenizer)
    file = tmp_path / "t5" / "model.safetensors"
    weights = {name: value for name, value in load_file(file).items() if "encoder.block" not in name}
    save_file(weights, file, {"format": "pt"})
    with pytest.raises(ConfigError, match=r"missing: encoder\.block\.0\."):
        train(*settings, overwrite=True)


@pytest.mark.parametrize("vectors", ["input", "contextual"])
def test_a_refused_encoder_leaves_the_older_run_as_it_was(bert, train, vectors, monkeypatch):
    folder = train()
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    monkeypatch.setattr("syntaxformer.translation.training.prepare", None)  # refused before any work
    of_target = f"pretrained_embeddings.target={{model: {bert}, vectors: {vectors}}}"
    with pytest.raises(ConfigError, match="expected at most 18 columns, the encoder's own width, got 20"):
        train(of_target, "model.d_model=20", overwrite=True)
    assert before == {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    verify_folder(folder, TRANSLATOR)


def test_what_is_fine_tuned_pads_on_the_right(tmp_path):
    """A classifier takes the vector of the first piece, which is no piece of text where padding stands there."""
    from transformers import BertTokenizerFast

    from syntaxformer.encoders.pretrained import load_tokenizer

    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    BertTokenizerFast(vocab=vocabulary, padding_side="left", model_max_length=17).save_pretrained(tmp_path)
    assert load_tokenizer(str(tmp_path), 17).padding_side == "right"


def test_lines_of_a_large_text_are_drawn_from_all_of_it(caplog):
    caplog.set_level("INFO", "syntaxformer")
    lines = [str(number) for number in range(1000)]
    drawn = sample_lines("source", lines, 100)
    assert drawn == sample_lines("source", lines, 100) == sorted(set(drawn), key=int)
    assert len(drawn) == 100
    assert 400 < np.mean([int(line) for line in drawn]) < 600
    assert caplog.messages[0] == "source table: contextual vectors from 100 of 1000 lines (max_lines)"
    assert sample_lines("source", lines, 1000) is lines


@pytest.fixture(scope="module")
def encoder(bert):
    """The network and its tokenizer."""
    return BertModel.from_pretrained(bert).eval(), encoder_tokenizer(str(bert), target=False)


def test_input_vectors_are_the_rows_of_the_tokenizer(encoder):
    network, tokenizer = encoder
    vectors, n_pieces = input_vectors(network, len(tokenizer) - 2), len(tokenizer)
    table = network.embeddings.word_embeddings.weight.detach().numpy()
    np.testing.assert_array_equal(vectors.values, table[: n_pieces - 2])
    assert vectors.known.all()
    with pytest.raises(ValueError, match="expected a row for each of the tokenizer's"):
        input_vectors(network, n_pieces + 2)


def test_contextual_vectors_are_means_over_places_whatever_the_batch(encoder):
    network, tokenizer = encoder
    lines = ["the cat sat", "The cat", "cat " * 29]
    vectors = contextual_vectors(network, tokenizer, lines)
    sums, counts = np.zeros((len(tokenizer), 18)), np.zeros(len(tokenizer))
    for line in lines:
        pieces = tokenizer(line)["input_ids"]
        pieces = pieces if len(pieces) <= 23 else [*pieces[:22], pieces[-1]]
        with torch.inference_mode():
            states = network(torch.tensor([pieces])).last_hidden_state[0].numpy()
        for piece, state in zip(pieces, states, strict=True):
            sums[piece] += state
            counts[piece] += 1
    assert vectors.known.tolist() == (counts > 0).tolist()
    assert not vectors.known.all()
    assert vectors.n_cut == 1
    means = sums[counts > 0] / counts[counts > 0, None]
    np.testing.assert_allclose(vectors.values[counts > 0], means, atol=1e-5)


def test_components_keep_what_varies():
    random = np.random.default_rng(5)
    flat = random.normal(size=(31, 2)) @ random.normal(size=(2, 7)) + 3
    known = np.arange(31) != 4
    reduced = reduce_width(PieceVectors(flat.astype(np.float32), known), 2)
    assert reduced.values.shape == (31, 2)
    assert reduced.explained_variance == pytest.approx(1.0, abs=1e-6)
    assert not reduced.values[4].any()
    centred = flat[known] - flat[known].mean(0)  # distances are kept, as nothing was lost
    np.testing.assert_allclose(
        reduced.values[known] @ reduced.values[known].T, centred @ centred.T, atol=1e-3
    )
    assert reduce_width(PieceVectors(flat, known), 1).explained_variance < 1
    same = PieceVectors(flat, known)
    assert reduce_width(same, 7) is same


def test_more_components_than_there_are_is_refused():
    vectors = PieceVectors(np.ones((3, 7), np.float32), np.array([True, True, False]))
    with pytest.raises(ValueError, match=r"^expected at most 7 columns, the encoder's own width, got 8\.$"):
        reduce_width(vectors, 8)
    with pytest.raises(ValueError, match=r"^expected at most 2 columns, the number of vectors, got 3\.$"):
        reduce_width(vectors, 3)
