"""The commands of the tutorials in their order, on small data: only sizes are set beside what stands there."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from pretrained_translators import make_translator
from syntaxformer.translation import backtranslation

pytestmark = pytest.mark.slow
DOCS = Path(__file__).resolve().parents[2] / "docs"
SMALLER = {
    "train": "subwords.vocab_size=301 model.d_model=32 model.d_ff=31 model.n_heads=2 model.encoder_layers=1 "
    "model.decoder_layers=1 training.max_steps=4 training.eval_every=2 training.max_batch_tokens=257",
    "finetune": "--set training.epochs=1 --set training.max_length=32",
    "backtranslate": "--temperature 1",  # a model of four updates writes nothing but loops
}
"""Verb → what makes it short here."""


def _commands(page: str) -> list[tuple[bytes, list[str]]]:
    """Standard input and words of each command, but `serve`, which the README's test starts."""
    (path,) = DOCS.glob(f"*/{page}")
    text = path.read_text("utf-8")
    found = re.findall(r'^ {4}(?:echo "(.*)" \| )?syntaxformer (.*)$', text, re.MULTILINE)
    commands = [(said.encode(), shlex.split(words, comments=True)) for said, words in found]
    return [(said, words) for said, words in commands if words[0] != "serve"]


@pytest.fixture
def follow(cli, newcomer, monkeypatch):
    """Type all commands of a page; returns what they printed."""
    monkeypatch.chdir(newcomer)
    (newcomer / "input.en").write_text("1 2 3\n")
    (newcomer / "new.txt").write_text("the a is fine\n")

    def call(page: str) -> list[str]:
        printed = []
        for said, words in _commands(page):
            done = cli("--quiet", *words, *SMALLER.get(words[0], "").split(), stdin=said + b"\n").ok()
            printed.append(done.out)
        return printed

    return call


def test_train_a_translator(follow, newcomer, monkeypatch):
    monkeypatch.setattr(backtranslation, "LOST", "\0")  # that model spells random bytes: keep its pairs
    for name, better in (
        ("comet-sit.txt", 0.01),
        ("comet-base.txt", 0.0),
    ):  # as another metric would write them
        scores = (0.5 + 0.1 * (line % 3) + better * (line % 2) for line in range(40))
        (newcomer / name).write_text("".join(f"{one:.3f}\n" for one in scores), "utf-8")
    (newcomer / "mono.de").write_text("3 2 1\n6 5 4 3\n7 7 8\n9 1\n")
    printed = "\n".join(follow("tutorial-translate.md"))
    # BLEU, chrF++ and TER, and the score files; such small models may have no BLEU to compare.
    assert printed.count("(one-sided paired bootstrap)") + printed.count("no p: ") == 3 * 3 + 1
    for name in ("runs/sit-int8", "attention.png", "cases.md", "output.de"):
        assert (newcomer / name).exists()


def test_start_from_a_pretrained_translator(follow, newcomer, monkeypatch):
    make_translator("marian", newcomer / "Helsinki-NLP" / "opus-mt-en-de")
    small = "training.max_steps=4 training.eval_every=2 training.max_batch_tokens=300 data.max_pieces=100"
    monkeypatch.setitem(SMALLER, "train", small)
    printed = "\n".join(follow("pretrained.md"))
    assert "(one-sided paired bootstrap)" in printed
    for name in ("runs/lora", "runs/bias", "runs/tags-int8", "attention.png"):
        assert (newcomer / name).exists()


def test_fine_tune_an_encoder(follow):
    printed = "\n".join(follow("tutorial-encoder.md"))
    assert len(re.findall("^macro_f1 [0-9]", printed, re.MULTILINE)) == 3  # two trainings, and predict
    for other in ("runs/plain", "the model as it is"):
        assert re.search(rf"^macro_f1 \+0.0000 against {other}, 95 % .*, no p: one of them gives all", printed, re.MULTILINE)  # fmt: skip
    assert printed.count("p(1)") == 2


def test_ask_a_research_question(follow, newcomer):
    (content,) = re.findall(
        r"```yaml\n(.*?)```", (DOCS / "start" / "tutorial-research.md").read_text("utf-8"), re.DOTALL
    )
    spec = yaml.safe_load(content)
    spec["settings"] |= {"training.epochs": 1, "training.max_length": 32}
    spec["axes"]["seed"] = spec["axes"]["seed"][:1]
    (newcomer / "masks.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    (newcomer / "glue" / "CoLA").mkdir(parents=True)
    rows = "".join(f"x\t{place % 2}\t\tthe a is {'fine' if place % 2 else 'poor'}\n" for place in range(40))
    for split in ("train", "dev"):
        (newcomer / "glue" / "CoLA" / f"{split}.tsv").write_text(rows)
    follow("tutorial-research.md")
    report = (newcomer / "report" / "report.md").read_text("utf-8")
    assert "## Against system random trees" in report
    assert "3 runs: 3 done" in report


@pytest.fixture
def type_in(cli, newcomer, monkeypatch):
    """Type one command, made short."""
    monkeypatch.chdir(newcomer)

    def call(command: str, said: str = "") -> str:
        words = shlex.split(command)
        done = cli("--quiet", *words, *SMALLER.get(words[0], "").split(), stdin=said.encode()).ok()
        return done.out

    return call


FOLDERS = (
    "train multi30k data.dir=data data.dev=dev infusion.kind=sum_then_concat output=runs/sit",
    "finetune --task classify --train mine.tsv --model CHECKPOINT --infuse relation_bias -o runs/cola",
)
"""The folders that pages take for granted."""


def test_give_a_model_to_a_colleague(type_in, newcomer):
    """Commands of the page in their order; what tar unpacks lies beside the folder that was packed."""
    type_in(FOLDERS[0])
    text = (DOCS / "guides" / "give.md").read_text("utf-8")
    commands = re.findall(r'^ {4}(?:echo "(.*)" \| )?((?:syntaxformer|tar) .*)$', text, re.MULTILINE)
    assert [command.partition(" ")[0] for _, command in commands].count("tar") == 3
    printed = []
    for said, command in commands:
        if command.startswith("tar"):
            subprocess.run(shlex.split(command), cwd=newcomer, check=True)
        else:
            printed.append(type_in(command.removeprefix("syntaxformer "), f"{said}\n"))
    assert not (newcomer / "sit" / "checkpoints").exists()
    assert (newcomer / "runs" / "sit" / "checkpoints").exists()
    _, translation, score = printed
    assert translation.count("\n") == 1
    own = type_in("evaluate runs/sit --src data/test.en --ref data/test.de")
    assert score.split() == own.replace("runs/sit", "sit").split()


def test_relations_of_your_own(type_in, newcomer, monkeypatch):
    """From the file to a served model: each command gets the function from the file that it names, as a new process does."""
    from fastapi.testclient import TestClient

    from syntaxformer.serve import ServiceConfig, create_app
    from syntaxformer.serve.engines import load_engine
    from syntaxformer.syntax import own_relations as registry

    text = (DOCS / "guides" / "relations.md").read_text("utf-8")
    module, control, _ = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (newcomer / "near_words.py").write_text(module)
    monkeypatch.setenv(registry.VARIABLE, "")
    monkeypatch.setattr(registry, "_RECORDS", {})
    for name in ("near", "random_links"):  # it is put back: there was none
        monkeypatch.setitem(registry.TREES, name, None)
        del registry.TREES[name]

    def forget():
        for registered in (registry._RECORDS, registry.TREES):
            registered.pop("near", None)

    printed = []
    for said, words in _commands("relations.md"):
        forget()
        printed.append(type_in(shlex.join(words), said.decode()))
    _, score, shuffled, label, _, translation = printed
    assert "against the model as it is, 95 % +0.0000 to +0.0000, no p: one of them gives all rows" in shuffled
    assert "macro_f1" in score
    assert "p(1)" in label
    assert translation.count("\n") == 1
    (body,) = re.findall(r"-d '(.*)'$", text, re.MULTILINE)
    forget()
    registry.register_file(newcomer / "near_words.py")
    config = ServiceConfig(models={"near": newcomer / "runs" / "near"})
    engines = {name: load_engine(name, folder) for name, folder in config.models.items()}
    with TestClient(create_app(config, engines), "http://localhost:8000") as client:
        answer = client.post("/v1/classify", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 200, answer.json()
    served = answer.json()["classifications"][0]["probabilities"]
    assert [f"{one:.4f}" for one in served.values()] == label.splitlines()[1].split("\t")[1:]
    forget()
    names = {"__name__": "__main__"}
    exec(module + control, names)
    links = registry.TREES["random_links"].function(names["sf"].Sentence.from_words(["a", "b", "c"]))
    assert links.sum(1).tolist() == [1, 1, 1]


def _cells(page: str) -> str:
    """All code of a page in its order, fenced as Python or indented."""
    found, fenced = [], False
    (path,) = DOCS.glob(f"*/{page}")
    for line in path.read_text("utf-8").splitlines():
        if line.startswith("```"):
            fenced = line == "```python"
        elif fenced:
            found.append(line)
        elif line.startswith("    "):
            found.append(line[4:])
    return "\n".join(found)


def test_in_a_notebook(type_in, newcomer, monkeypatch):
    """Its cells, one after the other; the picture is shown by a stand-in for IPython."""
    for command in FOLDERS:
        type_in(command)
    (newcomer / "large.en").write_text("1 2 3\n4 5\n")
    shown = []
    ipython, display = ModuleType("IPython"), ModuleType("IPython.display")
    ipython.version_info = (9, 0)  # matplotlib asks
    display.Image = shown.append
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    cells: dict[str, object] = {}
    exec(compile(_cells("notebook.md"), "notebook.md", "exec"), cells)
    assert shown == ["attention.png"]
    assert (newcomer / "attention.png").stat().st_size > 1000
    assert cells["looked"].weights.ndim == 4
    assert cells["classify"].classifier is not None
