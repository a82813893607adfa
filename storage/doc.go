// Package storage is the vocabulary of erasure at rest: buckets, tables,
// versions, fragments, row sets, and the outcome of a delete. It holds types
// and pure functions, imports the standard library only, and does no I/O.
//
// Subpackages touch the world: bucket (objects), deletion (row sets and their
// codecs), match (what a row is compared with), parquet (key columns), delta
// and lance (table formats).
//
// Three verbs are never mixed. To delete is to hide rows by a deletion vector:
// the bytes stay. To purge is to rewrite a fragment without them. To vacuum is
// to remove objects that no version refers to. Erase names the whole.
package storage
