# Every target builds its own virtual environment; only Python 3.11+ and make are needed.
# A found interpreter may be too old, or a shim that does not run: each candidate is tried.
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
CANDIDATES := python3.11 python3 python3.12 python3.13
PYTHON ?= $(or $(shell for p in $(CANDIDATES); do \
	$$p -c '$(NEW_ENOUGH)' 2>/dev/null && echo $$p && break; done),python3)
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check --no-input

.DEFAULT_GOAL := help
.NOTPARALLEL:
.SECONDARY:
.PHONY: help install lint format test test-slow demo docs dist bench clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

install: $(VENV)/.installed-test $(VENV)/.installed-lint ## make the environment for development

lint: $(VENV)/.installed-lint ## check style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed-lint ## format and sort imports
	$(BIN)/ruff check --fix --exit-zero --silent .
	$(BIN)/ruff format .

test: $(VENV)/.installed-test ## run the tests, but for the slow ones
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow" $(TESTS)

test-slow: $(VENV)/.installed-test ## run the slow tests: statistics over many seeds and models
	$(BIN)/python -m pytest -n auto --dist worksteal -m slow

demo: $(VENV)/.installed-plots ## run the demonstration
	$(BIN)/adlmh demo

docs: $(VENV)/.installed-docs ## build the documentation; warnings are errors
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

dist: $(VENV)/.installed-dist ## build wheel and source distribution, and try the wheel in an empty environment
	rm -rf dist build/empty
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m venv build/empty
	build/empty/bin/python -m pip -qq --disable-pip-version-check --no-input install dist/*.whl
	cd build && empty/bin/python ../tests/smoke.py

bench: $(VENV)/.installed-benchmarks ## run the benchmarks against other samplers
	$(BIN)/python -m benchmarks

clean: ## remove environments, caches and builds
	rm -rf .venv .venv312 build dist docs/_build .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp per extra: a second run installs nothing unless pyproject.toml changed.
$(VENV)/.installed-%: pyproject.toml | $(VENV)/.created
	@echo "installing adlmh_jax[$*] into $(VENV)"
	@$(PIP) install -e '.[$*]'
	@touch $@

$(VENV)/.created:
	@$(PYTHON) -c '$(NEW_ENOUGH)' \
		|| { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@touch $@
