package delta

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/google/uuid"

	"delenda/storage"
	"delenda/storage/delta/log"
)

const engine = "delenda"

// errLost: another writer has the version that an attempt wanted.
var errLost = errors.New("lost the race")

// attempt puts one commit and makes sure of what came of it. It returns the
// commit found at version v if that is ours, errLost if it is another's, and
// any other error if nobody can tell now; asking again later is safe then.
func (t *Table) attempt(ctx context.Context, v storage.Version, txnID string, actions []log.Action) (log.Commit, error) {
	perr := log.PutCommit(ctx, t.bucket, v, actions)
	c, err := log.ReadCommit(ctx, t.bucket, v)
	switch {
	case errors.Is(err, storage.ErrNotFound) && perr != nil:
		return log.Commit{}, perr
	case err != nil:
		return log.Commit{}, fmt.Errorf("read back: %w", errors.Join(err, perr))
	case c.Info != nil && c.Info.TxnID == txnID:
		return c, nil // whatever Put said
	default:
		return log.Commit{}, errLost
	}
}

// commitLoop tries until a try commits, needs no commit, or fails for another
// reason than a lost race. A try gets the newest snapshot and the id that all
// tries of this loop share.
func commitLoop[T any](ctx context.Context, t *Table, try func(s *log.Snapshot, txnID string) (T, error)) (T, error) {
	pause := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(10*time.Millisecond), backoff.WithMaxInterval(2*time.Second), backoff.WithMaxElapsedTime(0))
	var s *log.Snapshot
	txnID := uuid.NewString()
	out, err := backoff.RetryWithData(func() (T, error) {
		var none T
		var err error
		if s == nil {
			s, err = log.Load(ctx, t.bucket, storage.NoVersion)
		} else {
			s, err = s.Update(ctx)
		}
		if err != nil {
			return none, backoff.Permanent(err)
		}
		out, err := try(s, txnID)
		if err != nil && !errors.Is(err, errLost) {
			err = backoff.Permanent(err)
		}
		return out, err
	}, backoff.WithContext(backoff.WithMaxRetries(pause, uint64(t.o.Attempts-1)), ctx)) //nolint:gosec // at least 1
	if errors.Is(err, errLost) {
		err = fmt.Errorf("%w: %d attempts", storage.ErrConflict, t.o.Attempts)
	}
	return out, err
}

// info starts the commitInfo of the commit after s.
func info(s *log.Snapshot, now time.Time, txnID, operation string) *log.CommitInfo {
	ms := s.NextTimestamp(now)
	read := int64(s.Version)
	c := &log.CommitInfo{
		Timestamp: ms, Operation: operation, OperationParameters: map[string]string{},
		ReadVersion: &read, EngineInfo: engine, TxnID: txnID,
	}
	if s.InCommitTimestamps() {
		c.InCommitTimestamp = &ms
	}
	return c
}

// checkpoint writes the checkpoint that is due at version v, if one is. The
// table is right without it: that it could not be written is only told.
func (t *Table) checkpoint(ctx context.Context, before *log.Snapshot, v storage.Version, now time.Time) {
	if int64(v-max(before.Checkpoint, 0)) < before.Metadata.CheckpointInterval() {
		return
	}
	s, err := log.Load(ctx, t.bucket, v)
	if err == nil {
		err = log.WriteCheckpoint(ctx, t.bucket, s, now)
	}
	if err != nil {
		t.o.Logger.WarnContext(ctx, "checkpoint not written", slog.Int64("version", int64(v)), slog.Any("error", err))
	}
}
