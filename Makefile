# make help

.DEFAULT_GOAL := help
.PHONY: help check demo lint fmt sweep fuzz bench ci

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

ci: ## everything, as CI runs it
	.ci/run
