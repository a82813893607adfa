package storagetest_test

import (
	"testing"

	"delenda/storage/storagetest"
)

func TestMemoryIsATable(t *testing.T) {
	t.Parallel()
	storagetest.Table(t, func(testing.TB) storagetest.Host { return storagetest.NewMemory() })
}

func TestRandomOperationsOnMemoryAgreeWithMemory(t *testing.T) {
	t.Parallel()
	storagetest.TableModel(t, 1, 200, func(testing.TB) storagetest.Host { return storagetest.NewMemory() })
}
