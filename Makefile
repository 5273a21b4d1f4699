# Everything a developer types. 'make help' lists it.
.DEFAULT_GOAL := help
SHELL := /bin/bash

OAPI_LINT  := tools/openapi-lint
GOTESTSUM  := go tool -modfile=tools/gotestsum/go.mod gotestsum
# The race detector needs a C compiler.
RACE        = $(shell command -v gcc >/dev/null && echo -race)
TEST_FLAGS ?=

run: ## Run the service with simulated money: everything in one process, on SQLite
	@go run ./cmd/cardmint dev

build: ## Build bin/cardmint
	CGO_ENABLED=0 go build -trimpath -o bin/cardmint ./cmd/cardmint

test: deps ## Run every test, on SQLite, PostgreSQL and a private Monero network; installs what is missing where it can
	$(GOTESTSUM) --format pkgname --jsonfile .test.json -- $(RACE) -timeout 20m $(TEST_FLAGS) ./...
	@tools/skipped .test.json

SEEDS ?= 100000
CORES := $(shell nproc)
simulate: ## Live through SEEDS random histories of payments beside an oracle; and break the rules, which must be noticed
	@mkdir -p bin && go test -c -o bin/settle.test ./internal/settle
	cd internal/settle && seq 0 $$(($(CORES) - 1)) | xargs -P $(CORES) -I@ sh -c 'GOMAXPROCS=1 ../../bin/settle.test \
	  -test.run "TestSimulation$$" -test.timeout 3h -test.v -seeds $$(($(SEEDS) / $(CORES))) -first $$((@ * ($(SEEDS) / $(CORES)) + 1))'
	go test -count=1 -v -timeout 20m -run TestSimulation_CatchesBrokenRules ./internal/settle -mutants

e2e: deps ## Run the end-to-end tests alone: real monerod, wallet and PostgreSQL, through the Go client
	go test -count=1 -v -timeout 15m -run TestE2E ./internal/cli

bench: deps ## Measure, each figure side by side with its limit
	go test -run '^$$' -bench . -benchtime 1x -count 1 -timeout 20m ./internal/cli

generate: ## Generate code from the contract
	go generate ./...

lint: ## Check style: gofmt, vet, module files, and the contract by Redocly and Spectral
	@test -z "$$(gofmt -l .)" || { echo "not formatted:"; gofmt -l .; exit 1; }
	go vet ./...
	go mod tidy -diff
	go mod verify
	npm ci --prefix $(OAPI_LINT) --no-audit --no-fund --loglevel error
	cd $(OAPI_LINT) && npx redocly lint --config redocly.yaml ../../openapi/openapi.yaml
	cd $(OAPI_LINT) && npx spectral lint --ruleset spectral.yaml --fail-severity hint ../../openapi/openapi.yaml

verify: lint ## Check everything that is not a test: style, and that generated code is fresh
	@before=$$(cat */*.gen.go | sha256sum); go generate ./... && after=$$(cat */*.gen.go | sha256sum); \
	  test "$$before" = "$$after" || { echo "generated code was not fresh: commit what 'make generate' made"; exit 1; }

deps: ## Install what the tests need (PostgreSQL, Monero, a C compiler), by apt as root
	@tools/deps

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run build test simulate e2e bench generate lint verify deps help
