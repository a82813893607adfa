package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"

	"delenda/sharing"
	"delenda/sharing/snapshot"
	"delenda/storage"
)

// signatureParameter carries the token of a file's URL. Clients built on
// delta-kernel take a URL for pre-signed by the name of a query parameter, and
// this is one that they know.
const signatureParameter = "X-Databricks-Signature"

// Names of files in URLs: the objects' own may hold partition values.
const (
	dataName   = "data.parquet"
	vectorName = "vector.bin"
)

var errGone = &failure{status: http.StatusGone, code: sharing.CodeInvalidParameter, message: "the version that this URL was made for may no longer be read: query the table again"}

// signer returns how the URLs of an answer are made: by the table's store, or
// for this server's own file endpoint.
func (a *answer) signer(view snapshot.View, s *sealer) (snapshot.SignFunc, error) {
	source, ok := a.p.store.Source(view.Ref)
	if !ok {
		return nil, fmt.Errorf("sign URLs of %s: no source", view.Ref.Key())
	}
	if source.Presigner != nil {
		return func(ctx context.Context, key string) (storage.SignedURL, error) {
			return source.Presigner.SignGet(ctx, key, a.p.o.URLTTL)
		}, nil
	}
	base := a.p.baseURL(a.r)
	expires := a.p.o.Now().Add(a.p.o.URLTTL)
	c := claims{
		ExpiresAt: expires.UnixMilli(), Scope: view.Ref.Key(), Recipient: a.recipient.Name, Version: int64(view.Manifest.Version),
	}
	return func(_ context.Context, key string) (storage.SignedURL, error) {
		c := c
		c.Key = key
		token, err := s.seal(kindFile, c)
		if err != nil {
			return storage.SignedURL{}, err
		}
		return storage.NewSignedURL(base+"/files/"+fileName(key)+"?"+signatureParameter+"="+token, expires), nil
	}, nil
}

func fileName(key string) string {
	if strings.HasPrefix(path.Base(key), "deletion_vector_") && strings.HasSuffix(key, ".bin") {
		return vectorName
	}
	return dataName
}

// baseURL is how the recipient reaches the endpoint.
func (p *Publisher) baseURL(r *http.Request) string {
	if p.o.BaseURL != "" {
		return strings.TrimRight(p.o.BaseURL, "/")
	}
	u := url.URL{Scheme: "http", Host: r.Host, Path: strings.TrimRight(p.o.Prefix, "/")}
	if r.TLS != nil {
		u.Scheme = "https"
	}
	return u.String()
}

// file serves the bytes of an object to who holds a URL for it. The token
// stands for the recipient, whose grant is looked at again, for the version,
// which must not lie below the hide floor, and for the object; GET and HEAD
// alone are served, with ranges.
func (a *answer) file(ctx context.Context) error {
	if a.r.Method != http.MethodGet && a.r.Method != http.MethodHead {
		a.w.Header().Set("Allow", "GET, HEAD")
		return &failure{status: http.StatusMethodNotAllowed, code: sharing.CodeUnsupportedOperation, message: "method not allowed"}
	}
	c, err := unseal(a.p.keys, kindFile, a.r.URL.Query().Get(signatureParameter), a.p.o.Now())
	if err != nil || path.Base(a.r.URL.Path) != fileName(c.Key) {
		return errNoToken
	}
	names := strings.Split(c.Scope, ".")
	if len(names) != 3 {
		return errNoToken
	}
	ref, ok := a.p.catalog.Table(names[0], names[1], names[2])
	if !ok {
		return errNoToken
	}
	granted, err := a.p.registry.Granted(c.Recipient, ref.Share)
	if err != nil {
		return err
	}
	if !granted {
		return errNoToken
	}
	floor, err := a.p.store.HideFloor(ctx, ref)
	if err != nil {
		return err
	}
	if storage.Version(c.Version) < floor {
		return errGone
	}
	source, ok := a.p.store.Source(ref)
	if !ok {
		return errNoToken
	}
	return a.serveObject(ctx, source.Bucket, c.Key, func() bool { return a.p.store.Fenced(ref, storage.Version(c.Version)) })
}

// serveObject ends when fenced says so, also in the middle.
func (a *answer) serveObject(ctx context.Context, bucket storage.Bucket, key string, fenced func() bool) error {
	info, err := bucket.Stat(ctx, key)
	if errors.Is(err, storage.ErrNotFound) {
		return &failure{status: http.StatusNotFound, code: sharing.CodeDoesNotExist, message: "the file is no longer there: query the table again"}
	}
	if err != nil {
		return &failure{status: http.StatusBadGateway, code: sharing.CodeUnavailable, message: "the file cannot be read now; try again", cause: errStore}
	}
	sum := sha256.Sum256([]byte(key + "\x00" + strconv.FormatInt(info.SizeBytes, 10) + "\x00" + info.ModTime.UTC().String()))
	h := a.w.Header()
	h.Set("Etag", `"`+hex.EncodeToString(sum[:16])+`"`)
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Cache-Control", "private, no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	object := &object{ctx: ctx, bucket: bucket, key: key, size: info.SizeBytes, fenced: fenced}
	defer object.close()
	http.ServeContent(a.w, a.r, "", info.ModTime, object)
	if object.err != nil {
		return &failure{status: http.StatusBadGateway, code: sharing.CodeUnavailable, message: "the file cannot be read now; try again", cause: errStore}
	}
	return nil
}

// errStore stands for an error of the table's store, which names an object.
var errStore = errors.New("read an object of the table")

// object reads an object from any offset; it fetches from the offset of the
// first read after a seek.
type object struct {
	ctx    context.Context //nolint:containedctx // an io.ReadSeeker for the length of one request
	bucket storage.Bucket
	key    string
	fenced func() bool
	size   int64
	offset int64
	body   io.ReadCloser // at offset; nil before the first read
	err    error
}

func (o *object) Read(p []byte) (int, error) {
	if o.offset >= o.size {
		return 0, io.EOF
	}
	if o.fenced() {
		o.err = snapshot.ErrFenced
		return 0, o.err
	}
	if o.body == nil {
		if o.body, o.err = o.bucket.Read(o.ctx, o.key, o.offset, -1); o.err != nil {
			return 0, o.err
		}
	}
	n, err := o.body.Read(p)
	o.offset += int64(n)
	if errors.Is(err, io.EOF) && o.offset < o.size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil && !errors.Is(err, io.EOF) {
		o.err = err
	}
	return n, err
}

func (o *object) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += o.offset
	case io.SeekEnd:
		offset += o.size
	}
	if offset < 0 {
		return 0, errors.New("seek before the start")
	}
	if offset != o.offset {
		o.close()
		o.offset = offset
	}
	return offset, nil
}

func (o *object) close() {
	if o.body != nil {
		_ = o.body.Close() // read only
		o.body = nil
	}
}
