package cli

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nkeys"

	"delenda/internal/daemon"
	"delenda/internal/service"
)

var noServices service.Services

func setup(t *testing.T, dir string) (token string, err error) {
	t.Helper()
	var out bytes.Buffer
	p := daemon.Process{
		Args: []string{"setup", dir}, Env: func(string) (string, bool) { return "", false }, Stdout: &out, Stderr: t.Output(),
	}
	err = Delenda(t.Context(), p)
	return strings.TrimSpace(out.String()), err
}

func TestSetupMakesSecretsThatFitEachOther(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "secrets")
	token, err := setup(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
	sum := sha256.Sum256([]byte(token))
	if got := read("shop.sha256"); token == "" || got != hex.EncodeToString(sum[:]) {
		t.Errorf("the hash %s is not the token's", got)
	}
	users := read("nats-users.conf")
	for _, name := range natsUsers {
		pair, err := nkeys.FromSeed([]byte(read("nats-" + name + ".nk")))
		if err != nil {
			t.Fatal(err)
		}
		public, err := pair.PublicKey()
		if err != nil || !strings.Contains(users, public) {
			t.Errorf("the server does not know %s: %v", name, err)
		}
	}
	access, secret, _ := strings.Cut(strings.TrimPrefix(read("store.env"), "ROOT_ACCESS_KEY_ID="), "\nROOT_SECRET_ACCESS_KEY=")
	if got := read("s3-credentials"); secret == "" || got != "[default]\naws_access_key_id = "+access+"\naws_secret_access_key = "+secret {
		t.Error("store and clients have different credentials")
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("others may look into the directory: %v, %v", info.Mode(), err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.Contains(read(e.Name()), token) {
			t.Errorf("%s holds the token", e.Name())
		}
	}
}

func TestSetupWritesOverNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := setup(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadFile(filepath.Join(dir, "store.env"))
	second, err := setup(t, dir)
	after, _ := os.ReadFile(filepath.Join(dir, "store.env"))
	if err == nil || second != "" || !bytes.Equal(before, after) {
		t.Errorf("second setup: %v, token %t", err, second != "")
	}
	other, err := setup(t, t.TempDir())
	if err != nil || other == first {
		t.Errorf("two setups share a token: %v", err)
	}
}
