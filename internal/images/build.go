package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// storeVersion is the version of versitygw that the stack is tested with.
const storeVersion = "v1.8.0"

const (
	natsModule  = "github.com/nats-io/nats-server/v2"
	storeModule = "github.com/versity/versitygw"
)

// builder compiles into a directory of its own.
type builder struct {
	options
	work   string
	stderr io.Writer
}

// goBuild compiles commands of this module.
func (b *builder) goBuild(ctx context.Context, commands ...string) error {
	args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid= -X delenda/internal/daemon.version=" + b.version, "-o", b.work + "/"}
	for _, c := range commands {
		args = append(args, "./cmd/"+c)
	}
	_, err := b.goTool(ctx, nil, args...)
	return err
}

// install compiles a command of another module, with the versions of its own
// go.mod.
func (b *builder) install(ctx context.Context, pkg, version string) error {
	path := filepath.Join(b.work, "gopath")
	// A directory of its own for the binary: GOBIN is refused for other
	// architectures than this machine's.
	out, err := b.goTool(ctx, nil, "env", "GOMODCACHE")
	if err != nil {
		return err
	}
	env := []string{"GOPATH=" + path, "GOMODCACHE=" + strings.TrimSpace(string(out)), "GOFLAGS=", "GOBIN="}
	if _, err := b.goTool(ctx, env, "install", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid=", pkg+"@"+version); err != nil {
		return err
	}
	name := filepath.Base(pkg)
	if strings.HasPrefix(name, "v") && len(name) == 2 { // a major version
		name = filepath.Base(filepath.Dir(pkg))
	}
	for _, dir := range []string{"bin", filepath.Join("bin", "linux_"+b.goarch())} {
		from := filepath.Join(path, dir, name)
		if _, err := os.Stat(from); err == nil {
			return os.Rename(from, filepath.Join(b.work, name))
		}
	}
	return fmt.Errorf("go install %s@%s left no binary", pkg, version)
}

func (b *builder) goarch() string {
	if b.arch != "" {
		return b.arch
	}
	return runtime.GOARCH
}

// goTool runs the Go command and returns what it wrote.
func (b *builder) goTool(ctx context.Context, env []string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...) //nolint:gosec // our own arguments
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+b.goarch())
	cmd.Env = append(cmd.Env, env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, b.stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("go %s: %w", args[0], err)
	}
	return out.Bytes(), nil
}

// serverImages builds what the stack needs beside Delenda.
func (b *builder) serverImages(ctx context.Context, base []file) ([]*image, error) {
	out, err := b.goTool(ctx, nil, "list", "-m", "-f", "{{.Version}}", natsModule)
	if err != nil {
		return nil, err
	}
	natsVersion := strings.TrimSpace(string(out))
	if err := b.install(ctx, natsModule, natsVersion); err != nil {
		return nil, err
	}
	if err := b.install(ctx, storeModule+"/cmd/versitygw", storeVersion); err != nil {
		return nil, err
	}
	args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid=", "-o", filepath.Join(b.work, "probe"), "./internal/images/probe"}
	if _, err := b.goTool(ctx, nil, args...); err != nil {
		return nil, err
	}
	probe := file{name: "probe", mode: 0o755, path: filepath.Join(b.work, "probe")}
	data := file{name: "data/", mode: 0o700, owned: true}
	return []*image{
		{
			name: "nats", tag: strings.TrimPrefix(natsVersion, "v"), entrypoint: []string{"/nats-server"}, base: base, title: "NATS server",
			files: []file{{name: "nats-server", mode: 0o755, path: filepath.Join(b.work, "nats-server")}, probe, data},
		},
		{
			name: "store", tag: strings.TrimPrefix(storeVersion, "v"), entrypoint: []string{"/versitygw"}, base: base, title: "versitygw, an S3 store",
			files: []file{{name: "versitygw", mode: 0o755, path: filepath.Join(b.work, "versitygw")}, probe, data},
		},
	}, nil
}
