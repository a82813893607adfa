// Package log reads and writes the transaction log of a Delta table: the
// objects under _delta_log. It follows the Delta Transaction Log Protocol
// (PROTOCOL.md of delta-io/delta, sections "Delta Table Specification",
// "Actions", "Action Reconciliation", "Checkpoints" and "Table Features").
//
//	_delta_log/%020d.json                            commit: one action per line
//	_delta_log/%020d.checkpoint.parquet              classic checkpoint
//	_delta_log/%020d.checkpoint.%010d.%010d.parquet  part of a multi-part checkpoint
//	_delta_log/%020d.checkpoint.{uuid}.{json|parquet} V2 checkpoint
//	_delta_log/_sidecars/*.parquet                   file actions of a V2 checkpoint
//	_delta_log/_last_checkpoint                      hint; may be stale or broken
//
// Guarantees. Replay is keyed by (decoded path, deletion vector id) and does
// not depend on the order of lines in a commit. Memory holds the commits since
// the checkpoint; checkpoint rows are streamed. The protocol is checked before
// anything else is believed: a table that needs an unknown reader feature is a
// *storage.Refusal that names it. Malformed bytes are a *storage.CorruptError
// with object, line and field, never content. Unknown actions, fields, domains
// and object names are ignored, as the protocol asks. A commit is one
// put-if-absent. All counts and sizes that come from the table are bounded.
//
// Non-guarantees. Log compaction files (%020d.%020d.compacted.json) and
// version checksums (.crc) are optional for readers and are not read. Writers
// that replace commits in place instead of creating them defeat every promise
// made here. Catalog-managed tables are refused, not read stale.
//
// A *Snapshot is immutable and safe for concurrent use.
package log
