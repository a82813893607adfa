package bucket_test

import (
	"context"
	"path/filepath"
	"testing"

	"delenda/storage"
	"delenda/storage/bucket"
	"delenda/storage/storagetest"
)

func open(t *testing.T, rawURL string) *bucket.Bucket {
	t.Helper()
	b, err := bucket.Open(t.Context(), rawURL, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func TestMemoryConforms(t *testing.T) {
	t.Parallel()
	storagetest.Bucket(t, func(*testing.T) storage.Bucket { return bucket.NewMemory() })
}

func TestMemoryPrefixConforms(t *testing.T) {
	t.Parallel()
	storagetest.Bucket(t, func(t *testing.T) storage.Bucket {
		t.Helper()
		return open(t, "mem:///deep/prefix")
	})
}

func TestDirectoryConforms(t *testing.T) {
	t.Parallel()
	storagetest.Bucket(t, func(t *testing.T) storage.Bucket {
		t.Helper()
		return open(t, filepath.Join(t.TempDir(), "made", "on demand"))
	})
}

func TestDirectoryHasOneWinnerAmongProcesses(t *testing.T) {
	t.Parallel()
	storagetest.BucketProcesses(t, 200,
		func(t *testing.T) string { t.Helper(); return t.TempDir() },
		func(ctx context.Context, url string) (storage.Bucket, error) { return bucket.Open(ctx, url, nil) })
}
