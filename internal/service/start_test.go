package service

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"delenda/internal/cloud/keeper"
	"delenda/pipeline"
	"delenda/storage"
	"delenda/storage/bucket"
)

// unanswering is a state prefix that does not answer for keys of the intake, until
// the caller gives up, so many times.
type unanswering struct {
	storage.Bucket
	times atomic.Int64
}

func (s *unanswering) Read(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	if strings.HasPrefix(key, "keys/intake") && s.times.Add(-1) >= 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.Bucket.Read(ctx, key, offset, length)
}

func TestAStartDoesNotWaitForEverForTheKeysOfTheIntake(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		times int64
		fails bool
	}{
		"a state prefix that hangs once is asked again":  {1, false},
		"one that does not answer at all ends the start": {1 << 30, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, _, err := keeper.Open(t.Context(), t.TempDir()+"/keeper.key")
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				state := &unanswering{Bucket: bucket.NewMemory()}
				store, err := pipeline.OpenStore(t.Context(), state, k, "test", time.Now)
				if err != nil {
					t.Fatal(err)
				}
				state.times.Store(tt.times)
				p := &process{Options: Options{Log: slog.New(slog.DiscardHandler), Now: time.Now}, health: NewHealth("ingest"), gates: map[string]*gate{}}
				began := time.Now()
				_, err = (&runtime{process: p, store: store}).intakeKeys(t.Context())
				if (err != nil) != tt.fails || tt.fails && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v", err)
				}
				if took := time.Since(began); took < tryFor || took > startFor+tryFor {
					t.Errorf("took %s", took)
				}
			})
		})
	}
}
