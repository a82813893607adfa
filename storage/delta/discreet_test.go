package delta_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"delenda/storage"
	"delenda/storage/bucket"
	"delenda/storage/delta"
	"delenda/storage/storagetest"
)

// damaged reads data files as told.
type damaged struct {
	storage.Bucket
	read func(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error)
}

func (d *damaged) Read(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	if strings.HasPrefix(key, "region=") {
		return d.read(ctx, key, offset, length)
	}
	return d.Bucket.Read(ctx, key, offset, length)
}

type breaking struct{ err error }

func (b breaking) Read([]byte) (int, error) { return 0, b.err }
func (breaking) Close() error               { return nil }

func Test_an_error_about_a_data_file_does_not_name_the_partition_that_it_lies_in(t *testing.T) {
	t.Parallel()
	const who, file = "jane.q9x@example.org", "part-"
	named := func(key string, err error) error { return fmt.Errorf("read %q: %w", key, err) }
	for name, tt := range map[string]struct {
		read func(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error)
		is   error
	}{
		"that is missing": {func(_ context.Context, key string, _, _ int64) (io.ReadCloser, error) {
			return nil, named(key, storage.ErrNotFound)
		}, storage.ErrNotFound},
		"that may not be read": {func(_ context.Context, key string, _, _ int64) (io.ReadCloser, error) {
			return nil, named(key, storage.ErrDenied)
		}, storage.ErrDenied},
		"that breaks off": {func(_ context.Context, key string, _, _ int64) (io.ReadCloser, error) {
			return breaking{named(key, io.ErrNoProgress)}, nil
		}, io.ErrNoProgress},
		"that is no such thing": {func(_ context.Context, _ string, _, n int64) (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(make([]byte, min(max(n, 64), 1<<16)))), nil
		}, storage.ErrCorrupt},
		"that is short": {func(context.Context, string, int64, int64) (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(nil)), nil
		}, storage.ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newPeople(t, bucket.NewMemory(), nil)
			h.statless = true
			h.o.IdentityColumns = []string{"region"}
			h.Append(t, storagetest.Row{ID: 1, Region: who}, storagetest.Row{ID: 2, Region: who})
			h.table = &damaged{h.b, tt.read}
			table, err := delta.Open(t.Context(), h.table, &h.o)
			if err != nil {
				t.Fatal(err)
			}
			calls := map[string]func() error{
				"Delete": func() error {
					_, err := table.Delete(t.Context(), storage.Deletion{Batch: storage.Batch{App: "a", Number: 1}, Subjects: []storage.Subject{subject("id", "1")}})
					return err
				},
				"Describe": func() error {
					_, err := table.Describe(t.Context())
					return err
				},
				"Fragments": func() error {
					for _, err := range table.Fragments(t.Context(), storage.NoVersion) {
						if err != nil {
							return err
						}
					}
					return nil
				},
				"AppendFiles": func() error {
					for info, err := range h.b.List(t.Context(), "region=", "") {
						if err != nil {
							return err
						}
						who := who
						_, err := table.AppendFiles(t.Context(), []delta.DataFile{{Key: info.Key, PartitionValues: map[string]*string{"region": &who}}})
						return err
					}
					return nil
				},
			}
			for name, call := range calls {
				err := call()
				if !errors.Is(err, tt.is) || !strings.Contains(err.Error(), file) {
					t.Errorf("%s: %v", name, err)
				}
				var c *storage.CorruptError
				_ = errors.As(err, &c)
				text := fmt.Sprintf("%v %+v %+v", err, err, c)
				if strings.Contains(text, "q9x") || strings.Contains(text, "region=") {
					t.Errorf("%s names the partition: %s", name, text)
				}
			}
		})
	}
}
