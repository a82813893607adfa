package storage_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"delenda/storage"
)

func Test_an_error_names_a_data_file_without_its_directories(t *testing.T) {
	t.Parallel()
	const key = "region=north/email=jane%40example.org/part-1.parquet"
	corrupt := &storage.CorruptError{Key: key, Offset: 3, Field: "footer", Reason: "truncated"}
	for name, tt := range map[string]struct {
		err  error
		is   error
		want string
	}{
		"the text of a bucket":      {fmt.Errorf("read %q: %w", key, storage.ErrDenied), storage.ErrDenied, `read "part-1.parquet": access denied`},
		"a place in the bytes":      {fmt.Errorf("scan %q: %w", key, corrupt), storage.ErrCorrupt, `scan "part-1.parquet": corrupt part-1.parquet at 3: footer: truncated`},
		"a URL in the text":         {fmt.Errorf("get https://store/lake/%s: %w", escapedTwice, storage.ErrNotFound), storage.ErrNotFound, "get https://store/lake/part-1.parquet: object not found"},
		"a directory by itself":     {fmt.Errorf("mkdir email=jane%%40example.org: %w", storage.ErrDenied), storage.ErrDenied, "mkdir …: access denied"},
		"what was joined with more": {errors.Join(corrupt, storage.ErrConflict), storage.ErrConflict, "corrupt part-1.parquet at 3: footer: truncated\nobject"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := fmt.Errorf("delete rows: %w", storage.Discreet(tt.err, key))
			if !errors.Is(got, tt.is) || !strings.HasPrefix(got.Error(), "delete rows: "+strings.TrimSuffix(tt.want, "object")) {
				t.Errorf("%v", got)
			}
			var c *storage.CorruptError
			if errors.As(got, &c) != errors.Is(got, storage.ErrCorrupt) || c != nil && (c.Key != "part-1.parquet" || c.Offset != 3) {
				t.Errorf("%+v", c)
			}
			var b strings.Builder
			slog.New(slog.NewJSONHandler(&b, nil)).Info("x", slog.Any("error", got))
			for err := error(got); err != nil; err = errors.Unwrap(err) {
				_, _ = fmt.Fprintf(&b, "%v %+v", err, err)
			}
			if strings.Contains(b.String(), "jane") || strings.Contains(b.String(), "north") {
				t.Errorf("holds a partition value: %s", b.String())
			}
		})
	}
	if corrupt.Key != key {
		t.Error("the error given was changed")
	}
}

const escapedTwice = "region=north/email=jane%2540example.org/part-1.parquet"

func Test_an_error_about_a_file_without_directories_stays_what_it_is(t *testing.T) {
	t.Parallel()
	if err := storage.Discreet(storage.ErrDenied, "part-1.parquet"); err != storage.ErrDenied { //nolint:errorlint // the very error
		t.Errorf("%v", err)
	}
	if err := storage.Discreet(nil, "a=b/part-1.parquet"); err != nil {
		t.Errorf("%v", err)
	}
}
