package service

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"delenda/events/bus"
	"delenda/pipeline"
	"delenda/sharing/server"
)

// Metrics are what a process counts. Labels are names of the configuration,
// states and codes: nothing that a request brought along.
type Metrics struct {
	registry *prometheus.Registry

	accepted  *prometheus.CounterVec
	answers   *prometheus.CounterVec
	batches   *prometheus.CounterVec
	requests  *prometheus.CounterVec
	rows      *prometheus.CounterVec
	batchTime *prometheus.HistogramVec
	items     *prometheus.CounterVec
	itemTime  *prometheus.HistogramVec
	attempts  *prometheus.CounterVec
	parked    *prometheus.GaugeVec
	bus       *prometheus.HistogramVec
	busErrors *prometheus.CounterVec
	shared    *prometheus.HistogramVec
	sharedOut *prometheus.CounterVec
}

// NewMetrics returns the metrics of one process.
func NewMetrics() *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "delenda", Name: name, Help: help}, labels)
		m.registry.MustRegister(c)
		return c
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "delenda", Name: name, Help: help, Buckets: buckets}, labels)
		m.registry.MustRegister(h)
		return h
	}
	fast := prometheus.ExponentialBuckets(0.001, 4, 8) // 1 ms to 16 s
	slow := prometheus.ExponentialBuckets(0.1, 4, 10)  // 100 ms to 7 h

	m.accepted = counter("requests_accepted_total", "Requests accepted for the first time.", "source")
	m.answers = counter("intake_answers_total", "Answers of the intake by HTTP status and code.", "source", "status", "code")
	m.batches = counter("batches_total", "Closed batches.", "table")
	m.requests = counter("batch_requests_total", "Requests in closed batches.", "table")
	m.rows = counter("rows_hidden_total", "Rows hidden.", "table")
	m.batchTime = histogram("batch_seconds", "Time of work on a batch.", slow, "table")
	m.items = counter("items_total", "Results of requests on tables, by state.", "table", "state")
	m.itemTime = histogram("item_seconds", "Time from acceptance to a result.", slow, "table", "state")
	m.attempts = counter("batch_attempts_failed_total", "Tries of a batch that did not close it, by code.", "table", "code")
	m.parked = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "delenda", Name: "table_parked", Help: "1 while a table cannot be worked on, by code.",
	}, []string{"table", "code"})
	m.registry.MustRegister(m.parked)
	m.bus = histogram("bus_seconds", "Time of operations on JetStream.", fast, "operation")
	m.busErrors = counter("bus_errors_total", "Operations on JetStream that failed.", "operation")
	m.shared = histogram("sharing_seconds", "Time of answers to recipients.", fast, "operation", "status")
	m.sharedOut = counter("sharing_bytes_total", "Bytes of answers to recipients.", "operation")
	return m
}

// Handler serves the metrics in Prometheus' text format.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// pipeline returns the hooks of intake and erasure.
func (m *Metrics) pipeline() pipeline.Metrics {
	return pipeline.Metrics{
		Accepted: func(source string) { m.accepted.WithLabelValues(source).Inc() },
		Answered: func(source string, status int, code string) {
			m.answers.WithLabelValues(source, strconv.Itoa(status), code).Inc()
		},
		Batch: func(table string, requests int, rows int64, took time.Duration) {
			m.batches.WithLabelValues(table).Inc()
			m.requests.WithLabelValues(table).Add(float64(requests))
			m.rows.WithLabelValues(table).Add(float64(rows))
			m.batchTime.WithLabelValues(table).Observe(took.Seconds())
		},
		Item: func(table string, state pipeline.State, since time.Duration) {
			m.items.WithLabelValues(table, string(state)).Inc()
			m.itemTime.WithLabelValues(table, string(state)).Observe(since.Seconds())
		},
		Attempt: func(table, code string) { m.attempts.WithLabelValues(table, code).Inc() },
		Parked: func(table, code string) {
			m.parked.DeletePartialMatch(prometheus.Labels{"table": table})
			if code != "" {
				m.parked.WithLabelValues(table, code).Set(1)
			}
		},
	}
}

// intercept times every operation of the bus. A fetch waits on purpose and is
// counted only when it fails.
func (m *Metrics) intercept(ctx context.Context, op bus.Op, do func(context.Context) error) error {
	start := time.Now()
	err := do(ctx)
	if op.Kind != "fetch" && op.Kind != "follow" {
		m.bus.WithLabelValues(op.Kind).Observe(time.Since(start).Seconds())
	}
	if err != nil && ctx.Err() == nil {
		m.busErrors.WithLabelValues(op.Kind).Inc()
	}
	return err
}

// observe counts an answer to a recipient.
func (m *Metrics) observe(o server.Observation) {
	m.shared.WithLabelValues(o.Operation, strconv.Itoa(o.Status)).Observe(o.Duration.Seconds())
	m.sharedOut.WithLabelValues(o.Operation).Add(float64(o.Bytes))
}
