package cloud_test

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"delenda/internal/cloud"
	"delenda/storage"
	"delenda/storage/bucket"
)

const leak = "leaked-detail"

// answer is a store that gives every request the same answer.
func answer(t *testing.T, status int, body string, header ...string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// operations calls each operation once, List excepted.
func operations(t *testing.T, b storage.Bucket) map[string]error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, statErr := b.Stat(ctx, "dir/k")
	_, readErr := b.Read(ctx, "dir/k", 0, -1)
	return map[string]error{
		"stat":   statErr,
		"read":   readErr,
		"put":    b.Put(ctx, "dir/k", strings.NewReader("x"), storage.PutOptions{}),
		"create": b.Put(ctx, "dir/k", strings.NewReader("x"), storage.PutOptions{IfAbsent: true}),
		"delete": b.Delete(ctx, "dir/k"),
		"list":   firstListError(ctx, b),
	}
}

func firstListError(ctx context.Context, b storage.Bucket) error {
	for _, err := range b.List(ctx, "dir/", "") {
		return err
	}
	return nil
}

func scrubbed(t *testing.T, op string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	for _, secret := range []string{leak, "://", "127.0.0.1", "Signature", "X-Amz", "sig=", "<"} {
		if strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, errors.Unwrap(err)), secret) {
			t.Errorf("%s: the error holds %q: %+v", op, secret, err)
		}
	}
}

func s3Error(code string) string {
	return "<Error><Code>" + code + "</Code><Message>" + leak + " http://host/?X-Amz-Signature=1</Message></Error>"
}

func TestS3Refusals(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		status int
		code   string
		want   error
		ops    string // operations that get want, "" for all
	}{
		{"a 403 is a refusal, not absence", 403, "AccessDenied", storage.ErrDenied, ""},
		{"a 403 with an unknown code is a refusal", 403, "Weird", storage.ErrDenied, ""},
		{"a bad signature is a refusal", 403, "SignatureDoesNotMatch", storage.ErrDenied, ""},
		{"a 404 is absence", 404, "NoSuchKey", storage.ErrNotFound, "stat read"},
		{"a failed precondition is an object that exists", 412, "PreconditionFailed", storage.ErrExists, "create"},
		{"a conflict of conditional writes is an object that exists", 409, "ConditionalRequestConflict", storage.ErrExists, "create"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := open(t, "s3://b?endpoint="+url.QueryEscape(answer(t, test.status, s3Error(test.code))))
			for op, err := range operations(t, b) {
				scrubbed(t, op, err)
				if (test.ops == "" || strings.Contains(test.ops, op)) && !errors.Is(err, test.want) {
					t.Errorf("%s: %v, want %v", op, err, test.want)
				}
			}
		})
	}
	for _, test := range []struct {
		name   string
		status int
		code   string
	}{
		{"a missing bucket is not an absent object", 404, "NoSuchBucket"},
		{"a redirect to another region is not absence", 301, "PermanentRedirect"},
		{"a bad request is not absence", 400, "AuthorizationHeaderMalformed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := open(t, "s3://b?endpoint="+url.QueryEscape(answer(t, test.status, s3Error(test.code))))
			for op, err := range operations(t, b) {
				scrubbed(t, op, err)
				if err == nil || op != "stat" && (errors.Is(err, storage.ErrNotFound) || errors.Is(err, storage.ErrExists)) {
					t.Errorf("%s: %v", op, err)
				}
				var code *bucket.CodeError
				if op == "read" && (!errors.As(err, &code) || code.Code != test.code || code.Status != test.status) {
					t.Errorf("%s: %v, want the code %s", op, err, test.code)
				}
			}
		})
	}
}

func TestGCSRefusals(t *testing.T) {
	// The emulator's address is one for the whole process.
	for _, test := range []struct {
		name   string
		status int
		want   error
		ops    string
	}{
		{"a 403 is a refusal, not absence", 403, storage.ErrDenied, ""},
		{"a 401 is a refusal", 401, storage.ErrDenied, ""},
		{"a 404 is absence", 404, storage.ErrNotFound, "stat read"},
		{"a failed precondition is an object that exists", 412, storage.ErrExists, "create"},
	} {
		t.Run(test.name, func(t *testing.T) {
			body := fmt.Sprintf(`{"error":{"code":%d,"message":"%s http://host/","errors":[{"reason":"forbidden","message":"%s"}]}}`, test.status, leak, leak)
			t.Setenv("STORAGE_EMULATOR_HOST", strings.TrimPrefix(answer(t, test.status, body, "Content-Type", "application/json"), "http://"))
			b := open(t, "gs://b")
			for op, err := range operations(t, b) {
				scrubbed(t, op, err)
				if (test.ops == "" || strings.Contains(test.ops, op)) && !errors.Is(err, test.want) {
					t.Errorf("%s: %v, want %v", op, err, test.want)
				}
			}
		})
	}
}

func TestAzureRefusals(t *testing.T) {
	t.Setenv("AZURE_STORAGE_ACCOUNT", "account1")
	t.Setenv("AZURE_STORAGE_KEY", "c2VjcmV0LWtleQ==")
	for _, test := range []struct {
		name   string
		status int
		code   string
		want   error
		ops    string
	}{
		{"a 403 is a refusal, not absence", 403, "AuthorizationFailure", storage.ErrDenied, ""},
		{"a bad signature is a refusal", 403, "AuthenticationFailed", storage.ErrDenied, ""},
		{"a 404 is absence", 404, "BlobNotFound", storage.ErrNotFound, "stat read"},
		{"a blob that is there is an object that exists", 409, "BlobAlreadyExists", storage.ErrExists, "create"},
		{"a failed precondition is an object that exists", 412, "ConditionNotMet", storage.ErrExists, "create"},
	} {
		t.Run(test.name, func(t *testing.T) {
			address := answer(t, test.status, "<Error><Code>"+test.code+"</Code><Message>"+leak+"</Message></Error>", "x-ms-error-code", test.code)
			b := open(t, "azblob://c?localemu=true&protocol=http&domain="+strings.TrimPrefix(address, "http://"))
			for op, err := range operations(t, b) {
				scrubbed(t, op, err)
				if (test.ops == "" || strings.Contains(test.ops, op)) && !errors.Is(err, test.want) {
					t.Errorf("%s: %v, want %v", op, err, test.want)
				}
			}
			raw := &keyed{b, "with %25/k"}
			for op, err := range operations(t, raw) {
				scrubbed(t, op, err)
				if (test.ops == "" || strings.Contains(test.ops, op)) && !errors.Is(err, test.want) {
					t.Errorf("%s by the raw client: %v, want %v", op, err, test.want)
				}
			}
		})
	}
	t.Run("a missing container is not an absent object", func(t *testing.T) {
		address := answer(t, 404, "<Error><Code>ContainerNotFound</Code></Error>", "x-ms-error-code", "ContainerNotFound")
		b := open(t, "azblob://c?localemu=true&protocol=http&domain="+strings.TrimPrefix(address, "http://"))
		for op, err := range operations(t, b) {
			if err == nil || errors.Is(err, storage.ErrNotFound) {
				t.Errorf("%s: %v", op, err)
			}
		}
	})
}

// keyed uses one key for every operation.
type keyed struct {
	storage.Bucket
	key string
}

func (k *keyed) Stat(ctx context.Context, _ string) (storage.Info, error) {
	return k.Bucket.Stat(ctx, k.key)
}

func (k *keyed) Read(ctx context.Context, _ string, offset, length int64) (io.ReadCloser, error) {
	return k.Bucket.Read(ctx, k.key, offset, length)
}

func (k *keyed) Put(ctx context.Context, _ string, body io.Reader, opts storage.PutOptions) error {
	return k.Bucket.Put(ctx, k.key, body, opts)
}

func (k *keyed) Delete(ctx context.Context, _ string) error { return k.Bucket.Delete(ctx, k.key) }

func TestAnUnreachableStoreIsNotAbsence(t *testing.T) {
	t.Setenv("AZURE_STORAGE_ACCOUNT", "account1")
	t.Setenv("AZURE_STORAGE_KEY", "c2VjcmV0LWtleQ==")
	t.Setenv("STORAGE_EMULATOR_HOST", "127.0.0.1:1")
	for _, address := range []string{
		"s3://b?endpoint=http%3A%2F%2F127.0.0.1%3A1",
		"s3://b?endpoint=http%3A%2F%2Fno-such-host.invalid",
		"azblob://c?localemu=true&protocol=http&domain=127.0.0.1:1",
		"gs://b",
	} {
		b := open(t, address)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := b.Stat(ctx, "k")
		cancel()
		if err == nil || errors.Is(err, storage.ErrNotFound) {
			t.Errorf("%s: %v", address, err)
		}
		scrubbed(t, address, err)
	}
}

// TestS3AmbiguousPut: the store keeps the object but its answer is lost, the
// SDK tries again, and the won race looks lost. The caller reads back what won.
func TestS3AmbiguousPut(t *testing.T) {
	t.Parallel()
	s := startS3()
	var puts atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && puts.Add(1) == 1 {
			s.inner.ServeHTTP(httptest.NewRecorder(), r)
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		s.inner.ServeHTTP(w, r)
	}))
	t.Cleanup(proxy.Close)
	name := fmt.Sprintf("bucket-%d", bucketNo.Add(1))
	if err := s.backend.CreateBucket(name); err != nil {
		t.Fatal(err)
	}
	b := open(t, "s3://"+name+"?endpoint="+url.QueryEscape(proxy.URL))
	err := b.Put(t.Context(), "log/1.json", strings.NewReader("ours"), storage.PutOptions{IfAbsent: true})
	if !errors.Is(err, storage.ErrExists) {
		t.Fatalf("got %v, want ErrExists", err)
	}
	if p, err := storage.ReadObject(t.Context(), b, "log/1.json", 100); err != nil || string(p) != "ours" {
		t.Errorf("what won is %q, %v", p, err)
	}
}

func TestABodyThatIsCutShortIsAnError(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "only this")
	}))
	t.Cleanup(s.Close)
	b := open(t, "s3://b?endpoint="+url.QueryEscape(s.URL))
	p, err := storage.ReadObject(t.Context(), b, "k", 1000)
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %q, %v", p, err)
	}
	scrubbed(t, "read", err)
}

// TestS3OverTLS: over https the SDK may frame bodies with trailing checksums,
// which a store that does not know them keeps as content.
func TestS3OverTLS(t *testing.T) {
	s := startS3()
	secure := httptest.NewTLSServer(s)
	t.Cleanup(secure.Close)
	bundle := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(bundle, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_CA_BUNDLE", bundle)
	name := fmt.Sprintf("bucket-%d", bucketNo.Add(1))
	if err := s.backend.CreateBucket(name); err != nil {
		t.Fatal(err)
	}
	b := open(t, "s3://"+name+"?endpoint="+url.QueryEscape(secure.URL))
	for _, size := range []int{10, 1 << 20, 9 << 20} {
		want := strings.Repeat("x", size)
		if err := b.Put(t.Context(), "k", strings.NewReader(want), storage.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		if p, err := storage.ReadObject(t.Context(), b, "k", 10<<20); err != nil || string(p) != want {
			t.Errorf("%d bytes came back as %d, %v", size, len(p), err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	for name, address := range map[string]string{
		"an endpoint without a scheme":          "s3://b?endpoint=localhost:9000",
		"an unknown parameter of s3":            "s3://b?bogus=1&region=r",
		"an unknown parameter of gs":            "gs://b?bogus=1",
		"an unknown parameter of azblob":        "azblob://c?bogus=1&storage_account=a",
		"a public endpoint without a scheme":    "s3://b?region=r&public_endpoint=localhost",
		"a public endpoint with credentials":    "s3://b?region=r&public_endpoint=https%3A%2F%2Fu:p@h",
		"a public endpoint with a path of gs":   "gs://b?access_id=a&public_endpoint=https%3A%2F%2Fh%2Fp",
		"an Azure account that is none":         "azblob://c",
		"an insecure Azure that is no emulator": "azblob://c?storage_account=a&protocol=http",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if b, err := bucket.Open(t.Context(), address, &bucket.Options{Drivers: cloud.Drivers()}); err == nil {
				_ = b.Close()
				t.Error("it opened")
			}
		})
	}
	if _, err := bucket.Open(t.Context(), "s3://b", nil); err == nil || !strings.Contains(err.Error(), "no driver") {
		t.Errorf("without drivers: %v", err)
	}
}
