package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"

	"delenda/events"
	"delenda/events/bus"
	"delenda/internal/service"
	"delenda/storage"
	"delenda/storage/bucket"
	"delenda/storage/delta"
)

// patience bounds the wait for one event.
const patience = 2 * time.Minute

// story shows the recipient's view, posts one erasure, waits for what it
// causes, and shows the recipient's view again.
func (d *demo) story(ctx context.Context, r *service.Running) error {
	if err := d.connect(r); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	if _, err := await(ctx, r.Bus, events.StreamShares, shared(0)); err != nil {
		return fmt.Errorf("demo: wait for the share: %w", err)
	}
	before, err := d.look(ctx)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	d.printf("What the recipient of the share sees (Delta Sharing, profile partner.share):\n")
	before.print(d.Out, d.person)
	if before.subject == 0 {
		return fmt.Errorf("demo: no row of the table has this value in column %s: try another --id", d.Column)
	}

	audited, err := d.inspect(ctx, before.rows)
	if err != nil {
		return fmt.Errorf("demo: audit: %w", err)
	}

	d.printf("\nOne erasure request is posted to ingest …\n")
	start := d.Now()
	request, err := d.post(ctx, r.IngestURL)
	if err != nil {
		return fmt.Errorf("demo: post request: %w", err)
	}
	times := Timings{Accepted: d.Now().Sub(start)}
	report, err := await(ctx, r.Bus, events.StreamStatus, func(e events.ErasureReported) bool { return e.Request == request })
	if err != nil {
		return fmt.Errorf("demo: wait for the report: %w", err)
	}
	if report.State != "hidden" {
		d.printf("\nThe request is %s: %s\n", report.State, report.Reason)
		return ErrFailed
	}
	times.Hidden = d.Now().Sub(start)
	if _, err := await(ctx, r.Bus, events.StreamShares, shared(report.Version)); err != nil {
		return fmt.Errorf("demo: wait for the change event: %w", err)
	}
	times.Announced = d.Now().Sub(start)
	snapshot, err := d.client.Query(ctx, d.table, nil)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	times.Visible = d.Now().Sub(start)
	after, err := look(ctx, snapshot, d.Column, d.Value)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	d.printf("\nWhat the recipient sees now:\n")
	after.print(d.Out, d.person)

	if err := d.outcomes(ctx, r, report); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	d.printf("\nFrom the request, in milliseconds: accepted %s, hidden %s, announced %s, visible to the recipient %s\n",
		ms(times.Accepted), ms(times.Hidden), ms(times.Announced), ms(times.Visible))
	err = d.judge(ctx, before, after, audited, r.Store.App("orders"), report.Rows)
	if err != nil && !errors.Is(err, ErrFailed) {
		return fmt.Errorf("demo: audit: %w", err)
	}
	return err
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d.Microseconds())/1000) }

func (d *demo) look(ctx context.Context) (*view, error) {
	snapshot, err := d.client.Query(ctx, d.table, nil)
	if err != nil {
		return nil, err
	}
	return look(ctx, snapshot, d.Column, d.Value)
}

// shared accepts the announcement of a version or a later one.
func shared(version int64) func(events.ShareChanged) bool {
	return func(e events.ShareChanged) bool { return e.Version >= version }
}

// await returns the first event of a stream that is accepted.
func await[T any](ctx context.Context, b *bus.Bus, stream string, accept func(T) bool) (T, error) {
	var zero T
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for u, err := range b.Follow(ctx, stream, bus.FollowOptions{}) {
		if err != nil {
			return zero, err
		}
		if u.Record == nil {
			continue
		}
		e, err := u.Record.Event()
		if err != nil {
			return zero, err
		}
		payload, err := events.Payload[T](e)
		if err != nil {
			return zero, err
		}
		if accept(payload) {
			return payload, nil
		}
	}
	return zero, fmt.Errorf("nothing came within %v: %w", patience, context.Cause(ctx))
}

// post sends the request as any sender would and returns its id.
func (d *demo) post(ctx context.Context, ingest string) (string, error) {
	type identity struct {
		Type  string `json:"type"`
		Value string `json:"value"`
	}
	body, err := json.Marshal(map[string]any{
		"idempotency_key": uuid.NewString(), "regulation": "gdpr", "tables": []string{"orders"},
		"identities": []identity{{d.identity, d.Value.Reveal()}},
	})
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, ingest+"/v1/erasures", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+d.token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	var answer struct{ ID, Code, Detail, Field string }
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return "", fmt.Errorf("answer %s: %w", resp.Status, err)
	}
	if resp.StatusCode != http.StatusAccepted {
		return "", fmt.Errorf("answer %s: %s %s %s", resp.Status, answer.Code, answer.Field, answer.Detail)
	}
	d.printf("  202 Accepted, request %s\n", answer.ID)
	return answer.ID, nil
}

// outcomes prints what the delete did to each fragment.
func (d *demo) outcomes(ctx context.Context, r *service.Running, report events.ErasureReported) error {
	lake, err := bucket.Open(ctx, d.lake, &bucket.Options{Now: d.Now})
	if err != nil {
		return err
	}
	defer func() { _ = lake.Close() }()
	table, err := delta.Open(ctx, lake, &delta.Options{Now: d.Now})
	if err != nil {
		return err
	}
	done, ok, err := table.Committed(ctx, storage.Batch{App: r.Store.App("orders"), Number: report.Batch, Base: storage.NoVersion})
	if err != nil {
		return err
	}
	if !ok {
		return errors.New("the table does not hold the batch that was reported")
	}
	d.printf("\nWhat happened to each fragment (data file), in one commit, version %d:\n", done.Version)
	w := tabwriter.NewWriter(d.Out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "  fragment\toutcome\trows deleted\tof")
	for _, f := range done.Fragments {
		_, _ = fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", shorten(f.Fragment), meaning[f.Outcome], thousands(f.RowsDeleted), thousands(f.PhysicalRows))
	}
	if done.Kept > 0 {
		_, _ = fmt.Fprintf(w, "  %d others\t%s\t0\t\n", done.Kept, meaning[storage.Kept])
	}
	return w.Flush()
}

var meaning = map[storage.Outcome]string{
	storage.Kept:    "kept: nothing matched, nothing was written",
	storage.Set:     "set: few rows, an index set",
	storage.Bitmap:  "bitmap: many rows, a compressed bitmap",
	storage.Dropped: "dropped: all rows, the file left the table",
}
