package server

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"time"

	"delenda/sharing/snapshot"
)

// A token is what the server gives out and takes back: page tokens of lists,
// refresh tokens, and the signature of a file's URL. It is base64url without
// padding of
//
//	offset  bytes  content
//	0       16     salt, random for each answer
//	16      4      number of the token in the answer, big-endian
//	20      ...    AES-256-GCM of JSON, with the number as nonce and the token's kind as additional data
//
// The key is HKDF-SHA256(key of the purpose, salt): each answer has one of its
// own, so that any number of tokens can be made.
const (
	tokenSalt   = 16
	tokenHeader = tokenSalt + 4
	// maxTokenBytes bounds what is looked at: keys of objects are at most 1 KiB
	// in every store.
	maxTokenBytes = 8 << 10
)

// kind of a token: one is no good as another.
type kind string

const (
	kindList    kind = "list"
	kindRefresh kind = "refresh"
	kindFile    kind = "file"
)

var (
	errToken   = errors.New("token not valid")
	errExpired = errors.New("token expired")
)

// sealer makes the tokens of one answer.
type sealer struct {
	salt   [tokenSalt]byte
	aead   cipher.AEAD
	number uint32
}

func newSealer(keys snapshot.Keys) *sealer {
	s := &sealer{}
	_, _ = rand.Read(s.salt[:]) // never fails
	s.aead = tokenAEAD(keys, s.salt[:])
	return s
}

func tokenAEAD(keys snapshot.Keys, salt []byte) cipher.AEAD {
	block, err := aes.NewCipher(keys.Derive("token/1", salt))
	if err != nil { // only for a wrong length
		panic("server: internal error: " + err.Error())
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		panic("server: internal error: " + err.Error())
	}
	return gcm
}

// claims are what tokens carry.
type claims struct {
	ExpiresAt int64  `json:"e"`           // ms
	Scope     string `json:"s"`           // what it is for: a list, or a shared table
	Recipient string `json:"r"`           // name
	After     string `json:"a,omitempty"` // list: what the page before ended with
	Version   int64  `json:"v,omitempty"` // refresh, file: of the table
	Key       string `json:"k,omitempty"` // refresh: of the manifest; file: of the object in the table
}

func (s *sealer) seal(k kind, c claims) (string, error) {
	plain, err := json.Marshal(c)
	if err != nil {
		return "", err
	}
	s.number++
	token := make([]byte, tokenHeader, tokenHeader+len(plain)+16)
	copy(token, s.salt[:])
	binary.BigEndian.PutUint32(token[tokenSalt:], s.number)
	token = s.aead.Seal(token, tokenNonce(s.number), plain, []byte(k))
	return base64.RawURLEncoding.EncodeToString(token), nil
}

// unseal returns what a token carries. errExpired comes with the claims.
func unseal(keys snapshot.Keys, k kind, text string, now time.Time) (claims, error) {
	if len(text) > maxTokenBytes {
		return claims{}, errToken
	}
	token, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(token) < tokenHeader {
		return claims{}, errToken
	}
	nonce := tokenNonce(binary.BigEndian.Uint32(token[tokenSalt:]))
	plain, err := tokenAEAD(keys, token[:tokenSalt]).Open(nil, nonce, token[tokenHeader:], []byte(k))
	if err != nil {
		return claims{}, errToken
	}
	var c claims
	if json.Unmarshal(plain, &c) != nil {
		return claims{}, errToken
	}
	if now.UnixMilli() >= c.ExpiresAt {
		return c, errExpired
	}
	return c, nil
}

func tokenNonce(number uint32) []byte {
	nonce := make([]byte, 12)
	binary.BigEndian.PutUint32(nonce[8:], number)
	return nonce
}
