package storage

import (
	"context"
	"time"
)

// Version numbers the committed states of a table: a Delta version or a Lance
// manifest version. NoVersion is "none".
type Version int64

// NoVersion is before every version.
const NoVersion Version = -1

// Format names a table format.
type Format string

// The formats that Delenda writes.
const (
	Delta Format = "delta"
	Lance Format = "lance"
)

// Outcome is what a delete did to one fragment (Lance: "Support data deletion
// in a Fragment"; the same four on Delta).
type Outcome string

// The four outcomes.
const (
	Kept    Outcome = "kept"    // nothing matched: the fragment stays as it is, no file is written
	Set     Outcome = "set"     // few rows: an index set
	Bitmap  Outcome = "bitmap"  // many rows: a compressed bitmap
	Dropped Outcome = "dropped" // all rows: the fragment left the table
)

// Key is one value that a row is compared with. Column is the logical name of
// a top-level column, or a dotted path to a struct member. Value is text in
// the one canonical form of the column's type (package match).
type Key struct {
	Column string
	Value  Secret
}

// Subject is one request's part in a batch: a row that equals any of its keys
// is the subject's. A subject without keys matches nothing.
type Subject struct{ Keys []Key }

// Batch names one delete, for exactly-once. App and Number go into the table
// (Delta: txn appId and version) and so must be opaque.
type Batch struct {
	App    string  // installation and table, e.g. "delenda/{installation}/{table}"
	Number int64   // > 0, ascending
	Base   Version // the table's version when the batch was opened: the batch is not committed at or below it
}

// Deletion asks Table.Delete to hide rows.
type Deletion struct {
	Batch    Batch
	Subjects []Subject // order gives the index used in Matched and Deleted

	// Approve, when not nil, is called before every attempt to commit with
	// what the plan matches by then, and returns for each subject whether it
	// is held: the rows of held subjects stay, unless another subject of the
	// batch matches them too. An error ends the delete before any commit.
	Approve func(ctx context.Context, m Matched) (held []bool, err error)

	// Now is the clock of the commit's timestamps.
	Now func() time.Time

	// Progress, when not nil, is called after each scanned fragment, and, with
	// what was counted by then, whenever the store answers or gives bytes: as
	// long as it is silent nothing moves. It must be cheap and safe for
	// concurrent use.
	Progress func(Progress)
}

// Progress counts the scan of one delete so far.
type Progress struct {
	FragmentsDone, FragmentsTotal int64
	RowsScanned, BytesRead        int64
}

// Matched is what a plan would hide, before it does.
type Matched struct {
	Rows     []int64 // per subject: live rows that match; a row of two subjects counts for both
	LiveRows int64   // live rows of the table at the planned version
}

// SubjectState says what a delete did for one subject.
type SubjectState string

// The states of a subject.
const (
	SubjectDone    SubjectState = "done"    // its rows, if any, are hidden
	SubjectHeld    SubjectState = "held"    // not approved: nothing of it changed
	SubjectInvalid SubjectState = "invalid" // a value is not in the canonical form of its column's type: nothing of it changed
)

// SubjectResult is the result for one subject.
type SubjectResult struct {
	State SubjectState
	// Rows counts the live rows that matched: hidden by this batch if done,
	// left alone if held, zero if invalid.
	Rows int64
	// Reason says why a subject is invalid: column and type, never the value.
	Reason string
}

// FragmentResult is the result for one fragment that changed.
type FragmentResult struct {
	// Fragment names it. Delta: the data file's name without its directories,
	// which may hold a partition value that identifies; Lance: the fragment's id.
	Fragment     string
	Outcome      Outcome
	RowsDeleted  int64 // newly hidden by this batch
	RowsHidden   int64 // hidden in all, earlier deletions included
	PhysicalRows int64 // rows in the fragment's files
}

// Deleted is the result of Table.Delete.
type Deleted struct {
	// Committed tells whether a version was written. It is false when nothing
	// matched or nothing was approved: then the table is as it was.
	Committed bool
	// Version is the one committed; when nothing was, the newest that was read
	// and found free of the subjects' rows.
	Version   Version
	Subjects  []SubjectResult  // per subject of the Deletion
	Fragments []FragmentResult // changed ones; Delta: in ascending order of the paths in the log
	Kept      int64            // fragments that stay as they were
}

// Description is what `inspect` shows of a table.
type Description struct {
	Format      Format   `json:"format"`
	Version     Version  `json:"version"`
	Fragments   int64    `json:"fragments"`
	LiveRows    int64    `json:"live_rows"`
	DeletedRows int64    `json:"deleted_rows"`
	Features    []string `json:"features"` // sorted
	// Refused lists what Delenda may not do to this table and why, empty when
	// it may do everything.
	Refused []RefusedOperation `json:"refused"`
}

// RefusedOperation is one verb that a table does not allow.
type RefusedOperation struct {
	Operation string `json:"operation"` // read, delete, purge, vacuum, share
	Code      string `json:"code"`
	Reason    string `json:"reason"`
}

// Table is one table of any format. Implementations MUST be safe for
// concurrent use and hold no lock in the store. Every MUST is a subtest of
// storagetest.Table.
type Table interface {
	// Describe reads the newest version. A table whose features Delenda may
	// not read is described as far as its protocol goes, with the refusal in
	// Refused, and no error.
	Describe(ctx context.Context) (Description, error)

	// Bind checks that every column exists, is unambiguous (two columns that
	// differ only by case are not) and has a type that can be compared, and
	// that Delete would be allowed; the first that is not is a *Refusal.
	Bind(ctx context.Context, columns []string) error

	// LastBatch returns the newest batch number that the table holds for app,
	// 0 when none.
	LastBatch(ctx context.Context, app string) (int64, error)

	// Delete hides every live row of the newest version that equals a key of
	// an approved subject, and no other row, in one commit, or in none if no
	// row is left to hide. Null matches nothing.
	//
	// It MUST be safe to call again for the same batch after any error or
	// crash, and beside other replicas that run the same batch: the batch is
	// committed at most once, and a call that finds it committed returns what
	// that commit did. On a lost race it MUST re-plan against what won: rows
	// added by others are scanned whoever added them. Every deletion file is
	// written before the commit. If the table's batch number for the app is
	// already higher it returns ErrBatchOrder and changes nothing.
	Delete(ctx context.Context, d Deletion) (Deleted, error)

	// Committed returns what the commit of b did, read back from the table
	// alone, and false if b is not committed. Reasons of invalid subjects may
	// be missing from it.
	Committed(ctx context.Context, b Batch) (Deleted, bool, error)
}
