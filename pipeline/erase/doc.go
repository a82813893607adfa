// Package erase applies erasure requests to tables: it gathers the items that
// wait for a table into batches, deletes each batch with one commit, and says
// what became of every request in it.
//
// # The batch log
//
// Per table, in the state prefix, written once each:
//
//	batches/{table}/{n}/intent       which requests, in order, before any work
//	batches/{table}/{n}/attempt-{k}  a worker is trying, or died trying
//	batches/{table}/{n}/failure-{k}  a try ended by an error that may be the batch's own
//	batches/{table}/{n}/unclear-{k}  a try ended that may have sent a commit
//	batches/{table}/{n}/closed       what came of it
//	batches/{table}/{n}/late         what it did although closed says that it did nothing
//	batches/{table}/{n}/settled      items, announcements and closings are done
//	batches/{table}/{n}/alive        overwritten by who works; decides nothing
//
// n has twenty digits. At most one batch of a table is open, that is, has an
// intent and no closed. n+1 is opened only once n is settled; its number is one
// above the last record and above what the table holds. An open batch below what
// the table holds stops the table: the state prefix is behind it. Whoever meets an open
// batch finishes exactly that one, and the intent holds all that is needed.
//
// # Order
//
// intent, attempt, deletion files, commit (the last two inside Table.Delete),
// closed, items, announcements, closing of finished requests, settled, ack.
// Each step may be taken again by anyone: the commit is once by the table's
// batch number, the records by put-if-absent, announcements carry ids that
// follow from what they say. Results are read from the closing record, never
// from memory, so a crash does not turn 41 rows into none.
//
// # Trouble
//
// Trouble of a table (it cannot be opened or read, is refused, holds a later
// batch, its bucket fails) parks the table: nothing is fetched for it, other
// tables go on, and it is tried again with growing pauses.
//
// Trouble of a batch (it panics, it fails although the table can be read, its
// workers die) closes the batch without effect as two halves, which are the
// next batches before anything new, until the culprit is alone. It fails with
// a reason code and a dead letter; the others complete. An attempt that ends
// alive removes its attempt object, so the ones that remain count dead workers. Before a batch is given up the table is asked whether it
// was committed after all.
//
// # Several workers
//
// Any number may work on one table. A worker that meets an open batch waits as
// long as its alive object keeps changing, then takes over. It stops changing also
// when nothing moves any more in the attempt, which is cut off then. Both finishing it
// at once is safe and costs a second scan. The two can disagree, since rows may be
// added or a request released in between: one finds nothing to commit and closes
// the batch, the other has a commit under way. So who is about to commit looks
// whether the batch is closed, and who opens the next batch writes into its
// intent which batches others may yet commit. Once that next batch is settled, at
// the start, and now and then, the table is asked; a commit that is found is
// announced, and its rows are added to the requests' items. A later commit ends
// the doubt, since the table takes batches in ascending order only.
package erase
