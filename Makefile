# Everything a newcomer types. Each verb makes .venv from the constraints first, so only Python 3.11 and make are needed.

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 2
DATA ?= $(or $(SYNTAXFORMER_DATA),../shared/data)
DEVICE ?= cuda
STAMP := $(VENV)/.installed

.PHONY: demo test test-slow test-long check format bench gpu docs gallery results annotators install clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(STAMP)

demo: $(STAMP)  ## train baseline and infused translator on everyday sentences, print the table
	$(BIN)/syntaxformer demo -o demo --overwrite

PYTEST = SYNTAXFORMER_DATA=$(DATA) OMP_NUM_THREADS=1 $(BIN)/python -m pytest
PARALLEL = -n $(JOBS) --dist worksteal
# A second and a third try: the first test of a process to use a library pays for its loading, and others share the processor.
LIMIT = --limit 1 --reruns 2 --only-rerun "processor seconds"
LIGHT = tests/unit/trees tests/unit/base tests/unit/syntax tests/property tests/unit/test_pages.py

test: $(STAMP)  ## what one runs before each commit: first what needs no torch, then all else that takes at most a second
	$(PYTEST) $(LIMIT) --light -m "not slow" $(LIGHT)
	$(PYTEST) $(LIMIT) $(PARALLEL) -m "not slow" $(LIGHT:%=--ignore=%)

test-slow: $(STAMP)  ## the other tests: whole trainings, other processes, the browser
	$(PYTEST) $(PARALLEL) -m slow

test-long: $(STAMP)  ## what takes too long for CI: every kind learns, all pairs of the contract, Inductor, whole Trainer runs, the notebooks
	SYNTAXFORMER_EXHAUSTIVE=1 $(PYTEST) $(PARALLEL) \
	  tests/contract tests/parity/infused tests/integration/test_kinds.py \
	  tests/integration/test_annotate_memory.py tests/integration/test_notebook.py tests/integration/test_ray.py \
	  tests/unit/encoders/test_export_onnx.py

check: $(STAMP)  ## lint, format and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright --pythonpath $(BIN)/python

format: $(STAMP)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(STAMP)  ## training, annotation and alignment speed, each against a plain twin in the same run
	$(BIN)/python -m benchmarks --data $(DATA)

gpu:  ## an accelerator, on one page; by PYTHON as it is: no environment is made, nothing is fetched, no data are read
	HF_HUB_OFFLINE=1 $(PYTHON) benchmarks/gpu.py --device $(DEVICE)

demo/infused/manifest.json: | $(STAMP)
	$(BIN)/syntaxformer demo -o demo --overwrite

gallery: $(STAMP) demo/infused/manifest.json  ## figures and tables of the demo's two models, into demo/gallery
	$(BIN)/python experiments/gallery.py demo/baseline demo/infused --src demo/corpus/test.en --ref demo/corpus/test.de \
	  --train demo/corpus/train.en -o demo/gallery

results: $(STAMP)  ## docs/results, from the stores in experiments/stores
	$(BIN)/python experiments/pages.py

annotators: $(STAMP)  ## train the bundled pipelines anew: tags, trees, lemmas, features (about an hour on one core)
	$(BIN)/python scripts/annotators/train.py --data $(DATA)/ud --language en
	$(BIN)/python scripts/annotators/train.py --data $(DATA)/ud --language de
	$(BIN)/python scripts/annotators/train.py --data $(DATA)/ud --language de_lower

docs: $(STAMP)  ## the site, strictly: each link and anchor is looked up
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	$(BIN)/python docs/keys.py
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) demo dist site .pytest_cache .ruff_cache
