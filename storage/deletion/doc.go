// Package deletion holds row sets and the bytes they are stored in.
//
// A Set is a set of row offsets: physical, 0-based, counted over all row groups
// of a data file (Delta) or all rows of a fragment (Lance). Few rows are kept
// as a sorted slice, more as a Roaring bitmap; the caller sees no difference
// except in Kind.
//
// Codecs:
//
//   - Delta deletion vectors: payload, file framing, Z85 and descriptor, after
//     "Deletion Vectors" in the Delta transaction log protocol. All three
//     storage types (u, p, i) are read; u is written.
//   - Lance deletion files: Arrow IPC (.arrow) and 32-bit portable Roaring
//     (.bin), after "Deletion Files" in the Lance table format.
//
// Every decoder checks counts, lengths, order, checksum and cardinality itself
// before it hands bytes to a library, so that hostile input costs memory in
// proportion to its own size and ends in storage.ErrCorrupt. Nothing is
// repaired and nothing partial is returned.
//
// The "native" Roaring layout that early Spark builds could write, and storage
// types beyond u, p and i, are refused by name.
//
// A Set may be read by any number of goroutines; changing it needs exclusive
// access. All other functions are safe for concurrent use.
package deletion
