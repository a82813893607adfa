package pipeline

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"delenda/pipeline/internal/object"
	"delenda/storage"
)

// Keeper wraps keys. *secrets.Keeper of gocloud.dev is one.
type Keeper interface {
	Encrypt(ctx context.Context, plaintext []byte) ([]byte, error)
	Decrypt(ctx context.Context, ciphertext []byte) ([]byte, error)
}

// ErrShredded says that the request's key is gone, so its identities cannot be
// read by anyone. That is how a finished request ends.
var ErrShredded = errors.New("key shredded")

// ErrSealed says that a ciphertext does not open under the request's key.
var ErrSealed = errors.New("ciphertext does not open")

const (
	keyBytes        = 32
	maxWrapped      = 64 << 10
	installationKey = "keys/installation"
)

// Identity is one value that identifies the subject of a request.
type Identity struct {
	Type  string
	Value storage.Secret
}

// DeriveKey returns a 32 byte key that only holders of the installation's key
// can compute. Different labels give unrelated keys.
func (s *Store) DeriveKey(label string) ([]byte, error) {
	return hkdf.Key(sha256.New, s.master, nil, "delenda/"+label, keyBytes)
}

// RequestID returns the id that a source's idempotency key stands for: a
// version 8 UUID of HMAC-SHA256.
func (s *Store) RequestID(source, idempotencyKey string) RequestID {
	m := hmac.New(sha256.New, s.idKey)
	m.Write(binary.BigEndian.AppendUint32(nil, uint32(len(source)))) //nolint:gosec // a source name is at most 128 bytes
	m.Write([]byte(source))
	m.Write([]byte(idempotencyKey))
	var u uuid.UUID
	copy(u[:], m.Sum(nil))
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return RequestID(u.String())
}

// BodyMAC authenticates a canonical body for comparison with one that comes
// later.
func (s *Store) BodyMAC(canonical []byte) []byte {
	m := hmac.New(sha256.New, s.macKey)
	m.Write(canonical)
	return m.Sum(nil)
}

// LoadKey returns the plain bytes of a wrapped key, creating it by create if
// it is not there. All callers, in all processes, get the same bytes.
func (s *Store) LoadKey(ctx context.Context, name string, create func() ([]byte, error)) ([]byte, error) {
	key := "keys/" + name
	for {
		wrapped, err := storage.ReadObject(ctx, s.bucket, key, maxWrapped)
		if err == nil {
			plain, err := s.keeper.Decrypt(ctx, wrapped)
			if err != nil {
				return nil, fmt.Errorf("unwrap %s: %w", key, err)
			}
			return plain, nil
		}
		if !errors.Is(err, storage.ErrNotFound) {
			return nil, err
		}
		plain, err := create()
		if err != nil {
			return nil, fmt.Errorf("make %s: %w", key, err)
		}
		if wrapped, err = s.keeper.Encrypt(ctx, plain); err != nil {
			return nil, fmt.Errorf("wrap %s: %w", key, err)
		}
		won, err := object.PutBytesOnce(ctx, s.bucket, key, wrapped, "application/octet-stream")
		if err != nil {
			return nil, err
		}
		if won {
			return plain, nil
		}
	}
}

// NewKey returns 32 random bytes.
func NewKey() ([]byte, error) {
	k := make([]byte, keyBytes)
	_, err := rand.Read(k)
	return k, err
}

// Unseal returns the identities of a request: ErrShredded once it is done.
func (s *Store) Unseal(ctx context.Context, r *Record) ([]Identity, error) {
	wrapped, err := storage.ReadObject(ctx, s.bucket, requestKey(r.ID), maxWrapped)
	if errors.Is(err, storage.ErrNotFound) {
		return nil, fmt.Errorf("request %s: %w", r.ID, ErrShredded)
	}
	if err != nil {
		return nil, err
	}
	key, err := s.keeper.Decrypt(ctx, wrapped)
	if err != nil && s.keeperWorks(ctx) {
		// The trouble is of this key alone, unless it was gone just now.
		if key, err = s.keeper.Decrypt(ctx, wrapped); err != nil && ctx.Err() == nil {
			return nil, fmt.Errorf("request %s: %w: its key does not unwrap", r.ID, ErrSealed)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("unwrap %s: %w", requestKey(r.ID), err)
	}
	return open(key, r.ID, r.Ciphertext)
}

// keeperWorks reports whether the keeper unwraps the installation's key.
func (s *Store) keeperWorks(ctx context.Context) bool {
	wrapped, err := storage.ReadObject(ctx, s.bucket, installationKey, maxWrapped)
	if err != nil {
		return false
	}
	_, err = s.keeper.Decrypt(ctx, wrapped)
	return err == nil
}

func requestKey(id RequestID) string { return "keys/" + string(id) }

// Sealed identities:
//
//	offset 0   1 byte    version, 1
//	offset 1   12 bytes  nonce, random
//	offset 13            AES-256-GCM of the identities and its 16 byte tag;
//	                     additional data: "delenda/identities/1\x00" and the request id
//
// Each identity is its type and its value, each a uvarint of its length and so
// many bytes. No byte is escaped, so that what is sealed is never larger than
// the body that brought it: every request that is accepted fits a message.
const (
	sealVersion = 1
	sealHeader  = 1 + 12
)

func sealer(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

func sealData(id RequestID) []byte { return []byte("delenda/identities/1\x00" + string(id)) }

func seal(key []byte, id RequestID, identities []Identity) ([]byte, error) {
	var plain []byte
	for _, v := range identities {
		for _, text := range []string{v.Type, v.Value.Reveal()} {
			plain = binary.AppendUvarint(plain, uint64(len(text)))
			plain = append(plain, text...)
		}
	}
	aead, err := sealer(key)
	if err != nil {
		return nil, err
	}
	out := make([]byte, sealHeader, sealHeader+len(plain)+aead.Overhead())
	out[0] = sealVersion
	if _, err := rand.Read(out[1:]); err != nil {
		return nil, err
	}
	return aead.Seal(out, out[1:sealHeader], plain, sealData(id)), nil
}

func open(key []byte, id RequestID, sealed []byte) ([]Identity, error) {
	aead, err := sealer(key)
	if err != nil {
		return nil, fmt.Errorf("request %s: %w: bad key", id, ErrSealed)
	}
	if len(sealed) < sealHeader+aead.Overhead() || sealed[0] != sealVersion {
		return nil, fmt.Errorf("request %s: %w: bad header", id, ErrSealed)
	}
	plain, err := aead.Open(nil, sealed[1:sealHeader], sealed[sealHeader:], sealData(id))
	if err != nil {
		return nil, fmt.Errorf("request %s: %w: not authentic", id, ErrSealed)
	}
	identities, ok := decodeIdentities(plain)
	if !ok {
		return nil, fmt.Errorf("request %s: %w: not a list of identities", id, ErrSealed)
	}
	return identities, nil
}

// decodeIdentities copies what it returns. Every length is within what is there.
func decodeIdentities(p []byte) (list []Identity, ok bool) {
	text := func() (s string, ok bool) {
		n, used := binary.Uvarint(p)
		if used <= 0 || n > uint64(len(p)-used) { //nolint:gosec // used is at most len(p)
			return "", false
		}
		s, p = string(p[used:used+int(n)]), p[used+int(n):] //nolint:gosec // at most len(p)
		return s, true
	}
	for len(p) > 0 {
		typ, ok := text()
		if !ok {
			return nil, false
		}
		value, ok := text()
		if !ok {
			return nil, false
		}
		list = append(list, Identity{Type: typ, Value: storage.NewSecret(value)})
	}
	return list, true
}
