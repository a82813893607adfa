package snapshot

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"testing"

	"delenda/storage"
)

var discard = slog.New(slog.DiscardHandler)

func sealed(t testing.TB, name string, plain []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := newSealWriter(&out, testKeys(t), name)
	if err != nil {
		t.Fatal(err)
	}
	for len(plain) > 0 { // in uneven pieces
		n := min(len(plain), 1+rand.IntN(100_000))
		if _, err := w.Write(plain[:n]); err != nil {
			t.Fatal(err)
		}
		plain = plain[n:]
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func unsealed(t testing.TB, name string, p []byte) ([]byte, error) {
	t.Helper()
	r, err := newOpenReader(bytes.NewReader(p), testKeys(t), name)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

func TestASealedObjectOpensToWhatWasWritten(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, chunkBytes - 1, chunkBytes, chunkBytes + 1, 3 * chunkBytes, 3*chunkBytes + 17} {
		plain := bytes.Repeat([]byte{'x'}, n)
		got, err := unsealed(t, "a", sealed(t, "a", plain))
		if err != nil || !bytes.Equal(got, plain) {
			t.Errorf("%d bytes: got %d, %v", n, len(got), err)
		}
	}
}

func TestASealedObjectThatWasTamperedWithIsCorrupt(t *testing.T) {
	t.Parallel()
	whole := sealed(t, "a", bytes.Repeat([]byte{'x'}, 2*chunkBytes+5))
	const header, chunk = 40, chunkBytes + tagBytes
	swapped := bytes.Clone(whole)
	copy(swapped[header:], whole[header+chunk:header+2*chunk])
	copy(swapped[header+chunk:], whole[header:header+chunk])
	flipped := bytes.Clone(whole)
	flipped[header+3] ^= 1
	tests := map[string][]byte{
		"cut at a chunk's end":    whole[:header+2*chunk],
		"cut in a chunk":          whole[:header+chunk+100],
		"cut in the header":       whole[:20],
		"empty":                   nil,
		"without its first chunk": append(bytes.Clone(whole[:header]), whole[header+chunk:]...),
		"with chunks swapped":     swapped,
		"with a bit flipped":      flipped,
		"with more after its end": append(bytes.Clone(whole), 1, 2, 3),
		"with another magic":      append([]byte("PLAINTXT"), whole[8:]...),
	}
	for name, p := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := unsealed(t, "a", p); !errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("got %v, want corrupt", err)
			}
		})
	}
	if _, err := unsealed(t, "b", whole); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("under another name: got %v, want corrupt", err)
	}
}

func TestAShortInstallationKeyIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := NewKeys(make([]byte, 31)); err == nil {
		t.Error("a key of 31 bytes was taken")
	}
}

func FuzzOpenReader(f *testing.F) {
	f.Add(sealed(f, "a", []byte("hello")))
	f.Add([]byte(sealMagic))
	f.Fuzz(func(t *testing.T, p []byte) {
		got, err := unsealed(t, "a", p)
		if err == nil && string(got) != "hello" {
			t.Errorf("forged %q", got)
		}
	})
}

func FuzzRecordReader(f *testing.F) {
	rec := record{path: "p", dvID: "id", dvKey: "k", rows: 3, addTail: []byte("a"), dvTail: []byte("b")}
	f.Add(rec.appendTo(nil))
	f.Add([]byte{1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, p []byte) {
		r := newRecordReader(bytes.NewReader(p), "f")
		var out []byte
		for {
			var rec record
			err := r.next(&rec)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return
			}
			out = rec.appendTo(out)
		}
		again := newRecordReader(bytes.NewReader(out), "f")
		for {
			var rec record
			if err := again.next(&rec); errors.Is(err, io.EOF) {
				return
			} else if err != nil {
				t.Fatalf("what was encoded does not decode: %v", err)
			}
		}
	})
}
