"""Recipes: the files of the repository, overrides, infusion and terms, and everything that can be wrong with one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
import yaml

from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.nn import INFUSION_KINDS
from syntaxformer.nn.infused_embedding import REGISTER
from syntaxformer.runs.trainer import TallyBook
from syntaxformer.translation.recipe import Recipe, load_recipe
from syntaxformer.translation.training import describe

RECIPES = sorted((Path(__file__).resolve().parents[4] / "recipes").glob("*.yaml"))
FROM_NOTHING = [path for path in RECIPES if path.stem != "finetune_translator"]
"""Those of our own Transformer; the other starts from a checkpoint, whose folder its user names."""
KINDS = tuple(INFUSION_KINDS)
TERMS = "data.terms=terms.tsv"


def _problems(*overrides: str, name: str = "tiny") -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_recipe(name, overrides)
    return [problem.partition(".yaml: ")[2] or problem for problem in caught.value.problems]


@pytest.mark.parametrize("path", FROM_NOTHING, ids=lambda path: path.stem)
@pytest.mark.parametrize("kind", KINDS)
def test_every_recipe_is_valid_with_every_kind(path, kind):
    recipe = load_recipe(path, [f"infusion.kind={kind}"])
    plan = recipe.width_plan()
    assert plan.d_model == recipe.model.d_model
    assert plan.arithmetic().endswith(f" = {recipe.model.d_model}")


@pytest.mark.parametrize(
    "path", [path for path in FROM_NOTHING if path.stem != "tiny"], ids=lambda path: path.stem
)
@pytest.mark.parametrize(("kind", "width"), [("learned_concat", 24), ("concat_pos", 20)])
def test_every_recipe_leaves_a_kind_the_width_of_its_paper(path, kind, width):
    assert load_recipe(path, [f"infusion.kind={kind}"]).width_plan().factors == (("pos", width),)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_says_how_to_run_it(path):
    header = [line for line in path.read_text().splitlines() if line.startswith("#")]
    assert any(f"syntaxformer train recipes/{path.name}" in line for line in header)


@pytest.mark.parametrize("name", ["iwslt14_small", "multi30k", "news_low", "news_low_small", "tatoeba"])
def test_recipes_for_little_data_stop_where_nothing_gets_better(name):
    training = load_recipe(name).training
    assert training.patience is not None
    assert training.patience * training.eval_every < training.max_steps


def test_a_resolved_recipe_reads_back_as_itself(tmp_path):
    settings = ["infusion.kind=concat", "infusion.widths={pos: 12, case: 3, subword: 5}", "seed=4294967295"]
    recipe = load_recipe("multi30k", settings)
    path = tmp_path / "again.yaml"
    path.write_text(recipe.to_yaml())
    assert load_recipe(path) == recipe


def test_overrides_reach_their_sections():
    settings = ["training.learning_rate=3e-4", "data.dir=x", "output=y", "training.patience=3"]
    recipe = load_recipe("tiny", settings)
    assert recipe.training.learning_rate == 3e-4
    assert (recipe.data.dir, recipe.output, recipe.training.patience) == (Path("x"), Path("y"), 3)


@pytest.mark.parametrize(
    ("settings", "problems"),
    [
        (
            ["training.max_step=5", "modle.d_model=3", "zzzz=1"],
            [
                "training.max_step: unknown key. Nearest: max_steps.",
                "modle: unknown key. Nearest: model.",
                "zzzz: unknown key. Known: annotation, data, decoding, infusion, lisa, masks, model, output, "
                "parse_task, predict_target_pos, pretrained_embeddings, relation_bias, seed, subwords, training.",
            ],
        ),
        (
            ["training.max_steps=0", "model.dropout=1", "model.norm=both", "seed=-1"],
            [
                "seed: expected greater than or equal to 0, got -1.",
                "model.dropout: expected less than 1, got 1.",
                "model.norm: expected 'pre' or 'post', got 'both'.",
                "training.max_steps: expected greater than or equal to 1, got 0.",
            ],
        ),
        (
            ["model.d_model=127", "model.n_heads=3", "training.max_batch_tokens=61", "infusion.kind=sun"],
            [
                "infusion kind: expected one of none, add, concat, concat_pos, sum_then_concat, onehot_concat, "
                f"learned_concat, prepend, pos_encoder, got 'sun'. {REGISTER}",
                "model.n_heads: expected a divisor of d_model = 127, got 3.",
                "model.d_model: expected an even number, got 127.",
                "training.max_batch_tokens: expected at least data.max_pieces = 64, got 61.",
            ],
        ),
        (["seed=4294967296"], ["seed: expected less than or equal to 4294967295, got 4294967296."]),
    ],
)  # fmt: skip
def test_all_problems_at_once(settings, problems):
    assert _problems(*settings) == problems


def test_a_problem_belongs_to_whoever_has_it(tmp_path):
    content = load_recipe("tiny").model_dump(mode="json", exclude_unset=True)
    content["training"]["lerning_rate"] = 1
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump(content), "utf-8")
    with pytest.raises(ConfigError) as error:
        load_recipe(path, ["infusion.factors=[pos]", "masks.gate=none", "lisa.attn_head=7"], "command line")
    of_file = f"{path}: training.lerning_rate: unknown key. Nearest: learning_rate."
    others = [problem for problem in error.value.problems if problem != of_file]
    assert len(others) == len(error.value.problems) - 1 > 0
    assert all(problem.startswith("command line: ") for problem in others), others


@pytest.mark.parametrize(
    ("settings", "total"),
    [
        (["sum_then_concat", "infusion.width=20", "infusion.word_width=109"], "109 (word) + 20 (pos + case + subword, summed) = 129."),
        (["concat", "infusion.widths={pos: 101, case: 17, subword: 13}"], "-3 (word) + 101 (pos) + 17 (case) + 13 (subword) = 128."),
    ],
)  # fmt: skip
def test_widths_that_do_not_add_up_show_the_sum(settings, total):
    (problem,) = _problems(f"infusion.kind={settings[0]}", *settings[1:])
    start = "infusion widths: expected a word width of at least 1 and a sum of d_model = 128, "
    assert (problem.startswith(start), total in problem) == (True, True)


def test_a_folder_of_a_recipes_name_does_not_hide_it(tmp_path, monkeypatch):
    (tmp_path / "tiny").mkdir()
    monkeypatch.chdir(tmp_path)
    assert load_recipe("tiny") == load_recipe(FROM_NOTHING[0].with_name("tiny.yaml"))
    (tmp_path / "tiny" / "recipe.yaml").write_text("seed: 7\ndata: {src: en, tgt: de, dir: data}\n")
    assert load_recipe("tiny").seed != 7
    assert load_recipe(tmp_path / "tiny", ["output=x"]).seed == 7, "the recipe of a run, to go on with it"
    (tmp_path / "tiny").rename(tmp_path / "tiny-0.1")
    assert load_recipe(tmp_path / "tiny-0.1", ["output=x"]).seed == 7


def test_no_such_recipe(tmp_path):
    with pytest.raises(ConfigError, match="recipe:"):
        load_recipe("multi30")
    with pytest.raises(DataError, match=r"none\.yaml: expected a readable file, got: No such file or"):
        load_recipe(tmp_path / "none.yaml")


def test_every_field_is_described():
    def fields(model):
        for name, field in model.model_fields.items():
            if hasattr(field.annotation, "model_fields"):
                yield from fields(field.annotation)
            else:
                yield f"{model.__name__}.{name}", field.description

    assert [name for name, description in fields(Recipe) if not description] == []


def test_a_setting_is_added_to_the_section_of_the_file_whatever_its_spelling(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text("output: x\ndata: {dir: d, src: en, tgt: de}\nmasks: {max_distance: 5, topical: false}\n")
    recipe = load_recipe(path, ["masks.trees=[dependency]", "infusion.kind=add"])
    masks = recipe.infusion.masks
    assert (masks.max_distance, masks.topical, masks.trees) == (5, False, ("dependency",))
    assert recipe.embedding.kind == "add"


def test_one_setting_in_two_spellings_is_refused(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text("output: x\ndata: {dir: d, src: en, tgt: de}\nmasks: {}\ninfusion: {masks: {}}\n")
    with pytest.raises(ConfigError, match=r"infusion\.masks: expected it once"):
        load_recipe(path)


def test_labels_that_the_decoder_writes_are_read_in_training_only():
    recipe = load_recipe("tiny", ["infusion.kind=none", "masks={}", "parse_task={}"])
    assert recipe.syntax_inputs(training=True).brackets == ()
    inputs = recipe.syntax_inputs(training=False)
    assert inputs.brackets is None
    assert {*inputs.model_dump()} == {"trees", "governors"}  # what a model's folder stores


@pytest.mark.parametrize(
    ("settings", "in_training", "outside"),
    [
        (["lisa.supervised=false"], False, False),
        (["lisa={}"], True, False),
        (["lisa.inject=gold"], True, True),
        (["lisa={supervised: false, inject: gold}"], True, True),
    ],
)
def test_when_governors_are_needed(settings, in_training, outside):
    recipe = load_recipe("tiny", settings)
    assert recipe.syntax_inputs(training=True).governors == in_training
    assert recipe.syntax_inputs(training=False).governors == outside


def test_a_bias_is_of_the_trees_of_masks():
    settings = ["masks={max_distance: 7, without: [sibling]}", "relation_bias={}"]
    bias = load_recipe("tiny", settings).infusion.relation_bias
    assert (bias.max_distance, bias.without) == (7, ("sibling",))


def test_the_header_says_what_is_trained():
    model = SimpleNamespace(parameters=lambda: [torch.zeros(7)], config=SimpleNamespace(vocab_size=11))
    pairs = MagicMock(tgt=SimpleNamespace(lengths=np.array([3, 2])), __len__=lambda _: 2)
    data = SimpleNamespace(train=pairs)
    plain = ["infusion.kind=none", "training.precision=fp32"]
    more = [
        "masks={mode: additive, trees: [dependency]}",
        "lisa={layers: [0]}",
        "predict_target_pos.annotator=de",
    ]
    recipe = load_recipe("tiny", [*plain, *more])
    parts = "masks (trees dependency, mode additive), lisa (layers 0), predict_target_pos (annotator de)"
    counts = "0.00M parameters, 11 pieces; 2 pairs, 5 target pieces; fp32"
    width = recipe.model.d_model
    assert describe(recipe, model, data) == f"none: {width} (word) = {width}; {parts}; {counts}"
    assert describe(load_recipe("tiny", plain), model, data) == f"none: {width} (word) = {width}; {counts}"


def test_shorthands_stand_for_parts_of_the_infusion():
    keys = {"embedding.": ["kind=concat", "widths={pos: 12, case: 3, subword: 5}"], "": ["masks={}", "lisa.weight=0.3"]}  # fmt: skip
    full = [f"infusion.{section}{setting}" for section, settings in keys.items() for setting in settings]
    short = [*(f"infusion.{setting}" for setting in keys["embedding."]), *keys[""]]
    assert load_recipe("tiny", short) == load_recipe("tiny", full)
    assert load_recipe("tiny", ["infusion.masks={}", "masks=null"]).infusion.masks is None


@pytest.mark.parametrize(
    ("settings", "keys"),
    [
        (["infusion.factors=[pos]"], ["infusion.factors"]),
        (["infusion.kind=add", "infusion.place=prefix", "infusion.tag_layers=2"], ["infusion.place", "infusion.tag_layers"]),
        (["infusion.kind=prepend", "infusion.factors=[pos, subword]"], ["infusion.factors"]),
        (["lisa={layers: [2], attn_head: 4, keys: model}", "masks={layers: [0, -1]}"], ["masks.layers", "lisa.layers", "lisa.attn_head", "lisa.keys"]),
        (["masks.max_distance=7", "relation_bias.max_distance=5"], ["infusion: relation_bias.max_distance"]),
        (["lisa={layers: []}", "masks={layers: []}", "relation_bias={layers: []}"], ["masks.layers", "relation_bias.layers", "lisa.layers"]),
        (["relation_bias={without: [parent, child, sibling]}"], ["relation_bias.without"]),
        (["infusion.seed=3"], ["infusion.seed"]),
        (["lisa.wieght=2"], ["infusion.lisa.wieght: unknown key. Nearest: weight."]),
        (["infusion.kind=add", "infusion.factors=[pos, term]"], ["infusion.factors: expected term only with data.terms"]),
        (["data.term_share=0.5"], ["data: term_share: expected data.terms"]),
        (["data.term_style=replace"], ["data: term_style: expected data.terms"]),
        ([TERMS, "infusion.kind=prepend"], ["data.terms: expected an infusion.kind that joins factors to pieces, got prepend"]),
        ([TERMS, "parse_task={}"], ["data.terms: expected no parse_task"]),
        ([TERMS, "data.term_share=0"], ["data.term_share: "]),
        ([TERMS, "data.term_style=inline"], ["data.term_style: "]),
        (["infusion.kind=concat", "infusion.width=7"], ["infusion widths: expected at least 1 for each factor, got -1 (pos)"]),
        (["infusion.kind=concat", "infusion.widths={pos: 5, case: 0, subword: 3}"], ["infusion widths: expected at least 1"]),
        (["infusion.kind=concat", "infusion.widths={pos: 5}"], ["infusion.widths: expected one width for each of ['pos', "]),
        (["infusion.kind=add", "infusion.factors=[]"], ["infusion factors: expected at least one for kind 'add'"]),
        (["infusion.kind=add", "infusion.factors=[pos, poss]"], ["factors: expected one of pos, case, subword, "]),
        (["infusion.kind=concat", "infusion.factors=[poss]", "infusion.width=900"], ["factors: expected one of pos, case, subword, "]),
        (["infusion.kind=add", "infusion.factors=[pos, pos]"], ["factors: expected each once, got 'pos' 2 times."]),
        (["infusion.kind=add", "infusion.factors=[case]", "data.factor_files={case: cs}"], ["user column 'case': expected another"]),
        (["infusion.kind=sum_then_concat", "data.factor_files={ner: ner}"], ["data.factor_files: expected names of infusion.factors"]),
        (["infusion.kind=sum_then_concat", "infusion.width=200", "infusion.wdith=3", "modle=1"], ["infusion.wdith: ", "modle: ", "infusion widths: "]),
        (["data.augment={upper: 1.1}"], ["data.augment.upper: expected less than or equal to 1, got 1.1"]),
        (["data.augment={typo: -0.1}"], ["data.augment.typo: expected greater than or equal to 0, got -0.1"]),
        (["data.augment={noise: .nan}"], ["data.augment.noise: expected"]),
        (["data.augment={upper: 0.6, title: 0.6}"], ["data.augment: expected upper + title up to 1, got 1.2."]),
        (["data.augment={uper: 0.1}"], ["data.augment.uper: unknown key. Nearest: upper."]),
        (["subwords.symbols=[a b]"], ["subwords.symbols.0: "]),
        (["data.protect=[urls]"], ["data.protect.0: "]),
        (["data.lowercase=target"], ["data.lowercase: expected False, True or 'source', got 'target'"]),
        (["data.synthetic=b", "pretrained_embeddings.source.model=bert"], ["data.synthetic_tag: expected false with a model's own"]),
        (["data.synthetic=b", "pretrained_embeddings.target.model=bert"], ["data.synthetic_tag: expected false with a model's own"]),
        (["data.train=[]"], ["data: train: expected the name of a split, got none."]),
        (["data.train=[{name: a, weight: 0}]"], ["data.train.0.weight: expected greater than 0, got 0"]),
        (["data.train=[{name: a, weight: -1}]"], ["data.train.0.weight: expected greater than 0, got -1"]),
        (["data.train=[{name: a, weight: .inf}]"], ["data.train.0.weight: expected a finite number, got inf"]),
        (["data.train=[{name: a, weight: 1e9}]"], ["data.train.0.weight: expected less than or equal to 1000"]),
        (["data.train=[{name: a, wieght: 2}]"], ["data.train.0.wieght: unknown key. Nearest: weight."]),
        (["data.train=[{weight: 2}]"], ["data.train.0.name: expected a value, got nothing."]),
        (["data.train=[{name: a, tag: bt}]"], ["data.train.0.tag: expected symbols such as <bt> or <2de>"]),
        (["data.train=[{name: a, tag: '</s>'}]"], ["data.train.0.tag: expected symbols such as <bt> or <2de>"]),
        (["data.train=[{name: a, tag: '<bt> '}]"], ["data.train.0.tag: expected symbols such as <bt> or <2de>"]),
        (["data.train=2016"], ["data.train.0.name: expected a valid string, got 2016. Put it in quotes."]),
        (["data.train=[{name: a, tgt: fr}]"], ["data: train: expected the tag <2fr> of a, got None."]),
        (["data.train=[bt, {name: a, tgt: fr, tag: <2fr>}]"], ["data: train: expected a tag such as <2de> of each corpus or none, got bt."]),
        (["data.train=[{name: a, tgt: en, tag: <2en>}]"], ["data: train: expected two endings of a, got one for both sides."]),
        (["data.train=[{name: a, tag: <2de>}, {name: a, src: de, tgt: en, tag: <2en>}]", "infusion.kind=add"], ["data.train: expected src=en in each corpus, as an annotator reads one language, got de"]),
    ],
)  # fmt: skip
def test_what_is_refused(settings, keys):
    problems = _problems(*settings)
    assert len(problems) == len(keys)
    assert all(problem.startswith(key) for problem, key in zip(problems, keys, strict=True)), problems


def test_tallies_are_sums_over_batches():
    book = TallyBook()
    for tallies in ({"a": (1, 4)}, None, {"a": (5, 8), "b": (0, 0)}):
        book.add(tallies)
    assert book.take() == {"a": 0.5, "b": 0.0}
    assert book.take() == {}


@pytest.mark.parametrize(
    ("settings", "kind", "factors"),
    [
        ([], "add", ["term"]),
        (["infusion.kind=sum_then_concat"], "sum_then_concat", ["pos", "case", "subword", "term"]),
        (["infusion.kind=concat", "infusion.factors=[deprel]"], "concat", ["deprel", "term"]),
        (["infusion.kind=onehot_concat"], "onehot_concat", ["pos", "term"]),
        (["infusion.kind=pos_encoder", "infusion.factors=[pos]"], "pos_encoder", ["pos", "term"]),
        (["masks={}", "lisa={}", "data.term_style=replace", "data.term_share=0.3"], "add", ["term"]),
    ],
)
def test_the_last_factor_is_the_term(settings, kind, factors):
    recipe = load_recipe("tiny", [TERMS, *settings])
    assert (recipe.embedding.kind, [name for name, _ in recipe.width_plan().factors]) == (kind, factors)
    assert recipe.annotator_name() == "en"
    assert load_recipe("tiny", settings[:1]).embedding.factors is None or "factors" in settings[-1]
