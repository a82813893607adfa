package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"delenda/sharing"
)

// Options modify New. The zero value works.
type Options struct {
	// Transport carries all requests; nil means a copy of the default one.
	Transport http.RoundTripper
	// Now is the clock that expirations are compared with; nil means time.Now.
	Now func() time.Time
	// Retries is how often a call is tried again; 0 means 5. RetryInterval is
	// the first pause, doubled each time; 0 means 300 ms.
	Retries       uint64
	RetryInterval time.Duration
	// Timeout bounds one attempt of one request, its body included; 0 means 5 minutes.
	Timeout time.Duration
	// RefreshBefore is how long before their expiration URLs are renewed, at
	// most a quarter of their life; 0 means 2 minutes.
	RefreshBefore time.Duration
	// MaxFiles bounds the files of one answer; 0 means 1,000,000.
	MaxFiles int
	// UserAgent is sent with every call; empty means "Delenda-Sharing-Go".
	UserAgent string
}

func (o *Options) withDefaults() Options {
	var out Options
	if o != nil {
		out = *o
	}
	if out.Transport == nil {
		t := http.DefaultTransport
		if d, ok := t.(*http.Transport); ok {
			t = d.Clone()
		}
		out.Transport = t
	}
	if out.Now == nil {
		out.Now = time.Now
	}
	if out.Retries == 0 {
		out.Retries = 5
	}
	if out.RetryInterval == 0 {
		out.RetryInterval = 300 * time.Millisecond
	}
	if out.Timeout == 0 {
		out.Timeout = 5 * time.Minute
	}
	if out.RefreshBefore == 0 {
		out.RefreshBefore = 2 * time.Minute
	}
	if out.MaxFiles == 0 {
		out.MaxFiles = 1_000_000
	}
	if out.UserAgent == "" {
		out.UserAgent = "Delenda-Sharing-Go"
	}
	return out
}

// Client speaks to one server with one profile.
type Client struct {
	profile sharing.Profile
	opts    Options
	api     *http.Client // carries the token
	data    *http.Client // never does
}

// New returns a client for the profile. It sends nothing.
func New(profile sharing.Profile, o *Options) (*Client, error) {
	endpoint, err := url.Parse(profile.Endpoint)
	if err != nil || endpoint.Host == "" {
		return nil, errors.New("new client: the profile's endpoint is not an absolute URL")
	}
	profile.Endpoint = strings.TrimRight(profile.Endpoint, "/")
	c := &Client{profile: profile, opts: o.withDefaults()}
	c.api = &http.Client{Transport: c.opts.Transport, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if len(via) >= 5 || r.URL.Scheme != endpoint.Scheme || r.URL.Host != endpoint.Host {
			return errors.New("redirected to another host")
		}
		return nil
	}}
	c.data = &http.Client{Transport: c.opts.Transport, CheckRedirect: func(_ *http.Request, via []*http.Request) error {
		if len(via) >= 5 {
			return errors.New("redirected too often")
		}
		return nil
	}}
	return c, nil
}

const (
	pageSize = 500
	maxPages = 100_000
)

// Shares lists the shares that the profile is granted.
func (c *Client) Shares(ctx context.Context) iter.Seq2[sharing.Share, error] {
	return list[sharing.Share](ctx, c, "list shares", "/shares")
}

// Schemas lists the schemas of a share.
func (c *Client) Schemas(ctx context.Context, share string) iter.Seq2[sharing.Schema, error] {
	return list[sharing.Schema](ctx, c, "list schemas of "+printable(share), joinPath("shares", share, "schemas"))
}

// Tables lists the tables of a schema.
func (c *Client) Tables(ctx context.Context, share, schema string) iter.Seq2[sharing.Table, error] {
	return list[sharing.Table](ctx, c, "list tables of "+printable(share+"."+schema),
		joinPath("shares", share, "schemas", schema, "tables"))
}

// AllTables lists the tables of all schemas of a share.
func (c *Client) AllTables(ctx context.Context, share string) iter.Seq2[sharing.Table, error] {
	return list[sharing.Table](ctx, c, "list tables of "+printable(share), joinPath("shares", share, "all-tables"))
}

// list walks the pages of a list. An empty page with a token is not the end.
func list[T any](ctx context.Context, c *Client, op, path string) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		token := ""
		for range maxPages {
			query := url.Values{"maxResults": {strconv.Itoa(pageSize)}}
			if token != "" {
				query.Set("pageToken", token)
			}
			var page sharing.Page[T]
			err := c.call(ctx, call{op: op, method: http.MethodGet, path: path, query: query}, decodeJSON(&page))
			if err != nil {
				yield(zero, err)
				return
			}
			for _, item := range page.Items {
				if !yield(item, nil) {
					return
				}
			}
			if page.NextPageToken == "" {
				return
			}
			if page.NextPageToken == token {
				break
			}
			token = page.NextPageToken
		}
		yield(zero, fmt.Errorf("%s: %w: the list does not end", op, ErrProtocol))
	}
}

// Version returns the current version of a table.
func (c *Client) Version(ctx context.Context, table sharing.Table) (int64, error) {
	version := int64(0)
	err := c.call(ctx, call{op: "version of " + tableName(table), method: http.MethodGet, path: tablePath(table, "version")},
		func(h http.Header, _ io.Reader) (err error) {
			version, err = tableVersion(h)
			return err
		})
	return version, err
}

func tableVersion(h http.Header) (int64, error) {
	v, err := strconv.ParseInt(strings.TrimSpace(h.Get(sharing.HeaderTableVersion)), 10, 64)
	if err != nil || v < 0 {
		return 0, fmt.Errorf("%w: header %s is missing or no version", ErrProtocol, sharing.HeaderTableVersion)
	}
	return v, nil
}

func tableName(t sharing.Table) string {
	return printable(t.Share + "." + t.Schema + "." + t.Name)
}

func tablePath(t sharing.Table, verb string) string {
	return joinPath("shares", t.Share, "schemas", t.Schema, "tables", t.Name, verb)
}

func joinPath(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(p))
	}
	return b.String()
}
