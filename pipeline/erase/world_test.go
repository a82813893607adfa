package erase_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"delenda/events"
	"delenda/pipeline"
	"delenda/pipeline/erase"
	"delenda/pipeline/intake"
	"delenda/pipeline/internal/pipelinetest"
	"delenda/storage"
)

// quick are options for tests: nothing waits for long, no other worker exists.
func quick() *erase.Options {
	return &erase.Options{
		Window: -1, Patience: -1, Idle: 5 * time.Millisecond, Pause: 2 * time.Millisecond,
		InProgress: time.Hour, Drain: -1,
	}
}

// process is one run of ingest and deleter in a world.
type process struct {
	w     *pipelinetest.World
	conn  *pipelinetest.Conn
	state storage.Bucket // through faults
	wrap  func(*pipelinetest.Table) *pipelinetest.Table
	opts  *erase.Options
	// tables, when not nil, is the configuration instead of the world's tables.
	tables []pipeline.Table

	store  *pipeline.Store
	intake *intake.Intake
	ctx    context.Context //nolint:containedctx // the life of the process
	cancel context.CancelFunc
	logs   *logs
}

type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newProcess(t testing.TB, w *pipelinetest.World) *process {
	t.Helper()
	p := &process{w: w, conn: &pipelinetest.Conn{Queue: w.Queue}, state: w.State, opts: quick(), logs: &logs{}}
	p.ctx, p.cancel = context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(p.cancel)
	return p
}

func (p *process) open() (err error) {
	p.store, err = pipeline.OpenStore(p.ctx, p.state, p.w.Keeper, "test", p.w.Clock.Now)
	if err != nil {
		return err
	}
	p.intake = intake.New(p.store, p.config(), p.conn.Publish, nil)
	return nil
}

func (p *process) config() []pipeline.Table {
	if p.tables != nil {
		return p.tables
	}
	return p.w.Config(p.wrap)
}

// accept sends a body as a patient sender does.
func (p *process) accept(body string) (*pipeline.Record, error) {
	var err error
	for p.ctx.Err() == nil {
		if p.store == nil {
			if err = p.open(); err != nil {
				continue
			}
		}
		var r *pipeline.Record
		if r, err = p.intake.Accept(p.ctx, "crm", []byte(body)); err == nil {
			return r, nil
		}
	}
	return nil, fmt.Errorf("process ended: %w", err)
}

// work runs a deleter until no work is left or the process ends.
func (p *process) work() error {
	if p.store == nil {
		if err := p.open(); err != nil {
			return err
		}
	}
	p.opts.Logger = slog.New(slog.NewTextHandler(p.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	d := erase.New(p.store, p.config(), p.conn.Consume, p.conn.Publish, p.opts)
	ctx, cancel := context.WithCancel(p.ctx)
	var run sync.WaitGroup
	run.Go(func() { _ = d.Run(ctx) })
	err := p.settled(ctx)
	cancel()
	run.Wait()
	return err
}

// settled waits until no work is left. What stays in flight for long comes
// again, as after an acknowledgement that was lost.
func (p *process) settled(ctx context.Context) error {
	for {
		short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		err := p.w.Queue.WaitEmpty(short)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
		p.w.Queue.Redeliver()
	}
}

// recover is what a new process does after a crash: the messages in flight
// come again, the sweep feeds what no stream knows, the deleter works.
func (p *process) recover(t testing.TB) {
	t.Helper()
	p.w.Queue.Redeliver()
	if p.store == nil {
		if err := p.open(); err != nil {
			t.Fatal(err)
		}
	}
	sweeper := &pipeline.Sweeper{
		Store: p.store, Publish: p.conn.Publish, Logger: slog.New(slog.DiscardHandler),
		Backlog: p.w.Queue.Backlog,
	}
	for range 2 {
		if _, err := sweeper.Sweep(p.ctx); err != nil {
			t.Fatal(err)
		}
		if err := p.work(); err != nil {
			t.Fatalf("work: %v\n%s", err, p.logs)
		}
	}
}

func body(key string, ids ...string) string {
	var list []string
	for _, id := range ids {
		typ := "customer_id"
		if strings.Contains(id, "@") {
			typ = "email"
		}
		list = append(list, fmt.Sprintf(`{"type":%q,"value":%q}`, typ, id))
	}
	return fmt.Sprintf(`{"idempotency_key":%q,"identities":[%s]}`, key, strings.Join(list, ","))
}

// rows returns rows of one id each.
func rows(ids ...string) []pipelinetest.Row {
	var list []pipelinetest.Row
	for _, id := range ids {
		list = append(list, pipelinetest.Row{"id": id})
	}
	return list
}

// judgeClosed checks everything that must hold once a request is done.
func judgeClosed(t *testing.T, w *pipelinetest.World, id pipeline.RequestID, want map[string]int64) {
	t.Helper()
	ctx := t.Context()
	store := w.Store(t)
	st, err := store.Status(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	if st.State != pipeline.Hidden || st.ClosedAt == nil {
		t.Errorf("state %s, closed %v", st.State, st.ClosedAt)
	}
	for _, table := range st.Tables {
		if table.Rows != want[table.Table] {
			t.Errorf("table %s: status says %d rows, %d were hidden", table.Table, table.Rows, want[table.Table])
		}
		s, err := w.Tables[table.Table].Load(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for n, times := range s.Commits(store.App(table.Table)) {
			if times != 1 {
				t.Errorf("table %s: batch %d was committed %d times", table.Table, n, times)
			}
		}
		if table.Version < 0 || table.Version > s.Version {
			t.Errorf("table %s: version %d of %d", table.Table, table.Version, s.Version)
		}
	}
	for _, prefix := range []string{"open/" + string(id), "keys/" + string(id)} {
		for info, err := range w.State.List(ctx, prefix, "") {
			t.Errorf("left in state: %s (%v)", info.Key, err)
		}
	}
	if waiting, inFlight := w.Queue.Messages(); waiting+inFlight > 0 {
		t.Errorf("%d messages waiting, %d in flight", waiting, inFlight)
	}
}

// judgeAnnounced checks that each effect was announced, and as one thing.
func judgeAnnounced(t *testing.T, w *pipelinetest.World, id pipeline.RequestID, want map[string]int64) {
	t.Helper()
	changed := map[string]int{}
	for _, e := range w.Queue.Kept(events.TypeTableChanged) {
		c, err := events.Payload[events.TableChanged](e)
		if err != nil {
			t.Fatal(err)
		}
		changed[c.Table]++
	}
	reported := map[string]int64{}
	for _, e := range w.Queue.Kept(events.TypeErasureReported) {
		r, err := events.Payload[events.ErasureReported](e)
		if err != nil {
			t.Fatal(err)
		}
		if _, twice := reported[r.Table]; twice && r.Request == string(id) {
			t.Errorf("table %s reported twice", r.Table)
		}
		if r.Request == string(id) && r.State == string(pipeline.Hidden) {
			reported[r.Table] = r.Rows
		}
	}
	for table, n := range want {
		if got := changed[table]; got != 1 && n > 0 {
			t.Errorf("table %s: %d changes announced", table, got)
		}
		if got, ok := reported[table]; !ok || got != n {
			t.Errorf("table %s: reported %d rows (%v), want %d", table, got, ok, n)
		}
	}
}

// judgeTable checks that exactly the rows of the given ids are hidden.
func judgeTable(t *testing.T, table *pipelinetest.Table, erased ...string) {
	t.Helper()
	s, err := table.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	gone := map[string]bool{}
	for _, id := range erased {
		gone[id] = true
	}
	for i, row := range s.Rows {
		if want := gone[row["id"]] || gone[row["mail"]]; s.Hidden[i] != want {
			t.Errorf("row %d: hidden is %v, want %v", i, s.Hidden[i], want)
		}
	}
}

// judgeSilence checks that no byte of state and queue holds a needle.
func judgeSilence(t *testing.T, w *pipelinetest.World, logs string, needles ...string) {
	t.Helper()
	look := func(where string, p []byte) {
		for _, n := range needles {
			if bytes.Contains(p, []byte(n)) {
				t.Errorf("an identity lies in %s", where)
			}
		}
	}
	for info, err := range w.State.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		p, err := storage.ReadObject(t.Context(), w.State, info.Key, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		look(info.Key, append(p, info.Key...))
	}
	for _, typ := range []events.Type{events.TypeErasureReported, events.TypeTableChanged, events.TypeDeadLetter} {
		for _, e := range w.Queue.Kept(typ) {
			look(e.Subject, e.Data)
		}
	}
	look("logs", []byte(logs))
}
