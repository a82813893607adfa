// Package client reads shared tables by the Delta Sharing protocol: shares,
// schemas and tables are listed, a table is queried in delta format (a parquet
// answer is accepted), the answer becomes a local Delta log over a presigned
// file system, and its rows become Arrow record batches with deletion vectors,
// column mapping and partition values applied.
//
// Specification: PROTOCOL.md of delta-io/delta-sharing, "Delta Sharing
// Capabilities" and "Read Data from a Table", and PROTOCOL.md of
// delta-io/delta for the actions.
//
// Guarantees. A deletion vector is never ignored: one that cannot be read ends
// the read. A reader feature that is not implemented refuses the table by
// name. The bearer token goes to the profile's endpoint only, never to a data
// URL nor over a redirect to another host. No error carries a URL. Pre-signed
// URLs of data files and of deletion vectors are renewed before they expire,
// and once when the store refuses them; a table that changed meanwhile is
// ErrChanged, never a mixture of two versions.
//
// Non-guarantees. A server may know more of a table than it says: what is
// hidden by a deletion vector is still in the file that the URL gives. Shared
// change feeds, ranges of versions and temporary credentials are not read.
//
// Memory is bounded by the list of files, one row group of the projected
// columns, one deletion vector and one batch. A Client and a FileSystem are
// safe for concurrent use; a Snapshot can be read by several goroutines, each
// with a Read of its own.
//
// # Caching
//
// File.ID names immutable bytes: they may be cached under it. A file that keeps
// its ID while File.DeletionVectorID changes is to be filtered again, not
// fetched again. A cache of either MUST be dropped when the table's rows were
// erased, since the cached bytes still hold them.
package client
