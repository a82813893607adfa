#!/bin/sh
# Key column scans by Delenda, by Arrow's two readers and by DuckDB, of the same
# files in the same run, on one thread. Prints million rows per second of CPU
# time, and the share of the decompression-only bound that Delenda reaches.
#
#   ROWS=4000000 conformance/bench/run.sh
#
# Needs Go, Node.js 20 or later and npm. Nothing is left behind.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
rows=${ROWS:-4000000}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/files"

cp "$here/package.json" "$here/duckdb.mjs" "$work/"
(cd "$work" && npm install --silent --no-audit --no-fund >/dev/null)

(cd "$here/../.." && DELENDA_BENCH_DIR="$work/files" DELENDA_BENCH_ROWS="$rows" \
	go test -run '^$' -bench '^BenchmarkKeyScan$' -benchtime "${COUNT:-5}x" -cpu 1 -timeout 60m ./storage/parquet) |
	grep '^BenchmarkKeyScan/' >"$work/results"
(cd "$work" && node duckdb.mjs files "${COUNT:-5}") >>"$work/results"

awk -v rows="$rows" '
	{
		split($1, name, "/")
		for (i = 2; i < NF; i++) if ($(i + 1) == "Mrows/cpu-s") rate[name[2], name[3]] = $i
		if (!(name[2] in seen)) { seen[name[2]] = 1; order[++n] = name[2] }
	}
	function share(a, b) { return b > 0 ? sprintf("%.2f", a / b) : "-" }
	END {
		printf "%d rows, 10,000 keys, one thread, million rows per CPU second\n\n", rows
		printf "| file | delenda | ReadBatch | pqarrow | DuckDB | bound | of bound | to DuckDB |\n|---|---|---|---|---|---|---|---|\n"
		for (i = 1; i <= n; i++) {
			f = order[i]; d = rate[f, "delenda"]
			printf "| %s | %.1f | %.1f | %.1f | %.1f | %.1f | %s | %s |\n", f, d, rate[f, "arrow-ReadBatch"], rate[f, "arrow-pqarrow"], rate[f, "duckdb"], rate[f, "bound-decompress"], share(d, rate[f, "bound-decompress"]), share(d, rate[f, "duckdb"])
		}
	}' "$work/results"
