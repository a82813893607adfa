package pipeline

import (
	"errors"
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
