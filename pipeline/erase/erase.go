package erase

import (
	"context"
	"crypto/rand"
	"log/slog"
	"sync"
	"time"

	"delenda/pipeline"
)

// Options of New. The zero value works.
type Options struct {
	Window time.Duration // a batch gathers items for so long; zero is 1s, negative only what is there
	Max    int           // items of a batch; zero is 10,000
	// MaxBytes bounds the ciphertext of a batch; zero is 32 MiB.
	MaxBytes int

	// MaxKills is after how many dead workers a batch is given up; zero is 3.
	MaxKills int
	// MaxFailures is after how many errors, while the table itself is well, a
	// batch is given up; zero is 8.
	MaxFailures int
	// MaxDeliveries is after how many deliveries an item is kept apart from
	// items that came less often; zero is 20.
	MaxDeliveries int

	// Patience is how long another worker's batch must show no sign of life
	// before it is taken over; zero is 5s. Negative takes over at once: right
	// where no other worker can exist.
	Patience time.Duration
	// Beat is how often a worker gives signs of life; zero is 1s.
	Beat time.Duration
	// Stall is how long an attempt may go on without any sign that something
	// moves. Then it is cut off, and gives no sign of life to other workers any
	// more, also if it cannot be brought to an end: a store that neither answers
	// nor fails holds up no other worker. Zero is 5m, negative never.
	Stall time.Duration
	// InProgress is how often the items in hand are kept from redelivery; zero
	// is 10s. Less than half of the consumer's AckWait.
	InProgress time.Duration
	// Idle is how long one fetch waits; zero is 5s.
	Idle time.Duration
	// Pause is the longest pause before a parked table is tried again; zero is 30s.
	Pause time.Duration
	// Drain is how long a batch may go on after Run's context is done; zero is
	// 20s, negative not at all.
	Drain time.Duration

	Metrics pipeline.Metrics
	Logger  *slog.Logger // none if nil
}

// Consume opens the work queue of a table.
type Consume func(ctx context.Context, table string) (pipeline.Fetch, error)

// Deleter works on any number of tables, each on its own.
type Deleter struct {
	store   *pipeline.Store
	consume Consume
	publish pipeline.Publish
	o       Options
	id      string // of this process in the batch log
	workers []*worker
}

// New returns a Deleter. Run starts it.
func New(store *pipeline.Store, tables []pipeline.Table, consume Consume, publish pipeline.Publish, o *Options) *Deleter {
	if o == nil {
		o = &Options{}
	}
	d := &Deleter{store: store, consume: consume, publish: publish, o: *o, id: rand.Text()}
	for _, v := range []struct {
		value *time.Duration
		def   time.Duration
	}{
		{&d.o.Window, time.Second},
		{&d.o.Patience, 5 * time.Second},
		{&d.o.Beat, time.Second},
		{&d.o.Stall, 5 * time.Minute},
		{&d.o.InProgress, 10 * time.Second},
		{&d.o.Idle, 5 * time.Second},
		{&d.o.Pause, 30 * time.Second},
		{&d.o.Drain, 20 * time.Second},
	} {
		if *v.value == 0 {
			*v.value = v.def
		}
	}
	for _, v := range []struct {
		value *int
		def   int
	}{
		{&d.o.Max, 10_000},
		{&d.o.MaxBytes, 32 << 20},
		{&d.o.MaxKills, 3},
		{&d.o.MaxFailures, 8},
		{&d.o.MaxDeliveries, 20},
	} {
		if *v.value <= 0 {
			*v.value = v.def
		}
	}
	if d.o.Logger == nil {
		d.o.Logger = slog.New(slog.DiscardHandler)
	}
	for _, t := range tables {
		d.workers = append(d.workers, newWorker(d, t))
	}
	return d
}

// Run works until ctx is done. Then it fetches nothing more, finishes what it
// is at within Options.Drain, gives back the items it still holds, and returns.
func (d *Deleter) Run(ctx context.Context) error {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		if d.o.Drain < 0 {
			cancel()
			return
		}
		timer := time.AfterFunc(d.o.Drain, cancel)
		context.AfterFunc(work, func() { timer.Stop() })
	})
	defer stop()
	var all sync.WaitGroup
	for _, w := range d.workers {
		all.Go(func() { w.run(ctx, work) })
	}
	all.Wait()
	return nil
}

// TableState tells whether a table can be worked on.
type TableState struct {
	Table  string
	Ready  bool      // its last step succeeded
	Code   string    // why not, lower_snake_case; "starting" before the first step
	Reason string    // for people
	Since  time.Time // of the last change
}

// Tables returns the state of each table in the order given to New.
func (d *Deleter) Tables() []TableState {
	states := make([]TableState, len(d.workers))
	for i, w := range d.workers {
		states[i] = w.currentState()
	}
	return states
}
