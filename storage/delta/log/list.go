package log

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"delenda/storage"
)

const (
	prefix            = "_delta_log/"
	lastCheckpointKey = prefix + "_last_checkpoint"

	maxVersion        = storage.Version(1) << 62
	maxListedCommits  = 5_000_000
	maxCheckpointPart = 100_000
	maxHintBytes      = 16 << 20
)

// listing is what one LIST of the log showed, from some version on.
type listing struct {
	commits     []storage.Info // ascending, contiguous from first
	first       storage.Version
	checkpoints []checkpointFiles // ascending by version, complete ones only
}

// checkpointFiles are the objects of one complete checkpoint.
type checkpointFiles struct {
	version storage.Version
	files   []storage.Info // one, or all parts in order
	json    bool
}

// last returns the version of the newest commit in the listing.
func (l *listing) last() storage.Version {
	return l.first + storage.Version(len(l.commits)) - 1
}

// entry is a parsed object name of the log.
type entry struct {
	version storage.Version
	kind    entryKind
	part    int
	parts   int
}

type entryKind int

const (
	entryOther entryKind = iota
	entryCommit
	entryClassic
	entryPart
	entryUUID
	entryUUIDJSON
)

// parseName classifies an object name below _delta_log/; everything unknown is
// entryOther.
func parseName(name string) entry {
	if len(name) < 21 || name[20] != '.' {
		return entry{}
	}
	v, err := strconv.ParseInt(name[:20], 10, 64)
	if err != nil || !digits(name[:20]) || storage.Version(v) > maxVersion {
		return entry{}
	}
	e := entry{version: storage.Version(v)}
	switch f := strings.Split(name[21:], "."); {
	case len(f) == 1 && f[0] == "json":
		e.kind = entryCommit
	case len(f) == 2 && f[0] == "checkpoint" && f[1] == "parquet":
		e.kind = entryClassic
	case len(f) == 3 && f[0] == "checkpoint" && len(f[1]) == 36 && f[2] == "parquet":
		e.kind = entryUUID
	case len(f) == 3 && f[0] == "checkpoint" && len(f[1]) == 36 && f[2] == "json":
		e.kind = entryUUIDJSON
	case len(f) == 4 && f[0] == "checkpoint" && f[3] == "parquet" && len(f[1]) == 10 && len(f[2]) == 10 && digits(f[1]) && digits(f[2]):
		e.part, _ = strconv.Atoi(f[1])
		e.parts, _ = strconv.Atoi(f[2])
		if e.part >= 1 && e.part <= e.parts && e.parts <= maxCheckpointPart {
			e.kind = entryPart
		}
	}
	return e
}

func digits(s string) bool {
	return strings.Trim(s, "0123456789") == "" && s != ""
}

// list reads the names of the log from version `from` to version `to`
// (NoVersion: all). A gap between commits that a race with a writer made is
// filled by asking again; a real one is ErrCorrupt.
func list(ctx context.Context, b storage.Bucket, from, to storage.Version) (*listing, error) {
	l := &listing{first: storage.NoVersion}
	type partKey struct {
		version storage.Version
		parts   int
	}
	parts := map[partKey][]storage.Info{}
	after := fmt.Sprintf("%s%020d", prefix, int64(max(from, 0)))
	for info, err := range b.List(ctx, prefix, after) {
		if err != nil {
			return nil, fmt.Errorf("list log: %w", err)
		}
		name := strings.TrimPrefix(info.Key, prefix)
		if name > ":" { // past the digits: _sidecars, _staged_commits, …
			break
		}
		e := parseName(name)
		if to != storage.NoVersion && e.version > to {
			break
		}
		switch e.kind {
		case entryCommit:
			if err := l.addCommit(ctx, b, e.version, info); err != nil {
				return nil, err
			}
		case entryClassic, entryUUID, entryUUIDJSON:
			if info.SizeBytes > 0 {
				l.checkpoints = append(l.checkpoints, checkpointFiles{version: e.version, files: []storage.Info{info}, json: e.kind == entryUUIDJSON})
			}
		case entryPart:
			k := partKey{e.version, e.parts}
			parts[k] = append(parts[k], info)
			if len(parts[k]) == e.parts {
				l.checkpoints = append(l.checkpoints, checkpointFiles{version: e.version, files: parts[k]})
				delete(parts, k)
			}
		case entryOther:
		}
	}
	slices.SortStableFunc(l.checkpoints, func(a, b checkpointFiles) int { return int(a.version - b.version) })
	return l, nil
}

func (l *listing) addCommit(ctx context.Context, b storage.Bucket, v storage.Version, info storage.Info) error {
	if len(l.commits) == 0 {
		l.first, l.commits = v, append(l.commits, info)
		return nil
	}
	for want := l.last() + 1; want < v; want++ {
		// Commits appear in order, a listing page may be older than the next.
		found, err := b.Stat(ctx, CommitKey(want))
		if errors.Is(err, storage.ErrNotFound) {
			return fmt.Errorf("list log: %w", &storage.CorruptError{Key: CommitKey(want), Offset: -1, Field: "version", Reason: "missing between commits"})
		}
		if err != nil {
			return fmt.Errorf("list log: %w", err)
		}
		l.commits = append(l.commits, found)
	}
	if len(l.commits) >= maxListedCommits {
		return fmt.Errorf("list log: %w", &storage.CorruptError{Key: prefix, Offset: -1, Field: "version", Reason: "more commits than allowed"})
	}
	l.commits = append(l.commits, info)
	return nil
}

// hint reads _last_checkpoint. Anything wrong with it means no hint.
func hint(ctx context.Context, b storage.Bucket) (storage.Version, error) {
	p, err := storage.ReadObject(ctx, b, lastCheckpointKey, maxHintBytes)
	absent := errors.Is(err, storage.ErrNotFound) || errors.Is(err, storage.ErrTooLarge)
	switch {
	case absent:
		return storage.NoVersion, nil
	case err != nil:
		return storage.NoVersion, fmt.Errorf("read checkpoint hint: %w", err)
	}
	var h struct {
		Version *int64 `json:"version"`
	}
	if valid := json.Unmarshal(p, &h) == nil; !valid || h.Version == nil || *h.Version < 0 || storage.Version(*h.Version) > maxVersion {
		return storage.NoVersion, nil
	}
	return storage.Version(*h.Version), nil
}

// LatestVersion returns the newest version at or above from, going by commits
// alone: from must be a version that the caller has seen, or 0. Without any
// commit it returns storage.NoVersion.
func LatestVersion(ctx context.Context, b storage.Bucket, from storage.Version) (storage.Version, error) {
	l, err := list(ctx, b, from, storage.NoVersion)
	if err != nil {
		return storage.NoVersion, err
	}
	newest := storage.NoVersion
	if len(l.commits) > 0 {
		newest = l.last()
	}
	if n := len(l.checkpoints); n > 0 {
		newest = max(newest, l.checkpoints[n-1].version)
	}
	return newest, nil
}
