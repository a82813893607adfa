// Command ingest takes erasure requests by HTTP and JetStream, stores them, and hands them to the deleters.
package main

import (
	"delenda/internal/cli"
	"delenda/internal/config"
	"delenda/internal/daemon"
	"delenda/internal/service"
)

func main() {
	daemon.Main("ingest", cli.Service(config.RoleIngest, "The ingest takes erasure requests by HTTP and JetStream, stores them, and hands them to the deleters.", service.Services{Ingest: true}))
}
