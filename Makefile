# make help

.DEFAULT_GOAL := help
.PHONY: help check demo lint fmt sweep fuzz bench images ci

# Two builds of one commit give the same bytes: see internal/images.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unreleased)
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
IMAGES ?= out/images
SERVERS ?= true
LATEST ?= true

help: ## print what there is
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

check: ## vet, build and test: the inner loop
	go vet ./... && go build ./... && go test ./...

demo: ## see one erasure end to end
	go run ./cmd/delenda demo

lint: ## the linter, pinned in lint.mod (the first run builds it)
	go tool -modfile=lint.mod golangci-lint run

fmt: ## format as the linter wants it
	go tool -modfile=lint.mod golangci-lint fmt

sweep: ## the long fault sweeps and random histories
	.ci/run sweeps

fuzz: ## every fuzz target for 30 s
	@grep -rlE --include='*_test.go' '^func Fuzz' . | grep -v ^./conformance/ | while read -r f; do \
	  grep -oE '^func Fuzz[A-Za-z0-9_]+' "$$f" | cut -c6- | while read -r t; do \
	    echo "$$t in $$(dirname $$f)"; go test "$$(dirname $$f)" -run '^$$' -fuzz "^$$t\$$" -fuzztime 30s || exit 1; done || exit 1; done

bench: ## the benchmarks behind the README's numbers
	go test -run '^$$' -bench . -benchmem ./...

images: ## container images from static binaries, as archives for docker load (SERVERS=false: without NATS and the S3 store)
	@SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) go run ./internal/images -out $(IMAGES) -version $(VERSION) -servers=$(SERVERS) -latest=$(LATEST)

ci: ## everything, as CI runs it
	.ci/run
