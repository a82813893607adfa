// Command probe asks a URL and ends with 0 if the answer's status is one of
// success, else with 1: the health check in images of servers that bring none.
//
// usage: probe URL
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"delenda/internal/daemon"
	"delenda/internal/probe"
)

func main() { daemon.Main("probe", run) }

func run(ctx context.Context, p daemon.Process) error {
	if len(p.Args) != 1 {
		return daemon.Usage(errors.New("usage: probe URL"))
	}
	answer, err := probe.Get(ctx, p.Args[0])
	if err != nil {
		return err
	}
	if !answer.OK {
		return fmt.Errorf("%s: %s", answer.Status, bytes.TrimSpace(answer.Body))
	}
	return nil
}
