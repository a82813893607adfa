package cloud_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fsouza/fake-gcs-server/fakestorage"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"delenda/internal/cloud"
	"delenda/storage"
	"delenda/storage/bucket"
	"delenda/storage/storagetest"
)

// TestMain sets the credentials and addresses that the SDKs read from the
// environment. Racing processes find them there already.
func TestMain(m *testing.M) {
	if os.Getenv("STORAGE_EMULATOR_HOST") == "" {
		stop := startGCS()
		defer stop()
	}
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test-secret", "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull, "AWS_REGION": "", "AWS_SESSION_TOKEN": "",
	} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	m.Run()
}

// startGCS needs its address before it starts: the server tells reads by host.
func startGCS() (stop func()) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	host := free.Addr().String()
	port := free.Addr().(*net.TCPAddr).Port
	if err := free.Close(); err != nil {
		panic(err)
	}
	gcsServer, err = fakestorage.NewServerWithOptions(fakestorage.Options{
		Scheme: "http", Host: "127.0.0.1", Port: uint16(port), PublicHost: host,
	})
	if err != nil {
		panic(err)
	}
	if err := os.Setenv("STORAGE_EMULATOR_HOST", host); err != nil {
		panic(err)
	}
	return gcsServer.Stop
}

var (
	gcsServer *fakestorage.Server
	bucketNo  atomic.Int64
)

func gcsURL(t *testing.T) string {
	t.Helper()
	name := fmt.Sprintf("bucket-%d", bucketNo.Add(1))
	gcsServer.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: name})
	return "gs://" + name + "/deep/prefix"
}

var startS3 = sync.OnceValue(func() *s3Server {
	backend := s3mem.New()
	s := &s3Server{backend: backend, inner: gofakes3.New(backend).Server()}
	s.http = httptest.NewServer(s)
	return s
})

// s3Server is gofakes3 with the two things it lacks: If-None-Match on the
// completion of a multi-part upload, and a record of requests.
type s3Server struct {
	backend gofakes3.Backend
	inner   http.Handler
	http    *httptest.Server
	mu      sync.Mutex
}

func (s *s3Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost && r.URL.Query().Has("uploadId") {
		s.mu.Lock()
		defer s.mu.Unlock()
		name, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		if _, err := s.backend.HeadObject(name, key); err == nil && r.Header.Get("If-None-Match") == "*" {
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(http.StatusPreconditionFailed)
			_, _ = w.Write([]byte(`<Error><Code>PreconditionFailed</Code><Message>exists</Message></Error>`))
			return
		}
	}
	s.inner.ServeHTTP(w, r)
}

func s3URL(t *testing.T) string {
	t.Helper()
	s := startS3()
	name := fmt.Sprintf("bucket-%d", bucketNo.Add(1))
	if err := s.backend.CreateBucket(name); err != nil {
		t.Fatal(err)
	}
	return "s3://" + name + "/deep/prefix?endpoint=" + url.QueryEscape(s.http.URL)
}

func openURL(ctx context.Context, rawURL string) (storage.Bucket, error) {
	return bucket.Open(ctx, rawURL, &bucket.Options{Drivers: cloud.Drivers()})
}

func open(t *testing.T, rawURL string) *bucket.Bucket {
	t.Helper()
	b, err := bucket.Open(t.Context(), rawURL, &bucket.Options{Drivers: cloud.Drivers()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func TestS3Conforms(t *testing.T) {
	t.Parallel()
	storagetest.Bucket(t, func(t *testing.T) storage.Bucket { t.Helper(); return open(t, s3URL(t)) })
}

func TestGCSConforms(t *testing.T) {
	t.Parallel()
	storagetest.Bucket(t, func(t *testing.T) storage.Bucket { t.Helper(); return open(t, gcsURL(t)) })
}

func TestS3HasOneWinnerAmongProcesses(t *testing.T) {
	t.Parallel()
	storagetest.BucketProcesses(t, 150, s3URL, openURL)
}

func TestGCSHasOneWinnerAmongProcesses(t *testing.T) {
	t.Parallel()
	storagetest.BucketProcesses(t, 150, gcsURL, openURL)
}

func TestS3Signs(t *testing.T) {
	t.Parallel()
	b := open(t, s3URL(t))
	p, ok := b.Presigner()
	if !ok {
		t.Fatal("it does not sign")
	}
	storagetest.Presigner(t, b, p, storagetest.SignChecks{Suffix: true})
}

func TestGCSSigns(t *testing.T) {
	t.Parallel()
	b := open(t, gcsURL(t)+"?access_id=signer%40example.test&private_key_path="+url.QueryEscape(writeKey(t)))
	p, ok := b.Presigner()
	if !ok {
		t.Fatal("it does not sign")
	}
	storagetest.Presigner(t, b, p, storagetest.SignChecks{Suffix: true})
}

// writeKey makes a private key like a service account's.
func writeKey(t *testing.T) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "key.pem")
	block := &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
	if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
