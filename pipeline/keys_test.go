package pipeline

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"delenda/storage"
)

func FuzzOpen(f *testing.F) {
	key := make([]byte, keyBytes)
	const id = RequestID("a7551968-d5d6-44b2-9831-815ac9017798")
	sealed, err := seal(key, id, []Identity{{Type: "email", Value: storage.NewSecret("x")}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sealed)
	f.Add([]byte{sealVersion})
	f.Fuzz(func(t *testing.T, p []byte) {
		identities, err := open(key, id, p)
		if err != nil && (identities != nil || !errors.Is(err, ErrSealed)) {
			t.Errorf("%v and %v", identities, err)
		}
	})
}

func FuzzDecodeIdentities(f *testing.F) {
	f.Add([]byte("\x05email\x01x"))
	f.Add([]byte("\x00\x00\x00\x00"))
	f.Add([]byte("\x05email"))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01a"))
	f.Fuzz(func(t *testing.T, p []byte) {
		list, ok := decodeIdentities(p)
		if !ok && list != nil {
			t.Error("half a list")
		}
		size := 0
		for _, i := range list {
			size += 2 + len(i.Type) + len(i.Value.Reveal())
		}
		if size > len(p) {
			t.Errorf("%d bytes of %d", size, len(p))
		}
	})
}

func TestSealedIdentitiesAreNoLargerThanWhatTheyAre(t *testing.T) {
	t.Parallel()
	key := make([]byte, keyBytes)
	const id = RequestID("a7551968-d5d6-44b2-9831-815ac9017798")
	var want []Identity
	size := 0
	for _, char := range []string{"<", "&", "\u2028", "\x01", "\"", "é", ""} {
		v := strings.Repeat(char, 4096/max(len(char), 1))
		want = append(want, Identity{Type: "email", Value: storage.NewSecret(v)})
		size += len("email") + len(v)
	}
	sealed, err := seal(key, id, want)
	if err != nil {
		t.Fatal(err)
	}
	if limit := size + 4*len(want) + sealHeader + 16; len(sealed) > limit {
		t.Errorf("%d bytes for %d", len(sealed), size)
	}
	got, err := open(key, id, sealed)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("not what was sealed: %v", err)
	}
}
