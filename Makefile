# Everyday words. They need make and a Python >= 3.11 with venv; pyproject.toml says what else they install.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
TRL := 1.6.0 1.9.2 1.14.2

.DEFAULT_GOAL := help
.PHONY: help demo learn test test-trl-matrix lint bench docs

help: ## say what can be made
	@sed -n 's/^\([a-z-]*\):.*## /make \1	/p' $(MAKEFILE_LIST) | expand -t 23

demo: $(VENV)/.package ## score answers and programs of examples/, and show what became of them
	@mkdir -p out && rm -f out/demo.* out/code.*
	$(BIN)/steelyard score examples/rollouts.jsonl --reward gsm8k --out out/demo.jsonl --report out/demo.html
	@echo
	$(BIN)/steelyard show out/demo.jsonl --group p05-1
	@echo
	@if $(BIN)/steelyard doctor > out/doctor.txt; then \
	  $(BIN)/steelyard score examples/code.jsonl --reward tests --cpu 1 --out out/code.jsonl --report out/code.html && \
	  for group in ledge merge queue; do echo; $(BIN)/steelyard show out/code.jsonl --group $$group || exit 1; done; \
	  echo; echo "One program with its tests, its end and its clocks: $(BIN)/steelyard show out/code.jsonl --row ledge-8"; \
	else \
	  echo "The programs of examples/code.jsonl were not run: no boundary holds on this machine, and there is no way"; \
	  echo "without one. 'steelyard doctor' says:"; echo; \
	  sed -n '/^would cover/q; p' out/doctor.txt; echo; sed -n '/^next/,$$p' out/doctor.txt; \
	fi
	@printf '%s\n' "" "The scored rows are in out/, each with its record, FILE.ledger. Try next:" \
	  "  $(BIN)/steelyard show out/demo.jsonl --row p05-7             # one completion, and why it got nothing" \
	  "  $(BIN)/steelyard score examples/tags.jsonl --reward answer,format --out out/tags.jsonl" \
	  "  $(BIN)/steelyard score YOUR.jsonl --reward gsm8k --column answer=YOUR_FIELD --out out/yours.jsonl" \
	  "  $(BIN)/steelyard rewards                                     # what else there is" \
	  "  $(BIN)/python examples/loop.py out/loop.ledger && $(BIN)/steelyard price out/loop.ledger --report out/loop.html" \
	  "" "The pages to look at: out/demo.html$$(test -f out/code.html && echo ', out/code.html')"

learn: $(VENV)/.dev ## train a tiny model under slow and failing rewards: two minutes on a CPU, and a page
	$(BIN)/python examples/grpo/learn.py out/learn

test: $(VENV)/.dev ## run the whole suite
	$(BIN)/pytest

test-trl-matrix: $(VENV)/.dev $(TRL:%=out/trl/%) ## run the tests of TRL's trainers against old TRL, and the newest
	@set -e; for version in $(TRL) newest; do \
	  if [ $$version != newest ]; then export PYTHONPATH=$(CURDIR)/out/trl/$$version; else unset PYTHONPATH; fi; \
	  $(BIN)/python -c "import trl; print('== TRL', trl.__version__, 'of', trl.__path__[0]); assert '$$version' in ('newest', trl.__version__)"; \
	  STEELYARD_MUST_WORK=torch,trl $(BIN)/pytest -q tests/integrations/test_trl_*.py; \
	done

out/trl/%: | $(VENV)/.dev
	@rm -rf $@.part
	$(BIN)/python -m pip install -qq --no-deps --target $@.part trl==$*
	@mv $@.part $@

lint: $(VENV)/.dev ## check style, types and floors
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.package ## print every figure that the documents state
	@set -e; for bench in $(sort $(wildcard bench/*.py)); do echo "== $$bench"; $(BIN)/python $$bench; done

docs: $(VENV)/.dev ## run every example in the documents and docstrings, follow every link
	$(BIN)/pytest tests/docs

# The package alone; the tools on top. A stamp is younger than the pyproject.toml that it was made from.
$(VENV)/.package: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "steelyard needs Python >= 3.11, and '$(PYTHON)' is not one. Name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || { echo "'$(PYTHON)' cannot make virtual environments. On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -qq --editable '.[report]'
	@touch $@

# `--group` came with pip 25.1; older Pythons ship older pips.
$(VENV)/.dev: $(VENV)/.package
	$(BIN)/python -m pip install -qq --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install -qq --group dev
	@touch $@
