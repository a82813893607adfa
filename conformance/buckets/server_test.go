package buckets

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"delenda/internal/cloud"
	"delenda/storage"
	"delenda/storage/bucket"
)

// Servers that run.sh has installed: a program, and a script for node.
const (
	versitygwEnv = "DELENDA_VERSITYGW"
	azuriteEnv   = "DELENDA_AZURITE"
)

const account = "delenda1"

// TestMain sets the credentials that the SDKs read from the environment. Racing
// processes, this binary again, find them there and keep them.
func TestMain(m *testing.M) {
	if os.Getenv("AZURE_STORAGE_KEY") == "" {
		dir, err := os.MkdirTemp("", "delenda-conformance-")
		if err != nil {
			panic(err)
		}
		if err := prepare(dir); err != nil {
			panic(err)
		}
		workDir = dir
	}
	m.Run()
	for _, stop := range stops {
		stop()
	}
	if workDir != "" {
		_ = os.RemoveAll(workDir)
	}
}

var (
	workDir  string // of the process that starts the servers
	stops    []func()
	stopsMu  sync.Mutex
	bucketNo atomic.Int64
)

func prepare(dir string) error {
	var key [32]byte
	_, _ = rand.Read(key[:])
	for name, value := range map[string]string{
		"AZURE_STORAGE_ACCOUNT":       account,
		"AZURE_STORAGE_KEY":           base64.StdEncoding.EncodeToString(key[:]),
		"AWS_ACCESS_KEY_ID":           "conformance",
		"AWS_SECRET_ACCESS_KEY":       base64.RawURLEncoding.EncodeToString(key[:]),
		"AWS_CONFIG_FILE":             os.DevNull,
		"AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
		"AWS_SESSION_TOKEN":           "",
		"AWS_REGION":                  "",
		"AWS_CA_BUNDLE":               filepath.Join(dir, "cert.pem"),
	} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return writeCertificate(dir)
}

// writeCertificate makes the certificate of the https servers, and lets this
// process's own client trust it.
func writeCertificate(dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "conformance"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	for name, block := range map[string]*pem.Block{
		"cert.pem": {Type: "CERTIFICATE", Bytes: der},
		"key.pem":  {Type: "EC PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			return err
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	http.DefaultTransport = transport
	return nil
}

// start runs a server until the tests end and waits until it accepts.
func start(address, name string, env []string, args ...string) error {
	var log bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Dir = workDir
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stopsMu.Lock()
	stops = append(stops, func() { _ = cmd.Process.Kill(); <-ended })
	stopsMu.Unlock()
	deadline := time.After(time.Minute)
	for retry := time.NewTicker(50 * time.Millisecond); ; {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		cancel()
		if err == nil {
			return conn.Close()
		}
		select {
		case err := <-ended:
			ended <- err
			return fmt.Errorf("it ended: %w\n%s", err, log.String())
		case <-deadline:
			return errors.New("it does not listen")
		case <-retry.C:
		}
	}
}

// freeAddress finds a port of the loopback interface that nobody listens on.
func freeAddress() (address string, port string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	port = strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	return l.Addr().String(), port, l.Close()
}

// need skips the test unless run.sh has installed the server.
func need(t *testing.T, env, name string) {
	t.Helper()
	if os.Getenv(env) == "" {
		t.Skipf("%s is not installed: run.sh could not get it", name)
	}
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

func bucketName() string { return fmt.Sprintf("bucket-%d", bucketNo.Add(1)) }
