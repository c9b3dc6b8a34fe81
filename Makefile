# sideband: `make help` lists the targets.
SHELL := /bin/bash
.DEFAULT_GOAL := help
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export ANSIBLE_CONFIG := $(CURDIR)/ansible.cfg
PYTHON ?= /usr/bin/python3

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: packages
packages: ## the machine's own packages (root; Debian 12 or 13)
	@lab/packages.sh

# The stamp is the lock's hash, so that a changed lock rebuilds and an unchanged one costs nothing.
.venv/.lock: requirements.lock
	@echo "python: making .venv from requirements.lock"
	@$(PYTHON) -m venv .venv
	@.venv/bin/pip install --quiet --disable-pip-version-check -r requirements.lock
	@cp requirements.lock $@

.PHONY: venv
venv: .venv/.lock ## the pinned Python environment

.PHONY: setup
setup: ## everything that lab and tests need, no lab yet (root)
	@$(MAKE) --no-print-directory packages
	@$(MAKE) --no-print-directory venv

.PHONY: lab
lab: setup ## build the lab, roll the site out, verify it (root)
	@lab/make_lab.py

.PHONY: single
single: ## every role on this one machine, planes on loopback (root or sudo)
	@. /etc/os-release; test "$$ID$$VERSION_ID" = debian13 || { echo "single: /etc/os-release: \
	the system has not all packages (got $$PRETTY_NAME); Debian 13 has, see docs/how_to/single.md"; exit 1; }
	@$(MAKE) --no-print-directory venv
	@.venv/bin/python services/wheels.py .cache/mirror querygate_packages
	@ansible-playbook -i inventories/single playbooks/site.yml
	@echo "ask: tools/ask 'node_load1:1m_max'; less: ansible-playbook -i inventories/single playbooks/rollback.yml -e level=core"

.PHONY: lint
lint: venv ## ansible-lint, yamllint, ruff, shell syntax
	@tools/lint

.PHONY: types
types: venv ## mypy, strict
	@tools/types

.PHONY: generate
generate: venv ## write the generated files anew
	@tools/generate

.PHONY: stale
stale: venv ## fail where a generated file is stale
	@tools/generate --check

.PHONY: unit
unit: venv ## unit and property tests
	@pytest tests/unit -n 2

.PHONY: check
check: lint types stale unit ## the fast part, without root; about three minutes

.PHONY: test
test: setup ## everything, on the lab (root)
	@tests/run

.PHONY: drills
drills: setup ## the long drills on the running lab: canary releases, removal (root)
	@pytest tests/lab -m 'lab and drill'

.PHONY: bench
bench: setup ## the figures: one script each, writing reports/<name>.json
	@bench/all

.PHONY: clean
clean: ## remove the lab, its images and its site's keys; keep the downloads in .cache/
	@test ! -d .venv || lab/lab clean
	@rm -rf .ansible .lab .sideband/lab reports/*.html reports/restore.json

.PHONY: distclean
distclean: clean ## remove the downloads and the Python environment too
	@rm -rf .cache .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis services/build

.PHONY: lock
lock: ## pin the resolved dependencies of pyproject.toml
	@tools/lock
