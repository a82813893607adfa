package demo

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"delenda/internal/cloud"
	"delenda/internal/config"
	"delenda/internal/service"
	"delenda/sharing"
	"delenda/sharing/client"
	"delenda/sharing/recipients"
	"delenda/storage"
	"delenda/storage/bucket"
	"delenda/storage/delta"
)

// prepare puts the table where the services find it.
func (d *demo) prepare(ctx context.Context) error {
	lake, err := bucket.Open(ctx, d.lake, &bucket.Options{Now: d.Now})
	if err != nil {
		return err
	}
	defer func() { _ = lake.Close() }()
	start := d.Now()
	if d.Table != "" {
		return d.copyTable(ctx, lake)
	}
	advance, done := d.Progress("writing the table", int64(Rows()))
	_, err = WriteTable(ctx, lake, d.Now, func(rows int) { advance(int64(rows)) })
	done()
	if err != nil {
		return err
	}
	d.printf("A Delta table of %s orders in %d data files was written to\n  %s in %s\n\n",
		thousands(int64(Rows())), len(fragments), d.lake, took(d.Now().Sub(start)))
	return nil
}

// copyTable copies every object of the user's table, which is only read.
func (d *demo) copyTable(ctx context.Context, lake *bucket.Bucket) error {
	from, err := bucket.Open(ctx, d.Table, &bucket.Options{Drivers: cloud.Drivers(), Now: d.Now})
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	if _, err := delta.Open(ctx, from, nil); err != nil {
		return fmt.Errorf("%s: %w", from.URL(), err)
	}
	var objects []storage.Info
	total := int64(0)
	for info, err := range from.List(ctx, "", "") {
		if err != nil {
			return err
		}
		objects = append(objects, info)
		total += info.SizeBytes
	}
	advance, done := d.Progress("copying the table", total)
	for _, info := range objects {
		if err := copyObject(ctx, from, lake, info.Key); err != nil {
			done()
			return fmt.Errorf("copy table: %w", err)
		}
		advance(info.SizeBytes)
	}
	done()
	d.printf("A copy of %s (%d objects, %.1f MB) is in\n  %s\nYour own table is only read.\n", from.URL(), len(objects), float64(total)/1e6, d.lake)
	return d.enable(ctx, lake)
}

func copyObject(ctx context.Context, from, to storage.Bucket, key string) error {
	r, err := from.Read(ctx, key, 0, -1)
	if err != nil {
		return err
	}
	return errors.Join(to.Put(ctx, key, r, storage.PutOptions{}), r.Close())
}

// enable lets the copy carry deletion vectors, if it may not yet.
func (d *demo) enable(ctx context.Context, lake *bucket.Bucket) error {
	table, err := delta.Open(ctx, lake, &delta.Options{Now: d.Now})
	if err != nil {
		return err
	}
	err = table.Bind(ctx, []string{d.Column})
	var refusal *storage.Refusal
	if errors.As(err, &refusal) && refusal.Code == "deletion_vectors_disabled" {
		v, err := delta.EnableDeletionVectors(ctx, lake, &delta.Options{Now: d.Now})
		if err != nil {
			return err
		}
		d.printf("It does not allow deletion vectors: they were enabled on the copy, in version %d.\n", v)
		return table.Bind(ctx, []string{d.Column})
	}
	d.printf("\n")
	return err
}

// configure writes the configuration file that the services are run from.
func (d *demo) configure(ctx context.Context) error {
	d.token = rand.Text()
	sum := sha256.Sum256([]byte(d.token))
	path := filepath.Join(d.Dir, "delenda.yaml")
	text := fmt.Sprintf(`# The configuration of the demo; every key is explained by: delenda config
installation: demo
state: state
keeper: keeper.key
nats: {embedded: {dir: nats}}
tables:
  - name: orders
    url: lake/orders
    identities: {%s: %q}
limits: {rows: 1000000, share: 1}
batch: {window: 10ms}
ingest:
  listen: 127.0.0.1:0
  sources: [{name: demo, tokens_sha256: [%s]}]
deleter: {listen: "127.0.0.1:0"}
publisher:
  listen: 127.0.0.1:0
  poll: 1s
  shares: [{name: demo, schemas: [{name: sales, tables: [{name: orders}]}]}]
`, d.identity, d.Column, hex.EncodeToString(sum[:]))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return err
	}
	var err error
	d.conf, err = config.Read(path, config.RoleUp, func(string) (string, bool) { return "", false })
	if err != nil {
		return err
	}
	d.table = sharing.Table{Share: "demo", Schema: "sales", Name: "orders"}
	return d.invite(ctx)
}

// invite makes a recipient, before the services that serve it.
func (d *demo) invite(ctx context.Context) (err error) {
	state, err := bucket.Open(ctx, d.state, &bucket.Options{Private: true, Now: d.Now})
	if err != nil {
		return err
	}
	d.recipient, err = recipients.NewDirectory(state).Issue(ctx, "partner", []string{"demo"}, time.Time{}, d.Now())
	return errors.Join(err, state.Close())
}

// connect makes the recipient's client, from the profile file that a recipient
// is given.
func (d *demo) connect(r *service.Running) error {
	text, err := sharing.FormatProfile(sharing.Profile{Endpoint: service.Endpoint(r.PublisherURL), BearerToken: d.recipient})
	if err != nil {
		return err
	}
	path := filepath.Join(d.Dir, "partner.share")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return err
	}
	profile, err := sharing.ParseProfile(text)
	if err != nil {
		return err
	}
	d.client, err = client.New(profile, &client.Options{Now: d.Now})
	return err
}
