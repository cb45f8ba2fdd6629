# `make demo` shows what the package does, `make test` checks it, `make test-studies` what lies beside it, `make test-slow`
# the variants that those leave out, `make campaign` many random cases; `make reproduce` runs the paper's results,
# `make bench` times the package against its peers, `make check-results` runs some of what is published again, `make docs`
# builds the site.
PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready

.PHONY: demo test lint types unit test-studies test-slow coverage campaign chromium reproduce check-results bench docs clean

demo: $(READY)
	$(VENV)/bin/fracdnn demo

test: lint types unit

lint: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: $(READY)
	$(VENV)/bin/mypy

unit: $(READY) chromium
	OMP_NUM_THREADS=1 $(VENV)/bin/pytest --numprocesses auto --dist worksteal --ignore tests/studies

# Reproduction, benchmarks, examples and the site.
test-studies: $(READY) chromium
	OMP_NUM_THREADS=1 $(VENV)/bin/pytest --numprocesses auto --dist worksteal tests/studies

# What is marked slow, of both: further variants of compiling, exporting, ranks and trainings. Before a release, and after
# a change of what they test.
test-slow: $(READY) chromium
	OMP_NUM_THREADS=1 $(VENV)/bin/pytest --numprocesses auto --dist worksteal -m slow

# The tests of the package, and which lines they do not run; a third slower.
coverage: $(READY) chromium
	OMP_NUM_THREADS=1 $(VENV)/bin/pytest --numprocesses auto --dist worksteal --ignore tests/studies --cov --cov-report=term

# Many random cases against definitions, an hour on two cores; FRACDNN_CAMPAIGN_SEED repeats a run.
campaign: $(READY)
	FRACDNN_CAMPAIGN=full OMP_NUM_THREADS=1 $(VENV)/bin/pytest --numprocesses auto --dist worksteal tests/campaign

# The browser that opens the report in tests, from the system's packages; where it cannot be had, those tests are skipped.
chromium:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null \
		|| { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
			&& { DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium \
				|| { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium; }; } \
			>/dev/null 2>&1; } \
		|| echo "no Chromium: browser tests will be skipped"

# Installs again only when the requirements change.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "fracdnn needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	$(VENV)/bin/fracdnn warmup
	@touch $@

# At most an hour on two cores; REPRODUCE="table --out DIR" for less, and after Ctrl-C the same command goes on.
reproduce: $(READY)
	$(VENV)/bin/python -m reproduction $(or $(REPRODUCE),all)

# Before a release: some runs of everything in docs/results again, and a failure where their numbers differ.
check-results: $(READY)
	status=0; for study in "reproduction check" "benchmarks --check" "benchmarks.study --check" "examples.gpt check"; do \
		$(VENV)/bin/python -m $$study || status=1; done; exit $$status

# About 20 minutes on two cores; BENCH="--only depth" or "--quick" for less, "--resume" to go on after Ctrl-C.
bench: $(VENV)/.bench
	$(VENV)/bin/python -m benchmarks $(BENCH)

$(VENV)/.bench: $(READY)
	$(VENV)/bin/pip install --quiet --constraint constraints.txt --editable '.[dev,bench]'
	@touch $@

# The site as static files in site/: `python -m http.server --directory site` shows it. The gallery's scripts are run, each
# again only when it changes; DOCS="-D plot_gallery=0" leaves that out.
docs: $(READY)
	OMP_NUM_THREADS=1 $(VENV)/bin/sphinx-build --nitpicky --fail-on-warning --keep-going -q -d build/doctrees $(DOCS) docs site
	$(VENV)/bin/python docs/check_links.py site

clean:
	find src -name '*.nb[ci]' -delete
	rm -rf $(VENV) build/doctrees docs/gallery site .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage
