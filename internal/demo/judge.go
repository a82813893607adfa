package demo

import (
	"context"
	"fmt"
)

// judge compares what the recipient saw before and after, and has the
// independent auditor read the table.
func (d *demo) judge(_ context.Context, before, after *view, hidden int64) error {
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
	say(hidden == before.subject, "the report says %s rows were hidden, and so many are gone", thousands(hidden))
	if !ok {
		return ErrFailed
	}
	d.printf("\ndemo: ok\n")
	return nil
}
