// Package pipelinetest gives tests of the pipeline a small world: a table over
// a bucket, a queue, a keeper, processes that come and go, and faults at any of
// their operations. For tests only.
package pipelinetest

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"sync"
	"testing"
	"time"

	"delenda/pipeline"
	"delenda/storage"
	"delenda/storage/bucket"
	"delenda/storage/bucket/fault"
)

// Keeper wraps keys under one that it was given.
type Keeper struct{ aead cipher.AEAD }

// NewKeeper returns a keeper with a key of its own.
func NewKeeper(t testing.TB) *Keeper {
	t.Helper()
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		t.Fatal(err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		t.Fatal(err)
	}
	return &Keeper{aead}
}

// Encrypt implements pipeline.Keeper.
func (k *Keeper) Encrypt(_ context.Context, plaintext []byte) ([]byte, error) {
	return k.aead.Seal(nil, nil, plaintext, nil), nil //nolint:gosec // the AEAD draws its nonce itself
}

// Decrypt implements pipeline.Keeper.
func (k *Keeper) Decrypt(_ context.Context, ciphertext []byte) ([]byte, error) {
	return k.aead.Open(nil, nil, ciphertext, nil)
}

// Clock is a time that moves only when told.
type Clock struct {
	mu sync.Mutex
	t  time.Time
}

// NewClock starts at some day.
func NewClock() *Clock { return &Clock{t: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

// Now returns the time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

// Advance moves the time.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// World is what outlives processes.
type World struct {
	State  storage.Bucket
	Keeper *Keeper
	Clock  *Clock
	Queue  *Queue
	Tables map[string]*Table // by name
	Limits pipeline.Limits
}

// NewWorld returns a world with empty state and no tables.
func NewWorld(t testing.TB) *World {
	t.Helper()
	return &World{State: memory(t), Keeper: NewKeeper(t), Clock: NewClock(), Queue: NewQueue(), Tables: map[string]*Table{}}
}

func memory(t testing.TB) storage.Bucket {
	b := bucket.NewMemory()
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// AddTable adds a table with columns id and mail, and rows.
func (w *World) AddTable(t testing.TB, name string, rows ...Row) *Table {
	t.Helper()
	table := &Table{Bucket: memory(t), Columns: []string{"id", "mail"}}
	if err := table.Append(context.Background(), rows...); err != nil {
		t.Fatal(err)
	}
	w.Tables[name] = table
	return table
}

// Config returns the tables as configured, each seen through wrap.
func (w *World) Config(wrap func(*Table) *Table) []pipeline.Table {
	var list []pipeline.Table
	for name, table := range w.Tables {
		if wrap != nil {
			table = wrap(table)
		}
		list = append(list, pipeline.Table{
			Name: name, Identities: map[string]string{"customer_id": "id", "email": "mail"}, Limits: w.Limits,
			Open: func(context.Context) (storage.Table, error) { return table, nil },
		})
	}
	return list
}

// Store opens the state prefix.
func (w *World) Store(t testing.TB) *pipeline.Store {
	t.Helper()
	s, err := pipeline.OpenStore(context.Background(), w.State, w.Keeper, "test", w.Clock.Now)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Strike makes one operation of a Conn go wrong, like fault.Faults does for
// buckets. Progress reports are not counted, since they come by the clock.
type Strike struct {
	mu     sync.Mutex
	mode   fault.Mode
	left   int
	struck bool
	killed bool
	onKill func()
}

// NewStrike strikes the n-th operation, counting from 1.
func NewStrike(mode fault.Mode, n int, onKill func()) *Strike {
	return &Strike{mode: mode, left: n, onKill: onKill}
}

// Struck reports whether it happened.
func (s *Strike) Struck() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.struck
}

// Around is for Conn.Around.
func (s *Strike) Around(_ context.Context, op string, do func() error) error {
	s.mu.Lock()
	if s.killed {
		s.mu.Unlock()
		return fault.ErrKilled
	}
	if op != "progress" {
		s.left--
	}
	now := s.left == 0 && !s.struck
	s.struck = s.struck || now
	kill := now && (s.mode == fault.Kill || s.mode == fault.KillAfter)
	s.killed = s.killed || kill
	s.mu.Unlock()
	if !now {
		return do()
	}
	var err error
	if s.mode == fault.Tear || s.mode == fault.KillAfter {
		err = do()
	}
	if kill {
		if s.onKill != nil {
			s.onKill()
		}
		return errors.Join(fault.ErrKilled, err)
	}
	return errors.Join(fault.ErrInjected, err)
}
