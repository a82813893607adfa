package daemon

// version is set when the binary is linked: -ldflags "-X delenda/internal/daemon.version=…".
var version = "unreleased"

// Version returns which release the binary is of.
func Version() string { return version }
