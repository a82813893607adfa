package pipeline

import (
	"context"

	"delenda/storage"
)

// Table is one configured table.
type Table struct {
	Name       string            // events.ValidName
	Identities map[string]string // identity type -> column
	Limits     Limits

	// Open opens the table. A deleter calls it until it succeeds, and again
	// after the table gave an error that a new start may cure.
	Open func(ctx context.Context) (storage.Table, error)

	// Check, when not nil, tells whether a value has the canonical text form
	// of its column's type: nil if so or if that cannot be told now, else a
	// *storage.Refusal whose reason names column and type, never the value.
	Check func(ctx context.Context, key storage.Key) error
}

// Limits hold back requests that match too much of a table. Zero is no limit.
type Limits struct {
	Rows  int64   // more rows than this are held
	Share float64 // more than this share of the live rows is held
}

// Exceeded reports whether rows of live are more than the limits allow.
func (l Limits) Exceeded(rows, live int64) bool {
	return l.Rows > 0 && rows > l.Rows || l.Share > 0 && float64(rows) > l.Share*float64(live)
}

// Keys returns what a row of the table is compared with for these identities:
// empty when the table maps none of their types.
func (t *Table) Keys(identities []Identity) []storage.Key {
	var keys []storage.Key
	for _, id := range identities {
		if column, ok := t.Identities[id.Type]; ok {
			keys = append(keys, storage.Key{Column: column, Value: id.Value})
		}
	}
	return keys
}
