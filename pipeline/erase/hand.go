package erase

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"delenda/pipeline"
)

// hand holds the items that a worker has fetched and not settled.
type hand struct {
	mu    sync.Mutex
	items map[pipeline.RequestID]*held
	order []pipeline.RequestID // of first arrival; may name items already gone
	bytes int
}

type held struct {
	deliveries []pipeline.Delivery // several if the item was published more than once
	often      bool                // delivered suspiciously often
	bytes      int
}

func (h *hand) add(id pipeline.RequestID, d pipeline.Delivery, often bool, bytes int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.items == nil {
		h.items = map[pipeline.RequestID]*held{}
	}
	i := h.items[id]
	if i == nil {
		i = &held{bytes: bytes}
		h.items[id] = i
		h.order = append(h.order, id)
		h.bytes += bytes
	}
	i.deliveries = append(i.deliveries, d)
	i.often = i.often || often
}

// take removes an item and returns its deliveries.
func (h *hand) take(id pipeline.RequestID) []pipeline.Delivery {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.items[id]
	if i == nil {
		return nil
	}
	delete(h.items, id)
	h.bytes -= i.bytes
	if len(h.items) == 0 {
		h.order = nil
	}
	return i.deliveries
}

// list returns the items in order of arrival: those delivered often, and the
// others.
func (h *hand) list() (often, others []pipeline.RequestID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	seen := make(map[pipeline.RequestID]bool, len(h.items))
	for _, id := range h.order {
		i := h.items[id]
		switch {
		case i == nil || seen[id]:
		case i.often:
			often = append(often, id)
		default:
			others = append(others, id)
		}
		seen[id] = true
	}
	return often, others
}

func (h *hand) size() (items, bytes int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.items), h.bytes
}

func (h *hand) all() []pipeline.Delivery {
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []pipeline.Delivery
	for _, i := range h.items {
		list = append(list, i.deliveries...)
	}
	return list
}

// answer calls do for every delivery, several at a time: one is a round trip,
// and a full batch of them, one after the other, could outlast the wait for the
// acknowledgement.
func answer(all []pipeline.Delivery, do func(pipeline.Delivery)) {
	var g errgroup.Group
	g.SetLimit(parallel)
	for _, d := range all {
		g.Go(func() error {
			do(d)
			return nil
		})
	}
	_ = g.Wait()
}

// keep puts off redelivery of everything in hand until ctx is done. An item
// for which that fails comes again, which is harmless.
func (h *hand) keep(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			answer(h.all(), func(d pipeline.Delivery) { _ = d.InProgress(ctx) })
		}
	}
}

// giveBack asks for everything in hand again after delay.
func (h *hand) giveBack(ctx context.Context, delay time.Duration) {
	answer(h.all(), func(d pipeline.Delivery) { _ = d.Nak(ctx, delay) })
	h.mu.Lock()
	defer h.mu.Unlock()
	h.items, h.order, h.bytes = nil, nil, 0
}
