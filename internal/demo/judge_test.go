package demo

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"delenda/storage"
	"delenda/storage/bucket"
)

func TestAnErasureThatIsNotTrueFailsTheDemo(t *testing.T) {
	t.Parallel()
	before := view{rows: 100, subject: 7, others: fingerprint{1, 2}, key: storage.NewSecret("4711")}
	sound := view{rows: 93, others: fingerprint{1, 2}}
	tests := map[string]struct {
		after  view
		hidden int64
		want   string
	}{
		"nothing is wrong":              {sound, 7, "demo: ok"},
		"a row of the person is seen":   {view{rows: 94, subject: 1, others: fingerprint{1, 2}}, 7, "BAD  the recipient sees 1 of"},
		"another row is missing":        {view{rows: 92, others: fingerprint{1, 1}}, 7, "BAD  all 93 other rows"},
		"another row was changed":       {view{rows: 93, others: fingerprint{1, 3}}, 7, "BAD  all 93 other rows"},
		"the report counts another way": {sound, 6, "BAD  the report says that 6 rows"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			d := &demo{Options: Options{Out: &out}, person: "the person's"}
			err := d.judge(t.Context(), &before, &test.after, nil, "app", test.hidden)
			if ok := test.want == "demo: ok"; ok != (err == nil) || !ok && !errors.Is(err, ErrFailed) {
				t.Errorf("got %v", err)
			}
			if !strings.Contains(out.String(), test.want) {
				t.Errorf("lacks %q:\n%s", test.want, out.String())
			}
		})
	}
}

func TestTheAuditorFailsTheDemoWhenTheTableStillShowsTheRows(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "orders")
	lake, err := bucket.Open(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := WriteTable(t.Context(), lake, time.Now, nil); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	d := &demo{Options: Options{Out: &out, Column: "customer_id", Now: time.Now}, lake: dir, person: "the person's"}
	state, err := d.inspect(t.Context(), int64(Rows()))
	if err != nil {
		t.Fatal(err)
	}
	before := view{rows: 200_000, subject: 15_044, key: storage.NewSecret("4711")}
	after := view{rows: 184_956} // a recipient who is told lies
	err = d.judge(t.Context(), &before, &after, state, "app", 15_044)
	if !errors.Is(err, ErrFailed) || !strings.Contains(out.String(), "BAD  the independent auditor reads the table's own files: 15,044 rows of the person left") {
		t.Errorf("got %v:\n%s", err, out.String())
	}
}
