package delta_test

import (
	"os"
	"testing"
	"time"

	"delenda/storage/bucket"
	"delenda/storage/storagetest"
)

func TestDeltaInMemoryIsATable(t *testing.T) {
	t.Parallel()
	storagetest.Table(t, memoryPeople)
}

func TestDeltaInFilesIsATable(t *testing.T) {
	t.Parallel()
	storagetest.Table(t, filePeople)
}

func TestDeltaWithInCommitTimestampsCheckpointsAndWithoutStatisticsIsATable(t *testing.T) {
	t.Parallel()
	storagetest.Table(t, func(t testing.TB) storagetest.Host {
		h := newPeople(t, bucket.NewMemory(), map[string]string{
			"delta.checkpointInterval": "2", "delta.randomizeFilePrefixes": "true", "delta.setTransactionRetentionDuration": "interval 1 day",
		})
		h.statless = true
		return h
	})
}

func TestRandomOperationsAgreeWithTheModel(t *testing.T) {
	t.Parallel()
	seeds, steps := 2, 25
	if os.Getenv("DELENDA_LONG") == "1" {
		seeds, steps = 30, 100
	}
	first := uint64(time.Now().UnixNano())
	for i := range seeds {
		storagetest.TableModel(t, first+uint64(i), steps, memoryPeople)
	}
}
