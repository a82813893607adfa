package snapshot

import (
	"context"
	"crypto/md5" //nolint:gosec // the protocol's id of files in parquet format, not a protection
	"crypto/sha256"
	"delenda/sharing"
	"delenda/storage"
	"delenda/storage/delta/log"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
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
// are read. Memory holds one line.
func (m *Manifests) Stream(ctx context.Context, w io.Writer, manifest *Manifest, o StreamOptions) (Streamed, error) {
	r, err := m.state.Read(ctx, manifest.Files, 0, -1)
	if err != nil {
		return Streamed{}, fmt.Errorf("stream manifest: %w", err)
	}
	defer r.Close() //nolint:errcheck // read only
	open, err := newOpenReader(r, m.keys, manifest.Files)
	if err != nil {
		return Streamed{}, err
	}
	if o.IDHash == "" {
		o.IDHash = o.Format
	}
	var (
		out     Streamed
		rows    int64
		rec     record
		line    []byte
		records = newRecordReader(open, manifest.Files)
	)
	for o.Limit <= 0 || rows < o.Limit {
		err := records.next(&rec)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return out, fmt.Errorf("stream manifest: %w", err)
		}
		if o.Check != nil && out.Files%checkEvery == 0 {
			if err := o.Check(); err != nil {
				return out, err
			}
		}
		var expires time.Time
		if line, expires, err = rec.line(ctx, line[:0], o); err != nil {
			return out, fmt.Errorf("stream manifest: %w", err)
		}
		if _, err := w.Write(line); err != nil {
			return out, fmt.Errorf("stream manifest: %w", err)
		}
		if out.Files == 0 || expires.Before(out.ExpiresAt) {
			out.ExpiresAt = expires
		}
		out.Files++
		rows += max(0, rec.rows)
	}
	return out, nil
}

// line appends the record's line, and returns when the first of its URLs
// expires.
func (r *record) line(ctx context.Context, p []byte, o StreamOptions) ([]byte, time.Time, error) {
	if o.Format == sharing.FormatParquet && len(r.parquetTail) == 0 {
		return nil, time.Time{}, ErrVectorInParquet
	}
	key, err := log.RelativeKey(r.path, "")
	if err != nil {
		return nil, time.Time{}, err
	}
	data, err := o.Sign(ctx, key)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("sign data file: %w", err)
	}
	expires := data.ExpiresAt
	var vector storage.SignedURL
	if r.dvKey != "" {
		if vector, err = o.Sign(ctx, r.dvKey); err != nil {
			return nil, time.Time{}, fmt.Errorf("sign deletion vector file: %w", err)
		}
		if vector.ExpiresAt.Before(expires) {
			expires = vector.ExpiresAt
		}
	}
	if o.Format == sharing.FormatParquet {
		p = append(p, `{"file":{"url":`...)
		p = appendText(p, data.Reveal())
		p = append(p, `,"id":"`...)
		p = appendID(p, r.path, o.IDHash)
		p = append(p, `","expirationTimestamp":`...)
		p = strconv.AppendInt(p, expires.UnixMilli(), 10)
		p = append(p, r.parquetTail...)
		return append(p, "}\n"...), expires, nil
	}
	p = append(p, `{"file":{"id":"`...)
	p = appendID(p, r.path, o.IDHash)
	if r.dvID != "" {
		p = append(p, `","deletionVectorFileId":"`...)
		p = append(p, r.dvID...)
	}
	p = append(p, `","expirationTimestamp":`...)
	p = strconv.AppendInt(p, expires.UnixMilli(), 10)
	p = append(p, `,"deltaSingleAction":{"add":{"path":`...)
	p = appendText(p, data.Reveal())
	p = append(p, r.addTail...)
	if r.dvKey != "" {
		p = appendText(p, vector.Reveal())
		p = append(p, r.dvTail...)
	}
	return append(p, "}}}\n"...), expires, nil
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
