package erase_test

import (
	"fmt"
	"os"
	"testing"

	"delenda/pipeline/internal/pipelinetest"
	"delenda/storage/bucket/fault"
)

const secretID, secretMail = "customer-4711-zq", "zq.person@example.net"

func crashWorld(t *testing.T) *pipelinetest.World {
	w := pipelinetest.NewWorld(t)
	w.AddTable(t, "orders", append(rows("a", secretID, "b", secretID), pipelinetest.Row{"mail": secretMail})...)
	w.AddTable(t, "visits", rows("a", "b", secretID)...)
	return w
}

var crashRows = map[string]int64{"orders": 3, "visits": 1}

// crash runs a request into one fault, then recovers and judges. It reports
// whether the fault struck.
func crash(t *testing.T, arm func(w *pipelinetest.World, p *process) (struck func() bool)) bool {
	t.Helper()
	w := crashWorld(t)
	first := newProcess(t, w)
	struck := arm(w, first)
	request := body("order-77", secretID, secretMail)
	rec, err := first.accept(request)
	if err == nil {
		_ = first.work()
	}
	first.cancel()

	second := newProcess(t, w)
	if rec == nil { // unanswered, so the sender asks again
		if rec, err = second.accept(request); err != nil {
			t.Fatal(err)
		}
	}
	second.recover(t)

	judgeClosed(t, w, rec.ID, crashRows)
	judgeAnnounced(t, w, rec.ID, crashRows)
	for _, table := range w.Tables {
		judgeTable(t, table, secretID, secretMail)
	}
	judgeSilence(t, w, first.logs.String()+second.logs.String(), secretID, secretMail)

	// The same request again is the same request.
	again, err := second.accept(request)
	if err != nil || again.ID != rec.ID || !again.AcceptedAt.Equal(rec.AcceptedAt) {
		t.Errorf("asked again: %v, %v", again, err)
	}
	second.recover(t)
	judgeClosed(t, w, rec.ID, crashRows)
	return struck()
}

// stride thins the sweeps of an ordinary run; DELENDA_LONG=1 runs them whole.
func stride() int {
	if os.Getenv("DELENDA_LONG") != "" {
		return 1
	}
	return 3
}

func sweep(t *testing.T, arm func(mode fault.Mode, n int) func(w *pipelinetest.World, p *process) func() bool) {
	t.Helper()
	for _, mode := range fault.Modes() {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			n := 1
			for struck := true; struck; n += stride() {
				t.Run(fmt.Sprintf("operation %d", n), func(t *testing.T) { struck = crash(t, arm(mode, n)) })
				if t.Failed() {
					return
				}
			}
			t.Logf("%d operations", n)
		})
	}
}

func Test_a_request_survives_trouble_at_any_operation_on_the_state_prefix(t *testing.T) {
	t.Parallel()
	sweep(t, func(mode fault.Mode, n int) func(*pipelinetest.World, *process) func() bool {
		return func(w *pipelinetest.World, p *process) func() bool {
			f := fault.Wrap(w.State)
			f.OnKill(p.cancel)
			f.Arm(mode, n)
			p.state = f
			return f.Struck
		}
	})
}

func Test_a_request_survives_trouble_at_any_operation_on_a_table(t *testing.T) {
	t.Parallel()
	sweep(t, func(mode fault.Mode, n int) func(*pipelinetest.World, *process) func() bool {
		return func(w *pipelinetest.World, p *process) func() bool {
			f := fault.Wrap(w.Tables["orders"].Bucket)
			f.OnKill(p.cancel)
			f.Arm(mode, n)
			p.wrap = func(table *pipelinetest.Table) *pipelinetest.Table {
				if table != w.Tables["orders"] {
					return table
				}
				through := *table
				through.Bucket = f
				return &through
			}
			return f.Struck
		}
	})
}

func Test_a_request_survives_trouble_at_any_operation_on_the_bus(t *testing.T) {
	t.Parallel()
	sweep(t, func(mode fault.Mode, n int) func(*pipelinetest.World, *process) func() bool {
		return func(_ *pipelinetest.World, p *process) func() bool {
			s := pipelinetest.NewStrike(mode, n, p.cancel)
			p.conn.Around = s.Around
			return s.Struck
		}
	})
}

func Test_JetStream_lost_at_any_operation_on_the_state_prefix_loses_no_request(t *testing.T) {
	t.Parallel()
	for _, mode := range []fault.Mode{fault.Kill, fault.KillAfter} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			n := 1
			for struck := true; struck && !t.Failed(); n += stride() {
				w := crashWorld(t)
				first := newProcess(t, w)
				f := fault.Wrap(w.State)
				f.OnKill(first.cancel)
				f.Arm(mode, n)
				first.state = f
				request := body("order-77", secretID, secretMail)
				rec, err := first.accept(request)
				if err == nil {
					_ = first.work()
				}
				first.cancel()
				struck = f.Struck()
				w.Queue.Wipe()
				second := newProcess(t, w)
				if rec == nil {
					if rec, err = second.accept(request); err != nil {
						t.Fatal(err)
					}
				}
				second.recover(t)
				judgeClosed(t, w, rec.ID, crashRows)
				for _, table := range w.Tables {
					judgeTable(t, table, secretID, secretMail)
				}
				if t.Failed() {
					t.Logf("at operation %d\n%s\n%s", n, first.logs, second.logs)
				}
			}
		})
	}
}

func Test_a_closed_request_does_not_run_again_when_everything_is_republished(t *testing.T) {
	t.Parallel()
	w := crashWorld(t)
	p := newProcess(t, w)
	rec, err := p.accept(body("k", secretID))
	if err != nil {
		t.Fatal(err)
	}
	p.recover(t)
	w.Queue.Wipe()
	// Rows that come later are another request's business.
	if err := w.Tables["visits"].Append(t.Context(), rows(secretID)...); err != nil {
		t.Fatal(err)
	}
	for _, table := range rec.Tables {
		e, err := p.store.ItemEvent(rec, table, "")
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := p.conn.Publish(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
	}
	p.recover(t)
	s, err := w.Tables["visits"].Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Live("id", secretID); got != 1 {
		t.Errorf("%d of the later rows are left, want 1", got)
	}
	judgeClosed(t, w, rec.ID, map[string]int64{"orders": 2, "visits": 1})
}
