// Package server serves the Delta Sharing protocol: lists, version, metadata
// and query of the newest snapshot, in parquet and delta format, and the bytes
// of tables whose bucket cannot sign URLs.
//
// Specification: PROTOCOL.md of delta-io/delta-sharing; where its text and real
// clients disagree, real clients decide.
//
// Publisher is the whole: it keeps heads and manifests current, recipients
// watched, and answers requests.
package server
