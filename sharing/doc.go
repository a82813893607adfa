// Package sharing is the vocabulary of the Delta Sharing protocol: shares,
// schemas, tables, recipients and their profiles, the capabilities header, and
// the lines of an NDJSON answer in parquet and delta format. Standard library
// only, no I/O.
//
// Specification: PROTOCOL.md of delta-io/delta-sharing; where its text and real
// clients disagree, real clients decide and the comment says so.
package sharing
