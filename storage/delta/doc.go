// Package delta erases rows from Delta tables: it implements storage.Table for
// the Delta Transaction Log Protocol (PROTOCOL.md of delta-io/delta, sections
// "Deletion Vectors", "Add File and Remove File", "Transaction Identifiers").
//
// # A delete
//
// Files that can hold a match, going by partition values and statistics, are
// scanned for the key columns only. For a file P with deletion vector O whose
// rows M match:
//
//	M ⊆ O             nothing is written for P
//	O ∪ M = all rows  remove(P, O)
//	otherwise         remove(P, O) and add(P, O ∪ M)
//
// All new deletion vectors of a commit lie in one file, whose name derives from
// the batch and from its content and which is written put-if-absent before the
// commit. Change data files are never written: change feeds of deletes come
// from the two vectors.
//
// # Exactly once
//
// The commit carries txn{appId: Batch.App, version: Batch.Number}. A lost race
// or an unclear answer is settled by reading the commit back and comparing
// commitInfo.txnId; then the delete is planned again on the newest version, in
// which only data files that were not scanned before are scanned, whoever
// added them. What a file's rows match does not depend on its deletion vector,
// so a vector that grew or shrank in between needs no second scan; statistics
// that no longer rule out what they did need one. A change of schema,
// partitioning or column mapping does, for all files.
//
// # What a commit tells
//
// No predicate, no key, and no minimum or maximum of identity columns, except
// where clustering asks for them: then those of the rows that stay. Removes
// carry no statistics. commitInfo.delenda holds what Committed answers from:
//
//	{"batch": n, "kept": files, "subjects": [{"state": "done", "rows": n}, ...],
//	 "fragments": [{"outcome": "set", "deleted": n, "hidden": n, "physical": n}, ...]}
//
// with fragments in ascending order of path, as the commit's removes. Partition
// values and paths are the table's own and are repeated as they are: where an
// identity is a partition value, the log names it until log cleanup. Errors and
// results name a data file without its directories; see storage.Discreet.
//
// # What is refused
//
// Tables whose features ask for more than is done here, append-only tables, and
// tables that do not allow deletion vectors; see Table.Bind. Nothing is
// upgraded without being asked: EnableDeletionVectors is a call of its own.
//
// All types are safe for concurrent use and hold no lock in the store. Memory
// is bounded by the commits since the last checkpoint, some hundred bytes per
// file of the table, and the row sets of the files that match.
package delta
