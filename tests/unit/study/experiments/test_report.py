"""The report of runs written by hand: every number of it can be worked out here."""

from __future__ import annotations

import statistics
from pathlib import Path

import numpy as np
import pytest
import recompute
import yaml
from scipy.stats import t as student_t
from scipy.stats import ttest_1samp, ttest_rel
from typer.testing import CliRunner

from syntaxformer.base.errors import CheckpointError, DataError
from syntaxformer.base.statistics import detectable_effect
from syntaxformer.cli.main import app
from syntaxformer.study.document import Code, Figure, Heading, Paragraph, Table, to_html, to_markdown
from syntaxformer.study.experiments import groups as numbers
from syntaxformer.study.experiments.cell import HYPOTHESES, recipe_settings, resolve
from syntaxformer.study.experiments.groups import compare_groups, group_runs
from syntaxformer.study.experiments.report import curve_figures, file_names, mixtures, write_report
from syntaxformer.study.experiments.spec import Contrast, PaperNumber, ScoredText
from syntaxformer.study.experiments.store import tuned
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
SHORT, SHORTER = ([" ".join(line.split()[:-cut]) for line in REFERENCES] for cut in (1, 2))
"""The translations of sit and of base."""


def _write_translations(store, cell, lines):
    folder = store.cell_folder(cell)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / HYPOTHESES).write_text("".join(f"{line}\n" for line in lines))


@pytest.fixture
def filled(spec, store, make_result, tmp_path):
    """Eight of twelve runs are done, one failed; those of 10 % have translations."""
    (tmp_path / "ref").write_text("".join(f"{line}\n" for line in REFERENCES))
    spec.test = ScoredText(src=tmp_path / "src", ref=tmp_path / "ref")
    store.add(spec.cells())
    for (system, fraction, seed), cell in _cells(spec).items():
        values = BLEU.get((system, fraction), [])
        if int(seed) <= len(values):
            store.finish(cell.key, 60.0 * int(seed), make_result(values[int(seed) - 1]))
        elif seed == "1":
            store.stop(cell.key, "failed", 3.0, "loss: expected a number, got nan.")
        if fraction == "10 %":
            _write_translations(store, cell, SHORTER if system == "base" else SHORT)
    return spec, store


def _cells(spec):
    return {tuple(cell.labels.values()): cell for cell in spec.cells()}


def _row(text: str, *names: str) -> list[str]:
    start = f"| {' | '.join(names)} |"
    (line,) = [line for line in text.splitlines() if line.startswith(start)]
    return [cell.strip() for cell in line.strip("|").split("|")]


def _section(text: str, title: str) -> str:
    return text[text.index(f"\n## {title}") :].partition("\n## ")[2].partition("\n## ")[0]


def test_every_number(filled, report):
    text = report(*filled)
    base, sit = BLEU["base", "10 %"], BLEU["sit", "10 %"]
    spread = f"{statistics.mean(base):.2f} ± {statistics.stdev(base):.2f}"
    expected = ["3 of 3", spread, "31.17 ± 1.26", "–", "–", "–", "–", "16.28", "–", "1.25M", "2.0"]
    assert _row(text, "base", "10 %")[2:] == expected
    gain = bootstrap_gain([(SHORTER, SHORT)] * 3, REFERENCES)
    p_sentences = compare_translations(SHORTER, SHORT, REFERENCES).p_value
    assert _row(text, "sit", "10 %")[5:11] == [
        *("+1.00", f"{ttest_rel(sit, base).pvalue:.3f}", f"{p_sentences:.3f}"),
        *(f"{gain.low:+.2f} to {gain.high:+.2f}", "17.28", "+1.00"),
    ]
    assert _row(text, "sit", "100 %")[2:4] == ["0 of 3", "–"]
    assert _row(text, "base", "100 %")[2:4] == ["2 of 3", "30.50 ± 0.71"]
    assert "12 runs: 8 done, 1 failed, 3 waiting." in text
    assert "| system sit, fraction 100 %, seed 1 | failed | loss: expected a number, got nan. |" in text
    assert "# Small | grid" in text
    assert "0123456789ab" in text
    assert text.count("syntaxformer train tiny") == 8
    assert "Warning" not in text
    assert "## Against" not in text


def test_nothing_done_yet(spec, store, report):
    spec.report.controls = [{"system": "sit"}]
    text = report(spec, store)
    assert "12 runs: 12 waiting." in text
    assert "## Against system sit\n\nNot measured.\n" in text
    assert "Where the numbers come from" not in text
    assert _row(text, "base", "10 %")[2:4] == ["0 of 3", "–"]


def test_p_values_over_sentences_are_of_bleu_and_of_all_seeds_that_agree(filled, make_result, report):
    spec, store = filled
    second = _cells(spec)["sit", "10 %", "2"]
    spec.report.metrics = ["chrf", "bleu"]
    assert "| p (sentences) |" not in report(spec, store)
    spec.report.metrics = []
    before = _row(report(spec, store), "sit", "10 %")[7]
    assert float(before) < 0.05
    _write_translations(store, _cells(spec)["sit", "10 %", "1"], SHORTER)  # other translations, another p
    assert _row(report(spec, store), "sit", "10 %")[7] == "1.000"
    store.finish(second.key, 60.0, make_result(10.5))  # one seed is better, another worse
    row = _row(report(spec, store), "sit", "10 %")
    assert (row[5], row[7]) == ("+0.33", "seeds disagree")
    (store.cell_folder(second) / HYPOTHESES).unlink()
    text = report(spec, store)
    assert _row(text, "sit", "10 %")[2] == "3 of 3"
    assert "| p (sentences) |" not in text


def test_what_was_resampled_before_is_read_as_json(filled, report):
    spec, store = filled
    (store.folder / "bootstrap.json").write_text("{'a': 1}")
    with pytest.raises(CheckpointError, match=r"/store/bootstrap\.json: expected JSON, got: "):
        report(spec, store)


@pytest.mark.slow
def test_the_same_store_gives_the_same_bytes_and_the_html_needs_no_other_file(filled, tmp_path):
    spec, store = filled
    write_report(spec, store, tmp_path / "first")
    (store.folder / "bootstrap.json").unlink()
    write_report(spec, store, tmp_path / "second")
    names = sorted(path.name for path in (tmp_path / "first").iterdir())
    assert names == ["by_size.png", "curve_10.png", "curve_100.png", "report.html", "report.md"]
    for name in names:
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()
    assert b"Matplotlib" not in (tmp_path / "first" / "by_size.png").read_bytes()
    page = (tmp_path / "first" / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 3
    assert 'src="by_size' not in page
    assert "<title>Small | grid</title>" in page


def test_blocks(tmp_path):
    (tmp_path / "a.png").write_bytes(b"\x89PNG")
    table = Table(["n", "v"], [["a|b", "1"]])
    blocks = [Heading("T", 1), Paragraph("a < b"), Code("x | y"), table, Figure("a.png", "c")]
    assert to_markdown(blocks) == (
        "# T\n\na < b\n\n```\nx | y\n```\n\n| n | v |\n| --- | ---: |\n| a\\|b | 1 |\n\n![c](a.png)\n\n*c*\n"
    )
    blocks += [Paragraph("Experiment `a<b`, not ` alone."), Paragraph("2 * 3 ** x, **not planned**.")]
    page = to_html(blocks, tmp_path)
    for part in (
        "<p>a &lt; b</p>",
        'src="data:image/png;base64,iVBORw=="',
        "<p>Experiment <code>a&lt;b</code>, not ` alone.</p>",
        "<strong>not planned</strong>.</p>",
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
    ):
        assert part in page


def test_the_command_reports_no_store_that_is_not_there(load, content, tmp_path):
    """An empty report would overwrite a page; a misspelt --store is all that it takes."""
    load(content)
    path, output = tmp_path / "spec.yaml", tmp_path / "out"
    done = CliRunner().invoke(app, ["experiment", "report", str(path), "--store", "typo", "-o", str(output)])
    assert isinstance(done.exception, DataError)
    assert str(done.exception).startswith("typo/store.sqlite: ")
    assert not output.exists()


def test_numbers_of_a_paper_may_have_a_baseline_of_their_own(filled, report):
    spec, store = filled
    spec.report.paper = [
        PaperNumber(cell={"system": "base"}, value=30.57),
        PaperNumber(cell={"system": "sit"}, value=31.37, baseline=34.50),
    ]
    text = report(spec, store)
    assert _row(text, "sit", "10 %")[9:11] == ["31.37", "-3.13"]
    assert _row(text, "base", "10 %")[9:11] == ["30.57", "–"]


def test_figures_along_x_need_two_measured_points(filled, make_result, report, curves):
    """Both sizes are measured, but the gain at one of them only; the paper's points do not count."""
    spec, store = filled
    spec.report.paper = [
        PaperNumber(cell={"system": "sit", "fraction": fraction}, value=9.0) for fraction in ("10 %", "100 %")
    ]
    spec.report.scale = 100
    report(spec, store)
    assert "by_size.png" in curves
    assert "gain_by_size.png" not in curves
    assert curves["by_size.png"]["base"].x == [10, 100]
    assert curves["by_size.png"]["base"].y == pytest.approx([33.5 / 3 * 100, 3050])
    assert curves["by_size.png"]["sit (paper)"].y == [9, 9], "as printed"
    store.finish(_cells(spec)["sit", "100 %", "1"].key, 1.0, make_result(31.0))
    report(spec, store)
    assert curves["gain_by_size.png"]["sit"].y == pytest.approx([100, 100])


def test_learning_curves_end_where_the_first_seed_stopped(filled, make_result, tmp_path, curves):
    """Its last value is out of later means: they would jump to those of the seeds that went on."""
    spec, store = filled
    curve = [{"step": step, "value": 9.0} for step in (10, 20, 30, 40)]
    store.finish(_cells(spec)["base", "10 %", "2"].key, 1.0, make_result(11.0, curve=curve))
    blocks = curve_figures(spec, group_runs(spec, store.runs()), tmp_path)
    mean = curves["curve_10.png"]["base"]
    assert (mean.x, mean.y) == ([10, 20], pytest.approx([(4 + 9 + 4) / 3, (3.1 + 9 + 3.125) / 3]))
    assert blocks[1].caption == "loss on dev 10 %, mean over seeds, up to where the first of them stopped"
    spec.report.baseline = {"system": "base", "fraction": "10 %"}  # one figure
    _, figure = curve_figures(spec, group_runs(spec, store.runs()), tmp_path)
    assert figure.caption == "loss on dev, mean over seeds, up to where the first of them stopped"
    for cell in spec.cells():  # a curve of one point is no figure
        store.finish(cell.key, 1.0, make_result(11.0, curve=[{"step": 1, "value": 2.0}]))
    assert curve_figures(spec, group_runs(spec, store.runs()), tmp_path) == []


def test_names_of_files_are_different():
    names = {"a + b": "a-b", "a, b": "a-b-2", "A b": "A-b-3", "%": "all", "all": "all-2"}
    assert file_names(["a + b", "a, b", "A b", "a, b", "%", "all"]) == names


BASE, SIT, SECOND = ("base", "10 %", "1"), ("sit", "10 %", "1"), ("base", "10 %", "2")
LARGE, LARGER = ("base", "100 %", "1"), ("base", "100 %", "2")


@pytest.mark.parametrize(
    ("check", "results", "what", "values"),
    [
        ("data", {LARGE: {"test_sha256": {"src": "e" * 64}}, SIT: {"test_sha256": {"src": "9" * 64}}}, "test src", ("e" * 12, "9" * 12)),
        ("data", {LARGE: {"data_sha256": {"train": "a" * 64}}, LARGER: {"data_sha256": {"train": "b" * 64}}}, "train", ("a" * 12, "b" * 12)),
        ("data", {LARGE: {"data_sha256": {"dev": "d" * 64}}, BASE: {"data_sha256": {"dev": "c" * 64}}}, "dev", ("d" * 12, "c" * 12)),  # of any share
        ("recipes", {BASE: {"recipe": {"a.b": 0.1, "seed": 1}}, SECOND: {"recipe": {"a.b": 0.2, "seed": 2}}}, "a.b", ("0.1", "0.2")),
        ("recipes", {BASE: {"recipe": {"lisa": None}}, SECOND: {"recipe": {"lisa.layers": None}}}, "lisa", ("null", '{"layers": null}')),
        ("precision", {BASE: {"precision": "fp32"}, SIT: {"precision": "bf16"}}, "training.precision", ("fp32", "bf16")),
        ("embedding tables", {BASE: {"source_table": "shared"}, SIT: {"source_table": "own"}}, "table of source words", ("shared", "own")),
        ("scoring", {BASE: {"scoring": {"lowercase": False}}, SIT: {"scoring": {"lowercase": True}}}, "scoring", ('{"lowercase": false}', '{"lowercase": true}')),
        ("scoring", {BASE: {"scoring": {"tokenize": "none"}}, SIT: {"scoring": {"tokenize": "none"}, "references": "refs:own"}}, "scoring", ("} refs:own",)),
        ("code", {BASE: {"commit": "0123456789ab, ba9876543210+"}}, "code", ("0123456789ab, ba9876543210+, torch 2", "0123456789ab, torch 2")),
        ("code", {BASE: {"versions": {"torch": "9.9"}}}, "code", ("torch 9.9",)),
    ],
)  # fmt: skip
def test_runs_that_do_not_belong_together_are_named(
    filled, make_result, report, check, results, what, values
):
    spec, store = filled
    cells = _cells(spec)
    for labels, more in results.items():
        store.finish(cells[labels].key, 1.0, make_result(10.0, **more))
    text = report(spec, store)
    warning = _section(text, f"Warning: runs with different {check}")
    (line,) = [line for line in warning.splitlines() if line.startswith(f"{what}: ")]
    assert ", got 2: " in line
    for name in (*values, *(cells[labels].name for labels in results)):
        assert name in line
    assert text.index("## Warning") < text.index("## Results")
    if "{" in values[0]:  # of scores in two ways nothing is tested
        assert "| p (sentences) |" not in text


def test_what_may_differ_is_no_mixture(filled, make_result, report):
    """Shares of the training text, precision of sizes that are not compared, recipes of other combinations."""
    spec, store = filled
    cells = _cells(spec)
    for labels, more in (
        (("base", "100 %", "1"), {"data_sha256": {"train": "a" * 64}, "precision": "bf16"}),
        (("base", "100 %", "2"), {"data_sha256": {"train": "a" * 64}}),
        (("base", "10 %", "1"), {"precision": "fp32", "recipe": {"model.dropout": 0.1}}),
        (("sit", "10 %", "2"), {"recipe": {"model.dropout": 0.2}}),
    ):
        store.finish(cells[labels].key, 1.0, make_result(10.0, **more))
    text = report(spec, store)
    assert "Warning" not in text
    assert "| 0123456789ab | bf16 | 1 |" in text


@pytest.mark.parametrize(
    ("key", "fact", "values"),
    [
        ("training.precision", "precision", {"fp32": "fp32", "bf16": "bf16"}),
        ("model.share_source_embedding", "source_table", {True: "shared", False: "own"}),
    ],
)
def test_a_difference_that_is_asked_for_is_no_mixture(content, load, store, make_result, key, fact, values):
    content["axes"] = {"system": {str(value): {key: value} for value in values}}
    content["report"] = {"baseline": {"system": str(next(iter(values)))}}
    spec = load(content)
    store.add(spec.cells())
    for cell, value in zip(spec.cells(), values.values(), strict=True):
        store.finish(cell.key, 1.0, make_result(1.0, **{fact: value}))
    assert list(mixtures(spec, list(store.runs().values()))) == []


_TRAINED = {
    "plain": {}, "masks": {"infusion.masks": {}}, "as printed": {"infusion.masks.preset": "paper", "infusion.masks.topical": False},
    "bias": {"infusion.relation_bias": {"init": "distance"}}, "both": {"infusion.masks.max_distance": 5, "infusion.relation_bias": {}},
    "lisa": {"infusion.lisa": {}}, "tags": {"infusion.kind": "add"},
}  # fmt: skip


@pytest.mark.parametrize("verb", ["train", "ablation"])
def test_what_an_experiment_varies_is_no_edit_of_a_recipe(verb, content, load, store, make_result):
    systems = _TRAINED
    if verb == "ablation":  # the rows of Bai et al. (2021), table 5
        content |= {"verb": "finetune", "recipe": None}
        content["settings"] = {"model": "encoder", "task": "cola", "data.dir": "x"}
        content["settings"]["infusion.preset"] = "paper"
        rows = yaml.safe_load((ROOT / "experiments" / "bai2021_ablation_sst2.yaml").read_text())
        systems = rows["axes"]["system"]
    content["report"], content["axes"] = {}, {"system": systems, "seed": [1, 2]}
    spec = load(content)
    store.add(spec.cells())
    for cell in spec.cells():
        store.finish(cell.key, 1.0, make_result(0.5, recipe=recipe_settings(resolve(cell))))
    assert list(mixtures(spec, list(store.runs().values()))) == []


def test_another_checkpoint_behind_the_path(finetune, load, store, make_result):
    finetune["axes"] = {"seed": [1, 2, 3, 4, 5]}
    spec = load(finetune)
    store.add(spec.cells())
    for cell in spec.cells():
        digest = ("b" if cell.labels["seed"] == "3" else "a") * 64
        store.finish(cell.key, 1.0, make_result(0.5, model_sha256=digest))
    names = [cell.name for cell in spec.cells()]
    ((what, (sentence,), _),) = mixtures(spec, list(store.runs().values()))
    assert what == "data"
    assert sentence.endswith(
        f"got 2: sha256 {'a' * 12} in {names[0]}, {names[1]}, {names[3]} and 1 more; "
        f"sha256 {'b' * 12} in {names[2]}."
    )


def test_seeds_are_paired_where_both_have_the_metric(filled, make_result):
    spec, store = filled
    for system, values in (("base", (None, 30.0, 31.0)), ("sit", (20.0, None, 33.5))):
        for seed, value in enumerate(values, 1):
            key = _cells(spec)[system, "10 %", str(seed)].key
            store.finish(key, 1.0, make_result(1.0, metrics={"dev_loss": value}))
    groups = group_runs(spec, store.runs())
    gains = [compare_groups(spec, store, group, groups, "dev_loss", spec.report.baseline) for group in groups]
    (difference,) = [gain for gain in gains if gain is not None]
    assert (difference.mean, difference.n) == (2.5, 1)


ONE = {"dev_predictions": {"gold": "0 1 1 0 1 0 1", "found": "1 1 1 1 1 1 1"}}
BOTH = {"dev_predictions": {"gold": "0 1 1 0 1 0 1", "found": "1 0 1 1 1 0 1"}}


def test_runs_of_one_class_are_flagged_in_every_table_and_get_no_p(
    finetune, load, store, make_result, report
):
    """Seed 2 of masks is such a run: by its predictions, as accuracy does not show it."""
    finetune["settings"]["task"] = "rte"
    finetune["axes"] = {
        "system": {name: {"infuse": name} for name in ("none", "masks", "lisa")},
        "size": {"small": {"data.rows": 53}, "large": {"data.rows": 97}},
        "seed": [1, 2, 3],
    }
    none, masks, lisa = ({"system": name} for name in ("none", "masks", "lisa"))
    plan = {"cell": masks | {"size": "small"}, "against": none, "seeds": 3, "sd": 0.1}
    finetune["report"] = {"baseline": none, "controls": [lisa], "effects": ["size", "system"]}
    finetune["report"] |= {"primary": plan, "metrics": ["accuracy"], "scale": 100}
    finetune["tune"] = {"space": {"training.learning_rate": [1e-4, 2e-4]}, "metric": "accuracy"}
    spec = load(finetune)
    tuning = spec.tuning()
    for labels in tuning.combinations():
        for rate in (1e-4, 2e-4):
            store.add([trial := tuning.cell(labels, {"training.learning_rate": rate})])
            more = ONE if rate == 1e-4 and labels["system"] == "masks" else BOTH
            store.finish(trial.key, 1.0, {**make_result(0.0), "metrics": {"accuracy": rate}, **more})
    spec = tuned(spec, store.runs())
    store.add(spec.cells())
    for number, cell in enumerate(spec.cells()):
        more = ONE if cell.labels == {"system": "masks", "size": "small", "seed": "2"} else BOTH
        metrics = {"accuracy": 0.5 + (number * number % 7) / 100}
        result = {**make_result(0.0), "metrics": metrics, "primary": {"small": plan}, **more}
        store.finish(cell.key, 1.0, result)
    text = report(spec, store)
    planned = _section(text, "The comparison that was planned")
    assert "Measured over 3 seeds, one class: " in planned
    assert "p (seeds) –;" in planned
    results = _section(text, "Results")
    small, large = _row(results, "masks", "small"), _row(results, "masks", "large")
    assert (small[2], small[5:8]) == ("3 of 3, 1 of one class", ["–"] * 3)
    assert large[2] == "3 of 3"
    assert "–" not in large[5:8]
    against = _section(text, "Against system lisa")
    row = _row(against, "masks", "small")
    assert row[2:] == ["3, 1 of one class", row[3], *"–––"]
    assert "–" not in _row(against, "masks", "large")
    effects = _section(text, "Main effects")
    row = _row(effects, "system masks")
    assert (row[1], row[3], row[4]) == ("3, 1 of one class", "–", "–")
    assert _row(effects, "system lisa")[1] == "3"
    assert "–" not in _row(effects, "system lisa")
    chosen = _section(text, "Settings chosen on dev")
    assert "| 0.0001: 0.01, one class; 0.0002: 0.02 (chosen) |" in chosen  # on the scale of the scores
    assert chosen.count("one class") == 2  # both sizes
    origin = _section(text, "Where the numbers come from")
    assert origin.count(", one class") == 3


def test_the_planned_comparison_says_what_it_could_show_and_what_it_showed(filled, report):
    spec, store = filled
    here = {"fraction": "10 %"}
    sides = {"cell": {"system": "sit", **here}, "against": {"system": "base", **here}}
    spec.report.primary = Contrast(**sides, seeds=3, sd=0.5)

    def line(**plans):
        for cell in spec.cells():
            if cell.labels["system"] in plans and cell.labels["fraction"] == "10 %":
                plan = {spec.name: plans[cell.labels["system"]], "other": None}
                store.finish(cell.key, 60.0, store.runs()[cell.key].result | {"primary": plan})
        (line,) = [line for line in report(spec, store).splitlines() if line.startswith("Chosen")]
        return line

    planned, changed = spec.report.primary.model_dump(), "**It was written or changed after runs were made"
    assert "These runs do not record whether it was chosen before them." in line()
    for plan in (planned | {"seeds": 4}, planned | {"later": 1}, None):  # one is of a later version
        for plans in ({"sit": plan, "base": planned}, {"sit": planned, "base": plan}):
            assert line(**plans).startswith("Chosen: ")
            assert changed in line(**plans)
    text = line(sit=planned, base=planned)
    assert changed not in text
    assert text.startswith("Chosen before the first run: system sit, fraction 10 % against system base, fra")
    assert f"a difference of {detectable_effect(3, 0.5):.2f} bleu is found with a probability" in text
    p_seeds = ttest_rel(BLEU["sit", "10 %"], BLEU["base", "10 %"]).pvalue
    half = student_t.ppf(0.975, 2) * 0.5 / 3**0.5
    interval = f"{1 - half:+.2f} to {1 + half:+.2f}"
    intervals = f"95 % interval over seeds {interval}, over seeds and sent"
    assert f"Measured over 3 seeds: +1.00 bleu, {intervals}" in text
    assert f"p (seeds) {p_seeds:.3f}; standard deviation over seeds 0.50." in text
    spec.report.primary.cell["fraction"] = spec.report.primary.against["fraction"] = "100 %"
    assert "Not measured yet." in report(spec, store)


@pytest.mark.slow
def test_a_second_program_finds_the_same_p_values_and_intervals(filled, content, tmp_path, curves):
    """Those over sentences, which need translations: equal, or within the error of another stream of draws."""
    spec, store = filled
    here = {"fraction": "10 %"}
    sides = {"cell": {"system": "sit", **here}, "against": {"system": "base", **here}}
    spec.report.primary = Contrast(**sides, seeds=3, sd=0.5)
    page = write_report(spec, store, tmp_path / "report")
    content["test"] = {"src": str(tmp_path / "src"), "ref": str(tmp_path / "ref")}
    content["report"]["primary"] = spec.report.primary.model_dump()
    text = page.read_text()

    def compare():
        compared = recompute.Page("small", content, store.folder, page)
        compared.compare()
        return compared

    assert (compare().problems, compare().counts["without outputs"]) == ([], 0)
    (interval,) = [cell for cell in _row(text, "sit", "10 %") if " to " in cell]
    for old, new, problem in (
        (interval, "-9.00 to +9.00", "interval -9.00 to +9.00, the store gives"),
        ("Measured over 3 seeds: +1.00", "Measured over 3 seeds: +2.00", "planned, Δ"),
        ("standard deviation over seeds 0.50", "standard deviation over seeds 0.51", "planned, sd"),
        ("over seeds and sentences +", "over seeds and sentences +9", "planned: interval +9"),
    ):
        assert old in text
        page.write_text(text.replace(old, new))
        assert [line for line in compare().problems if problem in line]


SCORES = {
    ("none", "none"): [0.21, 0.25, 0.22],
    ("none", "default"): [0.24, 0.23, 0.26],
    ("default", "none"): [0.28, 0.27, 0.29],
    ("default", "default"): [0.35, 0.31, 0.39],
}
"""Masks, LISA → Matthews' correlation of three seeds."""
CONTRASTS = {
    "masks default": [-0.5, -0.5, 0.5, 0.5],
    "lisa default": [-0.5, 0.5, -0.5, 0.5],
    "masks default × lisa default": [1, -1, -1, 1],
}
"""Effect → the weights of the four combinations, in the order of SCORES."""


@pytest.fixture
def two_by_two(content, load, store, make_result):
    """The grid masks × LISA with scores and, where they are wanted, predictions on 41 rows."""

    def make(verb="finetune", with_predictions=False, test=False):
        content.update(verb=verb, recipe=None if verb == "finetune" else "tiny", settings={"data.dir": "d"})
        content["settings"] |= {"task": "cola", "model": "m"} if verb == "finetune" else {}
        content["axes"] = {"masks": [None, {}], "lisa": [None, {}], "seed": [1, 2, 3]}
        metric = "matthews" if verb == "finetune" else "dev_loss"
        if with_predictions:
            metric = "test_accuracy" if test else "accuracy"
        content["report"] = {"metrics": [metric], "scale": 100, "baseline": {"masks": "none", "lisa": "none"}}
        spec = load(content | ({"test_split": "test"} if test else {}))
        rng, gold = np.random.default_rng(7), np.random.default_rng(5).integers(0, 2, 41)
        store.add(spec.cells())
        sides = {}
        for cell in spec.cells():
            *names, seed = cell.labels.values()
            score, more = SCORES[tuple(names)][int(seed) - 1], {}
            if with_predictions:
                right = rng.random(41) < (0.6 + 0.1 * names.count("default"))
                sides[(*names, int(seed))] = predicted = np.where(right, gold, 1 - gold)
                texts = {"gold": " ".join(map(str, gold)), "found": " ".join(map(str, predicted))}
                more = {"test_predictions" if test else "dev_predictions": texts}
                score = float(np.mean(gold == predicted))
            metrics = {metric.removeprefix("test_"): score, metric: score}
            store.finish(cell.key, 60.0, make_result(0.0) | {"metrics": metrics, **more})
        return spec, gold, sides

    return make


@pytest.mark.parametrize("verb", ["finetune", "train"])
def test_main_effects_and_the_interaction_are_contrasts_of_each_seed(
    two_by_two, content, store, tmp_path, report, verb
):
    spec, *_ = two_by_two(verb)
    text = report(spec, store)
    table = _section(text, "Main effects and interactions")
    for name, weights in CONTRASTS.items():
        per_seed = np.array(weights) @ np.array(list(SCORES.values()))
        tested = ttest_1samp(per_seed, 0)
        low, high = tested.confidence_interval()
        mean, interval = f"{per_seed.mean() * 100:+.2f}", f"{low * 100:+.2f} to {high * 100:+.2f}"
        assert _row(table, name) == [name, "3", mean, interval, f"{tested.pvalue:.3f}"]
    interaction = _row(table, "masks default × lisa default")[2]
    assert interaction == f"{(35 - 73 / 3) - (28 - 68 / 3):+.2f}"  # means of three seeds, by hand
    page = tmp_path / "report" / "report.md"
    again = recompute.Page("small", content, store.folder, page)
    again.compare()
    assert (again.problems, again.counts["compared"]) == ([], 2 * 4 + 2 * 3 + 3 * 3)
    page.write_text(text.replace(f"| 3 | {interaction} |", "| 3 | +9.99 |"))
    again.compare()
    (problem,) = again.problems
    assert problem.startswith("small, masks default × lisa default, Δ: the page has +9.99")
    (lost,) = [cell for cell in spec.cells() if list(cell.labels.values()) == ["default", "none", "3"]]
    store.stop(lost.key, "failed", 1.0, "x")  # an effect needs all of its combinations
    assert _row(report(spec, store), "masks default × lisa default")[1] == "2"
    spec.exclude = [{"masks": "default", "lisa": "none"}]
    row = _row(report(spec, store), "masks default × lisa default")
    assert row == ["masks default × lisa default", *"––––"]


def test_effects_of_more_levels_and_axes(spec, store, make_result):
    """Two further levels against the first, averaged over the other axis; once for each other combination."""
    spec.axes["system"]["third"] = {"infusion.kind": "add"}
    spec.axes["task"] = {"a": {"data.dir": "a"}, "b": {"data.dir": "b"}}
    spec.report.effects = ["fraction", "system"]
    store.add(spec.cells())
    rng, values = np.random.default_rng(3), {}
    for labels, cell in _cells(spec).items():
        values[labels] = score = float(rng.normal())
        store.finish(cell.key, 1.0, make_result(score, metrics={"dev_loss": score}))
    sizes = numbers.effects(spec, store, group_runs(spec, store.runs()), "dev_loss")
    sizes = {(name, *among.values()): size for name, among, size in sizes}
    assert len(sizes) == 2 * (2 + 1 + 2)
    for task in "ab":

        def gain(seed, *fractions, task=task):
            third, base = ([values[s, f, seed, task] for f in fractions] for s in ("third", "base"))
            return np.mean(third) - np.mean(base)

        per_seed = [gain(seed, "10 %", "100 %") for seed in "123"]
        size = sizes["system third", task]
        expected = np.mean(per_seed), ttest_1samp(per_seed, 0).pvalue
        assert (size.mean, size.p_seeds) == pytest.approx(expected)
        both = [gain(seed, "100 %") - gain(seed, "10 %") for seed in "123"]
        assert sizes["system third × fraction 100 %", task].mean == pytest.approx(np.mean(both))


@pytest.mark.parametrize("test", [False, True])
def test_effects_are_tested_over_examples_too(two_by_two, store, report, test):
    """The samples of a loop of our own: rows, the same for all, then seeds."""
    spec, gold, sides = two_by_two(with_predictions=True, test=test)
    text = report(spec, store)
    assert f"paired bootstrap over examples of {'test' if test else 'dev'}, run for each seed" in text
    rng = np.random.default_rng(12345)
    rows = [rng.integers(0, 41, 41) for _ in range(1000)]
    drawn = rng.integers(0, 3, (1000, 3))
    cells = [[sides[(*names, seed)] for names in SCORES] for seed in (1, 2, 3)]
    right = np.array(cells) == gold  # seeds, combinations, rows
    scores = np.array([right[:, :, sample].mean(2) for sample in rows])
    for name, weights in CONTRASTS.items():
        gains = scores @ weights
        low, high = np.percentile(np.take_along_axis(gains, drawn, 1).mean(1), [2.5, 97.5]) * 100
        measured = right.mean(2) @ weights
        p_values = (1 + (abs(gains - gains.mean(0)) >= abs(measured)).sum(0)) / 1001
        agree = min(measured) >= 0 or max(measured) <= 0
        p = f"{max(p_values):.3f}" if agree else "seeds disagree"
        assert _row(text, name)[-2:] == [p, f"{low:+.2f} to {high:+.2f}"]


def test_the_step_that_training_chose_is_the_best_also_of_a_fine_tuning(
    finetune, load, store, make_result, report
):
    """Runs of earlier versions stored no steps: there the scores of their epochs tell."""
    finetune |= {"axes": {"seed": [1, 2]}, "report": {"metrics": ["accuracy"]}}
    spec = load(finetune)
    store.add(spec.cells())
    curve = [{"step": epoch, "value": epoch / 10} for epoch in (1, 2)]
    for cell, steps in zip(spec.cells(), ({"best_step": 1, "last_step": 2}, {}), strict=True):
        store.finish(cell.key, 1.0, make_result(0.0, curve=curve, metrics={"accuracy": 0.2}, **steps))
    assert "The best evaluation of 1 of 2 runs was their last. " in report(spec, store)
