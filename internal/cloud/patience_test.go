package cloud

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"delenda/storage/bucket"
)

// TestAStoreThatTakesARequestAndDoesNotAnswerIsGivenUp sets the environment.
func TestAStoreThatTakesARequestAndDoesNotAnswerIsGivenUp(t *testing.T) {
	ended := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-ended:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() {
		close(ended)
		s.Close()
	})
	host := strings.TrimPrefix(s.URL, "http://")
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_MAX_ATTEMPTS", "1")
	t.Setenv("AZURE_STORAGE_ACCOUNT", "account1")
	t.Setenv("AZURE_STORAGE_KEY", "c2VjcmV0LWtleQ==")
	t.Setenv("STORAGE_EMULATOR_HOST", host)
	for name, at := range map[string]string{
		"S3":                   "s3://lake?endpoint=" + url.QueryEscape(s.URL),
		"Google Cloud Storage": "gs://lake",
		"Azure":                "azblob://lake?protocol=http&localemu=true&domain=" + url.QueryEscape(host),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, err := bucket.Open(t.Context(), at, &bucket.Options{Drivers: driversWith(20 * time.Millisecond), Now: time.Now})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = b.Close() }()
			// With the transports' own patience the test would end it.
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			if _, err := b.Stat(ctx, "k"); err == nil || ctx.Err() != nil {
				t.Errorf("stat: %v", err)
			}
		})
	}
}
