# `make help` lists what people type. Targets without a description are steps of
# others, or of .ci/run.
.DEFAULT_GOAL := help
SHELL := /bin/bash
# nomsgpack leaves out an encoding of gin's that the service does not use. The
# tests build the program in the same way.
export GOFLAGS := $(GOFLAGS) -tags=nomsgpack

# The client is a module of its own, which ./... leaves out.
CLIENT     := github.com/cardmint/cardmint/client
TYPESCRIPT := client/typescript
CONTRACTS  := $(addprefix ../../openapi/,openapi.yaml openapi.gen.yaml openapi-3.1.gen.yaml supplier.yaml)
OAPI_LINT  := tools/openapi-lint
GOTESTSUM  := go tool -modfile=tools/gotestsum/go.mod gotestsum
GOLANGCI   := go tool -modfile=tools/golangci-lint/go.mod golangci-lint
VULNCHECK  := go tool -modfile=tools/govulncheck/go.mod govulncheck
NPM_CI     := npm ci --no-audit --no-fund --loglevel error
CORES      := $(shell nproc)
# One run of tests, verbose and uncached, of the long-running kind.
LONG       := go test -tags=nomsgpack,drill -count=1 -v -vet=off
# CI reruns at most three failed tests once, two of `make test` and one of the
# drills, and lists them at its end.
rerun       = $(if $(CI),--rerun-fails=1 --rerun-fails-max-failures=$(1) --rerun-fails-report=.flaky.$@)

##@ Every day

# On a terminal, the program gets a process group of its own (set -m), so that
# Ctrl-C ends it, but not make, which would report an error.
run: build ## Run the service with simulated money, on SQLite; ARGS=--seed-demo
	@[ ! -t 0 ] || set -m; bin/cardmint dev $(ARGS); exit $$?

build: ## Build bin/cardmint
	@tools/compile

# Left to `make test` are the tests that start the program, and those of packages
# that only tests use. Each process has one core, because several run at once.
QUICK  = $(shell go list ./server ./internal/... | grep -vE '/internal/(acceptance|failpoint|rig)$$')
quick: ## Run the tests that need no server and no program, in about 20 seconds
	@$(LINK) GOGC=800 tools/in-memory 1 go test -short -vet=off -p 4 -parallel 4 -cpu 1 $(QUICK) $(CLIENT)

# The race detector needs a C compiler. SQLite is C translated to Go: it is four
# times slower with the detector, and left out. Without the detector, test
# programs link faster without C and without tables for debuggers.
RACE  = $(if $(CI),$(shell command -v gcc >/dev/null && echo "-race -gcflags=modernc.org/...=-race=false"))
LINK  = $(if $(RACE),,CGO_ENABLED=0) GOFLAGS="$$GOFLAGS -ldflags=-s"
# go test starts packages in this order: the longest first.
FIRST = ./internal/settle ./internal/acceptance ./internal/store ./internal/chain/monero ./server
test: deps ## Run all tests, on SQLite, PostgreSQL and Monero, in about ten minutes
	@$(LINK) GOGC=400 tools/progress .test.json tools/in-memory 4 $(GOTESTSUM) --format pkgname --jsonfile .test.json $(call rerun,2) \
	  --packages="$(FIRST) ./... $(CLIENT)" -- $(RACE) -vet=off -p 3 -parallel 4 -timeout 20m $(TEST_FLAGS)
	@tools/skipped .test.json
	$(if $(RACE),tools/in-memory 2 go test -count=1 -vet=off -run TestPlans ./internal/store)

bench: deps ## Measure, each figure next to its limit
	go test -run '^$$' -bench . -benchtime 1x -count 1 -timeout 20m ./internal/acceptance
	go test -run '^$$' -bench Flood -benchtime 1x -count 1 ./server

deps: ## Install what the tests need: PostgreSQL, PgBouncer, Monero, a C compiler
	@tools/deps

##@ Before a commit

generate: ## Generate code from the contract
	cd $(TYPESCRIPT) && $(NPM_CI) && npm run --silent generate
	go generate ./...

lint: ## Check style: gofmt, vet, golangci-lint, module files, and the contracts by Redocly and Spectral
	@test -z "$$(gofmt -l .)" || { echo "not formatted:"; gofmt -l .; exit 1; }
	go vet -tags=nomsgpack,drill,prism,alarms ./...
	$(GOLANGCI) run ./...
	go mod tidy -diff
	go mod verify
	cd client && go vet ./... && go mod tidy -diff && go mod verify
	cd tools/release && go vet ./... && go mod verify
	cd $(OAPI_LINT) && $(NPM_CI)
	cd $(OAPI_LINT) && npx redocly lint --config redocly.yaml $(CONTRACTS)
	cd $(OAPI_LINT) && npx spectral lint --ruleset spectral.yaml --fail-severity hint $(CONTRACTS)

compat: ## Compare the contract and the client with the last release
	tools/compat openapi/released.yaml openapi/openapi.yaml
	cd tools/apidiff && go run . ../../client

verify: lint compat test-client test-tools fresh ## Check style, compatibility and generated code

contract: build ## Test the service with 20,000 generated requests, and with Prism
	tools/in-memory 1 go test -count=1 -v -vet=off -run TestGenerated ./server -generated-requests 20000
	cd tools/prism && $(NPM_CI)
	tools/in-memory 1 go test -tags=nomsgpack,prism -count=1 -v -vet=off -timeout 10m -run TestPrism ./server

pack: ## Pack the TypeScript client into dist, without testing it
	@mkdir -p dist
	cd $(TYPESCRIPT) && $(NPM_CI) && npm pack --silent --pack-destination ../../dist

typescript: build pack ## Build, pack and test the TypeScript client
	cd $(TYPESCRIPT) && npm test --silent

browser: ## Test the pages in Chromium; SCREENSHOTS=DIR keeps pictures
	@tools/deps browser
	cd tools/browser && $(NPM_CI) && go vet ./... && go test -count=1 -timeout 10m ./...

# VERSION=v1.2.3 names it, otherwise git does; ARCHES=amd64 builds for one
# architecture.
release: typescript ## Build archives, Debian packages and checksums into dist/
	tools/release/build

help: ## List the targets
	@awk -F ':.*## ' '/^##@/ { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

##@ Long-running

ROUNDS ?= 1
AGE    ?= 8s
drill: deps ## Restore backups, promote standbys, freeze and upgrade databases; ROUNDS, AGE
	tools/in-memory 4 $(GOTESTSUM) --format standard-verbose $(call rerun,1) --packages=./internal/acceptance -- \
	  -tags=nomsgpack,drill -count=1 -vet=off -timeout 3h -run 'TestDrill|TestChaos$$|TestFailpoints$$|TestUpgrade_|TestServe_(DatabaseDown|DatabaseFrozen|Failover|PgBouncer)' -args -drill-rounds $(ROUNDS) -drill-age $(AGE)
	tools/in-memory 2 go test -count=1 -v -vet=off -run 'TestUnhealthyServer_|TestReplication_|TestMigrate_WaitingForLock' ./internal/store

CHAOS ?= 10m
KILLS ?= 50
chaos: deps ## Crash processes, databases and suppliers at random for CHAOS; FAILPOINTS=all
ifeq ($(FAILPOINTS),all)
	tools/in-memory 2 $(LONG) -timeout 24h -run 'TestFailpoints$$' ./internal/acceptance -failpoint-kills $(KILLS)
else
	$(LONG) -timeout 24h -run 'TestChaos$$' ./internal/acceptance -chaos $(CHAOS) $(TEST_FLAGS)
endif

SOAK ?= 12m
soak: deps ## Sell cards with a clock that runs 120 times as fast, for SOAK
	tools/in-memory 4 $(LONG) -timeout 24h -run TestSoak ./internal/acceptance -soak $(SOAK)

ha: deps ## Fail the leader of three PostgreSQL under Patroni, ROUNDS times; as root
	@tools/deps ha
	tools/in-memory 1 $(LONG) -run TestMachine_ ./internal/rig
	tools/in-memory 4 $(LONG) -timeout 6h -run TestHA_ ./internal/acceptance -ha-rounds $(ROUNDS)

OVERLOAD ?= 1m
overload: deps ## Order four times as many cards as can be created, for OVERLOAD
	$(LONG) -timeout 1h -run TestFigures_Overload ./internal/acceptance -overload $(OVERLOAD)

alarms: deps ## Provoke every alarm, and see it fire and clear in Prometheus
	@tools/deps alarms
	tools/in-memory 2 go test -tags=nomsgpack,alarms -count=1 -v -vet=off -timeout 15m -run TestAlarms ./internal/acceptance

SEEDS ?= 100000
simulate: ## Run SEEDS random payment histories next to an oracle, and broken rules
	@mkdir -p bin && go test -c -o bin/settle.test ./internal/settle
	cd internal/settle && seq 0 $$(($(CORES) - 1)) | xargs -P $(CORES) -I@ sh -c 'GOMAXPROCS=1 ../../bin/settle.test \
	  -test.run "TestSimulation$$" -test.timeout 3h -test.v -seeds $$(($(SEEDS) / $(CORES))) -first $$((@ * ($(SEEDS) / $(CORES)) + 1))'
	go test -count=1 -v -timeout 20m -run TestSimulation_CatchesBrokenRules ./internal/settle -mutants

# PACKAGES="-v internal/card" also names mutants that no test reaches. Survivors
# that may live are listed in tools/mutants/survivors.txt, with the reason.
PACKAGES ?= $(patsubst %,internal/%,card order settle issue operator account webhook keys limit rate vault supplier supplier/reference metrics outbound retention trace)
mutants: ## Break each rule of PACKAGES: their own tests must fail
	@tools/in-memory 2 go run ./tools/mutants $(PACKAGES)

CARDS ?= 2000000
plans: deps ## Explain every statement of the store with CARDS cards
	tools/in-memory 8 go test -count=1 -v -timeout 3h -run TestPlans ./internal/store -plans $(CARDS)

# govulncheck downloads its database, and is left out where it is out of reach.
FUZZ ?= 1m
nightly: ## Run each fuzzer for FUZZ, and look for known vulnerabilities
	@for dir in $$(grep -rl --include=*_test.go '^func Fuzz' server internal client | xargs -n1 dirname | sort -u); do \
	  for fuzzer in $$(grep -hoP '^func \KFuzz\w+' $$dir/*_test.go); do \
	    echo "$$dir $$fuzzer"; (cd $$dir && go test -run '^$$' -fuzz "^$$fuzzer\$$" -fuzztime $(FUZZ) .) || exit 1; done; done
	@if curl -sfo /dev/null --max-time 10 https://vuln.go.dev/index/db.json; then $(VULNCHECK) ./...; \
	  else echo 'govulncheck left out: its database is out of reach' >&2; fi

install-check: ## Follow the installation pages in a clean Debian; as root
	@tools/deps install
	tools/release/install-check $(INSTALL_CHECK)

wallet-check:
	@$(MAKE) install-check INSTALL_CHECK=--wallet

release-check: ## Build a release twice, compare, install, run and purge it; as root
	@tools/deps release
	cd tools/release && go test -count=1 ./...
	tools/release/check

image: ## Pack the archives of `make release` as container images, and run one
	@for arch in $${ARCHES:-amd64 arm64}; do ARCH=$$arch tools/release/image || exit; done

# The client supports the last two versions of Go, and old versions of the
# modules that it needs.
test-client:
	cd client && GOTOOLCHAIN=go$$(awk '$$1 == "go" { print $$2 }' go.mod).0 go test -count=1 ./...
	cd client/examples/quickstart && go vet ./... && go mod tidy -diff
	cd client/clienttest && go vet ./... && go mod tidy -diff && go test -count=1 ./...
	cd client/examples/otel && go vet ./... && go mod tidy -diff && go test -count=1 ./...

# `make compat` must be able to fail.
test-tools:
	cd tools/oasdiff && go vet ./... && go test -count=1 ./...
	cd tools/apidiff && go vet ./... && go test -count=1 ./...
	cd tools/publish && go vet ./... && go mod tidy -diff && go test -count=1 ./...

fresh:
	@generated() { find . -name node_modules -prune -o -name '*.gen.*' -not -path './$(TYPESCRIPT)/dist/*' -print | sort | xargs cat | sha256sum; }; \
	  before=$$(generated); $(MAKE) --silent generate && after=$$(generated); \
	  test "$$before" = "$$after" || { echo 'generated code was not fresh: commit what `make generate` made'; exit 1; }

# The adapter, reorganizations and locked money on the Monero of the system.
test-old-monero:
	MONERO=system $(MAKE) deps
	MONERO=system tools/in-memory 4 go test -count=1 -vet=off -timeout 15m -run 'TestChain_|TestWatcher_Monero(Reorg|Locked)' ./internal/chain/monero ./internal/settle

# With a release of the client: keep what it exports.
api-release:
	cd tools/apidiff && go run . -write ../../client

.PHONY: $(shell awk -F: '/^[a-z-]+:/ { print $$1 }' $(MAKEFILE_LIST))
