"""Writes the small foreign tables that Go tests decode: OUT/spark-* and OUT/deltars-*.

Beside each table stands NAME.rows.jsonl: its live rows as the writer itself
reads them back, one JSON object a line, ordered by customer_id. All people in
them are made up.

usage: DELENDA_JARS=... python make_testdata.py OUT
"""

import base64
import datetime
import decimal
import json
import os
import shutil
import sys
import tempfile

from spark_session import open_session

CITIES = ["Malmö", "A Coruña", None]


def customer(n):
    """Row n, a value or a null for every type that can be a key."""
    day = datetime.date(1970, 1, 1) + datetime.timedelta(days=500 * n - 3000)
    at = datetime.datetime(1969, 12, 31, 23, 0, 0, 123456) + datetime.timedelta(hours=1000 * n)
    odd = n % 7 == 0
    return (
        n,
        None if odd else f"person{n:02d}@example.org",
        n - 10,
        100 * n - 500,
        7 * n - 40,
        n % 2 == 0,
        None if odd else bytes([n, 255 - n, 0, 1]),
        decimal.Decimal(n * 100 + 5).scaleb(-2),
        decimal.Decimal(10**20 + n).scaleb(-3),
        day,
        at,
        at,
        (f"+31 20 555 {n:04d}", CITIES[n % 3]),
        [n, n + 1],
        CITIES[n % 3],
    )


SCHEMA = """customer_id BIGINT, email STRING, tiny TINYINT, small SMALLINT, number INT, active BOOLEAN, token BINARY,
    price DECIMAL(9,2), account DECIMAL(30,3), born DATE, seen TIMESTAMP, local_seen TIMESTAMP_NTZ,
    contact STRUCT<phone: STRING, city: STRING>, visits ARRAY<INT>, city STRING"""

# The columns of the partitioned tables: fewer, since every file has them all.
FEW = ["customer_id", "email", "price", "born", "seen", "city"]


def plain(value):
    """A JSON value that loses nothing."""
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(bytes(value)).decode()
    if hasattr(value, "asDict"):
        return {k: plain(v) for k, v in value.asDict().items()}
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [plain(v) for v in value]
    return value


def write_rows(out, name, rows):
    rows = sorted(rows, key=lambda r: r["customer_id"])
    with open(os.path.join(out, name + ".rows.jsonl"), "w", encoding="utf-8") as f:
        for row in rows:
            f.write(json.dumps(plain(row), ensure_ascii=False) + "\n")


def finish(out, name):
    """Drops the checksums that Hadoop's local file system adds."""
    for folder, _, names in os.walk(os.path.join(out, name)):
        for n in names:
            if n.startswith(".") and n.endswith(".crc"):
                os.remove(os.path.join(folder, n))


def spark_table(spark, out, name, mode, partitioned, properties):
    from pyspark.sql.types import StructType

    path = os.path.join(out, name)
    shutil.rmtree(path, ignore_errors=True)
    props = {"delta.enableDeletionVectors": "true", "delta.columnMapping.mode": mode, **properties}
    fields = StructType.fromDDL(SCHEMA).fields
    kept = [i for i, f in enumerate(fields) if not partitioned or f.name in FEW]
    ddl = ", ".join(f"{fields[i].name} {fields[i].dataType.simpleString()}" for i in kept)
    spark.sql(
        f"CREATE TABLE delta.`{path}` ({ddl}) USING delta "
        + ("PARTITIONED BY (city) " if partitioned else "")
        + "TBLPROPERTIES (" + ", ".join(f"'{k}'='{v}'" for k, v in props.items()) + ")"
    )

    def append(numbers):
        columns = spark.table(f"delta.`{path}`").schema
        data = spark.createDataFrame([[customer(n)[i] for i in kept] for n in numbers], columns)
        data.coalesce(1).write.format("delta").mode("append").save(path)

    append(range(0, 12))
    append(range(12, 20))
    spark.sql(f"DELETE FROM delta.`{path}` WHERE customer_id IN (3, 5, 14)")
    if mode != "none":
        spark.sql(f"ALTER TABLE delta.`{path}` RENAME COLUMN email TO `e-mail address`")
        spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMN note STRING")
    finish(out, name)
    write_rows(out, name, [r.asDict() for r in spark.read.format("delta").load(path).collect()])


def spark_wide(spark, out):
    """One file of many rows, half of them gone: a vector with a bitmap container."""
    name = "spark-dv-bitmap"
    path = os.path.join(out, name)
    shutil.rmtree(path, ignore_errors=True)
    spark.sql(
        f"CREATE TABLE delta.`{path}` (customer_id BIGINT) USING delta "
        "TBLPROPERTIES ('delta.enableDeletionVectors'='true')"
    )
    spark.range(0, 12000, 1, 1).toDF("customer_id").write.format("delta").mode("append").save(path)
    spark.sql(f"DELETE FROM delta.`{path}` WHERE customer_id % 2 = 0 AND customer_id < 11000")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE customer_id BETWEEN 11000 AND 11499")
    finish(out, name)


def deltars_table(out, name, partitioned):
    import pyarrow as pa
    from deltalake import DeltaTable, write_deltalake

    path = os.path.join(out, name)
    shutil.rmtree(path, ignore_errors=True)
    utc = pa.timestamp("us", tz="UTC")
    fields = [
        ("customer_id", pa.int64()), ("email", pa.string()), ("tiny", pa.int8()), ("small", pa.int16()),
        ("number", pa.int32()), ("active", pa.bool_()), ("token", pa.binary()), ("price", pa.decimal128(9, 2)),
        ("account", pa.decimal128(30, 3)), ("born", pa.date32()), ("seen", utc), ("local_seen", pa.timestamp("us")),
        ("contact", pa.struct([("phone", pa.string()), ("city", pa.string())])), ("visits", pa.list_(pa.int32())),
        ("city", pa.string()),
    ]

    names = [f[0] for f in fields]
    if partitioned:
        fields = [f for f in fields if f[0] in FEW]

    def batch(numbers):
        rows = []
        for n in numbers:
            row = dict(zip(names, customer(n)))
            row["contact"] = dict(zip(["phone", "city"], row["contact"]))
            row["seen"] = row["seen"].replace(tzinfo=datetime.timezone.utc)
            rows.append(row)
        return pa.Table.from_pylist(rows, schema=pa.schema(fields))

    options = {"partition_by": ["city"]} if partitioned else {}
    write_deltalake(path, batch(range(0, 12)), mode="append", **options)
    write_deltalake(path, batch(range(12, 20)), mode="append", **options)
    DeltaTable(path).create_checkpoint()
    write_deltalake(path, batch(range(20, 23)), mode="append", **options)
    write_rows(out, name, DeltaTable(path).to_pyarrow_table().to_pylist())


def main():
    out = os.path.abspath(sys.argv[1])
    os.makedirs(out, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        spark = open_session(work)
        try:
            spark_table(spark, out, "spark-dv-name", "name", True, {})
            spark_table(spark, out, "spark-dv-id", "id", False, {"delta.checkpointInterval": "3"})
            spark_table(spark, out, "spark-no-dv", "none", False, {"delta.enableDeletionVectors": "false"})
            spark_wide(spark, out)
        finally:
            spark.stop()
    deltars_table(out, "deltars-plain", False)
    deltars_table(out, "deltars-partitioned", True)


if __name__ == "__main__":
    main()
