# Every target works in a fresh clone: it builds .venv with pinned dependencies first if that is not there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Processes that run tests, or cells of the leaderboard. The tests of a file share what they prepare; in the order of
# their names, files that take long begin before the last ones.
JOBS ?= 2
# Versions to install.
CONSTRAINTS ?= constraints.txt
# Of every installation.
INSTALL_OPTIONS ?= --quiet
# Folder of the published encoder that the bundled models learn vectors from; benchmarks.teacher makes it.
TEACHER ?= teachers/e5-small
# Articles with titles, from which the model of headlines learns.
HEADLINES := press_releases_municipal.jsonl.gz press_releases_korea_kr.jsonl.gz boddari_wikinews.csv
SOURCES := corpora pretraining downstream eval apps pressbert benchmarks examples tests

.DEFAULT_GOAL := help
.PHONY: help leaderboard demo test test-all coverage check bundled reference wheel site notebooks format hashes sbom clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

leaderboard: $(VENV)/run  ## Run what is missing on the embedded sample and write reports/
	$(BIN)/python eval/run_all.py --jobs $(JOBS)

demo: $(VENV)/demo  ## Open the demo in a browser; it listens on this machine alone
	$(BIN)/python -m streamlit run apps/demo.py

test: $(VENV)/dev  ## Run the tests that are not marked slow
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder -m "not slow"

test-all: $(VENV)/dev  ## Run every test
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

coverage: $(VENV)/dev  ## Run every test and print the share of lines that they execute
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --cov --cov-report=term:skip-covered

check: $(VENV)/dev  ## Format, lint, types, spelling
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/codespell $(SOURCES) docs *.md .github

bundled: $(VENV)/run  ## Retrain the models that come with the package, from the text under PRESSBERT_DATA
	$(BIN)/python -m downstream.bundle --teacher $(TEACHER)
	$(BIN)/python -m downstream.moderate train --out downstream/bundled/moderator
	rm -rf runs/compressor
	$(BIN)/python -m downstream.headline train $(addprefix $(PRESSBERT_DATA)/corpus/,$(HEADLINES)) --out runs/compressor
	cp runs/compressor/* downstream/headlines/compressor/

reference: $(VENV)/run  ## Regenerate docs/reports/ from the data under PRESSBERT_DATA
	$(BIN)/python -m eval.reference

wheel: $(VENV)/release  ## Build the wheel twice, install it without an index, and ask it without a network
	$(BIN)/python -m benchmarks.installation --out docs/benchmarks/installation.md

site: $(VENV)/docs  ## Build the site into site/, without warnings, and check its links
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build
	SITE=site $(BIN)/python -m pytest -q tests/test_site.py

notebooks: $(VENV)/docs  ## Execute the notebooks of examples/notebooks
	$(BIN)/python examples/notebooks/execute.py

format: $(VENV)/dev  ## Format the source
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

hashes:  ## Write hashes.txt: the digests of the files of constraints.txt
	$(PYTHON) .ci/supply_chain.py hashes

sbom: $(VENV)/run  ## Write sbom.json: the installed packages with versions, digests and licences (CycloneDX)
	$(BIN)/python .ci/supply_chain.py sbom

clean:  ## Remove the environment and the caches; reports stay
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache *.egg-info

# The stamps are written last, so that an interrupted installation is done again.
$(VENV)/run: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install $(INSTALL_OPTIONS) --constraint $(CONSTRAINTS) --editable '.[eval]'
	touch $@

$(VENV)/demo: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install $(INSTALL_OPTIONS) --constraint $(CONSTRAINTS) --editable '.[demo,eval]'
	touch $@

$(VENV)/release: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install $(INSTALL_OPTIONS) --constraint $(CONSTRAINTS) --editable '.[release]'
	touch $@

$(VENV)/docs: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install $(INSTALL_OPTIONS) --constraint $(CONSTRAINTS) --editable '.[docs,eval]' pytest
	touch $@

$(VENV)/dev: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install $(INSTALL_OPTIONS) --constraint $(CONSTRAINTS) --editable '.[test]'
	touch $@
