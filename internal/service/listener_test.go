package service_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"delenda/internal/config"
	"delenda/internal/service"
)

// certificate writes a self-signed certificate for 127.0.0.1.
func certificate(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})
	for name, text := range map[string][]byte{
		"cert.pem": certPEM, "key.pem": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(certPEM)
	return pool
}

// TestAListenerThatOthersReachSpeaksTLSAndTellsNothingOfTables also shows the
// operator's own listener.
func TestAListenerThatOthersReachSpeaksTLSAndTellsNothingOfTables(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pool := certificate(t, dir)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ops := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	conf, err := config.Parse(filepath.Join(dir, "c.yaml"), []byte(fmt.Sprintf(`installation: test
state: state
keeper: keeper.key
nats: {embedded: {dir: nats}}
tables: [{name: t, url: t, identities: {id: id}}]
ingest: {listen: "0.0.0.0:0", tls: {cert: cert.pem, key: key.pem}, ops: %q}
`, ops)), config.RoleUp, func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	started, ended := make(chan *service.Running, 1), make(chan error, 1)
	go func() {
		ended <- service.Run(ctx, service.Options{
			Name: "ingest", Config: conf, Services: service.Services{Ingest: true}, Embedded: true,
			Log: slog.New(slog.DiscardHandler), Now: time.Now, Started: func(r *service.Running) { started <- r },
		})
	}()
	r := <-started
	_, port, err := net.SplitHostPort(strings.TrimPrefix(r.IngestURL, "https://"))
	if err != nil {
		t.Fatalf("%s: %v", r.IngestURL, err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}}}
	fetch := func(url string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	public := "https://127.0.0.1:" + port
	if status, body := fetch(public + "/healthz"); status != http.StatusOK || body != "ok\n" {
		t.Errorf("healthz: %d %s", status, body)
	}
	for _, path := range []string{"/readyz", "/metrics"} {
		if status, body := fetch(public + path); status != http.StatusNotFound || strings.Contains(body, "delenda_") {
			t.Errorf("%s: %d %.100s", path, status, body)
		}
		if status, body := fetch("http://" + ops + path); status == http.StatusNotFound {
			t.Errorf("%s for the operator: %d %.100s", path, status, body)
		}
	}
	if status, _ := fetch("http://127.0.0.1:" + port + "/healthz"); status == http.StatusOK {
		t.Error("plain HTTP is served")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
