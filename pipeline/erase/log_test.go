package erase_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"delenda/pipeline/internal/pipelinetest"
	"delenda/storage"
)

// judgeLog reads the batch log by its own small reader and checks its rules:
// numbers without a gap, every batch closed and settled, and no request hidden
// by two batches of a table.
func judgeLog(t *testing.T, w *pipelinetest.World) {
	t.Helper()
	type batch struct{ intent, closed, settled bool }
	batches := map[string]map[int]*batch{}
	hidden := map[string]int{}
	for info, err := range w.State.List(t.Context(), "batches/", "") {
		if err != nil {
			t.Fatal(err)
		}
		part := strings.Split(info.Key, "/")
		n, err := strconv.Atoi(part[2])
		if err != nil {
			t.Fatal(err)
		}
		if batches[part[1]] == nil {
			batches[part[1]] = map[int]*batch{}
		}
		b := batches[part[1]][n]
		if b == nil {
			b = &batch{}
			batches[part[1]][n] = b
		}
		switch part[3] {
		case "intent":
			b.intent = true
		case "settled":
			b.settled = true
		case "closed":
			b.closed = true
			p, err := storage.ReadObject(t.Context(), w.State, info.Key, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			var c struct {
				Results []struct{ Request, State string }
			}
			if err := json.Unmarshal(p, &c); err != nil {
				t.Fatal(err)
			}
			for _, r := range c.Results {
				if r.State == "hidden" {
					hidden[part[1]+"/"+r.Request]++
				}
			}
		}
	}
	for table, list := range batches {
		for n := 1; n <= len(list); n++ {
			if b := list[n]; b == nil || !b.intent || !b.closed || !b.settled {
				t.Errorf("batch %s/%d: %s", table, n, fmt.Sprintf("%+v", b))
			}
		}
	}
	for request, n := range hidden {
		if n != 1 {
			t.Errorf("%s was hidden by %d batches", request, n)
		}
	}
}
