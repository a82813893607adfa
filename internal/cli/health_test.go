package cli

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"delenda/internal/config"
	"delenda/internal/daemon"
)

func TestReadinessIsAskedForWhereItIsServed(t *testing.T) {
	t.Parallel()
	pair := config.TLS{Cert: "c", Key: "k"}
	tests := map[string]struct {
		role config.Role
		l    config.Listener
		want string // "": refused
	}{
		"on a loopback listener":                      {config.RoleIngest, config.Listener{Listen: "127.0.0.1:8470"}, "http://127.0.0.1:8470/readyz"},
		"by TLS if that is configured":                {config.RolePublisher, config.Listener{Listen: "localhost:8472", TLS: pair}, "https://localhost:8472/readyz"},
		"on the operator's listener, which is plain":  {config.RoleIngest, config.Listener{Listen: "0.0.0.0:8470", TLS: pair, Ops: "0.0.0.0:9470"}, "http://127.0.0.1:9470/readyz"},
		"on this machine of all IPv6 addresses":       {config.RoleDeleter, config.Listener{Listen: "[::]:8471", Insecure: true}, "http://[::1]:8471/readyz"},
		"on this machine of all addresses":            {config.RoleDeleter, config.Listener{Listen: ":8471", TLS: pair}, "https://127.0.0.1:8471/readyz"},
		"on the deleter's for everything together":    {config.RoleUp, config.Listener{Listen: "127.0.0.1:8471"}, "http://127.0.0.1:8471/readyz"},
		"not where other machines are not to see it":  {config.RoleIngest, config.Listener{Listen: "0.0.0.0:8470", TLS: pair}, ""},
		"not on a port that the system has to choose": {config.RoleDeleter, config.Listener{Listen: "127.0.0.1:0"}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := config.Default()
			switch test.role {
			case config.RoleIngest:
				c.Ingest.Listener = test.l
			case config.RolePublisher:
				c.Publisher.Listener = test.l
			default:
				c.Deleter.Listener = test.l
			}
			got, err := readyURL(&c, test.role)
			if got != test.want || (err == nil) != (test.want != "") {
				t.Errorf("got %q, %v; want %q", got, err, test.want)
			}
		})
	}
}

func TestHealthTellsWhyNot(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		status int
		body   string
		want   string // in the error; "": healthy
	}{
		"ready":                        {200, `{"ready": true}`, ""},
		"a check that fails":           {503, `{"checks": [{"name": "state", "ok": true}, {"name": "nats", "reason": "not connected to nats://nats:4222"}]}`, "not ready: nats: not connected to nats://nats:4222"},
		"an answer of something else":  {502, "bad gateway", "502 Bad Gateway bad gateway"},
		"a redirect is not readiness":  {302, "{}", "302 Found"},
		"not ready without any reason": {503, `{}`, "503 Service Unavailable"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/readyz" {
					t.Errorf("asked for %s", r.URL.Path)
				}
				w.WriteHeader(test.status)
				_, _ = w.Write([]byte(test.body))
			}))
			defer server.Close()
			check(t, server.Listener.Addr(), "", test.want)
		})
	}
}

func TestHealthAsksByTLSWhateverTheCertificateSays(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	check(t, server.Listener.Addr(), "tls: {cert: c.pem, key: k.pem}", "")
}

func TestAServiceThatIsNotThereIsNotHealthy(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	check(t, l.Addr(), "", "connection refused")
}

// check runs `deleter health` against an address.
func check(t *testing.T, addr net.Addr, more, want string) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "delenda.yaml")
	text := `installation: acme
state: state
keeper: keeper.key
nats: {url: "nats://127.0.0.1:4222"}
tables: [{name: orders, url: orders, identities: {id: id}}]
deleter:
  listen: ` + addr.String() + "\n  " + more + "\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := daemon.Process{
		Args: []string{"health", "-config", path}, Env: func(string) (string, bool) { return "", false },
		Stdout: t.Output(), Stderr: t.Output(),
	}
	err := Service(config.RoleDeleter, "", noServices)(t.Context(), p)
	switch {
	case want == "" && err != nil:
		t.Error(err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("got %v, want %q", err, want)
	}
}
