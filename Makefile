# Two commands are enough: `make demo` and `make test`. Both set everything up first.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready
ARGS   ?=
export K8S

.PHONY: help setup demo test browser test-cluster soak cluster controlplane controlplane-if-possible check lint fmt bench bench-cluster bench-recovery bench-dashboard pictures protos lock clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1|/' | column -t -s '|'

setup: $(STAMP)  ## create the virtual environment from requirements.lock

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "vramline needs Python 3.11 or newer; $$($(PYTHON) --version 2>&1) is too old. Set PYTHON=/path/to/python3.11." >&2; exit 2; }
	@echo "setting up $(VENV) (once; about a minute)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: $(STAMP)  ## run the embedded cluster (ARGS=--once plays the five stories and exits)
	@$(BIN)/vramline demo $(ARGS)

test: check controlplane-if-possible browser  ## lint, types, import contracts, and the whole test suite
	@$(BIN)/python tools/run_tests.py $(ARGS)

test-cluster: $(STAMP) controlplane  ## the end-to-end tests alone, against a real control plane (K8S=1.30.14: of that version)
	@CONTROLPLANE_REQUIRED=1 $(BIN)/python -m pytest -q tests/e2e $(ARGS)

soak: $(STAMP) controlplane  ## 10,000 placements against the truth, and kill the scheduler twenty times at every point, 500 pods on 200 nodes with reservations, a hundred deployments at once (ARGS for pytest)
	@PLACEMENTS=10000 $(BIN)/python -m pytest -q -s tests/property/test_true_memory.py $(ARGS)
	@CONTROLPLANE_REQUIRED=1 KILLS=20 $(BIN)/python -m pytest -q tests/e2e/test_kills.py tests/e2e/test_reservation_kills.py $(ARGS)
	@CONTROLPLANE_REQUIRED=1 RESERVATION_NODES=200 RESERVATION_PODS=500 $(BIN)/python -m pytest -q -s tests/e2e/test_reservation_scale.py $(ARGS)
	@CONTROLPLANE_REQUIRED=1 DEPLOYS=100 $(BIN)/python -m pytest -q tests/e2e/test_deploy.py $(ARGS)
	@ROUNDS=7200 $(BIN)/python -m pytest -q tests/dashboard/test_scale.py $(ARGS)

controlplane: $(STAMP)  ## build etcd, kube-apiserver, kube-scheduler and, for root, kubelet once, into a cache outside the tree
	@PYTHONPATH=tests $(BIN)/python -m controlplane.commands
	@PYTHONPATH=tests $(BIN)/python -m realnode.machine
	@PYTHONPATH=tests $(BIN)/python -m monitoring.prometheus

browser: $(STAMP)  ## install Debian's chromium once, for root; the tests of the dashboard drive it
	@PYTHONPATH=tests $(BIN)/python -m dashboard.chromium

controlplane-if-possible: $(STAMP)
	@if command -v go >/dev/null || [ -n "$$CONTROLPLANE_REQUIRED" ]; then $(MAKE) --no-print-directory controlplane; fi

cluster: $(STAMP)  ## run a real control plane with fake GPU nodes for your shell (ARGS='--controllers --real-node' for more)
	@PYTHONPATH=tests $(BIN)/python -m controlplane $(ARGS)

check: $(STAMP) lint  ## everything that needs no run: format, lint, types, import contracts, spelling

lint: $(STAMP)
	@$(BIN)/ruff format --check src tests tools
	@$(BIN)/ruff check src tests tools
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/codespell src tests docs README.md CHANGELOG.md CONTRIBUTING.md

fmt: $(STAMP)  ## format and fix
	@$(BIN)/ruff format src tests tools
	@$(BIN)/ruff check --fix src tests tools

bench: $(STAMP)  ## all figures of this commit in one table (some minutes; VRAMLINE_DATA for openb and estimate; ARGS=--help)
	@PYTHONPATH=tests $(BIN)/python -m fakenvml $(BIN)/vramline bench all --commit "$$(git describe --always --dirty 2>/dev/null || echo unknown)" $(ARGS)

bench-cluster: $(STAMP) controlplane  ## pods a second through a real kube-scheduler: alone, idle extender, Vramline (ARGS=--help)
	@PYTHONPATH=tests $(BIN)/python -m controlplane.throughput $(ARGS)

bench-recovery: $(STAMP) controlplane  ## after kill -9: seconds until the next start answers rightly, and binds (ARGS=--help)
	@PYTHONPATH=tests $(BIN)/python -m e2e.recovery $(ARGS)

bench-dashboard: $(STAMP) browser  ## the dashboard with 5,000 GPUs in a real browser: first paint, updates, memory
	@PYTHONPATH=tests $(BIN)/python -m dashboard.measure

pictures: $(STAMP) browser  ## take the pictures of the README again, from real runs
	@$(BIN)/python tools/picture.py docs/pictures/simulate.svg 112 $(BIN)/vramline simulate -f examples/why-pending.yaml
	@$(BIN)/python tools/top_picture.py docs/pictures/top.svg
	@PYTHONPATH=tests $(BIN)/python -m dashboard.pictures docs/pictures

protos: $(STAMP)  ## make the message classes of kubelet's sockets again, from the .proto files
	@cd src && ../$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. vramline/agent/kubelet_api/*.proto

lock: $(STAMP)  ## refresh requirements.lock from pyproject.toml
	@$(BIN)/python -m pip install --quiet uv
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --group dev pyproject.toml requirements-build.in -o requirements.lock

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
