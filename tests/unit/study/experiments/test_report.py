"""The report of runs written by hand: every number of it can be worked out here."""

from __future__ import annotations

import importlib.util
import shutil
import statistics
from pathlib import Path

import numpy as np
import pytest
import yaml
from scipy.stats import t as student_t
from scipy.stats import ttest_1samp, ttest_rel
from sklearn.metrics import matthews_corrcoef
from typer.testing import CliRunner

from syntaxformer.base.errors import DataError
from syntaxformer.base.statistics import bootstrap_rows, detectable_effect
from syntaxformer.cli.main import app
from syntaxformer.study.document import Code, Figure, Heading, Paragraph, Table, to_html, to_markdown
from syntaxformer.study.experiments import groups as figures
from syntaxformer.study.experiments.cell import HYPOTHESES, recipe_settings, resolve
from syntaxformer.study.experiments.groups import compare_groups, group_runs
from syntaxformer.study.experiments.report import mixtures, write_report
from syntaxformer.study.experiments.spec import Contrast, PaperNumber, ScoredText, load_spec
from syntaxformer.study.experiments.store import tuned
from syntaxformer.study.plots import draw_curves
from syntaxformer.translation.scoring import bootstrap_gain, compare_translations

ROOT = Path(__file__).resolve().parents[4]
BLEU = {
    ("base", "10 %"): [10.0, 11.0, 12.5],
    ("sit", "10 %"): [11.0, 12.5, 13.0],
    ("base", "100 %"): [30.0, 31.0],
}
REFERENCES = [
    "ein Hund schläft im hohen Gras .",
    "zwei Frauen lachen laut .",
    "das rote Haus am See ist alt .",
] * 7


@pytest.fixture
def filled(spec, store, make_result, tmp_path):
    """Eight of twelve runs are done, one failed; those of 10 % have translations."""
    (tmp_path / "ref").write_text("".join(f"{line}\n" for line in REFERENCES))
    spec.test = ScoredText(src=tmp_path / "src", ref=tmp_path / "ref")
    store.add(spec.cells())
    for cell in spec.cells():
        labels = cell.labels["system"], cell.labels["fraction"]
        values = BLEU.get(labels, [])
        seed = int(cell.labels["seed"])
        if seed <= len(values):
            store.finish(cell.key, 60.0 * seed, make_result(values[seed - 1]))
        elif labels == ("sit", "100 %") and seed == 1:
            store.stop(cell.key, "failed", 3.0, "loss: expected a number, got nan.")
        if labels[1] == "10 %":
            folder = store.cell_folder(cell)
            folder.mkdir(parents=True)
            cut = 2 if labels[0] == "base" else 1
            lines = [" ".join(line.split()[:-cut]) for line in REFERENCES]
            (folder / HYPOTHESES).write_text("".join(f"{line}\n" for line in lines))
    return spec, store


def _row(text: str, *names: str) -> list[str]:
    start = f"| {' | '.join(names)} |"
    (line,) = [line for line in text.splitlines() if line.startswith(start)]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_every_number(filled, tmp_path):
    text = write_report(*filled, tmp_path / "report").read_text()
    base, sit = BLEU["base", "10 %"], BLEU["sit", "10 %"]
    spread = f"{statistics.mean(base):.2f} ± {statistics.stdev(base):.2f}"
    assert _row(text, "base", "10 %")[2:] == [
        "3 of 3",
        spread,
        "31.17 ± 1.26",
        "–",
        "–",
        "–",
        "–",
        "16.28",
        "–",
        "1.25M",
        "2.0",
    ]
    p_seeds = ttest_rel(sit, base).pvalue
    lines = [[" ".join(line.split()[:-cut]) for line in REFERENCES] for cut in (2, 1)]
    p_sentences = compare_translations(*lines, REFERENCES).p_value
    gain = bootstrap_gain([(lines[0], lines[1])] * 3, REFERENCES)
    assert _row(text, "sit", "10 %")[5:11] == [
        "+1.00",
        f"{p_seeds:.3f}",
        f"{p_sentences:.3f}",
        f"{gain.low:+.2f} to {gain.high:+.2f}",
        "17.28",
        "+1.00",
    ]
    assert _row(text, "sit", "100 %")[2:4] == ["0 of 3", "–"]
    assert _row(text, "base", "100 %")[2:4] == ["2 of 3", "30.50 ± 0.71"]
    assert "12 runs: 8 done, 1 failed, 3 waiting." in text
    assert "| system sit, fraction 100 %, seed 1 | failed | loss: expected a number, got nan. |" in text
    assert "# Small | grid" in text
    assert "0123456789ab" in text
    assert text.count("syntaxformer train tiny") == 8


def test_a_control_has_a_table_of_its_own(filled, make_result, tmp_path):
    """All rows against one that is not the baseline, over the seeds that both have."""
    spec, store = filled
    assert "## Against" not in write_report(spec, store, tmp_path / "without").read_text()
    spec.axes["system"]["wide"] = {"infusion.kind": "none", "model.d_ff": 77}
    spec.report.controls = [{"system": "wide"}]
    before = write_report(spec, store, tmp_path / "not yet").read_text()
    assert "## Against system wide\n\nNot measured.\n" in before
    wide = [10.2, 12.0]
    store.add(spec.cells())
    for cell in spec.cells():
        seed = int(cell.labels["seed"])
        if (cell.labels["system"], cell.labels["fraction"]) == ("wide", "10 %") and seed <= len(wide):
            store.finish(cell.key, 60.0, make_result(wide[seed - 1]))
            (folder := store.cell_folder(cell)).mkdir(parents=True)
            (folder / HYPOTHESES).write_text("".join(f"{line}\n" for line in REFERENCES))
    text = write_report(spec, store, tmp_path / "report").read_text()
    table = text[text.index("## Against system wide") :]
    p_seeds = [ttest_rel(BLEU[one, "10 %"][:2], wide).pvalue for one in ("base", "sit")]
    lines = [[" ".join(line.split()[:-cut]) for line in REFERENCES] for cut in (2, 1)]
    p_sentences = [compare_translations(REFERENCES, one, REFERENCES).p_value for one in lines]
    assert _row(table, "base", "10 %")[2:6] == ["2", "-0.60", f"{p_seeds[0]:.3f}", f"{p_sentences[0]:.3f}"]
    assert _row(table, "sit", "10 %")[2:6] == ["2", "+0.65", f"{p_seeds[1]:.3f}", f"{p_sentences[1]:.3f}"]
    assert "| wide | 10 % | 2 |" not in table
    assert "| 100 % | 2 |" not in table


def test_p_values_over_sentences_are_of_all_seeds(filled, tmp_path):
    spec, store = filled
    lost = _cells(spec)["sit", "10 %", "2"]
    (store.cell_folder(lost) / HYPOTHESES).unlink()
    text = write_report(spec, store, tmp_path / "report").read_text()
    assert _row(text, "sit", "10 %")[2] == "3 of 3"
    assert "| p (sentences) |" not in text


def test_seeds_that_disagree_have_no_p_value_over_sentences(filled, make_result, tmp_path):
    """One seed is far better, another far worse: each is sure, and both cannot be right."""
    spec, store = filled
    (worse,) = [
        cell.key for cell in spec.cells() if cell.labels == {"system": "sit", "fraction": "10 %", "seed": "2"}
    ]
    store.finish(worse, 60.0, make_result(10.5))
    text = write_report(spec, store, tmp_path / "report").read_text()
    assert _row(text, "sit", "10 %")[5] == "+0.33"
    assert _row(text, "sit", "10 %")[7] == "seeds disagree"


def test_another_metric_has_no_p_value_of_bleu(filled, tmp_path):
    spec, store = filled
    spec.report.metrics = ["chrf", "bleu"]
    assert "| p (sentences) |" not in write_report(spec, store, tmp_path / "report").read_text()
    spec.report.metrics = ["bleu", "chrf"]
    assert "| p (sentences) |" in write_report(spec, store, tmp_path / "report").read_text()


def test_other_translations_have_a_p_value_of_their_own(filled, tmp_path):
    spec, store = filled
    before = _row(write_report(spec, store, tmp_path / "report").read_text(), "sit", "10 %")[7]
    for cell in spec.cells():
        if cell.labels == {"system": "sit", "fraction": "10 %", "seed": "1"}:
            lines = [" ".join(line.split()[:-2]) for line in REFERENCES]
            (store.cell_folder(cell) / HYPOTHESES).write_text("".join(f"{line}\n" for line in lines))
    after = _row(write_report(spec, store, tmp_path / "report").read_text(), "sit", "10 %")[7]
    assert float(before) < 0.05
    assert after == "1.000"


def test_a_number_of_the_paper_may_have_a_baseline_of_its_own(filled, tmp_path):
    spec, store = filled
    spec.report.paper = [
        PaperNumber(cell={"system": "base"}, value=30.57),
        PaperNumber(cell={"system": "sit"}, value=31.37, baseline=34.50),
    ]
    text = write_report(spec, store, tmp_path / "report").read_text()
    assert _row(text, "sit", "10 %")[9:11] == ["31.37", "-3.13"]
    assert _row(text, "base", "10 %")[9:11] == ["30.57", "–"]


def test_the_same_store_gives_the_same_bytes(filled, tmp_path):
    spec, store = filled
    write_report(spec, store, tmp_path / "first")
    (store.folder / "bootstrap.json").unlink()
    write_report(spec, store, tmp_path / "second")
    names = sorted(path.name for path in (tmp_path / "first").iterdir())
    assert names == [
        "by_size.png",
        "curve_10.png",
        "curve_100.png",
        "report.html",
        "report.md",
    ]
    for name in names:
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()
    png = (tmp_path / "first" / "by_size.png").read_bytes()
    assert b"Matplotlib" not in png


def test_a_store_without_its_translations_gives_the_same_report(filled, tmp_path):
    spec, store = filled
    before = write_report(spec, store, tmp_path / "first").read_text()
    shutil.rmtree(store.folder / "cells")
    assert write_report(spec, store, tmp_path / "second").read_text() == before
    assert "| p (sentences) |" in before
    (store.folder / "bootstrap.json").unlink()
    assert "| p (sentences) |" not in write_report(spec, store, tmp_path / "third").read_text()


def test_experiments_that_share_a_store_keep_their_own_labels(filled, content, write_spec, tmp_path):
    spec, store = filled
    before = write_report(spec, store, tmp_path / "first").read_text()
    base, sit = content["axes"].pop("system").values()
    content["axes"]["model"] = {"plain": base, "infused": sit}
    content["axes"]["draw"] = {f"no. {seed}": {"seed": seed} for seed in content["axes"].pop("seed")}
    content["report"].update({"baseline": {"model": "plain"}, "paper": []})
    other = load_spec(write_spec({**content, "test": spec.model_dump(mode="json")["test"]}))
    store.add(other.cells())
    assert {cell.key for cell in other.cells()} == {cell.key for cell in spec.cells()}
    text = write_report(spec, store, tmp_path / "second").read_text()
    assert "| system base, fraction 100 %, seed 3 | waiting |" in text
    assert text == before


def test_the_html_is_written_for_phones_and_has_code_for_names(tmp_path):
    page = to_html(
        [Paragraph("Experiment `a<b`, not ` alone."), Paragraph("2 * 3 ** x, **not planned**.")], tmp_path
    )
    assert "<p>Experiment <code>a&lt;b</code>, not ` alone.</p>" in page
    assert "<strong>not planned</strong>.</p>" in page
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in page


def test_the_html_needs_no_other_file(filled, tmp_path):
    write_report(*filled, tmp_path / "report")
    page = (tmp_path / "report" / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 3
    assert 'src="by_size' not in page
    assert "<title>Small | grid</title>" in page


def test_nothing_done_yet(spec, store, tmp_path):
    text = write_report(spec, store, tmp_path / "report").read_text()
    assert "12 runs: 12 waiting." in text
    assert "Where the numbers come from" not in text
    assert _row(text, "base", "10 %")[2:4] == ["0 of 3", "–"]


def test_the_command_reports_no_store_that_is_not_there(write_spec, content, tmp_path):
    """An empty report would overwrite a page; a misspelt --store is all that it takes."""
    path, output = write_spec(content), tmp_path / "out"
    done = CliRunner().invoke(app, ["experiment", "report", str(path), "--store", "typo", "-o", str(output)])
    expected = "expected the store of an experiment that was run (--store), got none."
    assert isinstance(done.exception, DataError)
    assert str(done.exception) == f"typo/store.sqlite: {expected}"
    assert not output.exists()


def test_blocks(tmp_path):
    (tmp_path / "a.png").write_bytes(b"\x89PNG")
    blocks = [
        Heading("T", 1),
        Paragraph("a < b"),
        Code("x | y"),
        Table(["n", "v"], [["a|b", "1"]]),
        Figure("a.png", "c"),
    ]
    assert to_markdown(blocks) == (
        "# T\n\na < b\n\n```\nx | y\n```\n\n| n | v |\n| --- | ---: |\n| a\\|b | 1 |\n\n![c](a.png)\n\n*c*\n"
    )
    page = to_html(blocks, tmp_path)
    assert "<p>a &lt; b</p>" in page
    assert 'src="data:image/png;base64,iVBORw=="' in page


def test_numbers_of_the_paper_for_other_metrics(filled, tmp_path):
    spec, store = filled
    base, sit = ({"system": name, "fraction": "10 %"} for name in ("base", "sit"))
    spec.report.paper += [
        PaperNumber(cell=base, value=40.5, metric="chrf"),
        PaperNumber(cell=sit, value=43, metric="chrf"),
    ]
    text = write_report(spec, store, tmp_path / "report").read_text()
    assert "| paper | Δ paper | paper chrf | Δ paper chrf | parameters |" in text
    assert _row(text, "sit", "10 %")[9:13] == ["17.28", "+1.00", "43.00", "+2.50"]
    assert _row(text, "base", "10 %")[9:13] == ["16.28", "–", "40.50", "–"]
    assert "Δ paper is the paper's own gain over its own baseline, not our gain over the paper." in text


def test_a_metric_that_only_the_paper_names_has_a_column(filled, tmp_path):
    spec, store = filled
    spec.report.paper += [PaperNumber(cell={}, value=4.25, metric="dev_loss")]
    text = write_report(spec, store, tmp_path / "report").read_text()
    assert "| bleu | chrf | dev_loss |" in text
    assert "| paper dev_loss | Δ paper dev_loss |" in text
    assert "4.25" in _row(text, "sit", "100 %")


def test_runs_of_different_data_are_told(filled, make_result, tmp_path):
    """One setting, two contents; shares of the training text differ by right."""
    spec, store = filled
    text = write_report(spec, store, tmp_path / "one").read_text()
    assert "Warning" not in text
    cells = {tuple(cell.labels.values()): cell for cell in spec.cells()}
    other = {"data_sha256": {"train": "a" * 64, "dev": "d" * 64}, "test_sha256": {"src": "e" * 64}}
    store.finish(cells["base", "100 %", "1"].key, 1.0, make_result(30.0, **other))
    store.finish(cells["base", "100 %", "2"].key, 1.0, make_result(31.0, **other))
    assert "Warning" not in write_report(spec, store, tmp_path / "two").read_text()
    other["data_sha256"] = {"train": "b" * 64, "dev": "c" * 64}
    store.finish(cells["base", "100 %", "2"].key, 1.0, make_result(31.0, **other))
    other["test_sha256"] = {"src": "9" * 64}
    store.finish(cells["sit", "10 %", "3"].key, 1.0, make_result(13.0, **other))
    text = write_report(spec, store, tmp_path / "three").read_text()
    warning = text[text.index("## Warning: runs with different data") : text.index("## Results")]
    one, two = (cells["base", "100 %", seed].name for seed in "12")
    expected = "expected one content for the same settings, got 2"
    assert f"train: {expected}: sha256 {'a' * 12} in {one}; sha256 {'b' * 12} in {two}." in warning
    assert f"dev: {expected}: sha256 {'d' * 12} in {one}; sha256 {'c' * 12} in " in warning  # of any share
    assert f"test src: {expected}: sha256 {'e' * 12} in " in warning
    assert text.index("## Warning") < text.index("## Results")


def test_another_checkpoint_behind_the_path(content, write_spec, store, make_result):
    content |= {"verb": "finetune", "recipe": None, "report": {}}
    content["settings"] = {"model": "encoder", "task": "cola", "data.dir": "x"}
    content["axes"] = {"seed": [1, 2, 3, 4, 5]}
    spec = load_spec(write_spec(content))
    store.add(spec.cells())
    for cell in spec.cells():
        new = "b" if cell.labels["seed"] == "3" else "a"
        store.finish(cell.key, 1.0, make_result(0.5, model_sha256=new * 64))
    names = [cell.name for cell in spec.cells()]
    ((what, sentences, _),) = mixtures(spec, list(store.runs().values()))
    assert what == "data"
    assert sentences == [
        f"model: expected one content for the same settings, got 2: sha256 {'a' * 12} in {names[0]}, {names[1]}, "
        f"{names[3]} and 1 more; sha256 {'b' * 12} in {names[2]}."
    ]


def test_one_measured_point_is_no_figure(filled, make_result, tmp_path):
    """Both sizes are measured, but the gain at one of them only; the paper's points do not count."""
    spec, store = filled
    spec.report.paper = [
        PaperNumber(cell={"system": "sit", "fraction": one}, value=9.0) for one in ("10 %", "100 %")
    ]
    text = write_report(spec, store, tmp_path / "one").read_text()
    assert "(by_size.png)" in text
    assert "gain_by_size" not in text
    (cell,) = [
        one for one in spec.cells() if one.labels == {"system": "sit", "fraction": "100 %", "seed": "1"}
    ]
    store.finish(cell.key, 1.0, make_result(31.0))
    assert "(gain_by_size.png)" in write_report(spec, store, tmp_path / "two").read_text()


def test_a_learning_curve_of_one_point_is_no_figure(filled, make_result, tmp_path, monkeypatch):
    spec, store = filled
    monkeypatch.setattr(figures, "draw_curves", lambda *given: None)
    for cell in spec.cells():
        store.finish(cell.key, 1.0, make_result(11.0, curve=[{"step": 1, "value": 2.0}]))
    assert figures.curve_figures(spec, group_runs(spec, store.runs()), tmp_path) == []


def test_learning_curves_end_where_the_first_seed_stopped(filled, make_result, tmp_path, monkeypatch):
    """Its last value is out of later means: they would jump to those of the seeds that went on."""
    spec, store = filled
    (cell,) = [
        one for one in spec.cells() if one.labels == {"system": "base", "fraction": "10 %", "seed": "2"}
    ]
    curve = [{"step": step, "value": 9.0} for step in (10, 20, 30, 40)]
    store.finish(cell.key, 1.0, make_result(11.0, curve=curve))
    drawn = {}
    monkeypatch.setattr(figures, "draw_curves", lambda curves, path, *rest: drawn.update({path.name: curves}))
    groups = group_runs(spec, store.runs())
    blocks = figures.curve_figures(spec, groups, tmp_path)
    curve = drawn["curve_10.png"]["base"]
    assert curve.x == [10, 20]
    assert curve.y == pytest.approx([(4 + 9 + 4) / 3, (3.1 + 9 + 3.125) / 3])
    assert blocks[1].caption == "loss on dev 10 %, mean over seeds, up to where the first of them stopped"


def test_learning_curves_in_one_figure_have_no_name_between(filled, tmp_path, monkeypatch):
    spec, store = filled
    monkeypatch.setattr(figures, "draw_curves", lambda *given: None)
    report = spec.report.model_copy(update={"baseline": {"system": "base", "fraction": "10 %"}})
    one_figure = spec.model_copy(update={"report": report})
    _, figure = figures.curve_figures(one_figure, group_runs(one_figure, store.runs()), tmp_path)
    assert figure.caption == "loss on dev, mean over seeds, up to where the first of them stopped"


def test_names_of_files_are_different():
    assert figures.file_names(["a + b", "a, b", "A b", "a, b", "%", "all"]) == {
        "a + b": "a-b",
        "a, b": "a-b-2",
        "A b": "A-b-3",
        "%": "all",
        "all": "all-2",
    }


def _cells(spec):
    return {tuple(cell.labels.values()): cell for cell in spec.cells()}


def test_runs_of_an_edited_recipe_are_told(filled, make_result, tmp_path):
    """Seeds of one combination have one recipe, whatever levels of other combinations set."""
    spec, store = filled
    cells = _cells(spec)
    recipe = {"model.dropout": 0.1, "lisa": None, "infusion.kind": "none", "seed": 1}
    edited = {"model.dropout": 0.2, "lisa.layers": None, "infusion.kind": "none", "seed": 2}
    store.finish(cells["base", "10 %", "1"].key, 1.0, make_result(10.0, recipe=recipe))
    store.finish(cells["sit", "10 %", "2"].key, 1.0, make_result(11.0, recipe=edited))
    assert "Warning" not in write_report(spec, store, tmp_path / "one").read_text()
    store.finish(cells["base", "10 %", "2"].key, 1.0, make_result(11.0, recipe=edited))
    text = write_report(spec, store, tmp_path / "two").read_text()
    warning = text[text.index("## Warning: runs with different recipes") : text.index("## Results")]
    one, two = (cells[labels].name for labels in (("base", "10 %", "1"), ("base", "10 %", "2")))
    expected = "expected one value for all seeds, got 2"
    assert f"model.dropout: {expected}: 0.1 in {one}; 0.2 in {two}." in warning
    assert f'lisa: {expected}: null in {one}; {{"layers": null}} in {two}.' in warning
    assert "infusion.kind" not in warning
    assert "Restore the old recipe, or run the whole experiment under another name." in warning


_TRAINED = {
    "plain": {}, "masks": {"infusion.masks": {}}, "as printed": {"infusion.masks.preset": "paper", "infusion.masks.topical": False},
    "bias": {"infusion.relation_bias": {"init": "distance"}}, "both": {"infusion.masks.max_distance": 5, "infusion.relation_bias": {}},
    "lisa": {"infusion.lisa": {}}, "tags": {"infusion.kind": "add"},
}  # fmt: skip


@pytest.mark.parametrize("verb", ["train", "finetune", "ablation"])
def test_what_an_experiment_varies_is_no_edit_of_a_recipe(verb, content, write_spec, store, make_result):
    systems = _TRAINED
    if verb != "train":
        content |= {"verb": "finetune", "recipe": None}
        content["settings"] = {"model": "encoder", "task": "cola", "data.dir": "x"}
        systems = {"plain": {"infuse": "none"}, "masks": {"infuse": "masks"}}
    if verb == "ablation":  # the rows of Bai et al. (2021), table 5
        rows = yaml.safe_load((ROOT / "experiments" / "bai2021_ablation_paper.yaml").read_text())
        systems, content["settings"]["infusion.preset"] = rows["axes"]["system"], "paper"
    content["report"], content["axes"] = {}, {"system": systems, "seed": [1, 2]}
    spec = load_spec(write_spec(content))
    store.add(spec.cells())
    for cell in spec.cells():
        store.finish(cell.key, 1.0, make_result(0.5, recipe=recipe_settings(resolve(cell))))
    assert list(mixtures(spec, list(store.runs().values()))) == []


def test_compared_runs_of_different_precision_are_told(filled, make_result, tmp_path):
    spec, store = filled
    cells = _cells(spec)
    for labels in (("base", "10 %", "1"), ("sit", "10 %", "2")):
        store.finish(cells[labels].key, 1.0, make_result(10.0, precision="fp32"))
    store.finish(cells["base", "100 %", "1"].key, 1.0, make_result(30.0, precision="bf16"))
    text = write_report(spec, store, tmp_path / "one").read_text()
    assert "Warning" not in text  # 10 % and 100 % are not compared
    assert "| folder | metrics | commit | precision | seconds | attempts |" in text
    assert "| 0123456789ab | bf16 | 1 |" in text
    store.finish(cells["sit", "10 %", "2"].key, 1.0, make_result(10.0, precision="bf16"))
    text = write_report(spec, store, tmp_path / "two").read_text()
    one, two = (cells[labels].name for labels in (("base", "10 %", "1"), ("sit", "10 %", "2")))
    assert text.index("## Warning: runs with different precision") < text.index("## Results")
    assert (
        "training.precision: expected one value unless the settings differ in it, got 2: "
        f"fp32 in {one}; bf16 in {two}." in text
    )


def test_a_baseline_with_a_table_less_is_told(filled, make_result, tmp_path):
    """The gain of such a table is not one of syntax: on 1,656 pairs of Tatoeba it is all of +1.2 BLEU."""
    spec, store = filled
    cells = _cells(spec)
    for system, table in (("base", "shared"), ("sit", "own")):
        store.finish(cells[system, "10 %", "1"].key, 1.0, make_result(10.0, source_table=table))
    text = write_report(spec, store, tmp_path).read_text()
    one, two = (cells[system, "10 %", "1"].name for system in ("base", "sit"))
    assert text.index("## Warning: runs with different embedding tables") < text.index("## Results")
    assert f", got 2: shared in {one}; own in {two}." in text
    assert "Set model.share_source_embedding: false for the baseline too, or run the whole" in text


def test_a_table_that_is_asked_for_is_no_mixture(content, write_spec, store, make_result):
    key = "model.share_source_embedding"
    content["axes"] = {"system": {"one": {key: True}, "two": {key: False}}}
    content["report"] = {"baseline": {"system": "one"}}
    spec = load_spec(write_spec(content))
    store.add(spec.cells())
    for cell, table in zip(spec.cells(), ("shared", "own"), strict=True):
        store.finish(cell.key, 1.0, make_result(1.0, source_table=table))
    assert list(mixtures(spec, list(store.runs().values()))) == []


def test_a_precision_that_is_asked_for_is_no_mixture(content, write_spec, store, make_result):
    precisions = ["fp32", "bf16"]
    content["axes"] = {"system": {one: {"training.precision": one} for one in precisions}}
    content["report"] = {"baseline": {"system": "fp32"}}
    spec = load_spec(write_spec(content))
    store.add(spec.cells())
    for cell, precision in zip(spec.cells(), precisions, strict=True):
        store.finish(cell.key, 1.0, make_result(1.0, precision=precision))
    assert list(mixtures(spec, list(store.runs().values()))) == []


def test_compared_runs_that_are_scored_in_two_ways_are_told(filled, make_result, tmp_path):
    """The same translations have 10 BLEU in one case, 40 in lower case: not a difference between systems."""
    spec, store = filled
    cells = _cells(spec)
    for system, lowercase in (("base", False), ("sit", True)):
        scoring = {"lowercase": lowercase, "tokenize": "13a"}
        cell = cells[system, "10 %", "1"]
        store.finish(cell.key, 1.0, make_result(40.0 if lowercase else 10.0, scoring=scoring))
    text = write_report(spec, store, tmp_path / "one").read_text()
    assert text.index("## Warning: runs with different scoring") < text.index("## Results")
    assert "scoring: expected one way of scoring for all runs that are compared, got 2: " in text
    assert "| p (sentences) |" not in text
    for system, note in (("base", None), ("sit", "refs:through_target_pieces")):
        result = make_result(10.0, scoring={"tokenize": "none"}, references=note)
        store.finish(cells[system, "10 %", "1"].key, 1.0, result)
    text = write_report(spec, store, tmp_path / "references").read_text()
    assert '{"tokenize": "none"} refs:through_target_pieces in sit_10' in text


def test_seeds_are_paired_where_both_have_the_metric(filled, make_result):
    spec, store = filled
    cells = _cells(spec)
    for system, values in (("base", (None, 30.0, 31.0)), ("sit", (20.0, None, 33.5))):
        for seed, value in enumerate(values, 1):
            key = cells[system, "10 %", str(seed)].key
            store.finish(key, 1.0, make_result(1.0, metrics={"dev_loss": value}))
    groups = group_runs(spec, store.runs())
    found = [compare_groups(spec, store, one, groups, "dev_loss", spec.report.baseline) for one in groups]
    (difference,) = [one for one in found if one is not None]
    assert (difference.mean, difference.n) == (2.5, 1)


def test_runs_of_several_commits_are_not_mixed_in_silence(filled, make_result, tmp_path):
    spec, store = filled
    assert "commits" not in write_report(spec, store, tmp_path / "one").read_text()
    resumed = make_result(10.0, commit="0123456789ab, ba9876543210+")
    store.finish(_cells(spec)["base", "10 %", "1"].key, 1.0, resumed)
    text = write_report(spec, store, tmp_path / "two").read_text()
    assert (
        "## Warning: runs with different code\n\ncode: expected one version for all runs that are compared, got 2: "
        in text
    )
    assert "| 0123456789ab, ba9876543210+ |" in text
    newer = make_result(10.0, versions={"torch": "9.9"})
    store.finish(_cells(spec)["base", "10 %", "1"].key, 1.0, newer)
    assert (
        "0123456789ab, torch 9.9 in base_10--_1_" in write_report(spec, store, tmp_path / "three").read_text()
    )


@pytest.fixture
def report_on_cola(content, write_spec, store, make_result, tmp_path):
    """The report of two systems and three seeds whose Matthews correlations and notes are given."""

    def report(**systems):
        content.update(verb="finetune", recipe=None, report={"baseline": {"system": "plain"}})
        content["settings"] = {"model": "encoder", "task": "cola", "data.dir": "x"}
        content["axes"] = {
            "system": {"plain": {"infuse": "none"}, "masks": {"infuse": "masks"}},
            "seed": [1, 2, 3],
        }
        spec = load_spec(write_spec(content))
        store.add(spec.cells())
        for cell in spec.cells():
            matthews, more = systems[cell.labels["system"]]
            store.finish(cell.key, 1.0, {**make_result(0.0), "metrics": {"matthews": matthews}, **more})
        return write_report(spec, store, tmp_path / "out").read_text()

    return report


WARNING = """## Warning: classes never predicted

{}

Differences from runs of one class mean nothing, and get no p. Train longer or at another rate.
"""
OF_MASKS = "; ".join(f"system masks, seed {seed}" for seed in (1, 2, 3))
OF_BOTH = "; ".join(f"system {name}, seed {seed}" for name in ("plain", "masks") for seed in (1, 2, 3))


def test_rows_of_exactly_nothing_are_remarked_on(report_on_cola):
    """Runs of an earlier version stored no more than their correlation."""
    text = report_on_cola(plain=(0.0, {}), masks=(0.0, {}))
    assert _row(text, "masks")[1:5] == ["3 of 3, 3 of one class", "0.00 ± 0.00", "+0.00", "–"]
    assert WARNING.format(f"all predictions are the same: {OF_BOTH}.") in text
    assert text.index("classes never predicted") < text.index("## Results")


def test_classes_that_runs_note_as_never_predicted_are_remarked_on(report_on_cola):
    text = report_on_cola(plain=(0.3, {"never_predicted": {}}), masks=(0.0, {"never_predicted": {"0": 322}}))
    assert WARNING.format(f"never predicted: 0 (322 rows): {OF_MASKS}.") in text


def _draw_nothing(curves, path, *_):
    path.parent.mkdir(exist_ok=True)
    path.touch()


ONE = {"dev_predictions": {"gold": "0 1 1 0 1 0 1", "found": "1 1 1 1 1 1 1"}}
BOTH = {"dev_predictions": {"gold": "0 1 1 0 1 0 1", "found": "1 0 1 1 1 0 1"}}


def test_runs_of_one_class_are_flagged_in_every_table_and_get_no_p(
    content, write_spec, store, make_result, tmp_path, monkeypatch
):
    """Seed 2 of masks is such a run: by its predictions, as accuracy does not show it."""
    monkeypatch.setattr(figures, "draw_curves", _draw_nothing)
    content.update(verb="finetune", recipe=None)
    content["settings"] = {"model": "encoder", "task": "rte", "data.dir": "x"}
    content["axes"] = {
        "system": {name: {"infuse": name} for name in ("none", "masks", "lisa")},
        "size": {"small": {"data.rows": 53}, "large": {"data.rows": 97}},
        "seed": [1, 2, 3],
    }
    systems = [{"system": name} for name in ("none", "masks", "lisa")]
    content["report"] = {"baseline": systems[0], "controls": systems[2:], "effects": ["size", "system"]}
    planned = {"cell": systems[1] | {"size": "small"}, "against": systems[0], "seeds": 3, "sd": 0.1}
    content["report"]["primary"] = planned
    content["report"] |= {"metrics": ["accuracy"], "scale": 100}
    content["tune"] = {"space": {"training.learning_rate": [1e-4, 2e-4]}, "metric": "accuracy"}
    spec = load_spec(write_spec(content))
    for cell in spec.tuning().combinations():
        for rate in (1e-4, 2e-4):
            store.add([one := spec.tuning().cell(cell, {"training.learning_rate": rate})])
            more = ONE if rate == 1e-4 and cell["system"] == "masks" else BOTH
            store.finish(one.key, 1.0, {**make_result(0.0), "metrics": {"accuracy": rate}, **more})
    spec = tuned(spec, store.runs())
    store.add(spec.cells())
    for place, cell in enumerate(spec.cells()):
        constant = cell.labels == {"system": "masks", "size": "small", "seed": "2"}
        metrics = {"accuracy": 0.5 + (place * place % 7) / 100}
        result = {
            **make_result(0.0),
            "metrics": metrics,
            "primary": {"small": planned},
            **(ONE if constant else BOTH),
        }
        store.finish(cell.key, 1.0, result)
    text = write_report(spec, store, tmp_path / "out").read_text()
    planned, results, effects, against, chosen, origin = (
        text[text.index(f"\n## {one}") :].partition("\n## ")[2].partition("\n## ")[0]
        for one in (
            *("The comparison that was planned", "Results", "Main effects", "Against system lisa"),
            *("Settings chosen on dev", "Where the numbers come from"),
        )
    )
    assert "Measured over 3 seeds, one class: " in planned
    assert "p (seeds) –;" in planned
    flagged = "3 of 3, 1 of one class"
    assert [_row(results, "masks", size)[2] for size in ("small", "large")] == [flagged, "3 of 3"]
    assert _row(results, "masks", "small")[5:8] == ["–"] * 3
    assert "–" not in _row(results, "masks", "large")[5:8]
    assert _row(against, "masks", "small")[2:] == [
        "3, 1 of one class",
        _row(against, "masks", "small")[3],
        *"–––",
    ]
    assert "–" not in _row(against, "masks", "large")
    assert _row(effects, "system masks")[1] == "3, 1 of one class"
    assert [_row(effects, "system masks")[place] for place in (3, 4)] == ["–", "–"]
    assert _row(effects, "system lisa")[1] == "3"
    assert "–" not in _row(effects, "system lisa")
    assert "| 0.0001: 0.01, one class; 0.0002: 0.02 (chosen) |" in chosen  # on the scale of the scores
    assert chosen.count("one class") == 2  # both sizes
    assert [line.split("|")[2] for line in origin.splitlines() if "one class" in line][2:] == [
        f" accuracy {0.5 + 7 * 7 % 7 / 100:.4g}, one class "
    ]


def test_runs_that_predict_every_class_are_not_remarked_on(report_on_cola):
    assert "never predicted" not in report_on_cola(plain=(0.3, {}), masks=(0.2, {"never_predicted": {}}))


def test_the_planned_comparison_says_what_it_could_show_and_what_it_showed(filled, tmp_path):
    spec, store = filled
    here = {"fraction": "10 %"}
    spec.report.primary = Contrast(
        cell={"system": "sit", **here}, against={"system": "base", **here}, seeds=3, sd=0.5
    )

    def told(**plans):
        for cell in spec.cells():
            if cell.labels["system"] in plans and cell.labels["fraction"] == "10 %":
                plan = plans[cell.labels["system"]]
                result = store.runs()[cell.key].result | {"primary": {spec.name: plan, "other": None}}
                store.finish(cell.key, 60.0, result)
        text = write_report(spec, store, tmp_path / "report").read_text()
        (line,) = [line for line in text.splitlines() if line.startswith("Chosen")]
        return line

    planned, changed = spec.report.primary.model_dump(), "**It was written or changed after runs were made"
    line = told()
    assert line.startswith("Chosen: ")
    assert "These runs do not record whether it was chosen before them." in line
    for plan in (planned | {"seeds": 4}, None):
        for plans in ({"sit": plan, "base": planned}, {"sit": planned, "base": plan}):
            line = told(**plans)
            assert line.startswith("Chosen: ")
            assert changed in line
    line = told(sit=planned, base=planned)
    assert changed not in line
    assert line.startswith("Chosen before the first run: ")
    assert "system sit, fraction 10 % against system base, fraction 10 %, 3 seeds." in line
    assert (
        f"a difference of {detectable_effect(3, 0.5):.2f} bleu is found with a probability of 80 %." in line
    )
    p_seeds = ttest_rel(BLEU["sit", "10 %"], BLEU["base", "10 %"]).pvalue
    half = student_t.ppf(0.975, 2) * 0.5 / 3**0.5
    assert f"Measured over 3 seeds: +1.00 bleu, 95 % interval over seeds {1 - half:+.2f} to" in line
    assert f" to {1 + half:+.2f}, over seeds and sentences +" in line
    assert f"p (seeds) {p_seeds:.3f}; standard deviation over seeds 0.50." in line
    spec.report.primary.cell["fraction"] = "100 %"
    spec.report.primary.against["fraction"] = "100 %"
    assert "Not measured yet." in write_report(spec, store, tmp_path / "open").read_text()


def test_runs_that_end_at_their_best_step_are_named(filled, make_result, tmp_path):
    spec, store = filled
    heading = "## Warning: runs that were best at their last evaluation"
    assert heading not in write_report(spec, store, tmp_path / "without").read_text()
    cells = {tuple(cell.labels.values()): cell for cell in spec.cells()}
    rising = make_result(30.0, best_step=20, last_step=20)
    store.finish(cells["base", "100 %", "1"].key, 1.0, rising)
    store.finish(cells["base", "100 %", "2"].key, 1.0, make_result(30.0, best_step=10, last_step=20))
    text = write_report(spec, store, tmp_path / "report").read_text()
    assert f"{heading}\n\nThe best evaluation of 1 of 8 runs was their last. " in text
    assert "| system base, fraction 100 % | 1 | -0.700 |" in text


def test_fine_tuned_runs_without_steps_are_judged_by_their_scores(
    content, write_spec, store, tmp_path, make_result, monkeypatch
):
    """Runs of an earlier version, which stored no steps; the first of equal scores is the best."""
    drawn = []

    def draw(curves, *how):
        drawn.append(curves)
        draw_curves(curves, *how)

    monkeypatch.setattr(figures, "draw_curves", draw)
    content.update(verb="finetune", recipe=None, report={"metrics": ["accuracy"], "scale": 100})
    content["settings"] = {"model": "encoder", "task": "rte", "data.dir": "x"}
    content["axes"] = {"seed": [1, 2, 3]}
    spec = load_spec(write_spec(content))
    store.add(spec.cells())
    for cell, scores in zip(spec.cells(), ([0.2, 0.3], [0.3, 0.3], [0.3, 0.2]), strict=True):
        curve = [{"step": place, "value": score} for place, score in enumerate(scores, 1)]
        store.finish(cell.key, 1.0, {**make_result(0.0), "metrics": {"accuracy": 0.3}, "curve": curve})
    text = write_report(spec, store, tmp_path / "report").read_text()
    assert "The best evaluation of 1 of 3 runs was their last. " in text
    assert "| small | 1 | +10.000 |" in text, "on the scale of the scores"
    assert drawn[0]["run"].y == pytest.approx([80 / 3, 80 / 3])


def _second_program():
    found = importlib.util.spec_from_file_location("recompute", ROOT / "experiments" / "recompute.py")
    second = importlib.util.module_from_spec(found)
    found.loader.exec_module(second)
    return second


def test_a_second_program_finds_the_same_p_values_and_intervals(filled, content, tmp_path):
    """Those over sentences, which need translations: equal, or within the error of another stream of draws."""
    spec, store = filled
    here = {"fraction": "10 %"}
    sides = {"cell": {"system": "sit", **here}, "against": {"system": "base", **here}}
    spec.report.primary = Contrast(**sides, seeds=3, sd=0.5)
    page = write_report(spec, store, tmp_path / "report")
    content["test"] = {"src": str(tmp_path / "src"), "ref": str(tmp_path / "ref")}
    content["report"]["primary"] = spec.report.primary.model_dump()
    second = _second_program()
    for cell in spec.cells():
        (store.cell_folder(cell) / "references.txt").unlink(missing_ok=True)
    one = second.Page("small", content, store.folder, page)
    one.compare()
    assert one.problems == []
    assert one.counts["without outputs"] == 0
    text = page.read_text()
    (interval,) = [cell for cell in _row(text, "sit", "10 %") if " to " in cell]
    page.write_text(text.replace(interval, "-9.00 to +9.00"))
    wrong = second.Page("small", content, store.folder, page)
    wrong.compare()
    assert any("interval -9.00 to +9.00, the store gives" in line for line in wrong.problems)
    for old, new, where in (
        ("Measured over 3 seeds: +1.00", "Measured over 3 seeds: +2.00", "planned, Δ"),
        ("standard deviation over seeds 0.50", "standard deviation over seeds 0.51", "planned, sd"),
        ("over seeds and sentences +", "over seeds and sentences +9", "planned: interval +9"),
    ):
        page.write_text(text.replace(old, new))
        wrong = second.Page("small", content, store.folder, page)
        wrong.compare()
        assert old in text
        assert [line for line in wrong.problems if where in line], wrong.problems


def _fine_tuned(content, write_spec, store, make_result, with_predictions: bool):
    """Three seeds of two systems on 37 rows; the second is right in more of them."""
    rng = np.random.default_rng(3)
    content |= {
        "verb": "finetune",
        "recipe": None,
        "settings": {"task": "cola", "model": "m", "data.dir": "d"},
    }
    content["axes"] = {
        "system": {"base": {"infuse": "none"}, "sit": {"infuse": "pos_add"}},
        "seed": [1, 2, 3],
    }
    content["report"] = {"baseline": {"system": "base"}, "metrics": ["matthews"]}
    spec, gold = load_spec(write_spec(content)), rng.integers(0, 2, 37)
    store.add(spec.cells())
    for cell in spec.cells():
        right = rng.random(37) < (0.7 if cell.labels["system"] == "base" else 0.9)
        found = np.where(right, gold, 1 - gold)
        written = {"gold": " ".join(map(str, gold)), "found": " ".join(map(str, found))}
        more = {"dev_predictions": written} if with_predictions else {}
        score = matthews_corrcoef(gold, found)
        store.finish(
            cell.key, 60.0, make_result(0.0) | {"metrics": {"score": score, "matthews": score}, **more}
        )
    return spec, gold


def test_examples_of_fine_tuned_runs_are_resampled(content, write_spec, store, make_result, tmp_path):
    spec, gold = _fine_tuned(content, write_spec, store, make_result, True)
    text = write_report(spec, store, tmp_path / "report").read_text()
    base, sit = group_runs(spec, store.runs())
    found = compare_groups(spec, store, sit, [base, sit], "matthews", {"system": "base"})
    pairs = [
        [np.array(group.runs[seed].result["dev_predictions"]["found"].split(), int) for group in (base, sit)]
        for seed in "123"
    ]
    p_values, gain = bootstrap_rows(lambda *sides: np.corrcoef(*sides)[0, 1], gold, pairs)  # the same number
    assert found.p_sentences == pytest.approx(p_values)
    assert found.interval == pytest.approx((gain.low, gain.high))
    row = _row(text, "sit")
    assert row[-3] == f"{gain.low:+.2f} to {gain.high:+.2f}"
    assert "p (sentences) is from a paired bootstrap over examples of dev, run for each seed" in text
    assert "if all seeds have predictions and differ" in text
    figures.bootstrap_rows, kept = None, figures.bootstrap_rows  # the second time it is read from the store
    try:
        assert write_report(spec, store, tmp_path / "again").read_text() == text
    finally:
        figures.bootstrap_rows = kept


def test_a_store_without_predictions_is_read_as_before(content, write_spec, store, make_result, tmp_path):
    spec, _ = _fine_tuned(content, write_spec, store, make_result, False)
    text = write_report(spec, store, tmp_path / "report").read_text()
    assert "interval" not in text
    assert "p (sentences)" not in text
    assert not (store.folder / "bootstrap.json").exists()


SCORES = {
    ("none", "none"): [0.21, 0.25, 0.22],
    ("none", "default"): [0.24, 0.23, 0.26],
    ("default", "none"): [0.28, 0.27, 0.29],
    ("default", "default"): [0.35, 0.31, 0.39],
}
"""Masks, LISA → Matthews' correlation of three seeds."""


@pytest.fixture
def two_by_two(content, write_spec, store, make_result, monkeypatch):
    """The grid masks × LISA with scores and, where they are wanted, predictions on 41 rows."""
    monkeypatch.setattr(figures, "draw_curves", _draw_nothing)

    def make(with_predictions=False, skip=(), test=False, verb="finetune"):
        content.update(verb=verb, recipe=None if verb == "finetune" else "tiny")
        content["settings"] = {"data.dir": "d"}
        content["settings"] |= {"task": "cola", "model": "m"} if verb == "finetune" else {}
        content["axes"] = {"masks": [None, {}], "lisa": [None, {}], "seed": [1, 2, 3]}
        metric = "matthews" if verb == "finetune" else "dev_loss"
        if with_predictions:
            metric = "test_accuracy" if test else "accuracy"
        content["report"] = {"metrics": [metric], "scale": 100, "baseline": {"masks": "none", "lisa": "none"}}
        spec = load_spec(write_spec(content | ({"test_split": "test"} if test else {})))
        rng, gold = np.random.default_rng(7), np.random.default_rng(5).integers(0, 2, 41)
        store.add(spec.cells())
        sides = {}
        for cell in spec.cells():
            labels = cell.labels["masks"], cell.labels["lisa"], int(cell.labels["seed"])
            if labels in skip:
                continue
            score, more = SCORES[labels[:2]][labels[2] - 1], {}
            if with_predictions:
                right = rng.random(41) < (0.6 + 0.1 * labels.count("default"))
                sides[labels] = found = np.where(right, gold, 1 - gold)
                texts = {name: " ".join(map(str, one)) for name, one in (("gold", gold), ("found", found))}
                more = {"test_predictions" if test else "dev_predictions": texts}
                score = float(np.mean(gold == found))
            metrics = {metric.removeprefix("test_"): score, metric: score}
            store.finish(cell.key, 60.0, make_result(0.0) | {"metrics": metrics, **more})
        return spec, gold, sides

    return make


CONTRASTS = {
    "masks default": [-0.5, -0.5, 0.5, 0.5],
    "lisa default": [-0.5, 0.5, -0.5, 0.5],
    "masks default × lisa default": [1, -1, -1, 1],
}
"""Effect → the weights of the four combinations, in the order of SCORES."""


@pytest.mark.parametrize("verb", ["finetune", "train"])
def test_main_effects_and_the_interaction_are_contrasts_of_each_seed(
    two_by_two, content, store, tmp_path, verb
):
    spec, *_ = two_by_two(verb=verb)
    text = (page := write_report(spec, store, tmp_path / "report")).read_text()
    table = text[text.index("## Main effects and interactions") :]
    for name, weights in CONTRASTS.items():
        per_seed = np.array(weights) @ np.array(list(SCORES.values()))
        tested = ttest_1samp(per_seed, 0)
        low, high = tested.confidence_interval()
        assert _row(table, name) == [
            *(name, "3", f"{per_seed.mean() * 100:+.2f}"),
            *(f"{low * 100:+.2f} to {high * 100:+.2f}", f"{tested.pvalue:.3f}"),
        ]
    interaction = _row(table, "masks default × lisa default")[2]
    assert interaction == f"{(35 - 73 / 3) - (28 - 68 / 3):+.2f}"  # means of three seeds, by hand
    assert "The effect of A × B is how much that of A grows when B goes from its first level" in table
    again = _second_program().Page("small", content, store.folder, page)
    again.compare()
    assert (again.problems, again.counts["compared"]) == ([], 2 * 4 + 2 * 3 + 3 * 3)
    page.write_text(text.replace(f"| 3 | {interaction} |", "| 3 | +9.99 |"))
    again.compare()
    assert again.problems == [
        f"small, masks default × lisa default, Δ: the page has +9.99, the store gives {interaction}"
    ]


def test_an_effect_needs_all_of_its_combinations(two_by_two, store, tmp_path):
    spec, *_ = two_by_two(skip=[("default", "none", 3)])
    text = write_report(spec, store, tmp_path / "two").read_text()
    assert _row(text, "masks default × lisa default")[1] == "2"
    spec.exclude = [{"masks": "default", "lisa": "none"}]
    text = write_report(spec, store, tmp_path / "none").read_text()
    assert _row(text, "masks default × lisa default") == ["masks default × lisa default", *"––––"]


def test_effects_of_more_levels_and_axes(spec, store, make_result):
    """Two further levels against the first, averaged over the other axis; once for each other combination."""
    spec.axes["system"]["third"] = {"infusion.kind": "add"}
    spec.axes["task"] = {"a": {"data.dir": "a"}, "b": {"data.dir": "b"}}
    spec.report.effects = ["fraction", "system"]
    store.add(spec.cells())
    rng, values = np.random.default_rng(3), {}
    for cell in spec.cells():
        values[tuple(cell.labels.values())] = score = float(rng.normal())
        store.finish(cell.key, 1.0, make_result(score, metrics={"dev_loss": score}))
    found = {(name, *among.values()): one for name, among, one in groups_of_effects(spec, store)}
    assert len(found) == 2 * (2 + 1 + 2)
    for task in "ab":

        def mean(system, fraction=("10 %", "100 %"), seed="2", task=task):
            return np.mean([values[system, one, seed, task] for one in fraction])

        per_seed = [mean("third", seed=seed) - mean("base", seed=seed) for seed in "123"]
        one = found["system third", task]
        assert (one.mean, one.p_seeds) == pytest.approx((np.mean(per_seed), ttest_1samp(per_seed, 0).pvalue))
        both = [
            mean("third", ["100 %"], seed) - mean("base", ["100 %"], seed) - mean("third", ["10 %"], seed)
            + mean("base", ["10 %"], seed)
            for seed in "123"
        ]  # fmt: skip
        assert found["system third × fraction 100 %", task].mean == pytest.approx(np.mean(both))


def groups_of_effects(spec, store):
    return figures.effects(spec, store, group_runs(spec, store.runs()), "dev_loss")


@pytest.mark.parametrize("test", [False, True])
def test_effects_are_tested_over_examples_too(two_by_two, store, tmp_path, test):
    """The samples of a loop of our own: rows, the same for all, then seeds."""
    spec, gold, sides = two_by_two(with_predictions=True, test=test)
    text = write_report(spec, store, tmp_path).read_text()
    of = " of the test split" if test else ""
    assert (
        f"from a paired bootstrap over examples of {'test' if test else 'dev'}, run for each seed" in text
    ), of
    rng = np.random.default_rng(12345)
    rows = [rng.integers(0, 41, 41) for _ in range(1000)]
    drawn = rng.integers(0, 3, (1000, 3))
    cells = [[sides[(*names, seed)] for names in SCORES] for seed in (1, 2, 3)]
    right = np.array(cells) == gold  # seeds, combinations, rows
    scores = np.array([right[:, :, one].mean(2) for one in rows])
    for name, weights in CONTRASTS.items():
        gains = scores @ weights
        low, high = np.percentile(np.take_along_axis(gains, drawn, 1).mean(1), [2.5, 97.5]) * 100
        measured = right.mean(2) @ weights
        p_values = (1 + (abs(gains - gains.mean(0)) >= abs(measured)).sum(0)) / 1001
        agree = min(measured) >= 0 or max(measured) <= 0
        row = _row(text, name)
        assert row[-2] == (f"{max(p_values):.3f}" if agree else "seeds disagree")
        assert row[-1] == f"{low:+.2f} to {high:+.2f}"
