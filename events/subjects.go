package events

import (
	"fmt"
	"regexp"
)

// Streams. Each holds the subjects named beside it and no other.
const (
	StreamIntake   = "DELENDA_INTAKE"   // delenda.intake.{source}: work queue
	StreamOutcomes = "DELENDA_OUTCOMES" // delenda.outcome.{source}: kept for a while
	StreamRequests = "DELENDA_REQUESTS" // delenda.requests.{table}: work queue, secure deletion after ack
	StreamStatus   = "DELENDA_STATUS"   // delenda.status.{table}: kept for a while
	StreamTables   = "DELENDA_TABLES"   // delenda.tables.{table}: kept for a while
	StreamShares   = "DELENDA_SHARES"   // delenda.shares.{share}.{schema}.{table}: last per subject and a while
	StreamDead     = "DELENDA_DEAD"     // delenda.dead.{stage}: kept until replayed or removed
)

// KV buckets: caches of what the state prefix holds.
const (
	KVHeads = "delenda_heads" // {share}.{schema}.{table} -> head of a shared table
)

// name is the grammar of configured names that become subject tokens: sources,
// tables, and the lower-case form of share, schema and table names.
var name = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,127}$`)

// ValidName reports whether s may be a token of a subject: lower-case letters,
// digits, '_' and '-', at most 128 bytes, and first a letter or digit.
func ValidName(s string) bool { return name.MatchString(s) }

// IntakeSubject is where a source publishes requests.
func IntakeSubject(source string) string { return "delenda.intake." + source }

// OutcomeSubject is where a source hears what became of its messages.
func OutcomeSubject(source string) string { return "delenda.outcome." + source }

// RequestsSubject carries the work items of a table.
func RequestsSubject(table string) string { return "delenda.requests." + table }

// StatusSubject carries the reports about a table's work items.
func StatusSubject(table string) string { return "delenda.status." + table }

// TableSubject carries the changes of a table.
func TableSubject(table string) string { return "delenda.tables." + table }

// ShareSubject carries the changes of a shared table to its recipients.
func ShareSubject(share, schema, table string) string {
	return fmt.Sprintf("delenda.shares.%s.%s.%s", share, schema, table)
}

// DeadSubject carries the dead letters of a stage: intake, requests or tables.
func DeadSubject(stage string) string { return "delenda.dead." + stage }
