// Command publisher serves shared tables by the Delta Sharing protocol, and tells recipients of every change.
package main

import (
	"delenda/internal/cli"
	"delenda/internal/config"
	"delenda/internal/daemon"
	"delenda/internal/service"
)

func main() {
	daemon.Main("publisher", cli.Service(config.RolePublisher, "The publisher serves shared tables by the Delta Sharing protocol, and tells recipients of every change.", service.Services{Publisher: true}))
}
