// Command deleter hides the rows of erased people in Delta tables, any number of them may run.
package main

import (
	"delenda/internal/cli"
	"delenda/internal/config"
	"delenda/internal/daemon"
	"delenda/internal/service"
)

func main() {
	daemon.Main("deleter", cli.Service(config.RoleDeleter, "The deleter hides the rows of erased people in Delta tables, any number of them may run.", service.Services{Deleter: true}))
}
