// Scans the key column of each generated file with DuckDB, on one thread, for
// the same keys and with row numbers, and prints rows per second of CPU time
// in the form of a Go benchmark.
import { DuckDBInstance } from "@duckdb/node-api";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

const [dir, repeat = "5"] = process.argv.slice(2);
const instance = await DuckDBInstance.create(":memory:");
const db = await instance.connect();
await db.run("SET threads = 1");

const one = async (sql) => (await db.runAndReadAll(sql)).getRows()[0].map(Number);

for (const name of readdirSync(dir).filter((f) => f.endsWith(".keys")).sort()) {
  const base = name.slice(0, -".keys".length);
  const file = join(dir, base + ".parquet");
  const [type, ...keys] = readFileSync(join(dir, name), "utf8").trimEnd().split("\n");
  await db.run(`CREATE OR REPLACE TABLE keys AS SELECT DISTINCT unnest([${keys.map((k) => `'${k}'`).join(",")}])::${type} AS k`);
  const [rows] = await one(`SELECT count(*) FROM read_parquet('${file}')`);
  const query =
    `SELECT count(*), coalesce(sum(file_row_number), 0) ` +
    `FROM read_parquet('${file}', file_row_number = true) SEMI JOIN keys ON key = k`;
  await one(query);
  const start = process.cpuUsage();
  let hits;
  for (let i = 0; i < Number(repeat); i++) [hits] = await one(query);
  const used = process.cpuUsage(start);
  const rate = (rows * Number(repeat)) / (used.user + used.system);
  console.log(`BenchmarkKeyScan/${base}/duckdb ${repeat} ${rate.toFixed(2)} Mrows/cpu-s ${hits} rows`);
}
