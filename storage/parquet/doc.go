// Package parquet finds the rows of a Parquet file whose key columns equal one
// of a set of keys, and reads no other column.
//
// Rows are physical offsets: row 0 is the first row of the first row group,
// and every row of every row group counts, whatever is skipped. Null never
// matches.
//
// A scan skips what cannot match (row-group statistics, Bloom filters, page
// index, dictionaries) and walks the pages of the rest: one ranged read per
// column chunk or run of pages, decompressed into reused buffers, the values
// of data pages V1 and V2 probed where they lie. It follows the Parquet format
// specification, revision 2.11: encodings PLAIN, dictionary, RLE, DELTA_* and
// BYTE_STREAM_SPLIT; codecs snappy, zstd, gzip, brotli and LZ4_RAW; every
// physical type but FLOAT and DOUBLE, which cannot be keys. Arrow decodes the
// footer, and its column readers are the tests' oracle.
//
// Values are compared as the table's type (package match). Files that hold a
// narrower type than the table, as after type widening, are promoted value by
// value; a file whose type has no exact reading as the table's is refused.
//
// Not supported, and refused by name: encrypted files, LZO and the deprecated
// LZ4 of Hadoop, the deprecated BIT_PACKED levels, columns in lists or maps. Dates and
// timestamps are read in the proleptic Gregorian calendar: files that Spark
// wrote in its legacy hybrid calendar are refused for keys of such types
// before 1900-01-01.
//
// Bytes that do not follow the format are storage.ErrCorrupt. A File holds no
// open resource and is safe for concurrent use; memory is bounded by the
// footer, and per running Scan by the largest page of a scanned column.
package parquet
