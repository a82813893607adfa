package snapshot

import "context"

// Feed carries heads between replicas at once: a key-value bucket of the bus.
// It is a cache and an alarm; the state prefix decides. Package events/bus has
// what implements it.
type Feed interface {
	// Put stores value under key and returns its revision: one ascending
	// number for all keys.
	Put(ctx context.Context, key string, value []byte) (revision uint64, err error)

	// Watch calls fn with the present value of every key, and then with each
	// later one in order of revision; of several values of one key the older
	// ones may be left out. It returns when ctx ends or the values can no
	// longer be followed.
	Watch(ctx context.Context, fn func(key string, value []byte, revision uint64)) error
}
