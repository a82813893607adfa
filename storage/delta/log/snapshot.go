package log

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"delenda/storage"
)

const (
	readAhead  = 8 // commits read at once
	maxTxns    = 5_000_000
	maxDomains = 1_000_000
	loadRounds = 3 // listings per load: log cleanup may remove what one showed
)

// Snapshot is the state of a table at one version.
type Snapshot struct {
	Version    storage.Version
	Protocol   Protocol
	Metadata   Metadata
	Txns       map[string]Txn            // by appId; not to be changed
	Domains    map[string]DomainMetadata // by domain, removed ones left out; not to be changed
	Info       *CommitInfo               // of the newest commit; nil when it is cleaned up or has none
	Timestamp  time.Time                 // of the newest commit: in-commit if the table has it, else as the store dates the object
	Checkpoint storage.Version           // the checkpoint that replay starts from, or NoVersion

	bucket storage.Bucket
	adds   []Add // live, added since the checkpoint, newest first
	gone   []Remove
	seen   map[fileKey]struct{} // every file that a commit since the checkpoint names
	base   *checkpoint          // nil without one
}

// Load replays the log up to version at (storage.NoVersion: the newest). It
// returns storage.ErrNoTable if there is no log, storage.ErrNotFound if it does
// not reach back or up to the version, and a *storage.Refusal if the protocol
// asks for what is not supported.
func Load(ctx context.Context, b storage.Bucket, at storage.Version) (*Snapshot, error) {
	s, err := load(ctx, b, at)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Peek returns version and protocol of the newest version, even when the
// protocol asks for what is not supported.
func Peek(ctx context.Context, b storage.Bucket) (storage.Version, Protocol, error) {
	s, err := load(ctx, b, storage.NoVersion)
	if s == nil || s.Protocol.MinReaderVersion == 0 {
		return storage.NoVersion, Protocol{}, err
	}
	if err != nil && !errors.Is(err, storage.ErrRefused) {
		return storage.NoVersion, Protocol{}, err
	}
	return s.Version, s.Protocol, nil
}

// load returns a snapshot beside a refusal, with version and protocol only.
func load(ctx context.Context, b storage.Bucket, at storage.Version) (*Snapshot, error) {
	from, err := hint(ctx, b)
	if err != nil {
		return nil, err
	}
	if at != storage.NoVersion && from > at {
		from = storage.NoVersion
	}
	var s *Snapshot
	for range loadRounds {
		s, err = loadFrom(ctx, b, from, at)
		switch {
		case err == nil, errors.Is(err, storage.ErrRefused), errors.Is(err, storage.ErrNoTable), ctx.Err() != nil:
			return s, err
		case errors.Is(err, errIncomplete), errors.Is(err, storage.ErrCorrupt), errors.Is(err, storage.ErrNotFound):
			from = storage.NoVersion // the hint, or what it pointed at, is no good: look at everything
		default:
			return nil, err
		}
	}
	if errors.Is(err, errIncomplete) {
		err = fmt.Errorf("load version %d: %w", at, storage.ErrNotFound)
	}
	return nil, err
}

// errIncomplete: this listing does not make a snapshot.
var errIncomplete = errors.New("log is incomplete")

func loadFrom(ctx context.Context, b storage.Bucket, from, at storage.Version) (*Snapshot, error) {
	l, err := list(ctx, b, from, at)
	if err != nil {
		return nil, err
	}
	if len(l.commits) == 0 && len(l.checkpoints) == 0 {
		if from == storage.NoVersion && at == storage.NoVersion {
			return nil, fmt.Errorf("load table: %w", storage.ErrNoTable)
		}
		return nil, errIncomplete
	}
	first := errIncomplete
	for _, c := range slices.Backward(l.checkpoints) {
		s, err := replay(ctx, b, l, &c, at)
		if err == nil || errors.Is(err, storage.ErrRefused) {
			return s, err
		}
		if !errors.Is(err, storage.ErrCorrupt) && !errors.Is(err, storage.ErrNotFound) && !errors.Is(err, errIncomplete) {
			return nil, err
		}
		if errors.Is(first, errIncomplete) {
			first = err // an older checkpoint may still do
		}
	}
	if len(l.commits) > 0 && l.first == 0 {
		return replay(ctx, b, l, nil, at)
	}
	return nil, first
}

// replay folds the commits of the listing after checkpoint c, newest first.
func replay(ctx context.Context, b storage.Bucket, l *listing, c *checkpointFiles, at storage.Version) (*Snapshot, error) {
	s := &Snapshot{
		Version: storage.NoVersion, Checkpoint: storage.NoVersion, bucket: b,
		Txns: map[string]Txn{}, Domains: map[string]DomainMetadata{}, seen: map[fileKey]struct{}{},
	}
	tail := l.commits
	if len(tail) > 0 {
		s.Version = l.last()
	}
	if c != nil {
		s.Checkpoint = c.version
		switch {
		case c.version >= s.Version:
			s.Version, tail = c.version, nil
		case l.first > c.version+1:
			return nil, errIncomplete
		default:
			tail = tail[int(c.version+1-l.first):]
		}
	}
	if at != storage.NoVersion && s.Version != at {
		return nil, errIncomplete
	}
	removedDomains, err := s.foldTail(ctx, tail)
	if err != nil {
		return s, err
	}
	if c != nil {
		if err := s.foldCheckpoint(ctx, c, removedDomains); err != nil {
			return s, err
		}
	}
	return s, s.finish(ctx, l, c)
}

// foldTail reads the commits, a few at once, and folds them newest first. A
// malformed line is reported only once it is clear that the protocol is one
// that this code should understand.
func (s *Snapshot) foldTail(ctx context.Context, tail []storage.Info) (removedDomains map[string]bool, err error) {
	removedDomains = map[string]bool{}
	var deferred error
	v := s.Version
	for end := len(tail); end > 0; end -= readAhead {
		part := tail[max(0, end-readAhead):end]
		commits := make([]Commit, len(part))
		errs := make([]error, len(part))
		var g errgroup.Group
		for i := range part {
			g.Go(func() error {
				commits[i], errs[i] = readCommit(ctx, s.bucket, v-storage.Version(len(part)-1-i))
				return nil
			})
		}
		_ = g.Wait() // the errors are in errs
		for i := range slices.Backward(commits) {
			if errs[i] != nil && !errors.Is(errs[i], storage.ErrCorrupt) {
				return nil, errs[i]
			}
			if errs[i] != nil && deferred == nil {
				deferred = errs[i]
			}
			had := s.Protocol.MinReaderVersion != 0
			if err := s.fold(&commits[i], removedDomains); err != nil && deferred == nil {
				deferred = err
			}
			if !had && s.Protocol.MinReaderVersion != 0 {
				if err := s.Protocol.CheckRead(); err != nil {
					return nil, err
				}
			}
		}
		v -= storage.Version(len(part))
	}
	return removedDomains, deferred
}

// fold adds what an older commit says about things that no newer one names.
func (s *Snapshot) fold(c *Commit, removedDomains map[string]bool) error {
	if c.Version == s.Version {
		s.Info = c.Info
	}
	if s.Protocol.MinReaderVersion == 0 && c.Protocol != nil {
		s.Protocol = *c.Protocol
	}
	if s.Metadata.Configuration == nil && c.Metadata != nil {
		s.Metadata = *c.Metadata
		if s.Metadata.Configuration == nil {
			s.Metadata.Configuration = map[string]string{}
		}
	}
	for _, t := range c.Txns {
		s.foldTxn(t)
	}
	for _, d := range c.Domains {
		s.foldDomain(d, removedDomains)
	}
	if len(s.Txns) > maxTxns || len(s.Domains) > maxDomains {
		return &storage.CorruptError{Key: CommitKey(c.Version), Offset: -1, Field: "txn", Reason: "more applications or domains than allowed"}
	}
	// Within a commit add(P, dv2) and remove(P, dv1) may come in any order: an
	// add of a key wins over a remove of the same key.
	for _, a := range c.Adds {
		k, err := keyOf(a.Path, a.DeletionVector)
		if err != nil {
			return err
		}
		if _, ok := s.seen[k]; !ok {
			s.seen[k] = struct{}{}
			s.adds = append(s.adds, a)
		}
	}
	for _, r := range c.Removes {
		k, err := keyOf(r.Path, r.DeletionVector)
		if err != nil {
			return err
		}
		if _, ok := s.seen[k]; !ok {
			s.seen[k] = struct{}{}
			r.Stats = ""
			s.gone = append(s.gone, r)
		}
	}
	return nil
}

func (s *Snapshot) foldTxn(t Txn) {
	if _, ok := s.Txns[t.AppID]; !ok {
		s.Txns[t.AppID] = t
	}
}

func (s *Snapshot) foldDomain(d DomainMetadata, removed map[string]bool) {
	if _, ok := s.Domains[d.Domain]; ok || removed[d.Domain] {
		return
	}
	if d.Removed {
		removed[d.Domain] = true
		return
	}
	s.Domains[d.Domain] = d
}

func (s *Snapshot) foldCheckpoint(ctx context.Context, c *checkpointFiles, removedDomains map[string]bool) error {
	base, err := openCheckpoint(ctx, s.bucket, c)
	if err != nil {
		return fmt.Errorf("read checkpoint %d: %w", c.version, err)
	}
	s.base = base
	if s.Protocol.MinReaderVersion == 0 && base.protocol != nil {
		s.Protocol = *base.protocol
	}
	if s.Metadata.Configuration == nil && base.metadata != nil {
		s.Metadata = *base.metadata
		if s.Metadata.Configuration == nil {
			s.Metadata.Configuration = map[string]string{}
		}
	}
	for _, t := range base.txns {
		s.foldTxn(t)
	}
	for _, d := range base.domains {
		s.foldDomain(d, removedDomains)
	}
	return nil
}

// finish checks that the snapshot is whole and dates it.
func (s *Snapshot) finish(ctx context.Context, l *listing, c *checkpointFiles) error {
	bad := func(field string) error {
		return fmt.Errorf("load version %d: %w", s.Version, &storage.CorruptError{Key: prefix, Offset: -1, Field: field, Reason: "no version has one"})
	}
	if s.Protocol.MinReaderVersion == 0 {
		return bad("protocol")
	}
	if err := s.Protocol.CheckRead(); err != nil {
		return err
	}
	if s.Metadata.Configuration == nil {
		return bad("metaData")
	}
	if p := s.Metadata.Format.Provider; p != "" && p != "parquet" {
		return storage.Refuse("unsupported_format", "the table's files are not Parquet")
	}
	if s.Info == nil && s.Version == s.Checkpoint {
		// The commit of a checkpoint's version may be gone; it only dates the version.
		info, err := readInfo(ctx, s.bucket, s.Version)
		if err != nil && !errors.Is(err, storage.ErrNotFound) {
			return err
		}
		s.Info = info
	}
	switch {
	case s.InCommitTimestamps() && s.Info != nil && s.Info.InCommitTimestamp != nil:
		s.Timestamp = time.UnixMilli(*s.Info.InCommitTimestamp).UTC()
	case len(l.commits) > 0 && l.last() == s.Version:
		s.Timestamp = l.commits[len(l.commits)-1].ModTime.UTC()
	case c != nil:
		s.Timestamp = c.files[0].ModTime.UTC()
	}
	return nil
}

// InCommitTimestamps reports whether commits must carry their own timestamp.
func (s *Snapshot) InCommitTimestamps() bool {
	return s.Protocol.Has(FeatureInCommitTimestamp) && s.Metadata.IsTrue("delta.enableInCommitTimestamps")
}

// NextTimestamp returns the timestamp of the commit after s, in ms: now, but
// later than the commit before where the table orders its commits by it.
func (s *Snapshot) NextTimestamp(now time.Time) int64 {
	ms := now.UnixMilli()
	if s.InCommitTimestamps() {
		ms = max(ms, s.Timestamp.UnixMilli()+1)
	}
	return ms
}

// Update returns the snapshot of the newest version, s itself if that is s.
func (s *Snapshot) Update(ctx context.Context) (*Snapshot, error) {
	_, err := s.bucket.Stat(ctx, CommitKey(s.Version+1))
	if errors.Is(err, storage.ErrNotFound) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for version %d: %w", s.Version+1, err)
	}
	return Load(ctx, s.bucket, storage.NoVersion)
}

// Files yields every live file once: those of the commits since the
// checkpoint, newest first, then the checkpoint's. After an error it ends. The
// adds do not alias the snapshot's memory apart from their maps, which must
// not be changed.
func (s *Snapshot) Files(ctx context.Context) iter.Seq2[Add, error] {
	return func(yield func(Add, error) bool) {
		for _, a := range s.adds {
			if err := ctx.Err(); err != nil {
				yield(Add{}, err)
				return
			}
			if !yield(a, nil) {
				return
			}
		}
		if s.base == nil {
			return
		}
		for a, err := range s.base.files(ctx, s.bucket) {
			if err != nil {
				yield(Add{}, fmt.Errorf("read checkpoint %d: %w", s.Checkpoint, err))
				return
			}
			if a.Add == nil {
				continue
			}
			k, err := keyOf(a.Add.Path, a.Add.DeletionVector)
			if err != nil {
				yield(Add{}, fmt.Errorf("read checkpoint %d: %w", s.Checkpoint, err))
				return
			}
			if _, ok := s.seen[k]; ok {
				continue
			}
			if !yield(*a.Add, nil) {
				return
			}
		}
	}
}

// Tombstones yields the removes that a checkpoint of s may still hold.
func (s *Snapshot) Tombstones(ctx context.Context) iter.Seq2[Remove, error] {
	return func(yield func(Remove, error) bool) {
		for _, r := range s.gone {
			if !yield(r, nil) {
				return
			}
		}
		if s.base == nil {
			return
		}
		for a, err := range s.base.tombstones(ctx, s.bucket) {
			if err != nil {
				yield(Remove{}, fmt.Errorf("read checkpoint %d: %w", s.Checkpoint, err))
				return
			}
			if a.Remove == nil {
				continue
			}
			k, err := keyOf(a.Remove.Path, a.Remove.DeletionVector)
			if err != nil {
				yield(Remove{}, fmt.Errorf("read checkpoint %d: %w", s.Checkpoint, err))
				return
			}
			if _, ok := s.seen[k]; ok {
				continue
			}
			if !yield(*a.Remove, nil) {
				return
			}
		}
	}
}

// sortedTxns and sortedDomains give checkpoints a stable order.
func (s *Snapshot) sortedTxns() []Txn {
	out := make([]Txn, 0, len(s.Txns))
	for _, k := range slices.Sorted(maps.Keys(s.Txns)) {
		out = append(out, s.Txns[k])
	}
	return out
}

func (s *Snapshot) sortedDomains() []DomainMetadata {
	out := make([]DomainMetadata, 0, len(s.Domains))
	for _, k := range slices.Sorted(maps.Keys(s.Domains)) {
		out = append(out, s.Domains[k])
	}
	return out
}
