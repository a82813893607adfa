package snapshot

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"delenda/storage"
	"delenda/storage/delta/log"
)

// A presigned manifest is one sealed object per shared table whose store signs
// URLs, replaced as a whole: a header (a uvarint, and as many bytes of JSON),
// and then for each file the record of the manifest and
//
//	uvarint + bytes   URL of the data file
//	uvarint + bytes   URL of the deletion vector's file, empty for none on disk
//	8                 when the first of them expires, ms, big-endian
//
// It spares answers the signing, which costs some stores a millisecond or a
// call for each file. It is made for tables that were asked for within one
// lifetime of a URL, and again when half of that is over; a URL that has less
// left is signed anew while the answer is streamed.
const (
	presignedPrefix = "presigned/"
	maxHeaderBytes  = 64 << 10
	signAtOnce      = 16
)

type presignedHeader struct {
	Manifest string    `json:"manifest"` // key of its info object
	MadeAt   time.Time `json:"made_at"`
}

// signed are the URLs of one record.
type signed struct {
	data, vector string
	expires      time.Time
}

func (r *record) sign(ctx context.Context, sign SignFunc) (signed, error) {
	key, err := log.RelativeKey(r.path, "")
	if err != nil {
		return signed{}, err
	}
	data, err := sign(ctx, key)
	if err != nil {
		return signed{}, fmt.Errorf("sign data file: %w", storage.Discreet(err, key))
	}
	out := signed{data: data.Reveal(), expires: data.ExpiresAt}
	if r.dvKey == "" {
		return out, nil
	}
	vector, err := sign(ctx, r.dvKey)
	if err != nil {
		return signed{}, fmt.Errorf("sign deletion vector file: %w", storage.Discreet(err, r.dvKey))
	}
	if out.vector = vector.Reveal(); vector.ExpiresAt.Before(out.expires) {
		out.expires = vector.ExpiresAt
	}
	return out, nil
}

// Presign writes the presigned manifest of a shared table.
func (m *Manifests) Presign(ctx context.Context, key string, manifest *Manifest, sign SignFunc, now time.Time) error {
	name := presignedPrefix + key
	work, cancel := context.WithCancel(ctx)
	defer cancel()
	pr, pw := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := m.encodePresigned(work, name, manifest, sign, now, pw)
		_ = pw.CloseWithError(err) // never fails; nil ends the stream
		done <- err
	}()
	err := m.state.Put(ctx, name, pr, storage.PutOptions{})
	_ = pr.CloseWithError(errStopped) // never fails
	cancel()
	made := <-done
	if err != nil && (made == nil || errors.Is(made, errStopped) || errors.Is(made, context.Canceled)) {
		made = err
	}
	if made != nil {
		return fmt.Errorf("presign %s: %w", key, made)
	}
	return nil
}

func (m *Manifests) encodePresigned(ctx context.Context, name string, manifest *Manifest, sign SignFunc, now time.Time, w io.Writer) error {
	out, err := newSealWriter(w, m.keys, name)
	if err != nil {
		return err
	}
	header, err := json.Marshal(presignedHeader{manifest.Key, now.UTC()})
	if err != nil {
		return err
	}
	if _, err := out.Write(appendField(nil, header)); err != nil {
		return err
	}
	records, closer, err := m.openFiles(ctx, manifest)
	if err != nil {
		return err
	}
	defer closer.Close() //nolint:errcheck // read only
	var batch [8 * signAtOnce]record
	var buf []byte
	for ended := false; !ended; {
		n := 0
		for n < len(batch) && !ended {
			err := records.next(&batch[n])
			if ended = errors.Is(err, io.EOF); !ended && err != nil {
				return err
			} else if !ended {
				n++
			}
		}
		urls := make([]signed, n)
		g, signing := errgroup.WithContext(ctx)
		g.SetLimit(signAtOnce)
		for i := range n {
			g.Go(func() (err error) {
				urls[i], err = batch[i].sign(signing, sign)
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		for i := range n {
			buf = batch[i].appendTo(buf[:0])
			buf = appendField(buf, urls[i].data)
			buf = appendField(buf, urls[i].vector)
			buf = binary.BigEndian.AppendUint64(buf, uint64(max(0, urls[i].expires.UnixMilli())))
			if _, err := out.Write(buf); err != nil {
				return err
			}
		}
	}
	return out.Close()
}

// openFiles returns the records of a manifest.
func (m *Manifests) openFiles(ctx context.Context, manifest *Manifest) (*recordReader, io.Closer, error) {
	r, err := m.state.Read(ctx, manifest.Files, 0, -1)
	if err != nil {
		return nil, nil, err
	}
	open, err := newOpenReader(r, m.keys, manifest.Files)
	if err != nil {
		return nil, nil, errors.Join(err, r.Close())
	}
	return newRecordReader(open, manifest.Files), r, nil
}

// openPresigned returns the header and the records of the presigned manifest
// of a shared table.
func (m *Manifests) openPresigned(ctx context.Context, key string) (presignedHeader, *recordReader, io.Closer, error) {
	name := presignedPrefix + key
	r, err := m.state.Read(ctx, name, 0, -1)
	if err != nil {
		return presignedHeader{}, nil, nil, err
	}
	header, records, err := readPresigned(r, m.keys, name)
	if err != nil {
		return presignedHeader{}, nil, nil, errors.Join(err, r.Close())
	}
	return header, records, r, nil
}

func readPresigned(r io.Reader, keys Keys, name string) (presignedHeader, *recordReader, error) {
	open, err := newOpenReader(r, keys, name)
	if err != nil {
		return presignedHeader{}, nil, err
	}
	records := newRecordReader(open, name)
	records.presigned = true
	text, err := records.field(nil, "header", maxHeaderBytes)
	if err != nil {
		return presignedHeader{}, nil, err
	}
	var header presignedHeader
	if err := json.Unmarshal(text, &header); err != nil {
		return presignedHeader{}, nil, records.corrupt("header", "not the JSON of a header")
	}
	return header, records, nil
}

// urls reads what follows a record in a presigned manifest.
func (d *recordReader) urls(s *signed) (err error) {
	for _, into := range []*string{&s.data, &s.vector} {
		if d.texts[0], err = d.field(d.texts[0], "url", maxFieldBytes); err != nil {
			return err
		}
		*into = string(d.texts[0])
	}
	var ms [8]byte
	if _, err := io.ReadFull(d.r, ms[:]); err != nil {
		return d.fail("expiry", err)
	}
	n := binary.BigEndian.Uint64(ms[:])
	if n > 1<<52 {
		return d.corrupt("expiry", "out of range")
	}
	s.expires = time.UnixMilli(int64(n)).UTC()
	return nil
}

// asked remembers when shared tables were last asked for.
type asked struct {
	mu sync.Mutex
	at map[string]time.Time
}

func (a *asked) note(key string, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at[key] = now
}

func (a *asked) since(key string, then time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	at, ok := a.at[key]
	return ok && !at.Before(then)
}

// presignAll makes the presigned manifests that are due.
func (s *Store) presignAll(ctx context.Context) {
	for _, ref := range s.o.Catalog.Refs() {
		source, ok := s.Source(ref)
		if !ok || source.Presigner == nil || !s.asked.since(ref.Key(), s.o.Now().Add(-s.o.URLTTL)) {
			continue
		}
		if err := s.presign(ctx, ref, source.Presigner); err != nil && ctx.Err() == nil {
			s.o.Logger.WarnContext(ctx, "manifest not presigned", slog.String("table", ref.Key()), slog.Any("error", err))
		}
	}
}

func (s *Store) presign(ctx context.Context, ref Ref, signer storage.Presigner) error {
	view, err := s.Current(ctx, ref)
	if err != nil {
		return err
	}
	now := s.o.Now()
	header, _, closer, err := s.manifests.openPresigned(ctx, ref.Key())
	switch {
	case err == nil:
		if err := closer.Close(); err != nil {
			return err
		}
		if header.Manifest == view.Manifest.Key && now.Sub(header.MadeAt) < s.o.URLTTL/2 {
			return nil // another replica was here
		}
	case !errors.Is(err, storage.ErrNotFound) && !errors.Is(err, storage.ErrCorrupt):
		return err
	}
	return s.manifests.Presign(ctx, ref.Key(), view.Manifest, func(ctx context.Context, key string) (storage.SignedURL, error) {
		return signer.SignGet(ctx, key, s.o.URLTTL)
	}, now)
}
