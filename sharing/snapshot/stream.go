package snapshot

import (
	"context"
	"crypto/md5" //nolint:gosec // the protocol's id of files in parquet format, not a protection
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"delenda/sharing"
	"delenda/storage"
)

// SignFunc returns the URL of an object of the table.
type SignFunc func(ctx context.Context, key string) (storage.SignedURL, error)

// StreamOptions say how an answer shows the files.
type StreamOptions struct {
	Format sharing.ResponseFormat
	// IDHash is the format whose hash file ids are: FormatParquet for MD5,
	// FormatDelta for SHA-256. Empty: Format.
	IDHash sharing.ResponseFormat
	// Limit, if positive, ends the answer when the files so far surely hold as
	// many live rows.
	Limit int64
	Sign  SignFunc
	// Presigned names the shared table whose presigned manifest may spare the
	// signing; its URLs are used as long as they live for MinLife from Now.
	// Optional.
	Presigned string
	MinLife   time.Duration
	Now       time.Time
	// Check is called now and then; its error ends the answer. Optional.
	Check func() error
}

// Streamed tells what an answer held.
type Streamed struct {
	Files     int64
	ExpiresAt time.Time // the earliest of its URLs; zero if there was no file
}

const checkEvery = 256 // files

// ErrVectorInParquet tells of a file with a deletion vector, which parquet
// format has no place for.
var ErrVectorInParquet = errors.New("file has a deletion vector")

// Stream writes the file lines of a manifest to w, one after the other as they
// are read. Memory holds one line. What cannot be read is ErrUnread.
func (m *Manifests) Stream(ctx context.Context, w io.Writer, manifest *Manifest, o StreamOptions) (Streamed, error) {
	records, closer, err := m.openBest(ctx, manifest, o.Presigned)
	if err != nil {
		return Streamed{}, fmt.Errorf("%w: %w", ErrUnread, err)
	}
	defer closer.Close() //nolint:errcheck // read only
	if o.IDHash == "" {
		o.IDHash = o.Format
	}
	var (
		out  Streamed
		rows int64
		rec  record
		urls signed
		line []byte
	)
	for o.Limit <= 0 || rows < o.Limit {
		err := records.next(&rec)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return out, fmt.Errorf("%w: %w", ErrUnread, err)
		}
		if o.Check != nil && out.Files%checkEvery == 0 {
			if err := o.Check(); err != nil {
				return out, err
			}
		}
		if o.Format == sharing.FormatParquet && len(rec.parquetTail) == 0 {
			return out, fmt.Errorf("stream manifest: %w", ErrVectorInParquet)
		}
		if records.presigned {
			if err := records.urls(&urls); err != nil {
				return out, fmt.Errorf("%w: %w", ErrUnread, err)
			}
		}
		if !records.presigned || urls.expires.Before(o.Now.Add(o.MinLife)) {
			if urls, err = rec.sign(ctx, o.Sign); err != nil {
				return out, fmt.Errorf("stream manifest: %w", err)
			}
		}
		line = rec.line(line[:0], o, urls)
		if _, err := w.Write(line); err != nil {
			return out, fmt.Errorf("stream manifest: %w", err)
		}
		if out.Files == 0 || urls.expires.Before(out.ExpiresAt) {
			out.ExpiresAt = urls.expires
		}
		out.Files++
		rows += max(0, rec.rows)
	}
	return out, nil
}

// openBest opens the presigned manifest if it is this manifest's, and
// otherwise the manifest.
func (m *Manifests) openBest(ctx context.Context, manifest *Manifest, presigned string) (*recordReader, io.Closer, error) {
	if presigned == "" {
		return m.openFiles(ctx, manifest)
	}
	header, records, closer, err := m.openPresigned(ctx, presigned)
	switch {
	case err == nil && header.Manifest == manifest.Key:
		return records, closer, nil
	case err == nil:
		err = closer.Close()
	case errors.Is(err, storage.ErrNotFound), errors.Is(err, storage.ErrCorrupt):
		err = nil // it is made again
	}
	if err != nil {
		return nil, nil, err
	}
	return m.openFiles(ctx, manifest)
}

// line appends the record's line.
func (r *record) line(p []byte, o StreamOptions, urls signed) []byte {
	if o.Format == sharing.FormatParquet {
		p = append(p, `{"file":{"url":`...)
		p = appendText(p, urls.data)
		p = append(p, `,"id":"`...)
		p = appendID(p, r.path, o.IDHash)
		p = append(p, `","expirationTimestamp":`...)
		p = strconv.AppendInt(p, urls.expires.UnixMilli(), 10)
		p = append(p, r.parquetTail...)
		return append(p, "}\n"...)
	}
	p = append(p, `{"file":{"id":"`...)
	p = appendID(p, r.path, o.IDHash)
	if r.dvID != "" {
		p = append(p, `","deletionVectorFileId":"`...)
		p = append(p, r.dvID...)
	}
	p = append(p, `","expirationTimestamp":`...)
	p = strconv.AppendInt(p, urls.expires.UnixMilli(), 10)
	p = append(p, `,"deltaSingleAction":{"add":{"path":`...)
	p = appendText(p, urls.data)
	p = append(p, r.addTail...)
	if r.dvKey != "" {
		p = appendText(p, urls.vector)
		p = append(p, r.dvTail...)
	}
	return append(p, "}}}\n"...)
}

// appendID appends the id of a file: the hash of its path as the log has it.
func appendID(p []byte, path string, hash sharing.ResponseFormat) []byte {
	if hash == sharing.FormatParquet {
		sum := md5.Sum([]byte(path)) //nolint:gosec // see the import
		return hex.AppendEncode(p, sum[:])
	}
	sum := sha256.Sum256([]byte(path))
	return hex.AppendEncode(p, sum[:])
}

// appendText appends a JSON string without escaping what HTML would.
func appendText(p []byte, s string) []byte {
	plain := true
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			plain = false
			break
		}
	}
	if plain {
		p = append(p, '"')
		p = append(p, s...)
		return append(p, '"')
	}
	quoted, err := json.Marshal(s)
	if err != nil { // a string always encodes
		panic("snapshot: internal error: " + err.Error())
	}
	return append(p, quoted...)
}
