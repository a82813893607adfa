#!/bin/sh
# Runs the conformance suite of storage.Bucket against versitygw (S3) and
# Azurite (Azure Blob Storage). It gets both in pinned versions, from the Go
# module proxy and from npm, into a cache that later runs use again. A server
# that cannot be had is skipped and counted as such.
#
# Usage: run.sh [go test flags]
# The last line is: conformance/buckets: N passed, N failed, N skipped
set -u
cd "$(dirname "$0")" || exit 1

versitygw=v1.8.0
azurite=$(sed -n 's/.*"azurite": "\(.*\)".*/\1/p' package.json)
cache=${DELENDA_CONFORMANCE_CACHE:-$PWD/.cache}
mkdir -p "$cache" || exit 1
cache=$(cd "$cache" && pwd)

DELENDA_VERSITYGW=
bin=$cache/versitygw-$versitygw
if [ -x "$bin/versitygw" ] || GOBIN=$bin go install "github.com/versity/versitygw/cmd/versitygw@$versitygw" >"$cache/versitygw.log" 2>&1; then
	DELENDA_VERSITYGW=$bin/versitygw
else
	tail -n 5 "$cache/versitygw.log"
	echo "conformance/buckets: versitygw $versitygw is not to be had here: its tests are skipped"
fi

DELENDA_AZURITE=
prefix=$cache/azurite-$azurite
script=$prefix/node_modules/azurite/dist/src/blob/main.js
if [ ! -f "$script" ] && command -v npm >/dev/null; then
	mkdir -p "$prefix" && cp package.json "$prefix/" &&
		npm install --prefix "$prefix" --no-package-lock --ignore-scripts --no-audit --no-fund --loglevel=error >"$cache/azurite.log" 2>&1
fi
if [ -f "$script" ] && command -v node >/dev/null; then
	DELENDA_AZURITE=$script
else
	[ -f "$cache/azurite.log" ] && tail -n 5 "$cache/azurite.log"
	echo "conformance/buckets: azurite $azurite is not to be had here (npm and node are needed): its tests are skipped"
fi
export DELENDA_VERSITYGW DELENDA_AZURITE

log=$cache/test.log
go test -count=1 -v "$@" ./... >"$log" 2>&1
status=$?
grep -E '^(---|FAIL|ok)|wins of' "$log"
if [ $status -ne 0 ]; then
	grep -vE '^ *(=== |--- PASS)' "$log" | tail -n 100
fi
count() { grep -c "^--- $1: " "$log"; }
echo "conformance/buckets: $(count PASS) passed, $(count FAIL) failed, $(count SKIP) skipped"
exit $status
