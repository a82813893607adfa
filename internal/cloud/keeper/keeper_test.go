package keeper

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestALocalKeyIsMadeOnceForItsOwnerOnly(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "deep", "keeper.key")
	first, created, err := Open(t.Context(), path)
	if err != nil || !created {
		t.Fatalf("created %t, %v", created, err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	second, created, err := Open(t.Context(), "file://"+path)
	if err != nil || created {
		t.Fatalf("created %t, %v", created, err)
	}
	sealed, err := first.Encrypt(t.Context(), []byte("key"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := second.Decrypt(t.Context(), sealed); err != nil || string(got) != "key" {
		t.Errorf("got %q, %v", got, err)
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
}

func TestWhatAnotherKeySealedIsTheWrongKey(t *testing.T) {
	t.Parallel()
	one, _, err := Open(t.Context(), filepath.Join(t.TempDir(), "keeper.key"))
	if err != nil {
		t.Fatal(err)
	}
	other, _, err := Open(t.Context(), filepath.Join(t.TempDir(), "keeper.key"))
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := one.Encrypt(t.Context(), []byte("key"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Decrypt(t.Context(), sealed); !errors.Is(err, ErrWrongKey) {
		t.Errorf("got %v", err)
	}
}

func TestOfManyStartsAtOnceOneMakesTheKey(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keeper.key")
	made := make(chan bool, 16)
	var all sync.WaitGroup
	for range cap(made) {
		all.Go(func() {
			_, created, err := Open(t.Context(), path)
			if err != nil {
				t.Error(err)
			}
			made <- created
		})
	}
	all.Wait()
	close(made)
	makers := 0
	for created := range made {
		if created {
			makers++
		}
	}
	if makers != 1 {
		t.Errorf("%d made it", makers)
	}
}

func TestAKeyFileThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		content string
		mode    os.FileMode
		want    string
	}{
		"others may read it": {strings.Repeat("A", 43) + "=\n", 0o644, "chmod 600"},
		"it is too short":    {"QUJD\n", 0o600, "want 32 bytes in base64"},
		"it is not base64":   {"correct horse battery staple\n", 0o600, "want 32 bytes in base64"},
		"it is far too long": {strings.Repeat("A", 5000), 0o600, "not a key file"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "keeper.key")
			if err := os.WriteFile(path, []byte(test.content), test.mode); err != nil {
				t.Fatal(err)
			}
			_, _, err := Open(t.Context(), path)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q in it", err, test.want)
			}
			if err != nil && strings.Contains(err.Error(), strings.TrimSpace(test.content)) {
				t.Error("the error repeats the file")
			}
		})
	}
}

func TestAServiceThatIsNotLinkedIsNamedBySchemeOnly(t *testing.T) {
	t.Parallel()
	_, _, err := Open(t.Context(), "nokms://user:secret@host/key")
	if err == nil || !strings.Contains(err.Error(), "nokms") || strings.Contains(err.Error(), "secret@") {
		t.Errorf("got %v", err)
	}
}
