# Two commands: `make demo` shows what the package does, `make test` runs every check.
PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready

.PHONY: demo test lint types unit clean

demo: $(READY)
	$(VENV)/bin/fracdnn demo

test: lint types unit

lint: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: $(READY)
	$(VENV)/bin/mypy

unit: $(READY)
	$(VENV)/bin/pytest --cov --cov-report=term

# Installs again only when the requirements change.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "fracdnn needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage
