// Package service wires the services: configuration to constructors to parts
// that run. cmd/ingest, cmd/deleter and cmd/publisher run one service each;
// `delenda up` and the demo run all three in one process with NATS embedded.
//
// A service that is up serves what it can. It reconnects to NATS for ever,
// declares streams again when they were lost, and opens tables again, with
// growing pauses, when they could not be opened; /readyz says what it waits for
// and why. Retries live here and in the tables' commit loop only.
//
// Drain order: HTTP listeners stop taking requests and finish those in flight;
// workers finish their batch and acknowledge it; the bus is flushed and closed;
// the embedded server stops; buckets and the keeper are closed.
package service
