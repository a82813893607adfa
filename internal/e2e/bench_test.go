package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"delenda/events"
)

// BenchmarkRequestToHidden measures from the sending of a request by HTTP until
// the report that its rows are hidden, one request at a time, on the demo's
// table of 200,000 rows in 8 fragments with everything in one process. The
// batch window of 10 ms is in it.
func BenchmarkRequestToHidden(b *testing.B) {
	r := startRun(b)
	customer, rows := 1_000, int64(0)
	for b.Loop() {
		status, answer := r.post(b, request(fmt.Sprint(customer), "customer_id", fmt.Sprint(customer)))
		if status != http.StatusAccepted {
			b.Fatalf("got %d %s", status, answer)
		}
		id := idOf(b, answer)
		report := await(b, r.Bus, events.StreamStatus, func(e events.ErasureReported) bool { return e.Request == id })
		if report.State != "hidden" {
			b.Fatalf("got %+v", report)
		}
		rows += report.Rows
		customer++
	}
	b.ReportMetric(float64(rows)/float64(b.N), "rows/op")
	if err := r.stop(); err != nil {
		b.Fatal(err)
	}
}
