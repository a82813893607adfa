package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"delenda/events"
	"delenda/events/bus"
	"delenda/events/bus/embedded"
	"delenda/internal/cli"
	"delenda/internal/config"
	"delenda/internal/daemon"
	"delenda/internal/demo"
	"delenda/internal/service"
	"delenda/sharing"
	"delenda/sharing/client"
	"delenda/storage/bucket"
)

// TestMain lets the test binary stand for each of the four binaries: the
// functions are those that their mains call.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"delenda": func() { daemon.Main("delenda", cli.Delenda) },
		"ingest":  func() { daemon.Main("ingest", cli.Service(config.RoleIngest, "", service.Services{Ingest: true})) },
		"deleter": func() { daemon.Main("deleter", cli.Service(config.RoleDeleter, "", service.Services{Deleter: true})) },
		"publisher": func() {
			daemon.Main("publisher", cli.Service(config.RolePublisher, "", service.Services{Publisher: true}))
		},
	})
}

const token = "a-token-of-the-shop"

func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: "testdata", RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			testdata, err := filepath.Abs("../../storage/delta/testdata")
			if err != nil {
				return err
			}
			sum := sha256.Sum256([]byte(token))
			e.Vars = append(e.Vars, "DELENDA_TOKEN="+token, "TOKEN_SHA256="+hex.EncodeToString(sum[:]), "TABLES="+testdata, "TMPDIR="+e.WorkDir)
			for i := range 4 {
				port, err := freePort()
				if err != nil {
					return err
				}
				e.Vars = append(e.Vars, fmt.Sprintf("PORT%d=%d", i+1, port))
			}
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"mktable": mktable, "ready": ready, "natsd": natsd, "recipient": recipient, "expand": expand, "mode": mode, "release": release,
			"publish": publish, "deadletter": deadLetter,
		},
	})
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// mktable DIR writes the demo's table.
func mktable(ts *testscript.TestScript, _ bool, args []string) {
	b, err := bucket.Open(context.Background(), ts.MkAbs(args[0]), nil)
	ts.Check(err)
	_, err = demo.WriteTable(context.Background(), b, time.Now, nil)
	ts.Check(err)
	ts.Check(b.Close())
}

// expand FILE... replaces $NAME in files by the script's variables.
func expand(ts *testscript.TestScript, _ bool, args []string) {
	for _, name := range args {
		text := os.Expand(ts.ReadFile(name), ts.Getenv)
		ts.Check(os.WriteFile(ts.MkAbs(name), []byte(text), 0o600))
	}
}

// mode FILE MODE compares a file's permissions.
func mode(ts *testscript.TestScript, _ bool, args []string) {
	info, err := os.Stat(ts.MkAbs(args[0]))
	ts.Check(err)
	if got := fmt.Sprintf("%04o", info.Mode().Perm()); got != args[1] {
		ts.Fatalf("%s has mode %s, not %s", args[0], got, args[1])
	}
}

// ready PORT... waits until the services on these ports are ready.
func ready(ts *testscript.TestScript, _ bool, args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for _, port := range args {
		for {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:"+port+"/readyz", nil)
			ts.Check(err)
			resp, err := http.DefaultClient.Do(req)
			if err == nil {
				ts.Check(resp.Body.Close())
				if resp.StatusCode == http.StatusOK {
					break
				}
			}
			select {
			case <-ctx.Done():
				ts.Fatalf("port %s: not ready: %v", port, err)
			case <-tick.C:
			}
		}
	}
}

// natsd PORT runs a NATS server until the script ends.
func natsd(ts *testscript.TestScript, _ bool, args []string) {
	s, err := embedded.Start(context.Background(), embedded.Options{Dir: ts.MkAbs("natsd"), Listen: "127.0.0.1:" + args[0]})
	ts.Check(err)
	ts.Defer(func() { ts.Check(s.Shutdown(context.Background())) })
}

// recipient PROFILE TABLE [COLUMN VALUE] prints how many rows a recipient sees,
// and how many of them have the value. A recipient who is new is known to a
// running publisher within seconds.
func recipient(ts *testscript.TestScript, neg bool, args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	rows, matching, err := readShare(ts, args)
	for err != nil && strings.Contains(err.Error(), sharing.CodeUnauthenticated) && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			rows, matching, err = readShare(ts, args)
		}
	}
	if neg {
		if err == nil {
			ts.Fatalf("the recipient may read %s", args[1])
		}
		_, _ = fmt.Fprintln(ts.Stdout(), err)
		return
	}
	ts.Check(err)
	_, _ = fmt.Fprintf(ts.Stdout(), "%d rows, %d matching\n", rows, matching)
}

func readShare(ts *testscript.TestScript, args []string) (rows, matching int64, err error) {
	profile, err := sharing.ParseProfile([]byte(ts.ReadFile(args[0])))
	if err != nil {
		return 0, 0, err
	}
	c, err := client.New(profile, &client.Options{Retries: 1})
	if err != nil {
		return 0, 0, err
	}
	name := strings.Split(args[1], ".")
	s, err := c.Query(context.Background(), sharing.Table{Share: name[0], Schema: name[1], Name: name[2]}, nil)
	if err != nil {
		return 0, 0, err
	}
	for batch, err := range s.Read(context.Background(), nil) {
		if err != nil {
			return 0, 0, err
		}
		rows += batch.NumRows()
		if len(args) < 4 {
			continue
		}
		column := batch.Column(batch.Schema().FieldIndices(args[2])[0])
		for i := range column.Len() {
			if column.ValueStr(i) == args[3] {
				matching++
			}
		}
	}
	return rows, matching, nil
}

// release FILE releases the first open request of a status in JSON.
func release(ts *testscript.TestScript, _ bool, args []string) {
	var status struct {
		Open []struct{ ID string } `json:"open"`
	}
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &status))
	if len(status.Open) != 1 {
		ts.Fatalf("%d requests are open", len(status.Open))
	}
	ts.Check(ts.Exec("delenda", "release", "-config", "delenda.yaml", status.Open[0].ID))
}

// dial connects to the NATS server of `delenda up`, as who may read its
// directory.
func dial(ts *testscript.TestScript, port string) *bus.Bus {
	token, err := service.EmbeddedToken(ts.MkAbs("nats"))
	ts.Check(err)
	b, err := bus.Connect(context.Background(), bus.Options{URL: "nats://127.0.0.1:" + port, Token: token})
	ts.Check(err)
	return b
}

// publish PORT SUBJECT TEXT publishes a message.
func publish(ts *testscript.TestScript, _ bool, args []string) {
	b := dial(ts, args[0])
	defer b.Close()
	_, err := b.PublishRaw(context.Background(), args[1], "", []byte(args[2]))
	ts.Check(err)
}

// deadletter PORT waits for a dead letter.
func deadLetter(ts *testscript.TestScript, _ bool, args []string) {
	b := dial(ts, args[0])
	defer b.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for u, err := range b.Follow(ctx, events.StreamDead, bus.FollowOptions{}) {
		ts.Check(err)
		if u.Record != nil {
			return
		}
	}
	ts.Fatalf("no dead letter came")
}
