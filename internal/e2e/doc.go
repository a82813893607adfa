// Package e2e runs the binaries as people and machines do: scripts in testdata
// call them, each in a process of its own, on directories and free loopback
// ports, and one test looks through every byte that a full run leaves behind
// for an identity.
//
// The package has no code of its own; nobody imports it.
package e2e
