package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"

	"delenda/internal/config"
	"delenda/internal/daemon"
	"delenda/internal/probe"
	"delenda/internal/service"
)

// healthCmd asks the process of this configuration whether it is ready.
type healthCmd struct {
	configFlag
}

func (*healthCmd) Help() string {
	return `For health checks of containers, whose images have no shell: GET of /readyz where the configuration has it served, on
this machine. Exit code 0 if it is ready; else 1, with the reasons on standard error.`
}

// run asks the service of a role.
func (c *healthCmd) run(ctx context.Context, w *world, role config.Role) error {
	conf, err := c.read(w, role)
	if err != nil {
		return err
	}
	url, err := readyURL(conf, role)
	if err != nil {
		return err
	}
	answer, err := probe.Get(ctx, url)
	if err != nil {
		return fmt.Errorf("not ready: %w", err)
	}
	if !answer.OK {
		return fmt.Errorf("not ready: %s", reasons(answer))
	}
	return nil
}

type upHealthCmd struct{ healthCmd }

// Run runs the command for delenda up.
func (c *upHealthCmd) Run(ctx context.Context, w *world) error {
	return c.run(ctx, w, config.RoleUp)
}

// readyURL is where a process of that role serves /readyz. What runs in one
// process shares its readiness: the deleter's listener always tells it.
func readyURL(conf *config.Config, role config.Role) (string, error) {
	var listener config.Listener
	var key string
	always := false
	switch role {
	case config.RoleIngest:
		listener, key = conf.Ingest.Listener, "ingest"
	case config.RolePublisher:
		listener, key = conf.Publisher.Listener, "publisher"
	default:
		listener, key, always = conf.Deleter.Listener, "deleter", true
	}
	address, scheme := listener.Listen, "http"
	switch {
	case listener.Ops != "":
		address = listener.Ops
	case !always && !listener.Loopback():
		return "", next(fmt.Errorf("readiness is not told on %s.listen, which other machines reach", key), "set %s.ops, for example to 127.0.0.1:9470", key)
	case listener.TLS.Cert != "":
		scheme = "https"
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", err
	}
	if port == "0" {
		return "", daemon.Usage(errors.New("the configuration does not say which port is listened on"))
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		if host = "127.0.0.1"; ip != nil && ip.To4() == nil {
			host = "::1"
		}
	}
	return scheme + "://" + net.JoinHostPort(host, port) + "/readyz", nil
}

// reasons are what the answer says against readiness.
func reasons(a probe.Answer) string {
	var r service.Readiness
	if err := json.Unmarshal(a.Body, &r); err != nil {
		return strings.TrimSpace(a.Status + " " + string(bytes.TrimSpace(a.Body)))
	}
	var list []string
	for _, c := range r.Checks {
		if !c.OK {
			list = append(list, c.Name+": "+c.Reason)
		}
	}
	if len(list) == 0 {
		return a.Status
	}
	return strings.Join(list, "; ")
}
