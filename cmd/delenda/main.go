// Command delenda runs everything in one process, shows the demo, and holds
// the operator's commands. See delenda --help.
package main

import (
	"delenda/internal/cli"
	"delenda/internal/daemon"
)

func main() { daemon.Main("delenda", cli.Delenda) }
