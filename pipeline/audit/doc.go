// Package audit is the independent auditor: it reads a Delta table's objects by
// small readers of its own and says what an erasure did to it, and it searches
// the bytes that a run leaves for identities.
//
// It shares no code with what erases. Of this module it imports package storage
// only; values come from arrow-go's convenient readers. It prefers plain to
// fast and holds a table's rows in memory: it is for tests, for operators who
// want a second opinion on a table of moderate size, and for the demo.
//
// # What it reads
//
// Delta tables whose log is in JSON commits and classic checkpoints of one
// part. Deletion vectors inline and in files, Z85 and 64-bit Roaring arrays
// with array, bitmap and run containers. Column mapping by name and id.
// Anything else is an error, never a shorter answer. Values are compared as
// text: what arrow-go's ValueStr writes (decimals with all digits of their
// scale), and what the log holds for partition
// values.
//
// Delta protocol: https://github.com/delta-io/delta/blob/master/PROTOCOL.md,
// sections "Delta Table Specification" and "Deletion Vector Format". Roaring:
// https://github.com/RoaringBitmap/RoaringFormatSpec.
package audit
