package delta_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"delenda/storage"
)

func isCommit(key string) bool {
	return strings.HasPrefix(key, "_delta_log/0") && strings.HasSuffix(key, ".json")
}

// commitsOf counts the commits with the application's batch.
func commitsOf(t testing.TB, dir, app string, number float64) int {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "_delta_log", strings.Repeat("[0-9]", 20)+".json"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, name := range names {
		for _, line := range lines(t, name) {
			var a map[string]map[string]any
			if err := json.Unmarshal(line, &a); err != nil {
				t.Fatal(err)
			}
			if txn := a["txn"]; txn != nil && txn["appId"] == app && txn["version"] == number {
				n++
			}
		}
	}
	return n
}

func commitName(v storage.Version) string { return fmt.Sprintf("%020d.json", int64(v)) }

func asRefusal(err error, r **storage.Refusal) bool { return errors.As(err, r) }

func isCorrupt(err error) bool { return errors.Is(err, storage.ErrCorrupt) }
