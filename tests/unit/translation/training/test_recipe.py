"""Recipes: the files of the repository, overrides, and everything that can be wrong with one."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.nn import INFUSION_KINDS
from syntaxformer.nn.infused_embedding import REGISTER
from syntaxformer.translation.recipe import Recipe, load_recipe

RECIPES = sorted((Path(__file__).resolve().parents[4] / "recipes").glob("*.yaml"))
FROM_NOTHING = [path for path in RECIPES if path.stem != "finetune_translator"]
"""Those of our own Transformer; the other starts from a checkpoint, whose folder its user names."""

KINDS = tuple(INFUSION_KINDS)


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
    recipe = load_recipe(
        "multi30k", ["infusion.kind=concat", "infusion.widths={pos: 12, case: 3, subword: 5}"]
    )
    path = tmp_path / "again.yaml"
    path.write_text(recipe.to_yaml())
    assert load_recipe(path) == recipe


def test_overrides_reach_their_sections():
    recipe = load_recipe(
        "tiny", ["training.learning_rate=3e-4", "data.dir=x", "output=y", "training.patience=3"]
    )
    assert recipe.training.learning_rate == 3e-4
    assert (recipe.data.dir, recipe.output, recipe.training.patience) == (Path("x"), Path("y"), 3)


def test_unknown_keys_name_the_nearest():
    assert _problems("training.max_step=5", "modle.d_model=3", "zzzz=1") == [
        "training.max_step: unknown key. Nearest: max_steps.",
        "modle: unknown key. Nearest: model.",
        "zzzz: unknown key. Known: annotation, data, decoding, infusion, lisa, masks, model, output, "
        "parse_task, predict_target_pos, pretrained_embeddings, relation_bias, seed, subwords, "
        "training.",
    ]


def test_several_problems_of_values_at_once():
    assert _problems("training.max_steps=0", "model.dropout=1", "model.norm=both", "seed=-1") == [
        "seed: expected greater than or equal to 0, got -1.",
        "model.dropout: expected less than 1, got 1.",
        "model.norm: expected 'pre' or 'post', got 'both'.",
        "training.max_steps: expected greater than or equal to 1, got 0.",
    ]


def test_a_problem_belongs_to_whoever_has_it(tmp_path):
    content = load_recipe("tiny").model_dump(mode="json", exclude_unset=True)
    content["training"]["lerning_rate"] = 1
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump(content), "utf-8")
    with pytest.raises(ConfigError) as error:
        load_recipe(path, ["infusion.factors=[pos]", "masks.gate=none", "lisa.attn_head=7"], "command line")
    of_file = f"{path}: training.lerning_rate: unknown key. Nearest: learning_rate."
    others = [one for one in error.value.problems if one != of_file]
    assert len(others) == len(error.value.problems) - 1 > 0
    assert all(one.startswith("command line: ") for one in others), others


def test_seeds_are_those_of_numpy():
    assert load_recipe("tiny", ["seed=4294967295"]).seed == 2**32 - 1
    assert _problems("seed=4294967296") == [
        "seed: expected less than or equal to 4294967295, got 4294967296."
    ]


def test_several_problems_of_arithmetic_at_once():
    assert _problems(
        "model.d_model=127", "model.n_heads=3", "training.max_batch_tokens=61", "infusion.kind=sun"
    ) == [
        "infusion kind: expected one of none, add, concat, concat_pos, sum_then_concat, onehot_concat, "
        f"learned_concat, prepend, pos_encoder, got 'sun'. {REGISTER}",
        "model.n_heads: expected a divisor of d_model = 127, got 3.",
        "model.d_model: expected an even number, got 127.",
        "training.max_batch_tokens: expected at least data.max_pieces = 64, got 61.",
    ]


@pytest.mark.parametrize(
    ("settings", "total"),
    [
        (["sum_then_concat", "infusion.width=20", "infusion.word_width=109"], "109 (word) + 20 (pos + case + subword, summed) = 129."),
        (["concat", "infusion.widths={pos: 101, case: 17, subword: 13}"], "-3 (word) + 101 (pos) + 17 (case) + 13 (subword) = 128."),
    ],
)  # fmt: skip
def test_widths_that_do_not_add_up_show_the_sum(settings, total):
    (problem,) = _problems(f"infusion.kind={settings[0]}", *settings[1:])
    assert problem.startswith(
        "infusion widths: expected a word width of at least 1 and a sum of d_model = 128, "
    )
    assert total in problem


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (["infusion.kind=concat", "infusion.width=7"], "infusion widths: expected at least 1 for each factor, got -1 (pos)"),
        (["infusion.kind=concat", "infusion.widths={pos: 5, case: 0, subword: 3}"], "infusion widths: expected at least 1"),
        (["infusion.kind=concat", "infusion.widths={pos: 5}"], "infusion.widths: expected one width for each of ['pos', "),
        (["infusion.kind=add", "infusion.factors=[]"], "infusion factors: expected at least one for kind 'add'"),
        (["infusion.kind=add", "infusion.factors=[pos, poss]"], "factors: expected one of pos, case, subword, "),
        (["infusion.kind=add", "infusion.factors=[pos, pos]"], "factors: expected each once, got 'pos' 2 times."),
        (["infusion.kind=add", "infusion.factors=[case]", "data.factor_files={case: cs}"], "user column 'case': expected another"),
        (["infusion.kind=sum_then_concat", "data.factor_files={ner: ner}"], "data.factor_files: expected names of infusion.factors"),
    ],
)  # fmt: skip
def test_factors_and_widths(settings, problem):
    (message,) = _problems(*settings)
    assert message.startswith(problem)


def test_a_folder_of_a_recipes_name_does_not_hide_it(tmp_path, monkeypatch):
    (tmp_path / "tiny").mkdir()
    monkeypatch.chdir(tmp_path)
    assert load_recipe("tiny") == load_recipe(FROM_NOTHING[0].with_name("tiny.yaml"))
    (tmp_path / "tiny" / "recipe.yaml").write_text("seed: 7\ndata: {src: en, tgt: de, dir: data}\n")
    assert load_recipe("tiny").seed != 7
    assert load_recipe(tmp_path / "tiny", ["output=x"]).seed == 7, "the recipe of a run, to go on with it"
    (tmp_path / "tiny").rename(tmp_path / "tiny-0.1")
    assert load_recipe(tmp_path / "tiny-0.1", ["output=x"]).seed == 7
    with pytest.raises(ConfigError, match=r"data: train: expected the name of a split, got none\."):
        load_recipe("tiny", ["data.train=[]"])


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


def test_an_unknown_factor_is_named_before_its_width():
    (problem,) = _problems("infusion.kind=concat", "infusion.factors=[poss]", "infusion.width=900")
    assert problem.startswith("factors: expected one of pos, case, subword, ")


def test_labels_that_the_decoder_writes_are_read_in_training_only():
    recipe = load_recipe("tiny", ["infusion.kind=none", "masks={}", "parse_task={}"])
    assert recipe.syntax_inputs(training=True).brackets == ()
    inputs = recipe.syntax_inputs(training=False)
    assert inputs.brackets is None
    assert {*inputs.model_dump()} == {"trees", "governors"}  # what a model's folder stores
