// Command images builds the container images: FROM nothing, each one static
// binary, the certificates of authorities, and a user who is not root.
//
// It writes archives that `docker load` and `podman load` take, without a container
// engine and without an image registry. The same source, Go release, epoch and
// certificates give the same bytes: paths are trimmed, the build stamps no
// time and no checkout, and every entry of a layer has the same owner, order and
// time.
//
// Beside Delenda's own binaries it can build the two servers that the compose stack
// needs, from their Go modules: the NATS server in the version that go.mod
// names, and versitygw, an S3 store with conditional writes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"delenda/internal/daemon"
)

func main() { daemon.Main("images", run) }

// options say what is built.
type options struct {
	out     string
	version string
	epoch   time.Time
	arch    string
	certs   string
	servers bool
	latest  bool
}

func run(ctx context.Context, p daemon.Process) error {
	o, err := parse(p)
	if err != nil {
		return daemon.Usage(err)
	}
	if err := os.MkdirAll(o.out, 0o750); err != nil {
		return err
	}
	work, err := os.MkdirTemp(o.out, ".build-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	if work, err = filepath.Abs(work); err != nil { // go wants it so
		return err
	}
	b := &builder{options: o, work: work, stderr: p.Stderr}
	list, err := b.build(ctx)
	if err != nil {
		return err
	}
	for _, i := range list {
		path := filepath.Join(o.out, i.name+".tar")
		size, err := i.write(path, o)
		if err != nil {
			return fmt.Errorf("write image %s: %w", i.name, err)
		}
		_, _ = fmt.Fprintf(p.Stdout, "%-28s %6.1f MB  %s\n", i.reference(), float64(size)/1e6, path)
	}
	return nil
}

func parse(p daemon.Process) (options, error) {
	o := options{}
	flags := flag.NewFlagSet("images", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&o.out, "out", "out/images", "directory of the archives")
	flags.StringVar(&o.version, "version", "unreleased", "version of Delenda: label, tag, and what --version prints")
	flags.StringVar(&o.arch, "arch", "", "architecture; this machine's if not given")
	flags.StringVar(&o.certs, "certificates", "/etc/ssl/certs/ca-certificates.crt", "certificates of authorities, PEM")
	flags.BoolVar(&o.latest, "latest", true, "tag Delenda's own images latest too")
	flags.BoolVar(&o.servers, "servers", false, "also build the NATS server and the S3 store")
	if err := flags.Parse(p.Args); err != nil {
		flags.SetOutput(p.Stderr)
		flags.PrintDefaults()
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	epoch, _ := p.Env("SOURCE_DATE_EPOCH")
	if epoch == "" {
		epoch = "0"
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return o, errors.New("SOURCE_DATE_EPOCH is not a number of seconds")
	}
	o.epoch = time.Unix(seconds, 0).UTC()
	return o, nil
}

// build compiles everything and says which images come of it.
func (b *builder) build(ctx context.Context) ([]*image, error) {
	certs, err := os.ReadFile(b.certs)
	if err != nil {
		return nil, fmt.Errorf("read certificates of authorities: %w", err)
	}
	base := []file{
		{name: "etc/passwd", mode: 0o644, data: []byte("delenda:x:65532:65532::/:/none\n")},
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, data: certs},
	}
	own := []string{"ingest", "deleter", "publisher", "delenda"}
	if err := b.goBuild(ctx, own...); err != nil {
		return nil, err
	}
	var list []*image
	for _, name := range own {
		list = append(list, &image{
			name: name, tag: b.version, latest: b.latest, entrypoint: []string{"/" + name}, base: base,
			files: []file{
				{name: name, mode: 0o755, path: filepath.Join(b.work, name)},
				// Volumes that are mounted here for the first time get the owner of these.
				{name: "var/lib/delenda/", mode: 0o700, owned: true},
				{name: "var/lib/delenda/keeper/", mode: 0o700, owned: true},
				{name: "var/lib/delenda/recipients/", mode: 0o700, owned: true},
			},
			env:    []string{"DELENDA_CONFIG=/etc/delenda/delenda.yaml"},
			title:  "Delenda " + name,
			health: []string{"CMD", "/" + name, "health"},
		})
	}
	list[slices.Index(own, "delenda")].health = nil // it is for commands
	if !b.servers {
		return list, nil
	}
	more, err := b.serverImages(ctx, base)
	return append(list, more...), err
}
