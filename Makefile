# Needs python3.11, pip, make and g++; everything else goes into .venv.
# Another Python: make test PYTHON=python3.13 LOCK=   (the lock file is for 3.11)

PYTHON ?= python3.11
LOCK ?= constraints.txt
VENV := .venv
BARE := .venv-no-torch
BIN := $(VENV)/bin
PIP_LOCK := $(if $(LOCK),--constraint $(LOCK))
# Only from 25.1 does pip read the dependency groups of pyproject.toml.
NEW_PIP := pip>=25.1
STEPS ?= 100

.DEFAULT_GOAL := help
.PHONY: help demo test test-browser test-no-torch check format bench mutations assets browser lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.torch ## Diagnose examples/train_gpt.py, print the verdict, write demo.json
	$(BIN)/gobrrr run --json demo.json examples/train_gpt.py --steps $(STEPS)

# Tests of real processes and clocks can fail by what else a machine does: such a test gets a second
# chance, and the summary names and counts it as rerun. More than three of them fail the run.
# Files run beside each other; threads that wait sleep, or those of one would hold another's core.
test: $(VENV)/.dev ## Run the whole test suite
	OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest -n logical --dist loadfile --reruns 1 -r fER \
		--durations 40 $(ARGS)

test-browser: $(VENV)/.dev browser ## Look at the HTML report in a headless Chromium
	GOBRRR_BROWSER=1 $(BIN)/python -m pytest tests/browser $(ARGS)

test-no-torch: $(BARE)/.dev ## Run the tests that need no torch, in an environment without it
	$(BARE)/bin/python -c "import importlib.util as u; assert u.find_spec('torch') is None"
	$(BARE)/bin/python -m pytest -n logical -m "not torch and not gpu and not models" --reruns 1 -r fER $(ARGS)

check: $(VENV)/.dev ## Lint, format check, types, the order of the rooms, dead code, lines
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/vulture
	$(BIN)/python benchmarks/claims.py --check
	$(BIN)/python benchmarks/budget.py --check

format: $(VENV)/.dev ## Format and fix what can be fixed
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(VENV)/.dev ## Run the benchmarks (ONLY=name; QUICK=1: tiny sizes, in MINUTES=10)
	$(BIN)/python benchmarks/all.py $(if $(ONLY),--only $(ONLY)) $(if $(QUICK),--quick) \
		$(if $(MINUTES),--limit-minutes $(MINUTES))

mutations: $(VENV)/.dev ## Break lines at random and see which no test notices (takes hours)
	$(BIN)/python -m pip install -qq $(PIP_LOCK) --group mutations
	nice $(BIN)/python benchmarks/all.py --only mutations

assets: ## Rebuild the HTML report's script and style from assets/ (needs node 20 and npm)
	cd assets && npm ci --ignore-scripts --no-audit --no-fund
	cd assets && npm run --silent check && npm run --silent build

browser: ## Install the Chromium that tests/browser uses (Debian packages; needs root)
	@command -v chromium && command -v chromedriver || (apt-get update -qq && \
		apt-get install -y -qq --no-install-recommends chromium chromium-driver fonts-noto-core)

lock: $(VENV)/.dev ## Pin what is installed now into constraints.txt
	$(BIN)/python -m pip freeze --exclude-editable --exclude pip --exclude setuptools \
		| sed -e 's/+cpu$$//' > constraints.txt

clean: ## Remove environments and caches
	rm -rf $(VENV) $(BARE) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

$(VENV)/.python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -qq --upgrade "$(NEW_PIP)"
	@touch $@

# torch comes first and alone: what depends on it must find it installed and not bring its own.
$(VENV)/.torch: $(VENV)/.python pyproject.toml $(wildcard $(LOCK))
	$(BIN)/python -m pip install -qq $(PIP_LOCK) torch==2.13.0
	$(BIN)/python -m pip install -qq $(PIP_LOCK) --editable ".[torch]"
	@touch $@

$(VENV)/.dev: $(VENV)/.torch
	$(BIN)/python -m pip install -qq $(PIP_LOCK) --group check --group test --group models
	@touch $@

$(BARE)/.dev: pyproject.toml $(wildcard $(LOCK))
	$(PYTHON) -m venv $(BARE)
	$(BARE)/bin/python -m pip install -qq --upgrade "$(NEW_PIP)"
	$(BARE)/bin/python -m pip install -qq $(PIP_LOCK) --editable . --group test
	@touch $@
