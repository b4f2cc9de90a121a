# Every target says what it is for: `make help`.
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
TRAIN := .venv-train
GPU_PYTHON ?= python3
# torchvision and torchaudio have no CPU build beside the CPU torch, and break transformers when present.
TORCH ?= torch==2.13.0
# What Pythons bring of pip takes twice as long over two hundred packages. Where it cannot be had, what comes next says why.
PIP := pip >=26, <26.2
NEWER_PIP = -m pip install --disable-pip-version-check -q --retries 0 '$(PIP)' 2> /dev/null || true
PIP_FLAGS := --disable-pip-version-check -q --progress-bar on -c requirements/lock.txt
export PYTHONUTF8 := 1
# Where it is set, each of the tests' many hundred processes compiles all our modules, and each worker rewrites all tests.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run test test-slow test-editors test-fleet test-fresh test-limits test-skipped test-all test-ci setup check lint types docs platforms format lock dashboard openapi reference promises coverage plan-page bench soak mutants e2e-nvim e2e-nvim-old e2e-helix e2e-emacs e2e-vscode e2e-playground e2e-jupyter jupyter-env vsix train-env peer-env vocabularies peer-gateways-env vllm-env vllm-suffix test-vllm test-vllm-engines test-vllm-times gpu-bench gpu-campaign rehearse containers pictures release clean

help: ## List the targets
	@grep -hE '^[a-z0-9_-]+:.*## ' $(MAKEFILE_LIST) | awk 'BEGIN {FS = ":.*## "} {printf "  make %-12s %s\n", $$1, $$2}'

run: $(VENV)/.installed ## Install, fetch the network's public base once, start the gateway with the shipped model, show it at work, say how to attach an editor
	@$(BIN)/foretype quickstart

# Tests run in any order on any number of workers. SEED=N repeats an order and hypothesis' examples; ARGS='--lf -x' goes to pytest.
# Two workers a core: most tests wait for a process half of their time.
WORKERS := $(or $(WORKERS),$(shell echo $$(($$(getconf _NPROCESSORS_ONLN) * 2))))
SEED := $(or $(SEED),$(shell date +%s))
PYTEST = echo "SEED=$(SEED) WORKERS=$(WORKERS) make $@"; $(BIN)/pytest -q -rfEs --randomly-seed=$(SEED) --hypothesis-seed=$(SEED)

test: $(VENV)/.installed-dev ## Install everything for development and run the tests, but for what test-all adds
	@$(PYTEST) -n $(WORKERS) --dist worksteal -m 'not (rules or slow or soak or editors or vllm or fleet)' $(ARGS)

test-slow: $(VENV)/.installed-dev ## Kills, soaks, and figures over seconds
	@$(PYTEST) -n $(WORKERS) --dist worksteal -m '(slow or soak) and not (editors or vllm or fleet or release)' $(FILES) $(ARGS)

# Tests of one editor share its window and go on where the one before stopped: in the order of their file.
EDITORS = $(BIN)/pytest -q -rfEs -p no:randomly

# Three files at a time: an editor waits for its user more than half of the time.
test-editors: $(VENV)/.installed-dev ## Every editor that is installed (editors/install-*.sh), three files at a time
	@$(EDITORS) -n $(or $(EDITOR_WORKERS),3) --dist loadfile -m editors $(FILES) $(ARGS)

# Two files at a time, each on a cluster of its own and in its order: a fleet is brought up once, and ended by the last test.
test-fleet: $(VENV)/.installed-dev vllm-env ## Replicas under a real Ray, the real vLLM among them: scaled, killed, rolled out, and nothing left behind
	@$(BIN)/pytest -q -rfEs -p no:randomly -n $(or $(FLEET_WORKERS),2) --dist loadfile $(or $(FILES),tests/fleet) $(ARGS)

# Fleets, vLLM and containers wait for processes that start: side by side. Beside editors they make screens late, and tests with them.
test-all: ## Run every test that there is, with minutes by part: test, kills and soaks, editors, vLLM, fleet, rehearsal
	@$(MAKE) --no-print-directory $(VENV)/.installed-dev vllm-env || true  # before parts that would both make it; where it cannot be had they say so
	@.ci/parts test test-slow test-editors test-fleet+test-vllm-engines test-vllm-times rehearse

# As CI does it: `make test` runs where nothing is installed, and what it skips there is run here.
test-ci:
	@$(MAKE) --no-print-directory $(VENV)/.installed-dev vllm-env || true
	@.ci/parts test-fresh test-skipped test-slow test-editors test-fleet,containers+test-vllm-engines+test-limits test-vllm-times

SKIPPED := build/skipped-fresh

test-fresh: ## `make run` and `make test` on a machine that nobody prepared: a fresh clone, no program but Python, git and make (Debian, as root)
	@.ci/fresh-tests suite "$(SKIPPED)" SEED=$(SEED) WORKERS=$(WORKERS)

test-limits: ## The same machine, `make run` and some tests, with a home that nobody can write, then without network
	@.ci/fresh-tests limits

test-skipped: $(VENV)/.installed-dev ## What `make test-fresh` had to skip, with what is installed here
	@test -e "$(SKIPPED)" || { echo "make test-fresh first: it writes $(SKIPPED)"; exit 1; }
	@$(PYTEST) -n $(WORKERS) --skips tests/skips_installed.toml $(ARGS) "@$(SKIPPED)"

setup: $(VENV)/.installed-dev ## Make .venv with everything for development, and fetch the network's public base once
	@$(BIN)/foretype models fetch || echo "tests and gateways go on without it"

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Foretype needs Python 3.11 or newer; found: $$($(PYTHON) --version). Set PYTHON=/path/to/python3.11"; exit 1; }
	@echo "making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)
	@$@ $(NEWER_PIP)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml requirements/lock.txt
	@echo "installing Foretype with the embedded engine (about a minute the first time)"
	@$(BIN)/python -m pip install $(PIP_FLAGS) -e '.[local]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/bin/python pyproject.toml lab/pyproject.toml requirements/lock.txt requirements/docs.txt
	@echo "installing Foretype for development (about two minutes the first time)"
	@$(BIN)/python -m pip install $(PIP_FLAGS) -e '.[dev]' -e lab -r requirements/docs.txt
	@touch $@ $(VENV)/.installed

check: lint types docs ## Format, lint, import rules, types and pages, as CI runs them

lint: $(VENV)/.installed-dev ## ruff, the import rules, and what tests say of the source itself
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports
	@$(BIN)/pytest -q -p no:randomly -m rules tests/test_doors.py tests/test_error_trees.py tests/test_modules.py tests/test_promises.py tests/test_sizes.py

types: $(VENV)/.installed-dev ## pyright, strict
	@$(BIN)/pyright

docs: $(VENV)/.installed-dev ## Build the pages into build/docs; a broken link or heading fails it
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

platforms: $(VENV)/.installed-dev ## Types of `foretype use` and the editor's side on macOS, Windows and Linux (a minute; part of test-slow)
	@$(BIN)/pytest -q tests/test_platforms.py

format: $(VENV)/.installed-dev ## Format the code and mend what ruff can
	@$(BIN)/ruff check --fix -q . ; $(BIN)/ruff format .

bench: $(VENV)/.installed ## Measure latency on this machine, as a table
	@$(BIN)/foretype bench latency

soak: $(VENV)/.installed-dev ## Fifty kills of each kind, twenty of each in a fleet, five of vLLM, and a million events on the scheduler: nothing acknowledged is lost, nothing leaks
	@FORETYPE_SOAK_KILLS=50 FORETYPE_SOAK_SEED=$$(date +%s) $(BIN)/pytest -q tests/backend/test_killed_feedback.py
	@FORETYPE_SOAK_EVENTS=1000000 $(BIN)/pytest -q tests/backend/test_admission.py
	@FORETYPE_SOAK_ROUNDS=50 FORETYPE_SOAK_REQUESTS=200000 FORETYPE_SOAK_SEED=$$(date +%s) $(BIN)/pytest -q -m soak tests/backend
	@FORETYPE_SOAK_ROUNDS=20 $(BIN)/pytest -q -s -p no:randomly tests/fleet/test_gateways.py
	@test -x .venv-vllm/bin/python || { echo "vLLM was not killed: make vllm-env, then make soak again"; exit 1; }
	@FORETYPE_SOAK_SEED=$$(date +%s) .venv-vllm/bin/python -m pytest -q -s -p no:unraisableexception $(or $(FILES),tests/vllm) -m "vllm and soak"

e2e-nvim: $(VENV)/.installed-dev ## Neovim 0.12 in a terminal (editors/install-neovim.sh gets it)
	@FORETYPE_SESSIONS=$${FORETYPE_SESSIONS:-20} $(EDITORS) tests/e2e/editors/test_neovim.py tests/e2e/editors/test_hard_times.py tests/e2e/editors/test_projects.py tests/e2e/editors/test_sessions.py -k 'neovim and not neovim_old'

e2e-nvim-old: $(VENV)/.installed-dev ## Neovim 0.7 to 0.11 in a terminal
	@FORETYPE_SESSIONS=$${FORETYPE_SESSIONS:-20} $(EDITORS) tests/e2e/editors/test_neovim_old.py tests/e2e/editors/test_hard_times.py tests/e2e/editors/test_projects.py tests/e2e/editors/test_sessions.py -k neovim_old

e2e-helix: $(VENV)/.installed-dev ## Helix in a terminal (editors/install-helix.sh)
	@$(EDITORS) tests/e2e/editors/test_helix.py

e2e-emacs: $(VENV)/.installed-dev ## Emacs with lsp-mode 10 in a terminal (editors/install-emacs.sh)
	@FORETYPE_SESSIONS=$${FORETYPE_SESSIONS:-20} $(EDITORS) tests/e2e/editors/test_emacs.py tests/e2e/editors/test_hard_times.py tests/e2e/editors/test_projects.py tests/e2e/editors/test_sessions.py -k emacs

e2e-playground: $(VENV)/.installed-dev ## The playground in Chromium (node 20 or newer)
	@cd editors/playground && npm install --no-fund --no-audit --loglevel=error && npm run -s check
	@$(EDITORS) tests/e2e/playground

vsix: $(VENV)/bin/python ## Build the VS Code extension
	@cd editors/vscode && npm install --no-package-lock --no-fund --no-audit && npm run check && npm run package

e2e-vscode: $(VENV)/.installed-dev vsix ## VS Code in Chromium (editors/install-vscode.sh)
	@FORETYPE_INSTALL=1 FORETYPE_SESSIONS=$${FORETYPE_SESSIONS:-20} $(EDITORS) tests/e2e/editors/test_vscode.py tests/e2e/editors/test_vscode_trouble.py tests/e2e/editors/test_vscode_trust.py tests/e2e/editors/test_vscode_next_edit.py tests/e2e/editors/test_sessions.py -k vscode

jupyter-env: ## Make .venv-jupyter with JupyterLab, Notebook 7 and our extension, for its tests (node 20 or newer)
	@test -x .venv-jupyter/bin/python || $(PYTHON) -m venv .venv-jupyter
	@.venv-jupyter/bin/python $(NEWER_PIP)
	@cd editors/jupyter && npm install --no-fund --no-audit --loglevel=error && npm run -s check && npm run -s build
	@.venv-jupyter/bin/pip install --disable-pip-version-check -q -r requirements/jupyter.txt
	@.venv-jupyter/bin/pip install --disable-pip-version-check -q -e '.[lsp]'
	@.venv-jupyter/bin/pip install --disable-pip-version-check -q --force-reinstall --no-deps ./editors/jupyter

e2e-jupyter: $(VENV)/.installed-dev jupyter-env ## JupyterLab and Notebook 7 in Chromium
	@FORETYPE_SESSIONS=$${FORETYPE_SESSIONS:-20} $(EDITORS) tests/e2e/editors/test_jupyter.py tests/e2e/editors/test_jupyter_next_edit.py tests/e2e/editors/test_jupyter_sessions.py

lock: $(VENV)/.installed-dev ## Write requirements/lock.txt from pyproject.toml; what is pinned stays (ARGS=--upgrade renews all)
	@$(BIN)/python -m pip install -q pip-tools
	@$(BIN)/pip-compile -q $(ARGS) --strip-extras --no-header --no-annotate --no-emit-index-url --no-emit-find-links \
	    --no-emit-trusted-host --extra dev --extra mutants -o requirements/lock.txt pyproject.toml requirements/docs.txt
	@sed -i -e '/^foretype @/d' -e '/^#/d' -e '/^$$/d' requirements/lock.txt
	@sed -i '1i # The exact versions that are tested. Made from pyproject.toml by `make lock`; used as pip constraints.' requirements/lock.txt

dashboard: ## Write deploy/grafana/foretype.json anew from dashboard.py beside it
	@$(PYTHON) deploy/grafana/dashboard.py

plan-page: $(VENV)/.installed-dev ## Write the planner's formulas as JavaScript, for its page
	@$(BIN)/python -m foretype_plan.translate

reference: $(VENV)/.installed-dev ## Write docs/reference/ anew from what the code says of itself
	@$(BIN)/python -m foretype_lab.reference docs/reference

promises: $(VENV)/.installed-dev ## Write tests/promises.json anew: what users rely on, by kind, each with a test that would miss it
	@$(BIN)/python -m foretype_lab.reference.kept tests/promises.json CHANGELOG.md

COVERAGE = COVERAGE_FILE=build/coverage/data $(BIN)/python -m coverage
coverage: $(VENV)/.installed-dev ## Write tests/coverage.md: branches that `make test` takes, by package, in the processes that it starts too
	@$(BIN)/python -m pip install $(PIP_FLAGS) 'coverage>=7.10,<8'
	@rm -rf build/coverage && mkdir -p build/coverage
	@$(COVERAGE) run --rcfile=tests/coverage.toml -m pytest -q -n $(WORKERS) --dist worksteal -m 'not (rules or slow or soak or editors or vllm or fleet)' $(ARGS)
	@$(COVERAGE) combine -q --rcfile=tests/coverage.toml && $(COVERAGE) json -q --rcfile=tests/coverage.toml -o build/coverage/report.json
	@$(BIN)/python tests/coverage_by_package.py build/coverage/report.json tests/coverage.md

openapi: $(VENV)/.installed-dev ## Write docs/openapi.json anew from the gateway's doors
	@$(BIN)/python -m foretype_backend.start.openapi docs/openapi.json

train-env: ## Make .venv-train with torch, for training the adapter (a gigabyte)
	@test -x $(TRAIN)/bin/python || $(PYTHON) -m venv $(TRAIN)
	@$(TRAIN)/bin/pip install --disable-pip-version-check '$(TORCH)'
	@$(TRAIN)/bin/pip install --disable-pip-version-check -e '.[local]' -e './lab[train]' '$(TORCH)' pytest pytest-asyncio pytest-timeout hypothesis
	@$(TRAIN)/bin/pip uninstall -q -y torchvision torchaudio

peer-env: ## Build llama.cpp's own server into .venv-peer, to measure beside it (10 to 20 minutes, once)
	@PYTHON=$(PYTHON) requirements/peer-env.sh

vocabularies: ## Fetch real vocabularies into .vocabularies, or say where they are to be had, and encoders to compare with
	@test -x .venv-vocabularies/bin/python || $(PYTHON) -m venv .venv-vocabularies
	@.venv-vocabularies/bin/pip install --disable-pip-version-check -q -r requirements/vocabularies.txt
	@.venv-vocabularies/bin/python requirements/vocabularies.py .vocabularies

peer-gateways-env: ## Install smg into an environment of its own, to measure beside it (bench peer-load)
	@PYTHON=$(PYTHON) requirements/peer-gateways.sh

vllm-env: .venv-vllm/.installed ## Make .venv-vllm with vLLM's build for CPUs (two gigabytes)

.venv-vllm/.installed: requirements/torch-cpu.txt requirements/vllm.txt pyproject.toml lab/pyproject.toml
	@test -x .venv-vllm/bin/python || $(PYTHON) -m venv .venv-vllm
	@.venv-vllm/bin/python $(NEWER_PIP)
	@.venv-vllm/bin/pip install --disable-pip-version-check -q --no-deps -r requirements/torch-cpu.txt
	@.venv-vllm/bin/pip install --disable-pip-version-check -q -r requirements/vllm.txt
	@.venv-vllm/bin/pip uninstall -q -y torchvision torchaudio torchcodec  # built for GPUs: their import fails here
	@.venv-vllm/bin/pip install --disable-pip-version-check -q --no-deps -e . -e lab
	@.venv-vllm/bin/python -P -c 'import vllm; print("vllm", vllm.__version__)'
	@touch $@

vllm-suffix: vllm-env ## Build what vLLM's suffix speculation needs into .venv-vllm (cmake, a C++ compiler; two minutes)
	@requirements/vllm-suffix.sh

mutants: $(VENV)/.installed-dev ## Break the code in 275 places, one at a time, and see whether the tests notice (hours; ARGS='--room leases')
	@$(BIN)/python -m pip install $(PIP_FLAGS) -e '.[mutants]'
	@PYTHONPATH=tests $(BIN)/python -m mutants $(ARGS)

# Two engines at a time, since one keeps one core busy while it starts; what measures times has the machine to itself.
VLLM = .venv-vllm/bin/python -m pytest -q -rfEs -p no:unraisableexception -m "vllm and not soak"
QUIET := tests/vllm/test_isolation.py

test-vllm: vllm-env ## The tests that drive the real vLLM: engine, tiers, gateway
	@said=0; $(MAKE) --no-print-directory test-vllm-engines || said=$$?; $(MAKE) --no-print-directory test-vllm-times && exit $$said

test-vllm-engines: $(VENV)/.installed-dev vllm-env
	@$(VLLM) $(or $(FILES),-n 2 --dist loadfile tests/vllm $(addprefix --ignore=,$(QUIET))) $(ARGS)

test-vllm-times: vllm-env
	@$(VLLM) $(or $(FILES),$(QUIET)) $(ARGS)

gpu-bench: ## What this GPU does with each lever of the fast tier, in eight minutes, on the vLLM of GPU_PYTHON (make gpu-bench MODEL=FOLDER); PROFILES=1 for the profiles of deploy/
	@$(GPU_PYTHON) deploy/gpu/bench.py $(if $(MODEL),--model "$(MODEL)") $(if $(DRAFT),--draft "$(DRAFT)") $(if $(OWN),--own "$(OWN)") $(if $(PROFILES),--profiles)

gpu-campaign: $(if $(REHEARSE),vllm-env) ## The prepared half hour of a lent GPU: the adapter's training, a 7B shape beside the planner's figures; again, and it goes on (MINUTES=9 PIECES=.gpu; REHEARSE=1: at toy size, here)
	@$(if $(REHEARSE),PYTHONPATH=tests .venv-vllm/bin/python lab/gpu/rehearse.py,$(GPU_PYTHON) lab/gpu/campaign.py "$(or $(PIECES),.gpu)" --minutes $(or $(MINUTES),9)) $(ARGS)

rehearse: $(VENV)/.installed-dev ## Build all images of deploy/, run deploy/compose.yaml in podman with the real vLLM, and break it: every story (Debian, as root; STORIES for some)
	@PYTHONPATH=tests $(BIN)/python -m rehearsal $(ARGS) $(STORIES)

containers: $(VENV)/.installed-dev ## The short rehearsal: the gateway's image and its stores in podman, with a stand-in of the engine (Debian, as root)
	@PYTHONPATH=tests $(BIN)/python -m rehearsal $(ARGS) gateway rolling refusals

pictures: $(VENV)/.installed ## Remake the pictures of README, docs/use.md (what `foretype use` writes in 80 columns) and docs/capacity.md (its pages in Chromium)
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && \
	$(BIN)/foretype demo --keys 140 --speed 0 --state-dir "$$folder" --svg docs/demo.svg && \
	$(BIN)/foretype use --state-dir "$$folder" --folder "$$folder" --svg docs/use.svg && \
	$(BIN)/foretype use "$$($(BIN)/python -c 'from foretype_models.artifacts import locate; print(locate().path)')" \
		--state-dir "$$folder" --svg docs/use-file.svg && \
	$(BIN)/foretype simulate --day --json > "$$folder/day.json" && \
	$(BIN)/foretype simulate --scenario routing --json > "$$folder/routing.json" && \
	$(BIN)/foretype simulate --validate --json > "$$folder/validated.json" && \
	$(BIN)/python tests/e2e/playground/picture_plan.py docs "$$folder/routing.json" "$$folder/day.json" "$$folder/validated.json"

release: $(VENV)/.installed-dev ## Everything that a version consists of into dist/: wheels, editors' packages, bills of materials, checksums (node 20); tried with pipx, uvx and JupyterLab
	@test -x .venv-release/bin/python || $(PYTHON) -m venv .venv-release
	@.venv-release/bin/python -m pip install $(subst -c requirements/lock.txt,,$(PIP_FLAGS)) 'build>=1.3,<2' 'cyclonedx-bom>=7,<8'
	@$(PYTHON) .ci/release .venv-release/bin/python
	@$(BIN)/pytest -q -rfEs -p no:randomly -m release tests/packaging

clean: ## Remove caches and build products, keep the environments
	@rm -rf .pytest_cache .ruff_cache .hypothesis dist build results
