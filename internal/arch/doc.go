// Package arch holds the arrows of the architecture as one test: which package
// may import which, ours and vendors', read from one call of `go list`. It
// fails with the arrow that broke and the reason for the rule. It also holds
// the size of files and of main functions.
//
// The package has no code of its own; nobody imports it.
package arch
