# make setup | demo | test | test-slow | lint | docs | clean
# PYTHON chooses the interpreter of a new environment (3.11 to 3.13), VENV where it lives, WORKERS how many tests run
# at once.

PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2

BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --constraint constraints.txt
DEMO_EXTRAS := mujoco,report
ALL_EXTRAS := plot,video,mujoco,box2d,envpool,sb3,sb3-contrib,rsl-rl,report,onnx,ray,tensorboard,dev,docs

# What `make demo` runs: plain TD3 against DAMPER on Hopper, where plain begins to shake within minutes, with small
# networks and on the CPU, so that it is the same on any machine.
DEMO := compare Hopper-v5 --methods plain damper --seeds 3 --steps 12000 --net-arch 128 128 --batch-size 128 \
	--learning-rate 1e-3 --learning-starts 1000 --device cpu --backend gymnasium --out demo

.PHONY: setup demo test test-slow lint docs clean

setup: $(VENV)/.all

demo: $(VENV)/.core
	$(BIN)/python -m damper $(DEMO)
	@echo "Look at demo/traces.png: plain's action (above) jumps between its bounds, DAMPER's (below) moves in small steps."
	@echo "In the table that is the first number, mean |Δa|. The returns of so short a training differ by chance."

# Two processes for most of it; what measures time or starts a cluster or a browser follows alone.
test: $(VENV)/.all
	$(BIN)/pytest --numprocesses $(WORKERS) --dist loadfile -m "not slow and not serial"
	$(BIN)/pytest -m "serial and not slow"

test-slow: $(VENV)/.all
	$(BIN)/pytest -m slow

lint: $(VENV)/.all
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

docs: $(VENV)/.all
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) site demo build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

# The files below live inside the environment, so they vanish with it. Each is written only after its
# installation succeeded, and is remade when one of the two lists it was installed from changes.

# torch comes first and alone: whichever build pip finds, CPU or CUDA, is then kept by everything after it.
$(VENV)/.torch: constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null || \
		{ echo "PYTHON must be Python 3.11 to 3.13, but '$(PYTHON)' is not: try make PYTHON=python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch
	@touch $@

$(VENV)/.core: pyproject.toml constraints.txt | $(VENV)/.torch
	$(PIP) --editable ".[$(DEMO_EXTRAS)]"
	@touch $@

# These extras include the demo's, so a later `make demo` finds nothing to install.
$(VENV)/.all: pyproject.toml constraints.txt | $(VENV)/.torch
	$(PIP) --editable ".[$(ALL_EXTRAS)]"
	@touch $(VENV)/.core $@
