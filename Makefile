# Tollgate's commands. `make help` lists them; `./test` is what CI runs.
SHELL       := bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS   += --no-builtin-rules --warn-undefined-variables
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# One set of build flags for everything: changing -trimpath, CGO_ENABLED or -race rebuilds the
# world. Only the image differs: its binary is static and carries no paths.
BIN      := $(CURDIR)/.bin
MODULES  = $(shell go list -m -f '{{.Dir}}')
PACKAGES = $(addsuffix /...,$(MODULES))
export PATH := $(BIN):$(PATH)
# The reaper image of testcontainers cannot be pulled everywhere; tests remove what they start.
export TESTCONTAINERS_RYUK_DISABLED := true

.PHONY: help
help: ## Say what each target does
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "%-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: tools
tools: ## Build the pinned tools into .bin (once; about 5 minutes cold)
	@tools/install buf gofumpt golangci-lint sqlc

.PHONY: gen
gen: ## Regenerate everything that is generated
	@tools/install buf sqlc
	cd proto && buf generate
	cd sql && sqlc generate
	cp config/default.toml config/models.yaml config/tenants.yaml cmd/tollgate/internal/sample/

.PHONY: protovalidate
protovalidate: ## Write validate.proto anew, from the Go module that is pinned
	cd tools/protovalidate-export && GOWORK=off go run . $(CURDIR)/proto/third_party/protovalidate
	cd proto && $(BIN)/buf format -w third_party

.PHONY: fmt
fmt: ## Format Go and protos
	@tools/install buf golangci-lint
	golangci-lint fmt $(PACKAGES)
	cd proto && buf format -w

.PHONY: lint
lint: ## Lint Go, protos and queries
	@tools/install buf golangci-lint sqlc
	cd proto && buf lint && buf format --diff --exit-code >/dev/null
	if [ -f sql/sqlc.yaml ]; then cd sql && sqlc vet; fi
	golangci-lint run $(PACKAGES)

.PHONY: test
test: ## Run every module's tests
	go test -timeout 15m work

.PHONY: race
race: ## Run every module's tests under the race detector (needs gcc)
	CGO_ENABLED=1 go test -timeout 15m -race work

.PHONY: alone
alone: ## Build and tidy each module without the workspace's help
	@for m in $(MODULES); do \
		echo "$${m#$(CURDIR)/}"; \
		GOWORK=off go -C "$$m" mod tidy -diff; \
		GOWORK=off go -C "$$m" build ./...; \
	done

.PHONY: mutants
mutants: ## Remove each guard of libs/admission in turn and name the tests that notice (some 6 minutes)
	go test -tags tollgate_mutation -run EveryMutant -v -timeout 30m ./libs/admission

.PHONY: bench
bench: ## Run every benchmark, each beside its control
	go test -run='^$$' -bench=. -benchmem work

.PHONY: tidy
tidy: ## Write each module's replace lines and tidy it
	tools/modsync

.PHONY: demo
demo: ## Walk through the claims with a mock provider, check each, then exit
	go run ./cmd/tollgate demo --exit

.PHONY: check
check: ## Do what CI does
	./test

.PHONY: image
image: ## Build tollgate:dev, every program in one image (needs docker)
	deploy/docker/build-images tollgate

.PHONY: images
images: ## Build tollgate:dev, and PostgreSQL's image where no registry answers
	deploy/docker/build-images

.PHONY: compose
compose: images ## Serve the six services on PostgreSQL until Ctrl-C
	if docker compose version >/dev/null 2>&1; then docker compose -f deploy/compose/compose.yaml up --build; \
	else docker-compose -f deploy/compose/compose.yaml up --build; fi

.PHONY: compose-check
compose-check: ## Run the six services in containers, check them, and remove them
	deploy/compose/check
