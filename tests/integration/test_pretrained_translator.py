"""From a pretrained translator to one of the user's: trained, with syntax or adapters, used by every verb."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

import syntaxformer as sf
from browser import chromium, needs_chromium, pages, served, wait_for_answers
from pretrained_translators import KINDS, everyday_pairs, make_translator
from syntaxformer.base.errors import CheckpointError, ConfigError
from syntaxformer.study.attention import cross_attention
from syntaxformer.translation.batches import TranslationCollator
from syntaxformer.translation.markup import translate_markup
from syntaxformer.translation.recipe import load_recipe
from syntaxformer.translation.torch_decoder import LengthLimit
from syntaxformer.translation.training import SyntaxTrainer, build, prepare, train_translator
from syntaxformer.translation.translator import Translator

pytestmark = pytest.mark.filterwarnings(
    "ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"
)  # PEFT

SMALL = (
    "data.dev=dev", "training.max_steps=2", "training.eval_every=2", "training.max_batch_tokens=300", "data.max_pieces=100",
    "training.precision=fp32", "training.tensorboard=false", "training.best_by=loss", "decoding.beam_size=2",
    "decoding.max_length_factor=0.5",
)  # fmt: skip
SYNTAX = ("infusion.kind=add", "infusion.factors=[pos,case]", "relation_bias={}", "lisa={}")
LINES = ["I see a cat.", "Tom is here now!", "Where is my book?"]


@pytest.fixture(scope="session")
def everyday(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real pairs as files."""
    folder = tmp_path_factory.mktemp("everyday")
    for split, pairs in (("train", everyday_pairs(48)), ("dev", everyday_pairs(64)[48:])):
        for side, language in enumerate(("en", "de")):
            (folder / f"{split}.{language}").write_text("".join(f"{pair[side]}\n" for pair in pairs), "utf-8")
    return folder


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A pretrained translator of each kind."""
    home = tmp_path_factory.mktemp("checkpoints")
    return {kind: make_translator(kind, home / kind) for kind in KINDS}


def _recipe(start: Path, everyday: Path, output: Path, *settings: str) -> Any:
    where = (f"model.init_from={start}", f"data.dir={everyday}", f"output={output}")
    return load_recipe("finetune_translator", [*where, *SMALL, *settings])


@pytest.fixture
def recipe_of(checkpoints, everyday, tmp_path):
    """The recipe of a short run, from a checkpoint of a kind or in a folder."""

    def make(start, *settings, output="out", data=everyday):
        return _recipe(checkpoints.get(start, start), data, tmp_path / output, *settings)

    return make


@pytest.fixture
def tune(recipe_of):
    """Train such a run; returns its folder."""
    return lambda *settings, **where: train_translator(recipe_of(*settings, **where))


def _texts(translator: Translator, lines: list[str], **options: Any) -> list[str]:
    return [best[0].text for best in translator.translate(lines, **options)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_untrained_it_translates_as_the_checkpoint(kind, checkpoints, tune):
    """With tags, biases and LISA in it, at a rate of nothing: transformers' own search gives the same text."""
    syntax = SYNTAX[:3]  # LISA replaces a head, which changes what is computed
    rates = ("training.learning_rate=1e-20", "training.infusion_learning_rate=1e-20")
    folder = tune(kind, *syntax, *rates)
    translator = Translator.load(folder)
    model = AutoModelForSeq2SeqLM.from_pretrained(checkpoints[kind]).eval()
    tokenizer = AutoTokenizer.from_pretrained(checkpoints[kind])
    wanted, start = [], model.config.decoder_start_token_id
    codes = {"nllb": ("eng_Latn", "deu_Latn"), "m2m100": ("en", "de"), "mbart": ("en_XX", "de_DE")}
    options: dict[str, Any] = {"forced_bos_token_id": 0 if kind == "bart" else None}
    if kind in codes:
        tokenizer.src_lang, target = codes[kind]
        code = tokenizer.convert_tokens_to_ids(f"__{target}__" if kind == "m2m100" else target)
        options = {"forced_bos_token_id": code}
        start = code if kind == "mbart" else start
        options = {} if kind == "mbart" else options
    for line in LINES:
        rows = tokenizer([line], return_tensors="pt", return_token_type_ids=False)
        n_text = rows["input_ids"].shape[1]
        suppressed = [tokenizer.pad_token_id, tokenizer.unk_token_id]
        found = model.generate(
            **rows,
            num_beams=2,
            decoder_start_token_id=start,
            max_new_tokens=int(n_text * 0.5) + 10,
            suppress_tokens=suppressed,
            no_repeat_ngram_size=0,
            forced_eos_token_id=tokenizer.eos_token_id,  # as ours ends at the limit
            **options,
        )
        wanted += [
            re.sub("__[a-z]+__", "", one) for one in tokenizer.batch_decode(found, skip_special_tokens=True)
        ]
    ours = _texts(translator, LINES)
    if kind in ("marian", "m2m100"):  # whose originals put pieces together by SentencePiece
        assert [one.replace(" ", "") for one in ours] == [one.replace(" ", "") for one in wanted]
    else:
        assert ours == [one.strip() for one in wanted]
    # What is forced costs nothing, in the score as in the search.
    (best,) = translator.translate(LINES[:1], 2, n_best=2, scored=True)
    assert best[0].text == ours[0]
    rows = tokenizer(LINES[:1], return_tensors="pt", return_token_type_ids=False)
    made = torch.tensor([[start, *best[0].pieces]])
    with torch.inference_mode():
        logs = model(**rows, decoder_input_ids=made[:, :-1]).logits.log_softmax(-1)
    free = logs[0].gather(-1, made[0, 1:, None])[options.get("forced_bos_token_id") is not None :]
    assert best[0].score == pytest.approx(free.sum().item() / len(best[0].pieces), abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["marian", "nllb"])
def test_generate_of_transformers_searches_as_the_recipe_says(kind, tune):
    """Not greedily, and not up to twenty pieces, which are transformers' own defaults."""
    search = ("decoding.length_penalty=0.6", "decoding.no_repeat_ngram_size=3")
    folder = tune(kind, *search, "training.learning_rate=0.003")
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    kept = model.generation_config
    assert (kept.num_beams, kept.length_penalty, kept.no_repeat_ngram_size) == (2, 0.6, 3)
    assert kept.max_new_tokens == 100 * 0.5 + 10
    translator = Translator.load(folder)
    encoder = translator.encoder
    ids = encoder.tokenizer(LINES[:1], add_special_tokens=True)["input_ids"]
    limit, target = int(len(ids[0]) * 0.5) + 10, encoder.target_tokenizer
    ending = LengthLimit(torch.tensor([limit]), target.eos_token_id, 2, model.device)
    found = model.generate(torch.tensor(ids), max_new_tokens=limit, logits_processor=[ending])
    assert target.decode(found[0], skip_special_tokens=True) == _texts(translator, LINES[:1])[0]


@pytest.fixture(scope="session")
def tuned(checkpoints: dict[str, Path], everyday: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """OPUS-MT's kind with everything, trained a little."""
    output = tmp_path_factory.mktemp("tuned") / "all"
    settings = (*SYNTAX, "masks={}", "training.learning_rate=0.003")
    return train_translator(_recipe(checkpoints["marian"], everyday, output, *settings))


@pytest.mark.slow
def test_every_verb_takes_it(tuned, everyday, cli, tmp_path):
    """Translate, evaluate, attend; LISA's heads take the parser's governors; an export says why not."""
    source, reference = everyday / "dev.en", everyday / "dev.de"
    done = cli("translate", tuned, source, "-o", tmp_path / "out.de")
    assert done.code == 0
    assert len((tmp_path / "out.de").read_text().splitlines()) == 16
    done = cli("evaluate", tuned, "--src", source, "--ref", reference, "--baseline", tuned)
    assert done.code == 0
    assert "BLEU" in done.out
    done = cli("attend", tuned, "I see a cat.", "-o", tmp_path / "seen.png")
    assert done.code == 0
    assert (tmp_path / "seen.png").stat().st_size > 1000
    done = cli("export", tuned, tmp_path / "export")
    assert done.code == 2
    for name in ("lisa", "masks", "relation_bias"):
        assert f"{name}: expected a model that CTranslate2 can compute" in done.err
    assert Translator.load(tuned, inject_governors=True).model.infusion.inject == "gold"


@pytest.mark.slow
def test_attention_is_a_distribution_over_the_source(tuned):
    """Of a pretrained decoder, whose fast attention gives none."""
    seen = cross_attention(Translator.load(tuned), "I see a cat.", translation="Ich sehe eine Katze.")
    torch.testing.assert_close(torch.from_numpy(seen.weights.sum(-1)), torch.ones(seen.weights.shape[:-1]))
    assert seen.src_pieces[-1] == "</s>"
    assert set(seen.factors) == {"pos", "case"}


def test_the_service_takes_it(tuned):
    """The engine shows its tags, its shape, and for the explorer its attention and trees."""
    from syntaxformer.serve.engines import TranslatorEngine
    from syntaxformer.serve.schemas import ExplainSettings, TranslateSettings

    engine = TranslatorEngine("tuned", Translator.load(tuned))
    assert engine.description.n_layers == 2
    assert engine.description.n_heads == 2
    (found,) = engine.translate(TranslateSettings(show=["tags"]), ["I see a cat."])
    assert found.text
    (told,) = engine.work(ExplainSettings(), ["I see a cat."])
    assert told.attention.kind == "cross"
    assert told.sentences[0].words == ["I", "see", "a", "cat", "."]


@pytest.mark.slow
@needs_chromium
def test_the_explorer_shows_it_like_our_own(tuned):
    """In the browser: pieces of its own tokenizer with tags, its alignment, the parser's trees."""
    from syntaxformer.serve import ServiceConfig, create_app
    from syntaxformer.serve.engines import TranslatorEngine

    engine = TranslatorEngine("tuned", Translator.load(tuned))
    tokenizer, text = AutoTokenizer.from_pretrained(tuned), "Where is my cat?"
    app = create_app(ServiceConfig(models={"tuned": "."}), {"tuned": engine})
    with served(app) as address, chromium() as browser, pages(browser, address) as open_page:
        page = open_page(path=f"/?text={text.replace(' ', '+')}&view=pieces")
        wait_for_answers(page)
        assert page.get_by_role("tab").all_inner_texts() == [
            "Words", "Pieces", "Attention", "Dependencies", "Phrases", "Relations", "Sub-networks",
        ]  # fmt: skip
        rows = [row.locator("th, td").all_inner_texts() for row in page.locator("#view tbody tr").all()]
        pieces = [piece.lstrip("▁") or "▁" for piece in tokenizer.tokenize(text)]  # written in letters
        assert [row[0] for row in rows] == [*pieces, "</s>"]
        assert "".join(dict.fromkeys(row[1] for row in rows)) == text.replace(" ", "")
        assert next(row[2:] for row in rows if row[1] == "Where") == ["ADV", "1"]
        assert rows[-1][2:] == ["–", "–"]
        page.get_by_role("tab", name="Attention").click()
        caption = page.locator("#view figcaption").inner_text()
        assert caption.startswith("translation → source, layer 1, mean of 2 heads")
        columns = page.locator("#view .cells text").all_text_contents()
        assert columns == [row[0] for row in rows]
        page.get_by_role("tab", name="Dependencies").click()
        assert page.locator("#view .arc").count() == 5
        look = "async (one) => (await import('/explore/static/pieces.js')).readable(one)"
        for piece, letters in (
            ("ĠcafÃ©", "café"),
            ("Ã", "Ã"),
            ("ĠÐºÐ¾ÑĤ", "кот"),
            ("▁Straße", "Straße"),
            ("é", "é"),
        ):
            assert page.evaluate(look, piece) == letters


@pytest.mark.slow
def test_its_encoder_is_probed_and_it_is_compared(tuned, everyday, cli, tmp_path):
    """States of words come from each layer; sentence by sentence it is compared like our own."""
    from syntaxformer.study.word_states import translator_words

    translator = Translator.load(tuned)
    states, owners = translator_words(translator).encode(translator.annotator.annotate(["I see a cat."]))
    assert len(states) == 3
    assert owners[0].tolist()[-1] == -1
    source, reference = everyday / "dev.en", everyday / "dev.de"
    done = cli("compare", tuned, tuned, "--src", source, "--ref", reference, "-o", tmp_path / "cases.md")
    assert done.code == 0
    assert "equal in 16" in (tmp_path / "cases.md").read_text()


EXPORTS = [(kind, infusion) for kind in KINDS for infusion in ("none", "add", "concat")]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "infusion"), EXPORTS)
def test_export_to_ctranslate2_translates_the_same(kind, infusion, checkpoints, cli, tmp_path, tune):
    """Plain, and with tags as a second source stream; log-probabilities are compared on the way."""
    pytest.importorskip("ctranslate2")
    settings = (f"infusion.kind={infusion}", "training.learning_rate=0.003")
    start = checkpoints[kind] if kind != "marian" else make_translator(kind, tmp_path / "start", padding=True)
    folder = tune(start, *settings, output="trained")
    done = cli("export", folder, tmp_path / "export")
    assert (done.code, done.err.count("error")) == (0, 0), done.err
    assert json.loads((tmp_path / "export" / "export.json").read_text())["largest_difference"] < 1e-3
    ours, exported = Translator.load(folder), Translator.load(tmp_path / "export")
    assert _texts(exported, LINES, beam_size=1) == _texts(ours, LINES, beam_size=1)
    assert ours.info.alignment is not None  # the head that aligns was chosen when training ended
    for (one,), (other,) in zip(
        *(model.translate(LINES, beam_size=1, alignments=True) for model in (ours, exported)), strict=True
    ):
        n_pieces = len(other.pieces)
        np.testing.assert_allclose(one.attention.weights[:n_pieces], other.attention.weights, atol=1e-4)
        assert one.alignment == other.alignment
    lines = ["I <b>see</b> a cat.<br>", "Where &amp; <i>why</i>?"]
    for model in (ours, exported):
        texts = [best.text for (best,) in translate_markup(model, lines, beam_size=1)]
        tags = [re.findall(r"<[^>]*>", text) for text in texts]
        assert [sorted(of_line) for of_line in tags] == [["</b>", "<b>", "<br>"], ["</i>", "<i>"]]


@pytest.mark.slow
def test_adapters_are_merged_and_saved_apart(checkpoints, recipe_of):
    """Only they and the infusion are trained; PEFT reads what was saved, and computes what the merge does."""
    from peft import PeftModel

    start, adapters = checkpoints["marian"], ("training.lora.r=3", "training.lora.keep_adapter=true")
    folder = train_translator(recipe_of(start, "relation_bias={}", *adapters, "training.learning_rate=0.01"))
    merged = sf.load(folder).eval()
    original = AutoModelForSeq2SeqLM.from_pretrained(start)
    torch.testing.assert_close(merged.get_input_embeddings().weight, original.get_input_embeddings().weight)
    weight = "model.encoder.layers.0.fc1.weight"
    assert not torch.equal(merged.state_dict()[weight], original.state_dict()[weight])
    infused = sf.infuse(original, merged.infusion.config)
    apart = PeftModel.from_pretrained(infused, folder / "lora").eval()
    batch = {"input_ids": torch.tensor([[5, 6, 7, 0]]), "syntax": torch.ones(1, 2, 4, 4, dtype=torch.uint8)}
    batch |= {"decoder_input_ids": torch.tensor([[merged.config.decoder_start_token_id, 9, 8]])}
    n_trees = len(merged.infusion.config.tree_options.used_trees)
    batch["syntax"] = batch["syntax"][:, :n_trees]
    torch.testing.assert_close(apart(**batch).logits, merged(**batch).logits, atol=1e-5, rtol=0)


@pytest.mark.slow
def test_stopped_and_resumed(checkpoints, everyday, cli, tmp_path):
    """A run with adapters and syntax that was stopped ends as one that was not."""

    def train(name: str, max_steps: int, *flags: str) -> None:
        where = (
            f"model.init_from={checkpoints['nllb']}",
            f"data.dir={everyday}",
            f"output={tmp_path / name}",
        )
        steps = (f"training.max_steps={max_steps}", "training.lora.r=2", *SYNTAX)
        done = cli("--quiet", "train", "finetune_translator", *where, *SMALL, *steps, *flags)
        assert done.code == 0, done.err

    train("unbroken", 6)
    train("stopped", 4)
    train("stopped", 6, "--resume")
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in ("unbroken", "stopped"))
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        torch.testing.assert_close(second[name], tensor, atol=1e-6, rtol=0)


@pytest.mark.slow
def test_characters_that_the_tokenizer_lacks(everyday, cli, tmp_path):
    """Counted with lines and said; learned when that is asked, and then read and written."""
    start = make_translator("marian", tmp_path / "start", without="ßäöüÄÖÜ")
    where = (f"model.init_from={start}", f"data.dir={everyday}")
    done = cli("train", "finetune_translator", *where, f"output={tmp_path / 'plain'}", *SMALL)
    assert done.code == 0
    lines = (everyday / "train.de").read_text().splitlines()
    n_lines = sum(bool(set(line) & set("ßäöüÄÖÜ")) for line in lines)
    n_characters = sum(character in "ßäöüÄÖÜ" for line in lines for character in line)
    assert f"does not know {n_characters} characters" in done.err
    assert f"in {n_lines} lines" in done.err
    assert "model.add_characters=true learns them" in done.err
    report = tmp_path / "plain" / "data_report.json"
    told = report.read_bytes()
    assert json.loads(told)["faults"]["with characters unknown to the tokenizer"]["pairs"] == n_lines
    on = ("training.max_steps=4", "--resume")
    done = cli("train", "finetune_translator", *where, f"output={tmp_path / 'plain'}", *SMALL, *on)
    assert done.code == 0, done.err
    assert report.read_bytes() == told
    model = AutoModelForSeq2SeqLM.from_pretrained(start)
    model.final_logits_bias.fill_(0.5)
    model.save_pretrained(start)
    more = (f"output={tmp_path / 'more'}", "model.add_characters=true", "training.lora.r=2")
    assert cli("train", "finetune_translator", *where, *SMALL, *more).code == 0
    translator = Translator.load(tmp_path / "more")
    tokenizer = translator.encoder.target_tokenizer
    line = next(line for line in lines if "ä" in line or "ü" in line)
    ids = tokenizer.backend_tokenizer.encode(line).ids
    assert tokenizer.unk_token_id not in ids
    assert tokenizer.decode(ids, skip_special_tokens=True).strip() == line
    table, first = translator.model.get_input_embeddings().weight, len(AutoTokenizer.from_pretrained(start))
    assert (translator.model.final_logits_bias[0, first:] == 0.5).all()  # the mean of the others
    assert len(table) > first  # trained, though the adapters leave the rest of the tables as it was


@pytest.mark.slow
def test_a_translator_of_ours_goes_on_with_other_data(everyday, tmp_path):
    """From a folder that `train` wrote: its pieces, shape and infusion; masks may be added. Then again."""
    tiny = ("model.d_model=24", "model.d_ff=32", "model.n_heads=2", "subwords.vocab_size=310")
    where = (f"data.dir={everyday}", *SMALL)
    tagged = ("infusion.kind=sum_then_concat", "infusion.width=4", f"output={tmp_path / 'a'}")
    train_translator(load_recipe("tiny", [*where, *tiny, *tagged]))
    rates = ("training.learning_rate=1e-20", "training.schedule=constant")
    child = _child(tmp_path / "a", where, tmp_path / "b", *rates)
    train_translator(child)
    assert child.model.d_model == 24
    assert child.embedding.kind == "sum_then_concat"
    before, after = (Translator.load(tmp_path / name) for name in "ab")
    assert _texts(after, LINES) == _texts(before, LINES)
    masked = _child(tmp_path / "a", where, tmp_path / "c", *rates, "masks={}", "model.add_characters=true")
    train_translator(masked)
    assert _texts(Translator.load(tmp_path / "c"), LINES) == _texts(before, LINES)
    with pytest.raises(ConfigError, match=r"model\.d_model: expected 24, as in model\.init_from"):
        _child(tmp_path / "a", where, tmp_path / "d", "model.d_model=32")
    other_way = ("data.src=de", "data.tgt=en", "annotation.annotator=de")
    turned = _child(tmp_path / "a", where, tmp_path / "d", *other_way)
    with pytest.raises(ConfigError, match="the other direction"):
        train_translator(turned)


def _child(parent: Path, where: tuple[str, ...], output: Path, *settings: str) -> Any:
    from syntaxformer.base.config import apply_overrides, validate
    from syntaxformer.translation.recipe import Recipe

    overrides = [
        Recipe.long(one) for one in (*where, f"model.init_from={parent}", f"output={output}", *settings)
    ]
    content = {"output": str(output), "data": {"src": "en", "tgt": "de"}}
    return validate(Recipe, apply_overrides(Recipe.in_full(content), overrides), "child").completed()


@pytest.mark.slow
def test_a_tuned_one_goes_on_as_it_is(tuned, recipe_of, tune):
    """What is infused stays, with the values of its factors; more cannot be infused."""
    rates = ("training.learning_rate=1e-20", "training.infusion_learning_rate=1e-20")
    folder = tune(tuned, *rates, output="again")
    assert _texts(Translator.load(folder), LINES) == _texts(Translator.load(tuned), LINES)
    with pytest.raises(ConfigError, match=r"infusion: expected that of model\.init_from"):
        recipe_of(tuned, "masks={max_distance: 3}", output="more")


def test_a_batch_that_does_not_fit_is_divided(monkeypatch, caplog, recipe_of):
    """Gradients of an update of two batches are the same, though the second fails in its backward pass."""
    dropouts = ("model.dropout=0", "model.attention_dropout=0", "model.activation_dropout=0")
    recipe = recipe_of("marian", *dropouts, "training.accumulate=2", output="o")
    data = prepare(recipe)
    collate = TranslationCollator(data.train, data.encoder.tokenizer.pad_token_id)
    batches = [collate(range(0, 12)), collate(range(12, 40))]
    n_items = sum(int((one["labels"] != -100).sum()) for one in batches)

    def gradients(most: int | None) -> dict[str, torch.Tensor]:
        torch.manual_seed(1)
        model, _ = build(recipe, data)
        trainer = SyntaxTrainer(model, recipe, data.train, data.dev, data.encoder.tokenizer.pad_token_id)
        if most is not None:
            backward = trainer.accelerator.backward

            def fails(loss: torch.Tensor, **options: Any) -> None:
                backward(loss, **options)
                if rows[-1] > most:
                    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")

            rows: list[int] = []
            monkeypatch.setattr(trainer.accelerator, "backward", fails)
            real = trainer.compute_loss

            def counts(model: Any, inputs: Any, *others: Any, **more: Any) -> Any:
                rows.append(len(inputs["labels"]))
                return real(model, inputs, *others, **more)

            monkeypatch.setattr(trainer, "compute_loss", counts)
        for batch in batches:
            trainer.training_step(model, dict(batch), torch.tensor(n_items))
        return {name: one.grad for name, one in model.named_parameters() if one.grad is not None}

    whole, divided = gradients(None), gradients(13)
    assert whole.keys() == divided.keys()
    for name, gradient in whole.items():
        torch.testing.assert_close(divided[name], gradient, atol=1e-5, rtol=1e-3)
    assert "28 pairs does not fit in memory" in caplog.text
    assert "at most 7 pairs" in caplog.text


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("infusion.kind=sum_then_concat",), r"infusion\.kind: expected one of none, add, concat"),
        (("model.d_model=64",), r"model\.d_model: expected 512"),
        (("subwords.vocab_size=500",), "subwords.vocab_size: expected none with model.init_from"),
        (("predict_target_pos={annotator: de}",), "predict_target_pos: expected none"),
        (("training.lora.r=4", "training.average=3"), "training.average: expected 1 with training.lora"),
        (
            ("masks.random=true",),
            r"masks: control: expected none, as annotators give wrong trees, got permuted",
        ),
        (("infusion.seed=3",), r"infusion\.seed: expected none"),
        (("training.lora.targets=[q_proj,no_such]",), r"training\.lora\.targets: .* got no_such"),
        (("model.src_code=eng_Latn",), r"model\.src_code: expected none"),
        (("data.max_pieces=4000", "training.max_batch_tokens=4000"), r"data\.max_pieces: expected up to 128"),
    ],
)
def test_what_does_not_go_with_a_checkpoint_is_refused(settings, message, tune):
    """By its key, before anything is trained."""
    with pytest.raises(ConfigError, match=message):
        tune("marian", *settings)


@pytest.mark.parametrize("key", ["model.add_characters=true", "model.prompt=x", "training.lora.r=2"])
def test_keys_of_a_checkpoint_need_one(key, everyday, tmp_path):
    """Else they would be passed over."""
    with pytest.raises(ConfigError, match=r"expected model\.init_from beside it"):
        load_recipe("tiny", [f"data.dir={everyday}", f"output={tmp_path}", key])


def test_a_folder_whose_infusion_was_taken_away_is_refused(tuned, tmp_path):
    """It would translate without its syntax."""
    import shutil

    folder = tmp_path / "altered"
    shutil.copytree(tuned, folder)
    (folder / "infusion.json").unlink()
    with pytest.raises(CheckpointError):
        Translator.load(folder)
    assert yaml.safe_load((tuned / "recipe.yaml").read_text())["model"]["init_from"]


@pytest.mark.slow
def test_a_preset_that_destroys_the_checkpoint_is_warned_of(caplog, tune):
    """As fine-tuning does: with the preset of the paper it is another network from the first step on."""
    tune("bart", "masks={}", output="a")
    assert "another network" not in caplog.text
    settings = ("masks={}", "infusion.preset=paper")
    tune("bart", *settings, output="b")
    assert "this is another network than the one that was pretrained" in caplog.text


def test_t5_has_one_rate_of_dropout(recipe_of):
    """Another one would have no effect."""
    with pytest.raises(ConfigError, match=r"model\.attention_dropout: expected none in a t5 model"):
        recipe_of("t5", "model.attention_dropout=0.3")


def test_a_second_generation_keeps_what_the_first_was_told(recipe_of, tune):
    """NLLB's plain quotes and its codes; other languages and codes are refused, not passed over."""
    folder = tune("nllb", output="first")
    child = recipe_of(folder, output="second")
    assert child.data.normalize_punctuation is True
    assert Translator.load(folder).info.normalize_punctuation
    with pytest.raises(ConfigError, match=r"model\.tgt_code: expected none"):
        recipe_of(folder, "model.tgt_code=zho_Hans", output="second")
    other = recipe_of(folder, "data.tgt_language=fr", output="second")
    with pytest.raises(ConfigError, match="whose codes or prompt are in its pieces"):
        train_translator(other)


@pytest.mark.slow
def test_a_prompt_and_another_annotator_are_not_passed_on_in_silence(caplog, recipe_of, tune):
    """A child for another language would read the parent's prompt; one with other tags says so."""
    tagged = ("infusion.kind=add", "annotation.annotator=de", "annotation.force=true")
    prompt = "model.prompt='translate English to German: '"
    folder = tune("t5", prompt, *tagged, output="first")
    tune(folder, *tagged[1:], output="same")
    assert "whose tags and trees may differ" not in caplog.text
    tune(folder, output="second")
    assert "model.init_from was trained with de, this run annotates with en" in caplog.text
    other = recipe_of(folder, "data.tgt_language=fr", output="third")
    with pytest.raises(ConfigError, match="codes or prompt are in its pieces"):
        train_translator(other)


def test_an_ending_that_names_no_language_chooses_no_code(everyday, tmp_path, caplog, recipe_of):
    """`src` is also Sardinian of Logudoro, for which NLLB has a code; `source` is nothing."""
    for split in ("train", "dev"):
        for ending in ("src", "source"):
            (tmp_path / f"{split}.{ending}").write_bytes((everyday / f"{split}.en").read_bytes())
        (tmp_path / f"{split}.de").write_bytes((everyday / f"{split}.de").read_bytes())
    for ending in ("src", "source"):
        recipe = recipe_of("nllb", f"data.src={ending}", data=tmp_path)
        with pytest.raises(ConfigError, match=r"model\.src_code: .*unknown language"):
            prepare(recipe)
    told = ("data.src=src", "model.src_code=eng_latn", "model.add_codes=true")
    with caplog.at_level("INFO", "syntaxformer.data"):
        prepare(recipe_of("nllb", *told, data=tmp_path))
    assert "language codes: eng_latn (a new one) → deu_Latn" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["t5", "mt5"])
def test_an_output_layer_of_its_own_stays(kind, cli, tmp_path, tune):
    """T5 1.1's and mT5's, though transformers' config says that it is tied: with new pieces, and exported."""
    pytest.importorskip("ctranslate2")
    start = make_translator("t5", tmp_path / "start", without="ßäöüÄÖÜ")
    weights, config = load_file(start / "model.safetensors"), json.loads((start / "config.json").read_text())
    n_known = len(AutoTokenizer.from_pretrained(start))
    weights["shared.weight"] = weights["shared.weight"][:n_known].clone()
    own = weights["lm_head.weight"] = torch.randn(n_known, 32) / 3
    save_file(weights, start / "model.safetensors", {"format": "pt"})
    config |= {"model_type": kind, "vocab_size": n_known, "tie_word_embeddings": False}
    config.pop("scale_decoder_outputs", None)
    (start / "config.json").write_text(json.dumps(config))
    settings = ("model.add_characters=true", "training.learning_rate=1e-20", "infusion.kind=add")
    folder = tune(start, *settings)
    output = Translator.load(folder).model.get_output_embeddings().weight
    assert len(output) > n_known
    torch.testing.assert_close(output[:n_known], own)
    done = cli("export", folder, tmp_path / "export")
    assert done.code == 0, done.err


def test_a_stored_recipe_is_read_again(tuned, tmp_path, recipe_of):
    """Also where what is infused comes from the folder that it started from."""
    masks = recipe_of(tuned, output="again")
    path = tmp_path / "recipe.yaml"
    path.write_text(masks.to_yaml(), "utf-8")
    assert load_recipe(path).infusion == masks.infusion


@pytest.mark.slow
def test_an_infused_folder_without_a_recipe_is_a_start(checkpoints, tmp_path, tune):
    """What `infuse` and `save_pretrained` wrote, with the values of its factors."""
    model = AutoModelForSeq2SeqLM.from_pretrained(checkpoints["marian"])
    sf.infuse(model, "masks,pos_add").save_pretrained(tmp_path / "infused")
    AutoTokenizer.from_pretrained(checkpoints["marian"]).save_pretrained(tmp_path / "infused")
    folder = tune(tmp_path / "infused")
    translator = Translator.load(folder)
    assert translator.encoder.factors == ("pos",)
    assert translator.model.infusion.config.masks is not None


def test_saved_adapters_are_written_again(recipe_of):
    """A run that goes on replaces them; their folder can be read like any other."""
    settings = ("training.lora.r=2", "training.lora.keep_adapter=true")
    for steps, resume in ((2, False), (4, True)):
        recipe = recipe_of("marian", *settings, f"training.max_steps={steps}", output="o")
        folder = train_translator(recipe, resume=resume)
    assert (folder / "lora").stat().st_mode & 0o111
    assert json.loads((folder / "run.json").read_text())["last_step"] == 4
