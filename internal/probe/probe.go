// Package probe asks a health endpoint on this machine, for binaries in images
// that have no shell and no other program.
package probe

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	// Timeout bounds one answer. It is longer than what a readiness endpoint
	// takes to say why it is not ready.
	Timeout = 8 * time.Second
	// maxAnswer bounds what is read of one.
	maxAnswer = 1 << 20
)

// Answer is what an endpoint said.
type Answer struct {
	OK     bool // the status is one of success
	Status string
	Body   []byte
}

// Get asks an http or https URL once, follows no redirect and goes through no
// proxy. Certificates are not verified: the listener is on this machine, nothing is
// sent to it, and a certificate that was renewed under it is no failure of health.
func Get(ctx context.Context, url string) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // see above
		DisableKeepAlives: true,
	}
	client := &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return Answer{}, fmt.Errorf("ask %s: %w", url, err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return Answer{}, err // says which URL
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return Answer{}, fmt.Errorf("read answer of %s: %w", url, err)
	}
	return Answer{resp.StatusCode >= 200 && resp.StatusCode < 300, resp.Status, body}, nil
}
