# Each target does its own set-up in .venv; Python 3.11 or newer and make are all that is needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INPUT ?=

.PHONY: setup demo test test-all lint format bench crash nexmark interop flink docs descriptors clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml tools/setup.py
	$(PYTHON) tools/setup.py $(VENV)

demo: setup
	@$(BIN)/python examples/security/demo.py $(if $(INPUT),--input "$(INPUT)")

test: setup
	$(BIN)/python tools/run_tests.py -- make --no-print-directory lint

test-all: setup
	$(BIN)/python tools/run_tests.py --all -- make --no-print-directory lint

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: setup
	$(BIN)/python -m benchmarks $(if $(INPUT),--input "$(INPUT)")

crash: setup
	$(BIN)/python -m crash --size full

nexmark: setup
	MILLSTREAM_NEXMARK=full $(BIN)/python -m pytest --timeout 900 tests/streams/nexmark

interop: setup
	$(BIN)/python -m pytest --timeout 300 interop

flink: setup
	$(BIN)/python -m differential

docs: setup
	$(BIN)/python tools/generate_docs.py

descriptors: setup
	$(BIN)/python tools/build_descriptors.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
