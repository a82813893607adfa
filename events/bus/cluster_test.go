package bus_test

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"delenda/events"
	"delenda/events/bus"
)

// run starts a server that is not embedded's: as an operator would run it.
func run(t testing.TB, o *server.Options) *server.Server {
	t.Helper()
	o.NoSigs, o.NoLog, o.Host, o.Port = true, true, "127.0.0.1", server.RANDOM_PORT
	o.JetStream, o.StoreDir, o.SyncAlways = true, t.TempDir(), true
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	return s
}

func TestDeclareRefusesAServerThatTakesSmallMessagesOnly(t *testing.T) {
	t.Parallel()
	s := run(t, &server.Options{MaxPayload: bus.MinPayload - 1})
	b, err := bus.Connect(t.Context(), bus.Options{URL: s.ClientURL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	err = b.Declare(t.Context(), bus.Topology{})
	if !errors.Is(err, bus.ErrTopology) || !strings.Contains(err.Error(), "max_payload") {
		t.Errorf("got %v", err)
	}
}

func TestConnectWithAnNKey(t *testing.T) {
	t.Parallel()
	// Made for this test; it opens nothing else.
	const public, seed = "UC6QRNZQ7SDJ4VJZJU73C345SUVPXYE3ESUWIQ3CF7X324556QOVRBNC", "SUAGUARKWSCQJ4PXFII4HZQB5V45L4HFBBTV4YKWK6VTMEF3SGSX6VDJT4"
	s := run(t, &server.Options{Nkeys: []*server.NkeyUser{{Nkey: public}}})
	file := filepath.Join(t.TempDir(), "user.nk")
	if err := os.WriteFile(file, []byte(seed), 0o600); err != nil {
		t.Fatal(err)
	}
	works(t, bus.Options{URL: s.ClientURL(), NKeyFile: file})
	if b, err := bus.Connect(t.Context(), bus.Options{URL: s.ClientURL()}); err == nil {
		b.Close()
		t.Error("connected without the key")
	}
}

// cluster starts three servers that hold streams together.
func cluster(t testing.TB) []*server.Server {
	t.Helper()
	routes := make([]string, 3)
	for n := range routes {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		routes[n] = l.Addr().String()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	list := make([]*server.Server, len(routes))
	for n, route := range routes {
		host, port, err := net.SplitHostPort(route)
		if err != nil {
			t.Fatal(err)
		}
		o := &server.Options{ServerName: fmt.Sprint("n", n)}
		o.Cluster.Name, o.Cluster.Host = "test", host
		if _, err := fmt.Sscan(port, &o.Cluster.Port); err != nil {
			t.Fatal(err)
		}
		for _, r := range routes {
			o.Routes = append(o.Routes, &url.URL{Scheme: "nats", Host: r})
		}
		list[n] = run(t, o)
	}
	return list
}

func TestAReplicatedBusSurvivesTheLossOfAServer(t *testing.T) {
	if os.Getenv("DELENDA_LONG") == "" {
		t.Skip("set DELENDA_LONG=1: it elects leaders")
	}
	t.Parallel()
	servers := cluster(t)
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.ClientURL())
	}
	b, err := bus.Connect(t.Context(), bus.Options{URL: strings.Join(urls, ",")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	// Callers retry; here until leaders are elected.
	until := func(what string, do func() error) {
		t.Helper()
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for begun := time.Now(); ; <-tick.C {
			err := do()
			if err == nil {
				return
			}
			if time.Since(begun) > 60*time.Second {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
	topology := bus.Topology{Tables: []string{"customers"}, Replicas: 3, AckWait: 2 * time.Second}
	until("declare", func() error { return b.Declare(t.Context(), topology) })
	for n := range 20 {
		until("publish", func() error { return b.Publish(t.Context(), item(t, "customers", fmt.Sprint(n))) })
	}
	if err := b.Declare(t.Context(), bus.Topology{Tables: topology.Tables, Replicas: 1}); err == nil {
		t.Error("replicas were given up silently")
	}

	servers[0].Shutdown()
	servers[0].WaitForShutdown()

	until("declare again", func() error { return b.Declare(t.Context(), topology) })
	done := map[string]bool{}
	until("erase every item", func() error {
		c, err := b.Consumer(t.Context(), events.StreamRequests, bus.DeleterDurable("customers"))
		if err != nil {
			return err
		}
		list, err := c.Fetch(t.Context(), 20, time.Second)
		if err != nil {
			return err
		}
		for _, m := range list {
			e := mustEvent(t, m)
			if err := m.Ack(t.Context()); err != nil {
				return err
			}
			done[e.ID] = true
		}
		if n, err := b.Backlog(t.Context(), "customers"); err != nil || n > 0 || len(done) < 20 {
			return fmt.Errorf("%d are left, %d done: %w", n, len(done), err)
		}
		return nil
	})
	for n, s := range servers[1:] {
		if left := found(t, s.StoreDir(), `"ciphertext":`); left != 0 {
			// The replication log keeps messages until it is compacted.
			t.Logf("server %d: %d in its files", n+1, left)
		}
	}
	kv, err := b.KV(t.Context(), events.KVHeads)
	if err != nil {
		t.Fatal(err)
	}
	until("put", func() error {
		_, err := kv.Put(t.Context(), "k", []byte("v"))
		return err
	})
}
