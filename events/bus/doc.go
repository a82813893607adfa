// Package bus carries Delenda's events over NATS JetStream (2.11 or later): the
// streams, durable pull consumers and key-value buckets, declared in one place
// (Declare), and publishing, fetching, following and dead letters. It is the
// only importer of nats.go; package embedded below it runs nats-server in the
// process.
//
// Guarantees. Publish returns nil once the stream has stored the event; any
// other end is ErrNotStored or ErrUnclear, and says which. A fetched message is
// delivered again until it is acknowledged, terminated or erased; how often it
// was delivered is known before any work is done on it. Acknowledgements are
// synchronous. The bodies of intake messages and work items are erased from the
// stream's files when they are done, as far as Message.Ack says.
//
// Non-guarantees. A message may be delivered twice, also after an
// acknowledgement whose answer was lost, and to two consumers at once; JetStream
// may be lost whole. Neither is repaired here: every handler is safe to run
// twice, and the state prefix knows what is to be done. This package retries
// nothing; it reconnects, and its callers retry.
//
// Deduplication. An event carries its id as Nats-Msg-Id, so a stream keeps one
// of several publications inside its duplicate window. Work items are the
// exception and carry none: an item that was erased or lost must be fed again at
// any moment, and a window would swallow it silently. The state prefix decides
// whether an item is still to be done.
//
// Drain order. Stop fetching; finish what is in flight; acknowledge it or let it
// go (Nak); end watches and followers by their contexts; Drain the bus; then
// stop an embedded server.
//
// Every method is safe for concurrent use, except that one Consumer is fetched
// from by one goroutine at a time.
package bus
