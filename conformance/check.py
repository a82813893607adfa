"""The checks: what real clients see before and after erasures.

They run in the order in which they are written, on one running system: a later
one builds on what an earlier one did. One that needs a client which is not
here is skipped.

usage: DELENDA_BIN=... [DELENDA_JARS=...] python check.py [NAME ...]
"""

import importlib.util
import json
import os
import shutil
import sys
import tempfile
import time
import traceback

from system import System

HERE = os.path.dirname(os.path.abspath(__file__))
TESTDATA = os.path.join(HERE, "..", "storage", "delta", "testdata")

CHECKS = []


def check(*needs):
    """Registers a check; needs are names of clients."""

    def register(f):
        CHECKS.append((f.__doc__.strip().splitlines()[0].rstrip("."), needs, f))
        return f

    return register


class World:
    """What the checks share."""

    def __init__(self, work):
        self.work = work
        self.missing = {}
        for client, module in {"delta-sharing": "delta_sharing", "delta-rs": "deltalake", "spark": "pyspark"}.items():
            if importlib.util.find_spec(module) is None:
                self.missing[client] = f"{module} is not installed"
        if "DELENDA_JARS" not in os.environ:
            self.missing["spark"] = "the jars of Delta for Spark are not here"
        if shutil.which("java", path=os.path.join(os.environ.get("JAVA_HOME", ""), "bin")) is None and shutil.which("java") is None:
            self.missing["spark"] = "there is no Java"
        self.spark = None
        if "spark" not in self.missing:
            from spark_session import open_session

            self.spark = open_session(work)
        self.lake = os.path.join(work, "lake")
        os.makedirs(self.lake)
        self.system = System(work, self.make_tables())

    def make_tables(self):
        """people: name mapping, partitioned; ids: id mapping, by Spark if it is here; plain and own: by delta-rs."""
        tables = {
            "people": (self.copy("spark-dv-name", "people"), {"email": "e-mail address", "customer_id": "customer_id"}),
            "bitmap": (self.copy("spark-dv-bitmap", "bitmap"), {"customer_id": "customer_id"}),
        }
        if self.spark:
            from make_testdata import spark_table

            spark_table(self.spark, self.lake, "ids", "id", False, {"delta.checkpointInterval": "3"})
            tables["widened"] = (self.widened(), {"customer_id": "customer_id"})
        else:
            self.copy("spark-dv-id", "ids")
        tables["ids"] = (os.path.join(self.lake, "ids"), {"email": "e-mail address", "phone": "contact.phone"})
        if "delta-rs" not in self.missing:
            tables["own"] = (self.own(), {"email": "email"})
        return tables

    def copy(self, name, to):
        path = os.path.join(self.lake, to)
        shutil.copytree(os.path.join(TESTDATA, name), path)
        return path

    def widened(self):
        """A table that needs a reader feature which the Python client does not list."""
        path = os.path.join(self.lake, "widened")
        self.spark.sql(
            f"CREATE TABLE delta.`{path}` (customer_id INT) USING delta "
            "TBLPROPERTIES ('delta.enableTypeWidening'='true', 'delta.enableDeletionVectors'='true')"
        )
        self.spark.sql(f"INSERT INTO delta.`{path}` VALUES (1), (2)")
        self.spark.sql(f"ALTER TABLE delta.`{path}` ALTER COLUMN customer_id TYPE BIGINT")
        self.spark.sql(f"INSERT INTO delta.`{path}` VALUES (3)")
        return path

    def own(self):
        """A table of delta-rs that may carry deletion vectors, with a checkpoint every second commit."""
        import pyarrow as pa
        from deltalake import write_deltalake

        path = os.path.join(self.lake, "own")
        for start in (0, 50):
            numbers = range(start, start + 50)
            rows = pa.table({"n": pa.array(numbers, pa.int64()), "email": [f"p{i}@example.org" for i in numbers]})
            write_deltalake(
                path, rows, mode="append",
                configuration={"delta.enableDeletionVectors": "true", "delta.checkpointInterval": "2"},
            )
        return path

    def path(self, table):
        return self.system.tables[table][0]

    def url(self, table):
        return f"{self.system.profile}#main.lake.{table}"

    def pandas(self, table, **options):
        import delta_sharing

        return delta_sharing.load_as_pandas(self.url(table), **options)

    def ids(self, table, column="customer_id"):
        return sorted(int(n) for n in self.pandas(table)[column])

    def spark_rows(self, table, where="true"):
        return self.spark.read.format("delta").load(self.path(table)).where(where).collect()

    def delta_rs(self, table, query):
        from deltalake import DeltaTable, QueryBuilder

        result = QueryBuilder().register("t", DeltaTable(self.path(table))).execute(query).read_all()
        return [list(column.to_pylist()) for column in result.columns]


def written(table):
    """The rows of a table in testdata as its writer reads them."""
    with open(os.path.join(TESTDATA, table + ".rows.jsonl"), encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def eventually(f, seconds=30):
    """Repeats f until it raises nothing.

    A read that began before an erasure reached the share may also break off:
    the publisher stops serving the files of the version before, and Python
    takes the refusal for content.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return f()
        except Exception:  # noqa: BLE001
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def equal(got, want):
    assert got == want, f"got {got}, want {want}"


def fails(f, *words):
    """Calls f, which must raise an error that holds one of the words."""
    try:
        f()
    except Exception as e:  # noqa: BLE001  clients raise what they like
        text = f"{type(e).__name__}: {e}"
        assert any(w in text for w in words), f"got {text}, want one of {words}"
        return
    raise AssertionError("it succeeded")


@check("delta-sharing")
def lists(w):
    """Python lists shares, schemas and tables."""
    import delta_sharing

    client = delta_sharing.SharingClient(w.system.profile)
    equal([s.name for s in client.list_shares()], ["main"])
    equal(sorted(t.name for t in client.list_all_tables()), sorted(w.system.tables))


@check("delta-sharing")
def before(w):
    """Python reads a name-mapped, partitioned table with deletion vectors."""
    want = written("spark-dv-name")
    got = w.pandas("people").sort_values("customer_id")
    equal([int(n) for n in got["customer_id"]], [r["customer_id"] for r in want])
    equal([c if isinstance(c, str) else None for c in got["city"]], [r["city"] for r in want])
    equal([m if isinstance(m, str) else None for m in got["e-mail address"]], [r["e-mail address"] for r in want])


@check("delta-sharing")
def before_ids(w):
    """Python reads an id-mapped table with deletion vectors."""
    equal(w.ids("ids"), [n for n in range(20) if n not in (3, 5, 14)])


@check("delta-sharing")
def before_bitmap(w):
    """Python reads a table whose deletion vector is a bitmap."""
    equal(len(w.pandas("bitmap")), 6000)


@check("delta-sharing")
def limit(w):
    """Python reads a limited number of rows."""
    equal(len(w.pandas("people", limit=5)), 5)
    equal(len(w.pandas("people", limit=1000)), 17)


@check("delta-sharing")
def unknown(w):
    """Python gets 404 for an unknown table."""
    fails(lambda: w.pandas("absent"), "404")


@check("delta-sharing")
def token(w):
    """Python gets 401 for a wrong token."""
    import delta_sharing

    with open(w.system.profile, encoding="utf-8") as f:
        profile = json.load(f)
    profile["bearerToken"] += "x"
    wrong = os.path.join(w.work, "wrong.share")
    with open(wrong, "w", encoding="utf-8") as f:
        json.dump(profile, f)
    fails(lambda: delta_sharing.load_as_pandas(f"{wrong}#main.lake.people"), "401")


@check("delta-sharing")
def parquet_only(w):
    """Python in parquet format is refused a table with deletion vectors."""
    fails(lambda: w.pandas("people", use_delta_format=False), "400")


@check("delta-sharing", "spark")
def unlisted(w):
    """Python is refused a table that needs a feature it does not list."""
    fails(lambda: w.pandas("widened"), "400")


@check("delta-sharing")
def erased(w):
    """Python no longer sees the rows of a person who was erased."""
    w.system.erase("email", "person04@example.org", "people", "ids")
    want = [n for n in range(20) if n not in (3, 4, 5, 14)]
    eventually(lambda: equal(w.ids("people"), want))
    eventually(lambda: equal(w.ids("ids"), want))
    eventually(lambda: equal(len(w.pandas("people", limit=1000)), 16))


@check("delta-sharing")
def erased_file(w):
    """Python no longer sees a file all of whose rows were erased."""
    # Rows 2, 5, 8 and 11 share one file, and 5 is gone already.
    for n in (2, 8, 11):
        w.system.erase("customer_id", n, "people")
    want = [n for n in range(20) if n not in (2, 3, 4, 5, 8, 11, 14)]
    eventually(lambda: equal(w.ids("people"), want))


@check("delta-sharing")
def erased_bitmap(w):
    """Python sees every other row of a table with a bitmap."""
    w.system.erase("customer_id", 11998, "bitmap")
    want = [n for n in range(12000) if n >= 11500 and n != 11998 or n % 2 == 1 and n < 11000]
    eventually(lambda: equal(w.ids("bitmap"), want))


@check("spark")
def spark_reads(w):
    """Spark reads the tables themselves after our commits."""
    w.system.erase("email", "person04@example.org", "people", "ids")
    equal(sorted(r["customer_id"] for r in w.spark_rows("ids")), [n for n in range(20) if n not in (3, 4, 5, 14)])
    equal([r for r in w.spark_rows("people") if r["e-mail address"] == "person04@example.org"], [])
    equal(len(w.spark_rows("people", "`e-mail address` = 'person04@example.org'")), 0)
    want = {r["customer_id"]: r for r in written("spark-dv-id")}
    for row in w.spark_rows("ids"):
        equal(row["e-mail address"], want[row["customer_id"]]["e-mail address"])
        equal(str(row["account"]), want[row["customer_id"]]["account"])


@check("spark")
def spark_counts(w):
    """Spark counts from our statistics what it counts from the rows."""
    for table in ("people", "ids", "bitmap"):
        path = w.path(table)
        counted = w.spark.sql(f"SELECT count(*) AS n FROM delta.`{path}`").collect()[0]["n"]
        equal(counted, len(w.spark_rows(table)))
    equal(len(w.spark_rows("ids", "customer_id > 17")), 2)
    equal(len(w.spark_rows("people", "customer_id BETWEEN 15 AND 16")), 2)


@check("spark")
def spark_appends(w):
    """Spark appends, and our next erasure finds the new rows."""
    from make_testdata import customer

    path = w.path("ids")
    schema = w.spark.table(f"delta.`{path}`").schema
    rows = [customer(n) + (None,) for n in (40, 41, 42)]
    again = list(rows[0])
    again[0], again[1] = 43, "person41@example.org"
    w.spark.createDataFrame([*rows, tuple(again)], schema).write.format("delta").mode("append").save(path)
    w.system.erase("email", "person41@example.org", "ids")
    want = [n for n in range(20) if n not in (3, 4, 5, 14)] + [40, 42]
    equal(sorted(r["customer_id"] for r in w.spark_rows("ids")), want)


@check("spark", "delta-sharing")
def share_follows_spark(w):
    """Python sees what Spark appended, without the rows erased since."""
    want = [n for n in range(20) if n not in (3, 4, 5, 14)] + [40, 42]
    eventually(lambda: equal(w.ids("ids"), want))


@check("spark")
def spark_deletes(w):
    """Spark deletes from files with our deletion vectors, and we from files with its own."""
    path = w.path("ids")
    w.spark.sql(f"DELETE FROM delta.`{path}` WHERE customer_id IN (0, 1)")
    w.system.erase("phone", "+31 20 555 0002", "ids")
    want = [n for n in range(6, 20) if n != 14] + [40, 42]
    equal(sorted(r["customer_id"] for r in w.spark_rows("ids")), want)


@check("spark")
def spark_checkpoint(w):
    """Spark reads a checkpoint that we wrote."""
    path = w.path("ids")
    logs = os.path.join(path, "_delta_log")
    for n in (6, 7, 8):
        w.system.erase("phone", f"+31 20 555 {n:04d}", "ids")
    with open(os.path.join(logs, "_last_checkpoint"), encoding="utf-8") as f:
        version = json.load(f)["version"]
    with open(os.path.join(logs, f"{version:020d}.json"), encoding="utf-8") as f:
        writer = json.loads(f.readline())["commitInfo"].get("engineInfo", "")
    assert "elenda" in writer, f"checkpoint {version} is of {writer}"
    # Only the checkpoint can tell what came before it.
    copy = path + "-checkpoint"
    shutil.copytree(path, copy)
    for name in os.listdir(os.path.join(copy, "_delta_log")):
        if name[0].isdigit() and name.endswith((".json", ".crc")) and int(name.split(".")[0]) <= version:
            os.remove(os.path.join(copy, "_delta_log", name))
    got = w.spark.read.format("delta").load(copy).collect()
    equal(sorted(r["customer_id"] for r in got), [n for n in range(9, 20) if n != 14] + [40, 42])


@check("spark")
def spark_purges(w):
    """Spark rewrites files without the rows that we hid."""
    path = w.path("people")
    rows = sorted(r["customer_id"] for r in w.spark_rows("people"))
    w.spark.sql(f"REORG TABLE delta.`{path}` APPLY (PURGE)")
    equal(sorted(r["customer_id"] for r in w.spark_rows("people")), rows)


@check("delta-rs")
def delta_rs_reads(w):
    """delta-rs reads its own table after our commits and from our checkpoint."""
    for n in (7, 60, 61):
        w.system.erase("email", f"p{n}@example.org", "own")
    equal(w.delta_rs("own", "select count(*) from t"), [[97]])
    equal(w.delta_rs("own", "select n from t where n in (7, 8, 60, 61, 62) order by n"), [[8, 62]])
    logs = os.path.join(w.path("own"), "_delta_log")
    with open(os.path.join(logs, "_last_checkpoint"), encoding="utf-8") as f:
        version = json.load(f)["version"]
    assert version >= 2, f"checkpoint {version}"
    for name in os.listdir(logs):
        if name[0].isdigit() and name.endswith(".json") and int(name.split(".")[0]) <= version:
            os.remove(os.path.join(logs, name))
    equal(w.delta_rs("own", "select count(*) from t"), [[97]])


@check("delta-rs")
def delta_rs_reads_spark(w):
    """delta-rs reads Spark's tables after our commits."""
    for table in ("people", "bitmap"):
        n = w.delta_rs(table, "select count(*) from t")[0][0]
        if w.spark:
            equal(n, len(w.spark_rows(table)))
        else:
            assert n > 0


def main():
    wanted = sys.argv[1:]
    passed = failed = skipped = 0
    with tempfile.TemporaryDirectory(prefix="delenda-conformance-") as work:
        w = World(work)
        started = time.monotonic()
        try:
            w.system.start()
            print(f"conformance: delenda up is ready ({time.monotonic() - started:.1f} s)", flush=True)
            for name, needs, f in CHECKS:
                if wanted and not any(n in name for n in wanted):
                    continue
                lacking = [w.missing[n] for n in needs if n in w.missing]
                if lacking:
                    print(f"skipped: {name}: {'; '.join(lacking)}", flush=True)
                    skipped += 1
                    continue
                started = time.monotonic()
                try:
                    f(w)
                    print(f"ok   {name} ({time.monotonic() - started:.1f} s)", flush=True)
                    passed += 1
                except Exception as e:  # noqa: BLE001  the next check may still pass
                    detail = str(e) if isinstance(e, AssertionError) else traceback.format_exc(limit=-3)[:3000]
                    print(f"FAIL {name}: {detail}", flush=True)
                    failed += 1
            try:
                w.system.stop()
                print("ok   delenda up ends by itself after SIGTERM", flush=True)
                passed += 1
            except AssertionError as e:
                print(f"FAIL delenda up ends by itself after SIGTERM: {e}", flush=True)
                failed += 1
        finally:
            if w.system.process is not None and w.system.process.poll() is None:
                w.system.process.kill()
                w.system.process.wait(10)
            if w.spark:
                w.spark.stop()
            if failed and "DELENDA_KEEP_LOG" in os.environ:
                shutil.copy(w.system.log, os.environ["DELENDA_KEEP_LOG"])
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
