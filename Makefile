# Each target does its own set-up in .venv; Python 3.11 or newer and make are all that is needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INPUT ?=
TPCDS ?= .tpcds

.PHONY: setup demo-setup demo test test-all test-compiled failovers compiled lint format bench crash nexmark tpcds interop flink docs site descriptors clean

# Two stamps: the demo needs streams alone, all else the tools of development as well, which bring streams along.
setup: $(VENV)/.ready

demo-setup: $(VENV)/.demo-ready

$(VENV)/.ready: pyproject.toml tools/setup.py
	@$(PYTHON) tools/setup.py $(VENV) dev

$(VENV)/.demo-ready: pyproject.toml tools/setup.py
	@$(PYTHON) tools/setup.py $(VENV) demo

demo: demo-setup
	@$(BIN)/python examples/security/demo.py $(if $(INPUT),--input "$(INPUT)")

test: setup
	$(BIN)/python tools/run_tests.py -- make --no-print-directory lint

test-all: setup
	$(BIN)/python tools/run_tests.py --all -- make --no-print-directory lint

# The hot modules' tests against their compiled form; without a C compiler it says that it skips them.
test-compiled: setup
	$(BIN)/python tools/test_compiled.py

# The package with its compiled hot modules in .compiled/, to be run with PYTHONPATH=.compiled; the work tree stays plain.
compiled: setup
	$(BIN)/python tools/build_compiled.py .compiled

lint: setup
	$(BIN)/ruff check --no-cache
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_layout.py

format: setup
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: setup
	$(BIN)/python -m benchmarks $(if $(INPUT),--input "$(INPUT)")

crash: setup
	$(BIN)/python -m crash --size full

# A hundred kills of a master under load; make crash makes 5,000 of them.
failovers: setup
	$(BIN)/python -m crash --only C6

nexmark: setup
	MILLSTREAM_NEXMARK=full $(BIN)/python -m pytest --timeout 900 tests/streams/nexmark

# Texts and data are those that the environment names, else DuckDB's, made once in $(TPCDS).
tpcds: setup
	@test -n "$$MILLSTREAM_TPCDS_QUERIES" -a -n "$$MILLSTREAM_TPCDS_DATA" || $(BIN)/python tools/make_tpcds.py $(TPCDS)
	MILLSTREAM_TPCDS_QUERIES=$${MILLSTREAM_TPCDS_QUERIES:-$(TPCDS)/queries} \
	MILLSTREAM_TPCDS_DATA=$${MILLSTREAM_TPCDS_DATA:-$(TPCDS)/data} \
	$(BIN)/python -m pytest --timeout 900 tests/streams/tpcds

interop: setup
	$(BIN)/python -m pytest --timeout 300 interop

flink: setup
	$(BIN)/python -m differential

docs: setup
	$(BIN)/python tools/generate_docs.py

# The documentation as a site, in site/; a broken link or a page that the navigation lacks ends it.
site: setup
	$(BIN)/mkdocs build --strict

descriptors: setup
	$(BIN)/python tools/build_descriptors.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .compiled site
