package service_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"delenda/internal/demo"
	"delenda/internal/service"
	"delenda/storage"
	"delenda/storage/bucket"
	"delenda/storage/delta/log"
)

func TestWhatIsShownOfATableThatCannotBeReadNamesNoPartition(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "orders")
	b, err := bucket.Open(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := demo.WriteTable(t.Context(), b, time.Now, nil); err != nil {
		t.Fatal(err)
	}
	s, err := log.Load(t.Context(), b, storage.NoVersion)
	if err != nil {
		t.Fatal(err)
	}
	// A file without statistics, so that it is opened, in a partition that
	// names a person; and it is not there.
	commit, err := json.Marshal(map[string]any{"add": map[string]any{
		"path": "email=jane.q9x%2540example.org/part-1.parquet", "partitionValues": map[string]string{}, "size": 100, "modificationTime": 0, "dataChange": true,
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Put(t.Context(), log.CommitKey(s.Version+1), bytes.NewReader(append(commit, '\n')), storage.PutOptions{IfAbsent: true}); err != nil {
		t.Fatal(err)
	}
	_, err = service.Inspect(t.Context(), dir, slog.New(slog.DiscardHandler), time.Now)
	if !errors.Is(err, storage.ErrNotFound) {
		t.Fatalf("%v", err)
	}
	health := service.NewHealth("deleter")
	health.Table("orders", err)
	answer := httptest.NewRecorder()
	health.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	for what, text := range map[string]string{"inspect and check": err.Error(), "readiness": answer.Body.String()} {
		if strings.Contains(text, "q9x") || !strings.Contains(text, "part-1.parquet") {
			t.Errorf("%s: %s", what, text)
		}
	}
}
