package pipeline_test

import (
	"context"
	"iter"
	"strings"
	"testing"
	"time"

	"delenda/pipeline"
	"delenda/pipeline/internal/pipelinetest"
	"delenda/storage"
)

// unlisting does not list amended items.
type unlisting struct{ storage.Bucket }

func (u unlisting) List(ctx context.Context, prefix, after string) iter.Seq2[storage.Info, error] {
	return func(yield func(storage.Info, error) bool) {
		for info, err := range u.Bucket.List(ctx, prefix, after) {
			if err == nil && strings.HasSuffix(info.Key, "-0001") {
				continue
			}
			if !yield(info, err) {
				return
			}
		}
	}
}

func Test_an_amended_item_that_is_there_and_not_listed_is_an_error(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // it spun
	defer cancel()
	w := pipelinetest.NewWorld(t)
	s := w.Store(t)
	r := create(t, s, "k", "orders")
	if err := s.PutItem(ctx, item(r.ID, "orders", 3, pipeline.Hidden, w.Clock.Now())); err != nil {
		t.Fatal(err)
	}
	amend := func(late int64) (*pipeline.Item, error) {
		return s.Amend(ctx, r.ID, "orders", late, 5, 9, nil)
	}
	if i, err := amend(1); err != nil || i.Rows != 35 {
		t.Fatalf("%+v, %v", i, err)
	}
	w.State = unlisting{w.State}
	s = w.Store(t)
	if i, err := amend(2); err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "is not listed") {
		t.Errorf("%+v, %v", i, err)
	}
}
