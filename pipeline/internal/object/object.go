// Package object reads and writes the JSON objects of the state prefix. Most
// are written once and never again; what is there then decides, so a writer
// that finds its own bytes has won, whatever an earlier error said.
package object

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"delenda/storage"
)

// MaxBytes bounds one object: a closing record of the largest batch fits.
const MaxBytes = 64 << 20

// Put stores v under key and replaces what is there.
func Put(ctx context.Context, b storage.Bucket, key string, v any) error {
	p, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", key, err)
	}
	return b.Put(ctx, key, bytes.NewReader(p), storage.PutOptions{ContentType: "application/json"})
}

// PutOnce stores v under key if nothing is there. It reports whether the
// object now there is v, be it by this call or an earlier one.
func PutOnce(ctx context.Context, b storage.Bucket, key string, v any) (won bool, err error) {
	p, err := json.Marshal(v)
	if err != nil {
		return false, fmt.Errorf("encode %s: %w", key, err)
	}
	return PutBytesOnce(ctx, b, key, p, "application/json")
}

// PutBytesOnce is PutOnce for bytes.
func PutBytesOnce(ctx context.Context, b storage.Bucket, key string, p []byte, contentType string) (won bool, err error) {
	err = b.Put(ctx, key, bytes.NewReader(p), storage.PutOptions{IfAbsent: true, ContentType: contentType})
	if err == nil {
		return true, nil
	}
	if !errors.Is(err, storage.ErrExists) {
		return false, err
	}
	there, err := storage.ReadObject(ctx, b, key, MaxBytes)
	if err != nil {
		return false, err
	}
	return bytes.Equal(there, p), nil
}

// Get reads the object under key into v. An absent object is
// storage.ErrNotFound; one that is not JSON of the right shape is
// storage.ErrCorrupt, without its content.
func Get(ctx context.Context, b storage.Bucket, key string, v any) error {
	p, err := storage.ReadObject(ctx, b, key, MaxBytes)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(p, v); err != nil {
		offset := int64(-1)
		var syntax *json.SyntaxError
		var kind *json.UnmarshalTypeError
		switch {
		case errors.As(err, &syntax):
			offset = syntax.Offset
		case errors.As(err, &kind):
			offset = kind.Offset
		}
		return &storage.CorruptError{Key: key, Offset: offset, Field: "object", Reason: "not the JSON that belongs here"}
	}
	return nil
}
