package cli

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nkeys"

	"delenda/internal/daemon"
)

// natsUsers are the services and people that log in to NATS by a key of their own.
var natsUsers = []string{"ingest", "deleter", "publisher", "operator"}

type setupCmd struct {
	Dir    string `arg:"" name:"directory" help:"Directory to make, mode 0700. It must not exist, or be empty."`
	Source string `default:"shop" placeholder:"NAME" help:"The sender that the token is for."`
}

func (*setupCmd) Help() string {
	return `Everything is random and made once; nothing has a default. The files can be read by all, for containers whose users have no
name here: it is the directory that keeps others out.

  nats-NAME.nk      the nkey seed by which a service logs in to NATS
  nats-users.conf   the public keys of these, for the server's configuration
  store.env         the S3 store's own account, as environment variables
  s3-credentials    the same account, as a credentials file for its clients
  SOURCE.sha256     what the configuration keeps of the sender's token

The token itself is printed, once.`
}

// Run runs the command.
func (c *setupCmd) Run(w *world) error {
	files, token, err := secretFiles(c.Source)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return fmt.Errorf("make secrets: %w", err)
	}
	there, err := os.ReadDir(c.Dir)
	if err != nil {
		return fmt.Errorf("make secrets: %w", err)
	}
	if len(there) > 0 {
		return next(fmt.Errorf("make secrets: %s: %w", c.Dir, fs.ErrExist), "name another directory; secrets that are in use are never written over")
	}
	if err := os.Chmod(c.Dir, 0o700); err != nil { //nolint:gosec // a directory has to be entered
		return fmt.Errorf("make secrets: %w", err)
	}
	for name, text := range files {
		if err := writeSecret(filepath.Join(c.Dir, name), text); err != nil {
			return fmt.Errorf("make secrets: %w", err)
		}
	}
	say(w.Stderr, "The secrets are in %s. The token of %s, which is shown this once:", c.Dir, c.Source)
	say(w.Stdout, "%s", token)
	return nil
}

// secretFiles makes the secrets, by name of their files.
func secretFiles(source string) (files map[string]string, token string, err error) {
	if source == "" || strings.ContainsAny(source, `/\`) {
		return nil, "", daemon.Usage(errors.New("--source needs the name of a sender"))
	}
	files = map[string]string{}
	users := &strings.Builder{}
	users.WriteString("# Made by delenda setup. These keys are public.\nauthorization {\n  users = [\n")
	for _, name := range natsUsers {
		pair, err := nkeys.CreateUser()
		if err != nil {
			return nil, "", fmt.Errorf("make key: %w", err)
		}
		seed, err := pair.Seed()
		if err != nil {
			return nil, "", fmt.Errorf("make key: %w", err)
		}
		public, err := pair.PublicKey()
		if err != nil {
			return nil, "", fmt.Errorf("make key: %w", err)
		}
		files["nats-"+name+".nk"] = string(seed) + "\n"
		_, _ = fmt.Fprintf(users, "    {nkey: %s} # %s\n", public, name)
	}
	users.WriteString("  ]\n}\n")
	files["nats-users.conf"] = users.String()
	access, secret := "delenda-"+strings.ToLower(rand.Text()[:12]), rand.Text()+rand.Text()
	files["store.env"] = fmt.Sprintf("ROOT_ACCESS_KEY_ID=%s\nROOT_SECRET_ACCESS_KEY=%s\n", access, secret)
	files["s3-credentials"] = fmt.Sprintf("[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n", access, secret)
	token = rand.Text() + rand.Text()
	sum := sha256.Sum256([]byte(token))
	files[source+".sha256"] = hex.EncodeToString(sum[:]) + "\n"
	return files, token, nil
}

// writeSecret makes a file that is not there yet, whatever the umask.
func writeSecret(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the operator names the directory
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Chmod(0o444), f.Sync(), f.Close())
}
