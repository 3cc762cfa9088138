# Everything a contributor runs. `make` alone lists it.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/deepspeed-job
STATE := $(or $(XDG_STATE_HOME),$(HOME)/.local/state)/deepspeed-job
# One for each checkout, since it has dsjob of that checkout.
VENV := $(CACHE)/venv-$(shell echo "$(CURDIR)" | cksum | cut -d' ' -f1)
PY := $(VENV)/bin/python
export PATH := $(VENV)/bin:$(CACHE)/bin:$(PATH)

# A cluster of yours: `make demo CONTEXT=name`, `make e2e E2E_KUBECONFIG=file`. Otherwise the one-node cluster, and no other.
CONTEXT ?=
E2E_KUBECONFIG ?=

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

.PHONY: demo
demo: ## train the seed's job in its CPU twin on the one-node cluster, from nothing (CONTEXT=name: on a cluster of yours)
	@hack/demo "$(CONTEXT)"

.PHONY: test
test: ## all tests, e2e included, on the one-node cluster
	@hack/test

.PHONY: setup
setup: $(VENV)/.ready ## virtual environment with dsjob and the development tools

$(VENV)/.ready: requirements.lock pyproject.toml
	@hack/setup "$(VENV)" && touch $@

.PHONY: unit
unit: setup ## tests without a cluster
	@command -v rsync >/dev/null || hack/apt rsync
	@$(PY) -m pytest -q tests/unit

.PHONY: render
render: setup helm ## tests of what the chart renders
	@$(PY) -m pytest -q tests/render

.PHONY: node
node: setup ## tests of the one-node cluster's own life, on a throwaway node beside yours
	@cluster/build
	@$(PY) -m pytest -q tests/cluster

.PHONY: e2e
e2e: setup helm ## tests on the real cluster (starts the one-node cluster, or E2E_KUBECONFIG=file for one of yours)
	@if [ -z "$(E2E_KUBECONFIG)" ]; then $(MAKE) cluster; image/build tests; fi
	@command -v chromedriver >/dev/null || hack/apt chromium chromium-driver
	@E2E_KUBECONFIG="$(or $(E2E_KUBECONFIG),$(STATE)/cluster/kubeconfig)" $(PY) -m pytest -n 3 --dist loadfile tests/e2e $(ARGS)

.PHONY: chaos
chaos: setup helm ## strike small jobs at random, and see that what is promised holds (N=15, SEED=, KINDS=; docs/reliability.md)
	@if [ -z "$(E2E_KUBECONFIG)" ]; then $(MAKE) image; fi
	@E2E_KUBECONFIG="$(or $(E2E_KUBECONFIG),$(STATE)/cluster/kubeconfig)" $(PY) tests/chaos $(or $(N),15) --seed="$(SEED)" --kinds="$(KINDS)"

.PHONY: lint
lint: setup helm ## ruff, mypy, yamllint, shellcheck, helm lint
	@hack/lint

.PHONY: generate
generate: setup ## write the schema and the tables that follow from values.schema.yaml
	@$(PY) hack/generate.py

.PHONY: verify
verify: setup ## fail where a generated file is stale
	@$(PY) hack/generate.py --check
	@cluster/build --check

.PHONY: lock
lock: ## write requirements.lock anew from pyproject.toml (PYTHON=python3.10, the oldest that is supported)
	@hack/lock "$(or $(PYTHON),python3.10)"

.PHONY: helm
helm: ## build Helm 3, Helm 4, kubectl and the tests' renderer, if they are not there
	@cluster/build helm helm4 render kubectl

.PHONY: cluster
cluster: ## start the one-node cluster (cluster/README.md)
	@cluster/start

.PHONY: image
image: cluster ## build the CPU image and load it into the one-node cluster
	@image/build

.PHONY: bench
bench: setup image ## measure what docs/benchmarks.md claims
	@KUBECONFIG="$(STATE)/cluster/kubeconfig" $(PY) -m benchmarks

.PHONY: clean
clean: ## stop the one-node cluster and remove its state, and all caches
	@cluster/stop --delete
	@rm -rf "$(CACHE)"
