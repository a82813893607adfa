package pipeline

import "time"

// Metrics are called as things happen; each may be nil. They are called from
// many goroutines and must not block. No argument identifies a person or a
// request, so all may be labels.
type Metrics struct {
	// Accepted counts requests accepted for the first time.
	Accepted func(source string)
	// Answered counts every answer of the intake, by HTTP status and code.
	Answered func(source string, status int, code string)
	// Batch counts closed batches: requests in it, rows hidden, time of work.
	Batch func(table string, requests int, rows int64, took time.Duration)
	// Item counts items by state; since is from acceptance to now.
	Item func(table string, state State, since time.Duration)
	// Attempt counts tries of a batch that ended without closing it, by reason code.
	Attempt func(table, code string)
	// Parked tells that a table cannot be worked on, by reason code; "" that it can again.
	Parked func(table, code string)
}
