package bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"strings"
	"time"

	"gocloud.dev/blob"

	"delenda/storage"
)

// maxTTL is the longest life of a pre-signed URL on S3 and Google Cloud
// Storage; it is kept on Azure too.
const maxTTL = 7 * 24 * time.Hour

// Driver opens a bucket of one cloud. Path, user and fragment of u are empty.
// publicEndpoint may be empty.
type Driver func(ctx context.Context, u *url.URL, publicEndpoint string) (*Cloud, error)

// Cloud is an open cloud bucket: what gocloud.dev/blob does for every cloud,
// and hooks for what it leaves to each.
type Cloud struct {
	Bucket *blob.Bucket

	// Classify maps an SDK's error to storage.ErrNotFound, ErrExists,
	// ErrDenied, ErrRange or a *CodeError, or to nil if it does not know it.
	// The portable codes are not consulted: they report some refusals, an
	// unknown host and a bucket that does not exist as absence.
	Classify func(err error) error

	// Check returns an error that is ErrKey for a key that the store cannot
	// carry; nil refuses none.
	Check func(key string) error

	// Portable reports whether Bucket passes the key on unchanged; all others
	// go to Raw. With a nil Raw, Check refuses them.
	Portable func(key string) bool
	// Raw carries the keys that Bucket would rename; its List is not used.
	Raw storage.Bucket

	// BeforeList sets prefix and start on the SDK's request as they are.
	BeforeList func(as func(any) bool, prefix, after string) error
	// BeforeRead asks for the bytes as they are stored; may be nil.
	BeforeRead func(as func(any) bool) error
	// BeforeWrite adapts the SDK's buffers to a body that is small; may be nil.
	BeforeWrite func(as func(any) bool, small bool) error
	// Name returns the object's name as the store has it, and false for an
	// entry that is no object.
	Name func(o *blob.ListObject) (string, bool)

	// Delete removes an object in one request where Bucket takes more; may be nil.
	Delete func(ctx context.Context, key string) error

	// Sign returns a URL for GET that expires at most ttl from now, and when it
	// does; nil if the credentials cannot sign. ttl is at least a second.
	Sign func(ctx context.Context, key string, ttl time.Duration) (string, time.Time, error)
}

// ErrRange is Classify's answer when the range begins at or after the object's end.
var ErrRange = errors.New("range past the end")

const publicEndpointParameter = "public_endpoint"

func openCloud(ctx context.Context, l location, driver Driver, publicEndpoint string, now func() time.Time) (*Bucket, error) {
	q := l.query
	if p := q.Get(publicEndpointParameter); p != "" {
		publicEndpoint = p
	}
	q.Del(publicEndpointParameter)
	if publicEndpoint != "" {
		u, err := url.Parse(publicEndpoint)
		if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, fmt.Errorf("open %s: public_endpoint is not of the form https://host[:port][/path]", l)
		}
	}
	c, err := driver(ctx, &url.URL{Scheme: l.scheme, Host: l.host, RawQuery: q.Encode()}, publicEndpoint)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", l, err)
	}
	b := &Bucket{
		url:    l.String(),
		prefix: l.path,
		store:  &cloud{c},
		check:  c.Check,
		shared: func(context.Context) (bool, error) { return true, nil },
		close:  c.Bucket.Close,
	}
	if c.Sign != nil {
		b.signer = &signer{bucket: b, sign: c.Sign, now: now}
	}
	return b, nil
}

type cloud struct{ *Cloud }

// raw returns the store of keys that the portable one would rename, or nil.
func (c *cloud) raw(key string) storage.Bucket {
	if c.Raw == nil || c.Portable == nil || c.Portable(key) {
		return nil
	}
	return c.Raw
}

func (c *cloud) Stat(ctx context.Context, key string) (storage.Info, error) {
	if raw := c.raw(key); raw != nil {
		info, err := raw.Stat(ctx, key)
		return info, c.classify(ctx, err)
	}
	a, err := c.Bucket.Attributes(ctx, key)
	if err != nil {
		return storage.Info{}, c.classify(ctx, err)
	}
	return storage.Info{Key: key, SizeBytes: a.Size, ModTime: a.ModTime}, nil
}

func (c *cloud) Read(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	if length == 0 {
		// SDKs have no empty range; some would fetch everything.
		if _, err := c.Stat(ctx, key); err != nil {
			return nil, err
		}
		return io.NopCloser(strings.NewReader("")), nil
	}
	var r io.ReadCloser
	var err error
	if raw := c.raw(key); raw != nil {
		r, err = raw.Read(ctx, key, offset, length)
	} else {
		r, err = c.Bucket.NewRangeReader(ctx, key, offset, length, &blob.ReaderOptions{BeforeRead: c.BeforeRead})
	}
	if err = c.classify(ctx, err); errors.Is(err, ErrRange) {
		return io.NopCloser(strings.NewReader("")), nil
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// smallBody is read whole before the first request, so that it is sent in one
// and needs none of the SDK's part buffers.
const smallBody = 256 << 10

func (c *cloud) Put(ctx context.Context, key string, body io.Reader, opts storage.PutOptions) error {
	if opts.ContentType == "" {
		opts.ContentType = "application/octet-stream"
	}
	// A body that breaks off must cancel the upload before the SDK hears of
	// it: one SDK would complete the object with what it has.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	head, err := io.ReadAll(io.LimitReader(body, smallBody+1))
	if err != nil {
		return err
	}
	small := len(head) <= smallBody
	var whole io.Reader = bytes.NewReader(head)
	if !small {
		whole = io.MultiReader(whole, cancelling{body, cancel})
	}
	if raw := c.raw(key); raw != nil {
		return c.classify(ctx, raw.Put(ctx, key, whole, opts))
	}
	w := &blob.WriterOptions{ContentType: opts.ContentType, IfNotExist: opts.IfAbsent}
	if c.BeforeWrite != nil {
		w.BeforeWrite = func(as func(any) bool) error { return c.BeforeWrite(as, small) }
	}
	return c.classify(ctx, c.Bucket.Upload(ctx, key, whole, w))
}

// cancelling cancels the upload when the body breaks off.
type cancelling struct {
	body   io.Reader
	cancel func()
}

func (c cancelling) Read(p []byte) (int, error) {
	n, err := c.body.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		c.cancel()
	}
	return n, err
}

func (c *cloud) Delete(ctx context.Context, key string) error {
	if raw := c.raw(key); raw != nil {
		return c.classify(ctx, raw.Delete(ctx, key))
	}
	if c.Cloud.Delete != nil {
		return c.classify(ctx, c.Cloud.Delete(ctx, key))
	}
	return c.classify(ctx, c.Bucket.Delete(ctx, key))
}

func (c *cloud) List(ctx context.Context, prefix, after string) iter.Seq2[storage.Info, error] {
	return func(yield func(storage.Info, error) bool) {
		opts := &blob.ListOptions{BeforeList: func(as func(any) bool) error {
			return c.BeforeList(as, prefix, after)
		}}
		for token := blob.FirstPageToken; token != nil; {
			page, next, err := c.Bucket.ListPage(ctx, token, listPage, opts)
			if err != nil {
				if err = c.classify(ctx, err); errors.Is(err, storage.ErrNotFound) {
					err = errors.New("no such bucket")
				}
				yield(storage.Info{}, err)
				return
			}
			for _, o := range page {
				name, ok := c.Name(o)
				if !ok || !strings.HasPrefix(name, prefix) || after != "" && name <= after {
					continue
				}
				if !yield(storage.Info{Key: name, SizeBytes: o.Size, ModTime: o.ModTime}, nil) {
					return
				}
			}
			token = next
		}
	}
}

// classify reduces what an SDK returns to what callers may see and branch on.
func (c *cloud) classify(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if cause := ctx.Err(); cause != nil {
		return cause
	}
	if known := c.Classify(err); known != nil {
		return known
	}
	return scrub(err)
}

type signer struct {
	bucket *Bucket
	sign   func(ctx context.Context, key string, ttl time.Duration) (string, time.Time, error)
	now    func() time.Time
}

// SignGet implements storage.Presigner. A ttl above seven days is cut to that.
func (s *signer) SignGet(ctx context.Context, key string, ttl time.Duration) (storage.SignedURL, error) {
	full, err := s.bucket.key(ctx, key)
	if err != nil {
		return storage.SignedURL{}, opError("sign", key, err)
	}
	ttl = min(ttl, maxTTL).Truncate(time.Second)
	if ttl <= 0 {
		return storage.SignedURL{}, opError("sign", key, errors.New("less than a second to live"))
	}
	limit := s.now().Add(ttl)
	signed, expiresAt, err := s.sign(ctx, full, ttl)
	if err != nil {
		return storage.SignedURL{}, opError("sign", key, scrub(err))
	}
	if expiresAt.After(limit) {
		expiresAt = limit // never promise more than was asked for
	}
	return storage.NewSignedURL(signed, expiresAt), nil
}
