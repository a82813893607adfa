package cli

import (
	"fmt"

	"delenda/internal/config"
)

type configCmd struct {
	Reference bool `help:"Print the meaning of every key instead."`
}

func (*configCmd) Help() string {
	return `Examples:
  delenda config > delenda.yaml
  delenda config --reference`
}

// Run runs the command.
func (c *configCmd) Run(w *world) error {
	text := config.Example
	if c.Reference {
		text = config.Reference()
	}
	_, err := fmt.Fprint(w.Stdout, text)
	return err
}
