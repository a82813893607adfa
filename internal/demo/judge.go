package demo

import (
	"context"
	"errors"
	"fmt"

	"delenda/pipeline/audit"
	"delenda/storage"
	"delenda/storage/bucket"
)

// maxAudited is how many rows of a user's table the auditor, who holds them in
// memory, is asked to read.
const maxAudited = 5_000_000

// inspect has the auditor read the table. That a user's table is too large for
// it, or of a kind that it does not read, is said and is no failure.
func (d *demo) inspect(ctx context.Context, rows int64) (*audit.State, error) {
	if rows > maxAudited {
		return nil, d.unaudited(errors.New("it has too many rows to hold in memory"))
	}
	lake, err := bucket.Open(ctx, d.lake, &bucket.Options{Now: d.Now})
	if err != nil {
		return nil, err
	}
	defer func() { _ = lake.Close() }()
	state, err := audit.Read(ctx, lake, d.Column)
	if err != nil {
		return nil, d.unaudited(err)
	}
	return state, nil
}

func (d *demo) unaudited(err error) error {
	if d.Table == "" {
		return err
	}
	d.printf("(The independent auditor does not read this table: %v)\n", err)
	return nil
}

// judge compares what the recipient saw before and after, and asks the auditor,
// who shares no code with what erases.
func (d *demo) judge(ctx context.Context, before, after *view, audited *audit.State, app string, hidden int64) error {
	ok := true
	say := func(good bool, format string, args ...any) {
		mark := "ok  "
		if !good {
			mark, ok = "BAD ", false
		}
		d.printf("  %s %s\n", mark, fmt.Sprintf(format, args...))
	}
	d.printf("\nIs it true?\n")
	say(after.subject == 0, "the recipient sees %s of %s rows", thousands(after.subject), d.person)
	say(before.rows-before.subject == after.rows && before.others == after.others,
		"all %s other rows are there, each unchanged", thousands(before.rows-before.subject))
	say(hidden == before.subject, "the report says that %s rows were hidden, and so many are gone", thousands(hidden))
	if audited != nil {
		now, err := d.inspect(ctx, 0)
		if err != nil {
			return err
		}
		v, err := audit.Judge(audited, now, app, storage.Key{Column: d.Column, Value: before.key})
		if err != nil {
			return err
		}
		say(v.OK() && v.RowsAdded == 0 && v.SubjectRowsBefore == before.subject, "the independent auditor reads the table's own files: %s rows of the person left, %s other rows missing, %d batches committed twice",
			thousands(v.SubjectRowsLeft), thousands(v.OtherRowsMissing), len(v.CommittedTwice))
	}
	if !ok {
		return ErrFailed
	}
	d.printf("\ndemo: ok\n")
	return nil
}
