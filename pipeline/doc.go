// Package pipeline carries erasure requests from intake to done: what is kept
// of a request, who decides that it is new, when it is finished, and what is
// fed again after a loss. Package intake takes requests in, package erase
// applies them to tables, package audit checks both from outside.
//
// # State
//
// Everything that decides lives in the state prefix, a storage.Bucket of its
// own. All objects but a few are written once, by put-if-absent, and never
// change; those few (open, retries, parked) are marks that only come and go.
//
//	keys/installation            the installation's key, wrapped by the Keeper
//	keys/{request}               the request's own key, wrapped; deleted to shred
//	requests/{request}           Record: alone decides whether a request is new
//	open/{request}               marker: not done yet; the sweep lists only these
//	closed/{yyyy-mm}/{request}   Closed: final states, rows, versions
//	items/{request}/{table}/{batch}  Item: what a batch did for the request; with -{k}, amended
//	releases/{request}           Release: a person let a held request go
//	retries/{request}/{table}/{batch}  a person wants that failure tried again
//	parked/{table}               Parked: why no deleter works on the table now; decides nothing
//	batches/{table}/{batch}/...  the batch log, see package erase
//
// A request's id is an HMAC of source and idempotency key under the
// installation's key, so the raw key appears nowhere and the same key gives
// the same id. The record holds an HMAC of the canonical body; a body that
// comes again under the same key is compared by it. The MAC covers the
// idempotency key too, so it says nothing to who does not know that key.
//
// # Order
//
// open marker, key, record, messages, answer. A crash before the record leaves
// a marker and a key that belong to nothing; the sweep removes both after a
// day. A crash after the record leaves a request that the sweep feeds, whether
// the sender asks again or not. Because the marker comes first, listing open/
// finds everything that is unfinished.
//
// # States
//
// The newest Item of a request and table decides, and a hidden one is final.
// A held item waits for Release, a failed one for Retry; both keep the request
// open and its key alive, since a shredded key could not be retried. Once every
// table is hidden the closing record is written, the key is deleted, then the
// marker. That record tells of its own moment: rows that turn out later to have
// been hidden by a worker everyone took for dead are added by an amended item. A closed request never runs again: each of its items is final.
//
// The record keeps its ciphertext for ever. It cannot be rewritten without
// giving up that records never change, and without the key it is noise.
//
// # Guarantees
//
// Every method may run twice, at the same time, or die on any line; running it
// again completes it. Nothing here is locked. Nothing here prints an identity.
//
// # Not guaranteed
//
// Deleting keys/{request} removes the object that the bucket shows. Older
// versions of it in a bucket with versioning, and copies in backups, are the
// bucket's; so is how long the Keeper's own key lives.
package pipeline
