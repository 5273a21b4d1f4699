# Everything a developer types. 'make help' lists it.
.DEFAULT_GOAL := help
SHELL := /bin/bash
# Everything is compiled alike, also by the tests that build the program. nomsgpack leaves out an encoding of gin's that nobody uses.
export GOFLAGS := $(GOFLAGS) -tags=nomsgpack

OAPI_LINT  := tools/openapi-lint
GOTESTSUM  := go tool -modfile=tools/gotestsum/go.mod gotestsum
OASDIFF    := go tool -modfile=tools/oasdiff/go.mod oasdiff
# The race detector makes the tests take half as long again, and needs a C compiler. It need not look into SQLite, which is C that was
# translated to Go, and four times as slow if it does.
RACE        = $(if $(CI),$(shell command -v gcc >/dev/null && echo "-race -gcflags=modernc.org/...=-race=false"))
TEST_FLAGS ?=
# go test starts packages in the order it is given. These wait for real servers, or for time to pass, most of the time.
LONGEST     = ./internal/settle ./internal/acceptance ./internal/store ./internal/chain/monero ./server
# A test's program is linked each time, which is quicker without tables for debuggers, and without C.
LINK        = $(if $(RACE),,CGO_ENABLED=0) GOFLAGS="$$GOFLAGS -ldflags=-s"
# The client is a module of its own, which ./... leaves out.
CLIENT     := github.com/cardmint/cardmint/client

run: ## Run the service with simulated money: everything in one process, on SQLite
	@echo 'compiling cardmint: the first time takes one to two minutes' >&2
	@go run ./cmd/cardmint dev

build: ## Build bin/cardmint
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o bin/cardmint ./cmd/cardmint

# Tests wait more than they work, so that more run at once than there are cores. Each process has one core, so that its threads wait for no
# other. Processes are short, and end before they need to collect much garbage. Left to 'make test' are the tests of the command line, which
# start the program, and those of what only tests use: linking a package's tests takes half a second to two.
QUICK       = ./server ./internal/settle ./internal/store ./internal $(patsubst %/,./%,$(filter-out internal/acceptance/ internal/cli/ internal/failpoint/ internal/rig/,$(wildcard internal/*/)))
quick: ## Run every test that needs no server, no process and no patience, on SQLite in memory, within 20 seconds
	@$(LINK) GOGC=800 tools/in-memory 1 go test -short -vet=off -p 4 -parallel 4 -cpu 1 $(QUICK) $(CLIENT)

# Tests and the programs that they start are short, here too: collecting garbage was a fifteenth of their time.
# MONERO=system runs them on the Monero that is installed, MONERO=current insists on the current one: see tools/deps.
# CI reruns at most three failed tests once, two here and one in the drills, and lists them at its end: each is to be fixed.
rerun       = $(if $(CI),--rerun-fails=1 --rerun-fails-max-failures=$(1) --rerun-fails-report=.flaky.$@)
test: deps ## Run every test, on SQLite, PostgreSQL and a private Monero network; installs what is missing where it can. CI=true adds the race detector
	$(LINK) GOGC=400 tools/in-memory 4 $(GOTESTSUM) --format pkgname --jsonfile .test.json $(call rerun,2) --packages="$(LONGEST) ./... $(CLIENT)" -- \
	  $(RACE) -vet=off -p 3 -parallel 4 -timeout 20m $(TEST_FLAGS)
	@tools/skipped .test.json
	$(if $(RACE),tools/in-memory 2 go test -count=1 -vet=off -run TestPlans ./internal/store)

test-old-monero: ## Run the tests of the Monero adapter, of reorganisations and of locked money on the system's Monero, not on the current one
	MONERO=system $(MAKE) deps
	MONERO=system tools/in-memory 4 go test -count=1 -vet=off -timeout 15m -run 'TestMonero_|TestWatcher_Monero(Reorg|Locked)' ./internal/chain/monero ./internal/settle

SEEDS ?= 100000
CORES := $(shell nproc)
simulate: ## Live through SEEDS random histories of payments beside an oracle; and break the rules, which must be noticed
	@mkdir -p bin && go test -c -o bin/settle.test ./internal/settle
	cd internal/settle && seq 0 $$(($(CORES) - 1)) | xargs -P $(CORES) -I@ sh -c 'GOMAXPROCS=1 ../../bin/settle.test \
	  -test.run "TestSimulation$$" -test.timeout 3h -test.v -seeds $$(($(SEEDS) / $(CORES))) -first $$((@ * ($(SEEDS) / $(CORES)) + 1))'
	go test -count=1 -v -timeout 20m -run TestSimulation_CatchesBrokenRules ./internal/settle -mutants

# One test binary has all mutants of a package. PACKAGES="-v internal/card" also names those that no test reaches. Survivors that may live
# are listed in tools/mutants/survivors.txt, with the reason.
PACKAGES ?= internal/card internal/order internal/settle internal/issue internal/operator internal/account internal/webhook internal/keys internal/limit \
            internal/rate internal/vault internal/supplier internal/supplier/reference internal/metrics internal/outbound internal/retention internal/trace
mutants: ## Break PACKAGES on purpose: fails if their own tests, which start no servers, let too much pass
	@tools/in-memory 2 go run ./tools/mutants $(PACKAGES)

e2e: deps ## Run the end-to-end tests alone: real monerod, wallet and PostgreSQL, through the Go client
	go test -count=1 -v -timeout 15m -run TestE2E ./internal/acceptance

ROUNDS ?= 1
AGE    ?= 8s
drill: deps ## Restore backups up to AGE old and promote standbys, ROUNDS times; use one wallet twice, freeze, cut off and upgrade databases; and slices of chaos
	tools/in-memory 4 $(GOTESTSUM) --format standard-verbose $(call rerun,1) --packages=./internal/acceptance -- -tags=nomsgpack,drill -count=1 -vet=off -timeout 3h \
	  -run 'TestDrill|TestChaos$$|TestFailpoints$$|TestUpgrade_|TestServe_(WaitsForADatabase|AFrozenDatabase|AcknowledgedCards|PgBouncer)' \
	  -args -drill-rounds $(ROUNDS) -drill-age $(AGE)
	tools/in-memory 2 go test -count=1 -v -vet=off -run 'TestIllServer_|TestReplication_|TestMigrate_OthersWork' ./internal/store

CHAOS ?= 10m
# TEST_FLAGS=-chaos-monero has it on a real monerod and wallet. FAILPOINTS=all kills workers at each point where a crash would be worst, KILLS times at each, instead.
KILLS ?= 50
chaos: deps ## Have processes, connections, databases and suppliers fail at random for CHAOS: nothing acknowledged may be lost or happen twice
ifeq ($(FAILPOINTS),all)
	tools/in-memory 2 go test -tags=nomsgpack,drill -count=1 -v -vet=off -timeout 24h -run 'TestFailpoints$$' ./internal/acceptance -failpoint-kills $(KILLS)
else
	go test -tags=nomsgpack,drill -count=1 -v -vet=off -timeout 24h -run 'TestChaos$$' ./internal/acceptance -chaos $(CHAOS) $(TEST_FLAGS)
endif

SOAK ?= 12m
soak: deps ## Sell cards for a day of a clock that runs 120 times as fast: fail if memory, goroutines, descriptors, tables or indexes grow without bound. SOAK=2m is a slice
	tools/in-memory 4 go test -tags=nomsgpack,drill -count=1 -v -vet=off -timeout 24h -run TestSoak ./internal/acceptance -soak $(SOAK)

ha: deps ## Set up three PostgreSQL under Patroni as documented, fail the leader in every way, ROUNDS times, and restore a backup; as root
	@tools/deps ha
	tools/in-memory 1 go test -tags=nomsgpack,drill -count=1 -v -vet=off -run TestMachine_ ./internal/rig
	tools/in-memory 4 go test -tags=nomsgpack,drill -count=1 -v -vet=off -timeout 6h -run TestHA_ ./internal/acceptance -ha-rounds $(ROUNDS)

bench: deps ## Measure, each figure side by side with its limit
	go test -run '^$$' -bench . -benchtime 1x -count 1 -timeout 20m ./internal/acceptance
	go test -run '^$$' -bench Flood -benchtime 1x -count 1 ./server

OVERLOAD ?= 1m
overload: deps ## Order up to four times as many cards as can be created, after 200 a second for OVERLOAD: what is refused, and how long the others take
	go test -tags=nomsgpack,drill -count=1 -v -vet=off -timeout 1h -run TestFigures_Overload ./internal/acceptance -overload $(OVERLOAD)

alarms: deps ## Provoke every alarm with a real service, PostgreSQL and Monero, and see it fire and clear in Debian's Prometheus
	@tools/deps alarms
	tools/in-memory 2 go test -tags=nomsgpack,alarms -count=1 -v -vet=off -timeout 15m -run TestAlarms ./internal/acceptance

CARDS ?= 2000000
plans: deps ## Explain every statement of the store with CARDS cards, on SQLite and PostgreSQL: what it reads, and how long it takes
	tools/in-memory 8 go test -count=1 -v -timeout 3h -run TestPlans ./internal/store -plans $(CARDS)

browser: ## Look at the pages in Chromium: console, contrast, keyboard, narrow screens, and a card that is tried out. SCREENSHOTS=DIR keeps pictures
	@tools/deps browser
	npm ci --prefix tools/browser --no-audit --no-fund --loglevel error
	cd tools/browser && go vet ./... && go test -count=1 -timeout 10m ./...

generated-requests: ## Send the server twenty thousand requests made from the contract, most of them broken; prints the seed, and how each was answered
	tools/in-memory 1 go test -count=1 -v -vet=off -run TestGenerated ./server -generated-requests 20000

prism: build ## Have Prism answer by the contract alone, and watch what the service answers; needs Node and npm
	npm ci --prefix tools/prism --no-audit --no-fund --loglevel error
	tools/in-memory 1 go test -tags=nomsgpack,prism -count=1 -v -vet=off -timeout 10m -run TestPrism ./server

generate: generate-typescript ## Generate code from the contract
	go generate ./...

TYPESCRIPT := client/typescript
NPM_CI      = npm ci --no-audit --no-fund --loglevel error
generate-typescript: ## Generate the TypeScript client's types from the contract
	cd $(TYPESCRIPT) && $(NPM_CI) && npm run --silent generate

typescript: build ## Build the TypeScript client, and test it with the program itself; needs Node and npm
	cd $(TYPESCRIPT) && $(NPM_CI) && npm run --silent build && npm test --silent

release-typescript: ## Pack the TypeScript client into dist/, ready to be published
	@mkdir -p dist
	cd $(TYPESCRIPT) && $(NPM_CI) && npm pack --silent --pack-destination ../../dist

# VERSION=v1.2.3 names it, otherwise git does; ARCHES=amd64 builds for one architecture only.
release: release-typescript ## Build what operators install into dist/: archives, Debian packages, bills of materials, the TypeScript client, checksums
	tools/release/build

release-check: ## Build a release twice and compare every byte; install the package in a clean Debian, run it there, purge it; as root
	@tools/deps release
	cd tools/release && go test -count=1 ./...
	tools/release/check

install-check: ## Follow the pages about installing, reverse proxies and the first wallet, in a clean Debian that is booted; as root
	@tools/deps install
	tools/release/install-check

wallet-check: ## Follow the pages about installing and the first wallet, in a clean Debian that is booted, up to a card paid on a private network; as root
	@tools/deps install
	tools/release/install-check --wallet

image: ## Pack the archives of 'make release' as containers' images into dist/, and run this machine's; needs buildah, and podman with runc
	@for arch in $${ARCHES:-amd64 arm64}; do ARCH=$$arch tools/release/image || exit; done

lint: ## Check style: gofmt, vet, module files, and the contracts by Redocly and Spectral
	@test -z "$$(gofmt -l .)" || { echo "not formatted:"; gofmt -l .; exit 1; }
	go vet -tags=nomsgpack,drill,prism,alarms ./...
	go mod tidy -diff
	go mod verify
	cd client && go vet ./... && go mod tidy -diff && go mod verify
	cd tools/release && go vet ./... && go mod verify
	npm ci --prefix $(OAPI_LINT) --no-audit --no-fund --loglevel error
	cd $(OAPI_LINT) && npx redocly lint --config redocly.yaml ../../openapi/openapi.yaml ../../openapi/supplier.yaml
	cd $(OAPI_LINT) && npx spectral lint --ruleset spectral.yaml --fail-severity hint ../../openapi/openapi.yaml ../../openapi/supplier.yaml

CONTRACT := openapi/openapi.yaml
compat: ## Compare the contract with the released one: fails where a client would break
	tools/compat openapi/released.yaml $(CONTRACT)

compat-prose: ## Fail if the contract differs from the released one in more than its prose and examples
	$(OASDIFF) diff --fail-on-diff --exclude-elements description,examples,summary,title openapi/released.yaml $(CONTRACT)

compat-check: ## Prove that compat and compat-prose can fail, by breaking copies of the released contract
	cd tools/oasdiff && go vet ./... && go test -count=1 ./...

# Users' programs are built by the last two versions of Go, and with the versions of modules that they have.
test-client: ## Test the client alone: on the oldest Go that it supports, and with the oldest versions of what it needs; and its examples
	cd client && GOTOOLCHAIN=go$$(awk '$$1 == "go" { print $$2 }' go.mod).0 go test -count=1 ./...
	cd client/examples/quickstart && go vet ./... && go mod tidy -diff
	cd client/clienttest && go vet ./... && go mod tidy -diff && go test -count=1 ./...
	cd client/examples/otel && go vet ./... && go mod tidy -diff && go test -count=1 ./...

api: ## Compare what the client exports with its last release: fails where a program would no longer compile
	cd tools/apidiff && go run . ../../client

api-check: ## Prove that api can fail
	cd tools/apidiff && go vet ./... && go test -count=1 ./...

api-release: ## With a release of the client: keep what it exports
	cd tools/apidiff && go run . -write ../../client

verify: lint compat compat-check api api-check test-client ## Check everything that is not a test: style, the contract, and that generated code is fresh
	@generated() { find . -name node_modules -prune -o -name '*.gen.*' -not -path './$(TYPESCRIPT)/dist/*' -print | sort | xargs cat | sha256sum; }; \
	  before=$$(generated); $(MAKE) --silent generate && after=$$(generated); \
	  test "$$before" = "$$after" || { echo "generated code was not fresh: commit what 'make generate' made"; exit 1; }

deps: ## Install what the tests need (PostgreSQL, PgBouncer, Monero, a C compiler), by apt as root; and unpack the current Monero
	@tools/deps

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-19s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run build quick test test-old-monero simulate mutants e2e drill chaos bench alarms plans browser generated-requests prism generate generate-typescript typescript release-typescript release release-check install-check wallet-check image lint compat compat-prose compat-check verify deps help test-client api api-check api-release soak ha overload
