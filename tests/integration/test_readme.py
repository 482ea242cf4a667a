"""What the README says can be done, can be done."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import yaml

import own_process

REPOSITORY = Path(__file__).resolve().parents[2]
DOCS = sorted(
    path
    for folder in (".", "start", "guides", "reference", "results")
    for path in (REPOSITORY / "docs" / folder).glob("*.md")
    if path.name not in ("gallery.md", "iwslt14_cases.md", "sst2_cases.md")
)
PAGES = [REPOSITORY / "README.md", *DOCS]


def _snippets(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if _snippets(page)], ids=lambda page: page.name)
def test_python_snippets_run(page: Path, tmp_path: Path) -> None:
    done = own_process.run("\n".join(_snippets(page)), cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_commands_are_verbs_and_recipes_exist() -> None:
    from syntaxformer.cli.main import VERBS, app

    text = "\n".join(page.read_text("utf-8") for page in PAGES)
    verbs = set(re.findall(r"(?:^ {4}|`|\| )syntaxformer ([a-z]+)", text, re.MULTILINE))
    assert len(verbs) > 5
    groups = {group.typer_instance.info.name for group in app.registered_groups}
    assert verbs <= {verb.__name__ for verb in VERBS} | groups
    recipes = set(re.findall(r"syntaxformer train (?!runs/)(?:recipes/)?([a-z0-9_]+)(?:\.yaml)?", text))
    assert recipes
    assert recipes <= {path.stem for path in (REPOSITORY / "recipes").glob("*.yaml")}


FOREIGN = {
    "--echo", "--standalone", "--nproc-per-node", "--cpu", "--num_processes", "--use_fsdp", "--mixed_precision",
    "--index-url", "--exclude", "--nnodes", "--rdzv-backend", "--rdzv-endpoint",
}  # fmt: skip
"""Options of `sacrebleu`, `torchrun`, `accelerate launch`, pip and tar."""


@pytest.fixture(scope="module")
def options() -> set[str]:
    """All options of all verbs, and those of the scripts that the pages tell of."""
    from typer.main import get_command

    from syntaxformer.cli.main import app

    names, waiting = {"--help"}, [get_command(app)]
    while waiting:
        command = waiting.pop()
        waiting += getattr(command, "commands", {}).values()
        names |= {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    scripts = [
        path for folder in ("benchmarks", "experiments") for path in (REPOSITORY / folder).glob("*.py")
    ]
    texts = (path.read_text("utf-8") for path in scripts)
    return names | {name for text in texts for name in re.findall(r'"(--[a-z-]+)"', text)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_options_that_pages_name_exist(page: Path, options: set[str]) -> None:
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z_-]*", page.read_text("utf-8"))) <= options | FOREIGN


@pytest.mark.parametrize("path", sorted((REPOSITORY / "recipes").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_key_of_a_recipe_has_a_comment(path: Path) -> None:
    text = path.read_text("utf-8")
    lines, bare = text.splitlines(), []
    waiting = [yaml.compose(text)]
    while waiting:
        for key, value in waiting.pop().value:
            if isinstance(value, yaml.MappingNode) and not value.flow_style:
                waiting.append(value)
            elif " # " not in lines[key.start_mark.line]:
                bare.append(key.value)
    assert bare == []


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (REPOSITORY / "Makefile").read_text("utf-8"), re.MULTILINE))
    pages = (REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md"))
    named = set(
        re.findall(r"(?:^ {4}|`)make ([a-z]+)", "\n".join(page.read_text("utf-8") for page in pages), re.M)
    )
    assert named
    assert named <= targets


def test_every_page_is_in_the_menu_and_on_the_home_page() -> None:
    pages = {page.relative_to(REPOSITORY / "docs").as_posix() for page in DOCS}
    menu = (REPOSITORY / "mkdocs.yml").read_text("utf-8")
    home = (REPOSITORY / "docs" / "index.md").read_text("utf-8")
    assert set(re.findall(r"(\S+\.md)$", menu, re.MULTILINE)) == pages
    assert set(re.findall(r"\]\((\S+\.md)\)", home)) == pages - {"index.md"}


@pytest.mark.parametrize(("folder", "page"), [("recipes", "recipes.md"), ("experiments", "experiments.md")])
def test_what_is_bundled_is_in_the_docs(folder: str, page: str) -> None:
    names = {path.stem for path in (REPOSITORY / folder).glob("*.yaml")}
    rows = re.findall(
        r"^\| (`.*?`) \|", (REPOSITORY / "docs" / "guides" / page).read_text("utf-8"), re.MULTILINE
    )
    assert names <= set(re.findall(r"`(\w+)`", " ".join(rows)))


README = Path(__file__).resolve().parents[2] / "README.md"
SMALLER = {
    "train": "subwords.vocab_size=301 model.d_model=32 model.d_ff=31 model.n_heads=2 model.encoder_layers=1 "
    "model.decoder_layers=1 training.max_steps=4 training.eval_every=2 training.max_batch_tokens=257",
    "finetune": "--set training.epochs=1 --set training.max_length=32",
    "serve": "--port 0",
}
"""Verb → what makes it short here. The demo has tests of its own."""


def commands() -> list[list[str]]:
    """Each command of the README that begins with our own, as words."""
    text = re.sub(r"```.*?```", "", README.read_text("utf-8"), flags=re.DOTALL)
    lines = re.findall(r"^ {4}(syntaxformer .*)$", text, re.MULTILINE)
    return [words for line in lines if (words := shlex.split(line, comments=True))[1] != "demo"]


@pytest.mark.slow
def test_they_run_one_after_the_other(newcomer):
    shown = commands()
    assert [words[1] for words in shown] == ["train", "finetune", "serve"]
    *first, serve = [[*words[1:], *SMALLER[words[1]].split()] for words in shown]
    for command in first:
        done = own_process.run(own_process.COMMAND_LINE, *command, cwd=newcomer)
        assert done.returncode == 0, done.stderr
    serve = [sys.executable, "-m", "syntaxformer.cli.main", *serve]
    with subprocess.Popen(serve, cwd=newcomer, stderr=subprocess.PIPE, text=True) as server:
        try:
            said = next(line for line in server.stderr if "Uvicorn running on" in line)
            address = re.search(r"http://[\d.:]+", said)[0]
            with urllib.request.urlopen(f"{address}/v1/models") as answer:
                tasks = {model["name"]: model["task"] for model in json.load(answer)["models"]}
        finally:
            server.terminate()
    assert tasks == {"translator": "translation", "classifier": "classification"}
