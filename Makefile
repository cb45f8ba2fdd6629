# `make demo` shows what the package does, `make test` checks it, `make test-studies` what lies beside it, `make test-slow`
# the variants that those leave out, `make campaign` many random cases; `make reproduce` runs the paper's results,
# `make bench` times the package against its peers, `make check-results` runs some of what is published again, `make docs`
# builds the site. `make dist`, `smoke`, `smoke-lowest`, `sbom` and `release-check` are for a release (RELEASING.md).
PYTHON ?= python3
VENV := .venv
# Tests start many processes, and two of them read every test file: what is compiled once is kept, also in a container
# that is set not to.
export PYTHONDONTWRITEBYTECODE :=
READY := $(VENV)/.ready

.PHONY: demo test lint types unit test-studies test-slow coverage campaign chromium reproduce check-results bench docs clean \
	dist smoke smoke-lowest sbom release-check

demo: $(READY)
	$(VENV)/bin/fracdnn demo

# Types are checked on one core, beside the tests.
test: lint
	$(MAKE) --jobs 2 types unit

lint: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: $(READY)
	$(VENV)/bin/mypy

# Half as many processes again as there are cores, since tests wait for what they start.
unit: export PYTEST_XDIST_AUTO_NUM_WORKERS := $(shell $(PYTHON) -c 'import os; print((3 * os.cpu_count() + 1) // 2)')
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
	@touch $@

# At most 75 minutes on two cores; REPRODUCE="table --out DIR" for less, and after Ctrl-C the same command goes on.
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

# Source archive, and from it the wheel, in dist/, checked.
dist: build/tools
	rm -rf dist
	build/tools/bin/python -m build --outdir dist .
	build/tools/bin/twine check --strict dist/*
	build/tools/bin/check-wheel-contents dist/*.whl
	build/tools/bin/validate-pyproject pyproject.toml
	$(PYTHON) -c 'import pathlib, sys; size = next(pathlib.Path("dist").glob("*.whl")).stat().st_size; sys.exit(f"the wheel has {size} bytes, more than 1 MB" if size > 1e6 else 0)'

build/tools:
	$(PYTHON) -m venv build/tools
	build/tools/bin/pip install --quiet build check-wheel-contents twine 'validate-pyproject[all]'

# The wheel in an empty environment: what README shows, without and with extras. SMOKE= takes the newest versions.
SMOKE ?= --constraint constraints.txt
smoke: dist
	rm -rf build/smoke
	$(PYTHON) -m venv build/smoke
	build/smoke/bin/pip install --quiet $(SMOKE) dist/*.whl
	build/smoke/bin/python tools/smoke.py --times
	build/smoke/bin/pip install --quiet $(SMOKE) "$$(ls dist/*.whl)[all]"
	build/smoke/bin/python tools/smoke.py --extras --times
	rm -rf build/smoke

# The same with the lowest version of each dependency; LOWEST="torch==2.13.0" where the lowest of one cannot be had.
smoke-lowest: dist
	rm -rf build/lowest
	$(PYTHON) -m venv build/lowest
	$(PYTHON) -m tools.lowest $(LOWEST) > build/lowest.txt
	build/lowest/bin/pip install --quiet --constraint build/lowest.txt "$$(ls dist/*.whl)[all]"
	build/lowest/bin/python tools/smoke.py --extras
	rm -rf build/lowest

# What `pip install fracdnn` brings along, as CycloneDX.
sbom: dist
	rm -rf build/sbom
	$(PYTHON) -m venv build/sbom
	build/sbom/bin/pip install --quiet $(SMOKE) dist/*.whl
	$(PYTHON) -m venv build/sbom-tools
	build/sbom-tools/bin/pip install --quiet cyclonedx-bom
	build/sbom-tools/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --output-file build/sbom.cdx.json build/sbom/bin/python
	rm -rf build/sbom build/sbom-tools

# Fails while something is left to fill in, or version, changelog, citation and recipe disagree.
release-check:
	$(PYTHON) -m tools.release_check

clean:
	find reproduction -name '*.nb[ci]' -delete
	rm -rf $(VENV) build dist docs/gallery site .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage
