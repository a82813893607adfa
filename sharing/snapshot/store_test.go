package snapshot

import (
	"context"
	"errors"
	"io"
	"iter"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"delenda/events"
	"delenda/sharing"
	"delenda/storage"
	"delenda/storage/bucket"
	"delenda/storage/bucket/fault"
	"delenda/storage/delta/log"

	"github.com/google/go-cmp/cmp"
)

func current(t testing.TB, s *Store) Head {
	t.Helper()
	v, err := s.Current(t.Context(), s.o.Catalog.Refs()[0])
	if err != nil {
		t.Fatal(err)
	}
	return v.Head
}

func TestTheHideFloorIsTheNewestDeleteOfTheInstallation(t *testing.T) {
	t.Parallel()
	other := log.Action{Txn: &log.Txn{AppID: "delenda/elsewhere/customers", Version: 1}}
	ours := log.Action{Txn: &log.Txn{AppID: "delenda/" + testInstallation + "/customers", Version: 50}}
	tests := map[string]struct {
		make func(t *testing.T, tb *table)
		want [3]storage.Version // version, hide floor, purge floor
	}{
		"none without an erasure": {func(*testing.T, *table) {}, [3]storage.Version{0, -1, -1}},
		"the last of two": {func(t *testing.T, tb *table) {
			tb.erase(t, 0)
			tb.commit(t, "WRITE", log.Action{Add: testAdd(8)})
			tb.erase(t, 1)
			tb.commit(t, "WRITE", log.Action{Add: testAdd(9)})
		}, [3]storage.Version{4, 3, -1}},
		"not another installation's": {func(t *testing.T, tb *table) { tb.commit(t, "DELETE", other) }, [3]storage.Version{1, -1, -1}},
		"not a delete that is not ours": {func(t *testing.T, tb *table) {
			tb.commit(t, "DELETE", log.Action{Txn: &log.Txn{AppID: "delenda/" + testInstallation + "2/x", Version: 1}})
		}, [3]storage.Version{1, -1, -1}},
		"beside a purge": {func(t *testing.T, tb *table) {
			tb.erase(t, 0)
			tb.commit(t, "REORG", ours)
		}, [3]storage.Version{2, 1, 2}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tb := newTable(t, 3)
			test.make(t, tb)
			s := newTestStore(t, bucket.NewMemory(), tb.source(), nil)
			if err := s.Refresh(t.Context(), "customers"); err != nil {
				t.Fatal(err)
			}
			h := current(t, s)
			if got := [3]storage.Version{h.Version, h.HideFloor, h.PurgeFloor}; got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestFloorsSurviveACleanedUpLog(t *testing.T) {
	t.Parallel()
	tb := newTable(t, 3)
	tb.erase(t, 0) // version 1
	state := bucket.NewMemory()
	s := newTestStore(t, state, tb.source(), nil)
	if err := s.Refresh(t.Context(), "customers"); err != nil {
		t.Fatal(err)
	}
	tb.commit(t, "WRITE", log.Action{Add: testAdd(8)}) // version 2
	tb.commit(t, "WRITE", log.Action{Add: testAdd(9)}) // version 3
	checkpoint(t, tb, 3)
	forget(t, tb, 0, 1, 2)
	if err := s.Refresh(t.Context(), "customers"); err != nil {
		t.Fatal(err)
	}
	// The commit of version 2 is gone: it could have been an erasure's.
	if h := current(t, s); h.Version != 3 || h.HideFloor != 2 {
		t.Errorf("version %d, hide floor %d, want 3 and 2", h.Version, h.HideFloor)
	}
	// Without any head the table itself says that there were erasures.
	fresh := newTestStore(t, bucket.NewMemory(), tb.source(), nil)
	if err := fresh.Refresh(t.Context(), "customers"); err != nil {
		t.Fatal(err)
	}
	if h := current(t, fresh); h.HideFloor != 2 {
		t.Errorf("hide floor %d, want 2: the newest version that can no longer be looked at", h.HideFloor)
	}
}

func checkpoint(t *testing.T, tb *table, v storage.Version) {
	t.Helper()
	snap, err := log.Load(t.Context(), tb.bucket, v)
	if err != nil {
		t.Fatal(err)
	}
	if err := log.WriteCheckpoint(t.Context(), tb.bucket, snap, time.Now()); err != nil {
		t.Fatal(err)
	}
}

func forget(t *testing.T, tb *table, versions ...storage.Version) {
	t.Helper()
	for _, v := range versions {
		if err := tb.bucket.Delete(t.Context(), log.CommitKey(v)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestATableThatWentBackIsNamedAndItsHeadStays(t *testing.T) {
	t.Parallel()
	tb := newTable(t, 3)
	tb.erase(t, 0)
	state := bucket.NewMemory()
	s := newTestStore(t, state, tb.source(), nil)
	if err := s.Refresh(t.Context(), "customers"); err != nil {
		t.Fatal(err)
	}
	forget(t, tb, 1)
	again := newTestStore(t, state, tb.source(), nil)
	if err := again.Refresh(t.Context(), "customers"); !errors.Is(err, ErrWentBack) {
		t.Errorf("got %v", err)
	}
	if status := again.Status(); !errors.Is(status[0].Err, ErrWentBack) {
		t.Errorf("status says %v", status[0].Err)
	}
	if h := current(t, again); h.Version != 1 || h.HideFloor != 1 {
		t.Errorf("got %+v", h)
	}
}

func TestEachChangeIsAnnouncedOnceAfterItsHeadIsInForce(t *testing.T) {
	t.Parallel()
	tb := newTable(t, 3)
	state := bucket.NewMemory()
	var told []events.ShareChanged
	var subjects []string
	var s *Store
	s = newTestStore(t, state, tb.source(), func(o *StoreOptions) {
		o.Publish = func(ctx context.Context, e events.Event) error {
			c, err := events.Payload[events.ShareChanged](e)
			if err != nil {
				return err
			}
			if h := s.heads.Known(refKey); int64(h.Version) < c.Version {
				t.Errorf("version %d was announced while %d is served", c.Version, h.Version)
			}
			c.At = time.Time{}
			told, subjects = append(told, c), append(subjects, e.Subject)
			return nil
		}
	})
	refresh := func() {
		t.Helper()
		if err := s.Refresh(t.Context(), "customers"); err != nil {
			t.Fatal(err)
		}
	}
	refresh()
	refresh() // nothing new
	tb.erase(t, 0)
	refresh()
	tb.commit(t, "WRITE", log.Action{Add: testAdd(8)})
	refresh()
	refresh()
	want := []events.ShareChanged{
		{Share: "Sales", Schema: "EU", Table: "Customers", Version: 0, HideFloor: -1, PurgeFloor: -1, Reason: events.ChangeForeign},
		{Share: "Sales", Schema: "EU", Table: "Customers", Version: 1, HideFloor: 1, PurgeFloor: -1, Reason: events.ChangeDelete},
		{Share: "Sales", Schema: "EU", Table: "Customers", Version: 2, HideFloor: 1, PurgeFloor: -1, Reason: events.ChangeForeign},
	}
	if d := cmp.Diff(want, told); d != "" {
		t.Error(d)
	}
	if subjects[0] != "delenda.shares.sales.eu.customers" {
		t.Errorf("announced on %q", subjects[0])
	}
}

func TestThePollFindsCommitsOfOtherWriters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		tb := newTable(t, 1)
		var mu sync.Mutex
		var changed []events.TableChanged
		s := newTestStore(t, bucket.NewMemory(), tb.source(), func(o *StoreOptions) {
			o.Poll = 10 * time.Second
			o.Publish = func(_ context.Context, e events.Event) error {
				if e.Type == events.TypeTableChanged {
					c, err := events.Payload[events.TableChanged](e)
					mu.Lock()
					defer mu.Unlock()
					changed = append(changed, c)
					return err
				}
				return nil
			}
		})
		var work sync.WaitGroup
		work.Go(func() { s.Run(ctx) })
		synctest.Wait()
		tb.commit(t, "WRITE", log.Action{Add: testAdd(8)})
		time.Sleep(11 * time.Second) //nolint:forbidigo // time is the test's own
		synctest.Wait()
		if h := current(t, s); h.Version != 1 {
			t.Errorf("serves %d", h.Version)
		}
		tb.erase(t, 0)               // its deleter tells of it
		time.Sleep(11 * time.Second) //nolint:forbidigo // time is the test's own
		synctest.Wait()
		cancel()
		work.Wait()
		if len(changed) != 1 || changed[0].Version != 1 || changed[0].Kind != events.ChangeForeign || changed[0].Table != "customers" {
			t.Errorf("announced %+v", changed)
		}
	})
}

// Whatever operation of the state prefix, the table or the bus goes wrong, and
// whether the process dies of it or not: the next run ends with the right head
// and floors, and recipients have heard of them.
func TestACrashAnywhereEndsInTheRightHeadAndAnnouncement(t *testing.T) {
	t.Parallel()
	for _, mode := range fault.Modes() {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			for n := 1; ; n++ {
				if !crashAt(t, mode, n) {
					if n < 10 {
						t.Errorf("only %d operations were swept", n)
					}
					return
				}
			}
		})
	}
}

func crashAt(t *testing.T, mode fault.Mode, n int) (struck bool) {
	tb := newTable(t, 3)
	state := bucket.NewMemory()
	heard := map[string]events.ShareChanged{}
	publish := func(_ context.Context, e events.Event) error {
		c, err := events.Payload[events.ShareChanged](e)
		heard[e.ID] = c
		return err
	}
	before := newTestStore(t, state, tb.source(), func(o *StoreOptions) { o.Publish = publish })
	if err := before.Refresh(t.Context(), "customers"); err != nil {
		t.Fatal(err)
	}
	tb.erase(t, 1)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	faults := fault.Wrap(&joined{state: state, table: tb.bucket})
	faults.Arm(mode, n)
	faults.OnKill(cancel)
	source := tb.source()
	source.Bucket = &part{faults, "table/"}
	s := newTestStore(t, &part{faults, "state/"}, source, func(o *StoreOptions) {
		o.Feed = &faultyFeed{faults}
		o.Publish = func(ctx context.Context, e events.Event) error {
			before := faults.Struck()
			_, err := faults.Stat(ctx, "publish")
			if err != nil && (before || mode == fault.Fail || mode == fault.Kill) {
				return err
			}
			return errors.Join(publish(ctx, e), err) // done, but the answer may be lost
		}
	})
	err := s.Refresh(ctx, "customers")
	if err == nil && !hears(heard, 1) {
		t.Errorf("%v at %d: told that it is announced, but it is not", mode, n)
	}
	after := newTestStore(t, state, tb.source(), func(o *StoreOptions) { o.Publish = publish })
	if err := after.Refresh(t.Context(), "customers"); err != nil {
		t.Fatalf("%v at %d: %v", mode, n, err)
	}
	if h := current(t, after); h.Version != 1 || h.HideFloor != 1 || !hears(heard, 1) {
		t.Errorf("%v at %d: head %+v, heard %v", mode, n, h, heard)
	}
	if len(heard) != 2 {
		t.Errorf("%v at %d: %d different announcements, want 2", mode, n, len(heard))
	}
	return faults.Struck()
}

func hears(heard map[string]events.ShareChanged, floor int64) bool {
	for _, c := range heard {
		if c.HideFloor == floor && c.Version == floor {
			return true
		}
	}
	return false
}

func TestARefusedTableDoesNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	good, bad := newTable(t, 1), newTable(t, 1)
	bad.commit(t, "UPGRADE", log.Action{Protocol: &log.Protocol{
		MinReaderVersion: 3, MinWriterVersion: 7, ReaderFeatures: []string{"fromTheFuture"}, WriterFeatures: []string{"fromTheFuture"},
	}})
	catalog, err := NewCatalog([]Share{{Name: "s", Schemas: []Schema{{Name: "d", Tables: []SharedTable{{"bad", "bad"}, {"good", "good"}, {"twin", "good"}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := newTestStore(t, bucket.NewMemory(), Source{}, func(o *StoreOptions) {
			o.Catalog, o.Sources = catalog, map[string]Source{"good": good.source(), "bad": bad.source()}
		})
		var work sync.WaitGroup
		work.Go(func() { s.Run(ctx) })
		synctest.Wait()
		for i, want := range []struct {
			refused bool
			version storage.Version
		}{{true, -1}, {false, 0}, {false, 0}} {
			got := s.Status()[i]
			if errors.Is(got.Err, storage.ErrRefused) != want.refused || got.Head.Version != want.version {
				t.Errorf("%s: version %d, %v", got.Ref.Key(), got.Head.Version, got.Err)
			}
		}
		cancel()
		work.Wait()
	})
}

func TestATableThatCouldNotBeOpenedIsNamedAndNotServed(t *testing.T) {
	t.Parallel()
	s := newTestStore(t, bucket.NewMemory(), Source{}, func(o *StoreOptions) { o.Sources = nil })
	if err := s.Refresh(t.Context(), "customers"); !errors.Is(err, errNoSource) {
		t.Errorf("got %v", err)
	}
	if status := s.Status(); !errors.Is(status[0].Err, errNoSource) {
		t.Errorf("status says %v", status[0].Err)
	}
	if _, err := s.Current(t.Context(), s.o.Catalog.Refs()[0]); !errors.Is(err, ErrNoHead) {
		t.Errorf("got %v", err)
	}
}

func TestOldHeadsAndManifestsAreRemoved(t *testing.T) {
	t.Parallel()
	tb := newTable(t, 1)
	state := bucket.NewMemory()
	now := time.Now()
	s := newTestStore(t, state, tb.source(), func(o *StoreOptions) { o.Now = func() time.Time { return now } })
	for range 8 {
		tb.commit(t, "WRITE")
		if err := s.Refresh(t.Context(), "customers"); err != nil {
			t.Fatal(err)
		}
		now = now.Add(2 * keepManifests)
	}
	count := func(prefix string) (n int) {
		for _, err := range state.List(t.Context(), prefix, "") {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		return n
	}
	if heads, manifests := count(headPrefix), count(manifestPrefix); heads > keepHeads+1 || manifests > 2 {
		t.Errorf("%d heads and %d objects of manifests are left", heads, manifests)
	}
	if h := current(t, s); h.Version != 8 {
		t.Errorf("serves %d", h.Version)
	}
}

// dated is a bucket whose objects were made at the test's time.
type dated struct {
	storage.Bucket
	now func() time.Time

	mu sync.Mutex
	at map[string]time.Time
}

func (d *dated) Put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) error {
	err := d.Bucket.Put(ctx, key, r, o)
	if err == nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.at[key] = d.now()
	}
	return err
}

func (d *dated) List(ctx context.Context, prefix, after string) iter.Seq2[storage.Info, error] {
	return func(yield func(storage.Info, error) bool) {
		for info, err := range d.Bucket.List(ctx, prefix, after) {
			d.mu.Lock()
			info.ModTime = d.at[info.Key]
			d.mu.Unlock()
			if !yield(info, err) {
				return
			}
		}
	}
}

// A manifest may be days old when it is replaced: the refresh tokens that name
// it are not.
func TestAManifestStaysUntilItWasReplacedLongAgoOrAnErasureCame(t *testing.T) {
	t.Parallel()
	tb := newTable(t, 3)
	now := time.Now()
	clock := func() time.Time { return now }
	state := &dated{Bucket: bucket.NewMemory(), now: clock, at: map[string]time.Time{}}
	s := newTestStore(t, state, tb.source(), func(o *StoreOptions) { o.Now = clock })
	refresh := func() string {
		t.Helper()
		if err := s.Refresh(t.Context(), "customers"); err != nil {
			t.Fatal(err)
		}
		return current(t, s).Manifest
	}
	readable := func(key string) bool {
		m, err := NewManifests(state, s.o.Keys, 1).Load(t.Context(), key)
		if err == nil {
			_, err = s.manifests.Stream(t.Context(), io.Discard, m, StreamOptions{Format: sharing.FormatDelta, Sign: signTest})
		}
		if err != nil && !errors.Is(err, storage.ErrNotFound) {
			t.Fatal(err)
		}
		return err == nil
	}
	first := refresh()
	now = now.Add(48 * time.Hour)
	tb.commit(t, "WRITE", log.Action{Add: testAdd(8)})
	second := refresh()
	if !readable(first) {
		t.Error("a manifest is gone as soon as it is replaced")
	}
	now = now.Add(keepManifests - time.Minute)
	tb.commit(t, "WRITE", log.Action{Add: testAdd(9)})
	third := refresh()
	if !readable(first) || !readable(second) {
		t.Error("a manifest is gone before its time")
	}
	now = now.Add(time.Minute)
	tb.commit(t, "WRITE", log.Action{Add: testAdd(10)})
	fourth := refresh()
	if readable(first) || !readable(second) || !readable(third) {
		t.Error("what is kept is not what was replaced lately")
	}
	tb.erase(t, 1)
	fifth := refresh()
	if readable(second) || readable(third) || readable(fourth) || !readable(fifth) {
		t.Error("what is below the hide floor is kept")
	}
}
