// Package snapshot prepares what shares serve: for each shared table a head,
// which names the version that recipients see and the floors below which they
// never see anything again, and for each table version a manifest, from which
// an answer is streamed without a look at the table's log.
//
// # State prefix
//
//	heads/{share}.{schema}.{table}/{%020d}      the highest number is the head
//	manifests/{table}/{%020d}-{hash}/info       protocol, metadata and totals of a version, sealed
//	manifests/{table}/{%020d}-{hash}/files-…    its files without URLs, sealed
//	presigned/{share}.{schema}.{table}          the files with URLs, sealed; for stores that sign, see presign.go
//
// Sealed objects are AES-256-GCM in chunks under a key derived from the
// installation key, see seal.go.
//
// # Guarantees
//
// A head only moves forward: version, hide floor and purge floor never sink.
// It is advanced before it is announced, and a replica serves a table only
// while it knows that its head is in force, see Heads. A URL in an answer has at
// least a third of its lifetime left; those that the publisher serves itself
// stop working below the hide floor.
//
// Minimum and maximum of identity columns, tags, and configuration that no
// reader needs are not in a manifest, so they cannot leave.
//
// All types are safe for concurrent use.
package snapshot
