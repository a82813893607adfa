package bus_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"delenda/events/bus"
	"delenda/events/bus/embedded"
)

func listen(t testing.TB, o embedded.Options) *embedded.Server {
	t.Helper()
	o.Dir, o.Listen = t.TempDir(), "127.0.0.1:0"
	s, err := embedded.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Shutdown(context.WithoutCancel(t.Context())) })
	return s
}

// works publishes and fetches one item, then drains.
func works(t testing.TB, o bus.Options) {
	t.Helper()
	b, err := bus.Connect(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Declare(t.Context(), bus.Topology{Tables: []string{"customers"}}); err != nil {
		t.Fatal(err)
	}
	publish(t, b, item(t, "customers", "r1"))
	if err := fetch(t, consumer(t, b, "customers"), 1)[0].Ack(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestConnectOverTheNetwork(t *testing.T) {
	t.Parallel()
	works(t, bus.Options{URL: listen(t, embedded.Options{}).ClientURL()})
}

func TestConnectWithAToken(t *testing.T) {
	t.Parallel()
	const token = "s3cret-token"
	s := listen(t, embedded.Options{Token: token})
	works(t, bus.Options{URL: s.ClientURL(), Token: token})
	works(t, bus.Options{InProcess: s, Token: token})
	withToken := strings.Replace(s.ClientURL(), "nats://", "nats://"+token+"@", 1)
	works(t, bus.Options{URL: withToken})
}

func TestConnectWithTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	serverTLS := certificates(t, dir)
	s := listen(t, embedded.Options{TLS: serverTLS})
	url := s.ClientURL()
	ca, cert, key := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	works(t, bus.Options{URL: url, CAFile: ca, CertFile: cert, KeyFile: key})
	works(t, bus.Options{InProcess: s})
	for name, o := range map[string]bus.Options{
		"without the authority":        {URL: url},
		"without a certificate":        {URL: url, CAFile: ca},
		"with a missing authority":     {URL: url, CAFile: filepath.Join(dir, "none.pem")},
		"with no authority in file":    {URL: url, CAFile: key},
		"with a key for a certificate": {URL: url, CAFile: ca, CertFile: key, KeyFile: key},
	} {
		if b, err := bus.Connect(t.Context(), o); err == nil {
			b.Close()
			t.Errorf("connected %s", name)
		}
	}
}

func TestNoErrorOrLogRepeatsCredentials(t *testing.T) {
	t.Parallel()
	s := listen(t, embedded.Options{Token: "right-token"})
	host := strings.TrimPrefix(s.ClientURL(), "nats://")
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	for name, url := range map[string]string{
		"refused":               "nats://user:hunter2@" + host,
		"refused token":         "nats://hunter2@" + host,
		"nobody there":          "nats://user:hunter2@" + nobody,
		"among others":          nobody + ", nats://user:hunter2@" + nobody,
		"no scheme":             "user:hunter2@" + nobody,
		"unreadable":            "nats://user:hunter2 @" + host,
		"unreadable port":       "nats://user:hunter2@127.0.0.1:port",
		"in the query":          "nats://" + nobody + "/?token=hunter2",
		"of an unknown scheme":  "hunter://user:hunter2@" + nobody,
		"percent-encoded badly": "nats://user:hunter2%zz@" + nobody,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			b, err := bus.Connect(t.Context(), bus.Options{
				URL: url, Timeout: time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			})
			if err == nil {
				b.Close()
				t.Fatal("connected")
			}
			if !errors.Is(err, bus.ErrDisconnected) {
				t.Errorf("got %v", err)
			}
			for _, text := range []string{err.Error(), log.String(), bus.Redact(url)} {
				if strings.Contains(text, "hunter2") || strings.Contains(text, "user") {
					t.Errorf("it says %q", text)
				}
			}
		})
	}
	if got, want := bus.Redact("localhost:4222,tls://u:p@b.example:4222/x?y=z"), "nats://localhost:4222,tls://b.example:4222"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestConnectNeedsItsFiles(t *testing.T) {
	t.Parallel()
	none := filepath.Join(t.TempDir(), "none")
	for name, o := range map[string]bus.Options{
		"credentials": {URL: "nats://127.0.0.1:1", CredentialsFile: none},
		"nkey":        {URL: "nats://127.0.0.1:1", NKeyFile: none},
		"certificate": {URL: "nats://127.0.0.1:1", CertFile: none, KeyFile: none},
		"server":      {},
	} {
		if _, err := bus.Connect(t.Context(), o); err == nil || errors.Is(err, bus.ErrDisconnected) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// certificates writes ca.pem, cert.pem and key.pem for a client and returns a
// server's configuration that demands them.
func certificates(t testing.TB, dir string) *tls.Config {
	t.Helper()
	write := func(name, typ string, der []byte) {
		t.Helper()
		p := pem.EncodeToMemory(&pem.Block{Type: typ, Bytes: der})
		if err := os.WriteFile(filepath.Join(dir, name), p, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	issue := func(serial int64, parent *x509.Certificate, isCA bool) ([]byte, *x509.Certificate) {
		t.Helper()
		c := &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: fmt.Sprint("test ", serial)}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			IsCA: isCA, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
			KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		}
		if parent == nil {
			parent = c
		}
		der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, key)
		if err != nil {
			t.Fatal(err)
		}
		return der, c
	}
	caDER, ca := issue(1, nil, true)
	der, _ := issue(2, ca, false)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write("ca.pem", "CERTIFICATE", caDER)
	write("cert.pem", "CERTIFICATE", der)
	write("key.pem", "PRIVATE KEY", keyDER)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER}))
	return &tls.Config{
		MinVersion: tls.VersionTLS12, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
	}
}
