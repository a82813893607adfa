package bus_test

import (
	"fmt"
	"testing"
	"time"

	"delenda/events"
	"delenda/events/bus"
	"delenda/events/bus/bustest"
)

// Publishing waits until the server has synced the message.
func BenchmarkPublish(b *testing.B) {
	bb, _ := bustest.Start(b, "customers")
	e := item(b, "customers", "r1")
	for b.Loop() {
		if err := bb.Publish(b.Context(), e); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}

func BenchmarkPublishFrom16(b *testing.B) {
	bb, _ := bustest.Start(b, "customers")
	e := item(b, "customers", "r1")
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := bb.Publish(b.Context(), e); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}

// Fetch and acknowledge: erasing each message, and when so many wait that they
// are only removed.
func BenchmarkFetchAndAck(b *testing.B) {
	for _, size := range []int{1, 100, 5000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			bb, _ := bustest.Start(b, "customers")
			c := consumer(b, bb, "customers")
			n := 0
			var spent time.Duration
			for b.Loop() {
				b.StopTimer()
				for range size {
					publish(b, bb, item(b, "customers", "r1"))
				}
				b.StartTimer()
				start := time.Now()
				list := fetch(b, c, size)
				for _, m := range list {
					if err := m.Ack(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
				spent += time.Since(start)
				n += size
			}
			b.ReportMetric(float64(n)/spent.Seconds(), "msg/s")
		})
	}
}

// How long a request waits on the way from a publisher to a waiting consumer.
func BenchmarkLatency(b *testing.B) {
	bb, s := bustest.Start(b, "customers")
	other := s.Connect(b, bus.Options{})
	c := consumer(b, other, "customers")
	e := item(b, "customers", "r1")
	for b.Loop() {
		done := make(chan error, 1)
		go func() { done <- bb.Publish(b.Context(), e) }()
		m := fetch(b, c, 1)[0]
		if err := <-done; err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := m.Ack(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

func BenchmarkDecode(b *testing.B) {
	p, err := item(b, "customers", "r1").Encode()
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		if _, err := events.Decode(p); err != nil {
			b.Fatal(err)
		}
	}
}
