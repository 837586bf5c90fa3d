# make demo   train a model on a mesh of four procs (does all set-up)
# make test   all tests (does all set-up)
# make check  linters, types, layers, unit and architecture tests, in under a minute
# make bench  the benchmarks, ours and the peer's by the same method
PYTHON ?= python3
BIN := .venv/bin
BENCHMARKS := calls growth

.NOTPARALLEL:
.PHONY: setup check test demo peer bench clean

setup: .venv/.installed

.venv/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[torch,examples,dev]'
	touch $@

check: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/unit tests/architecture

test: setup
	$(BIN)/python -m pytest

demo: setup
	$(BIN)/python examples/ddp_digits.py

peer: .venv-peer/.installed

.venv-peer/.installed: Makefile
	$(PYTHON) -m venv .venv-peer
	.venv-peer/bin/python -m pip install --quiet --disable-pip-version-check torchmonarch==0.7.0 torch==2.13.0
	touch $@

bench: setup peer
	failed=; for name in $(BENCHMARKS); do $(BIN)/python benchmarks/$$name.py || failed=1; done; test -z "$$failed"

clean:
	rm -rf .venv .venv-peer .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
