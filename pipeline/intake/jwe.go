package intake

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/go-jose/go-jose/v4"

	"delenda/pipeline"
)

const rsaBits = 3072

// Keys are the private keys to which senders encrypt. They live in the state
// prefix, wrapped by the keeper, so that every replica has the same.
type Keys struct {
	public  jose.JSONWebKeySet
	private map[string]crypto.PrivateKey // by key id
}

var keyAlgorithms = []jose.KeyAlgorithm{jose.ECDH_ES_A256KW, jose.RSA_OAEP_256}

// LoadKeys opens the installation's keys, which it makes at the first start: a
// P-256 key for ECDH-ES+A256KW and an RSA key for RSA-OAEP-256.
func LoadKeys(ctx context.Context, store *pipeline.Store) (*Keys, error) {
	k := &Keys{private: map[string]crypto.PrivateKey{}}
	for _, kind := range []struct {
		name      string
		algorithm jose.KeyAlgorithm
		make      func() (crypto.PrivateKey, error)
	}{
		{"intake-ec", jose.ECDH_ES_A256KW, func() (crypto.PrivateKey, error) {
			return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		}},
		{"intake-rsa", jose.RSA_OAEP_256, func() (crypto.PrivateKey, error) {
			return rsa.GenerateKey(rand.Reader, rsaBits)
		}},
	} {
		der, err := store.LoadKey(ctx, kind.name, func() ([]byte, error) {
			key, err := kind.make()
			if err != nil {
				return nil, err
			}
			return x509.MarshalPKCS8PrivateKey(key)
		})
		if err != nil {
			return nil, fmt.Errorf("load intake keys: %w", err)
		}
		if err := k.add(der, kind.algorithm); err != nil {
			return nil, fmt.Errorf("load intake keys: %s: %w", kind.name, err)
		}
	}
	return k, nil
}

func (k *Keys) add(der []byte, algorithm jose.KeyAlgorithm) error {
	private, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return errors.New("not a PKCS #8 private key")
	}
	signer, ok := private.(crypto.Signer)
	if !ok {
		return errors.New("a key without a public part")
	}
	jwk := jose.JSONWebKey{Key: signer.Public(), Algorithm: string(algorithm), Use: "enc"}
	sum, err := jwk.Thumbprint(crypto.SHA256)
	if err != nil {
		return err
	}
	jwk.KeyID = base64.RawURLEncoding.EncodeToString(sum)
	k.public.Keys = append(k.public.Keys, jwk)
	k.private[jwk.KeyID] = private
	return nil
}

// Public returns the JWK set to publish. Each key has kid (RFC 7638), alg and use.
func (k *Keys) Public() jose.JSONWebKeySet { return k.public }

// isJWE tells a JWE in compact or JSON form from a plain body.
func isJWE(data []byte) bool {
	data = bytes.TrimSpace(data)
	if len(data) == 0 {
		return false
	}
	if data[0] != '{' {
		return bytes.Count(data, []byte{'.'}) == 4
	}
	root, p := parse(data)
	return p == nil && root["ciphertext"] != nil
}

// sealedOnly returns a message as it may be kept: nil unless it is a JWE of a
// kind that is taken, and of that only what belongs to a JWE. What merely looks
// like one may say anything.
func sealedOnly(data []byte) []byte {
	data = bytes.TrimSpace(data)
	jwe, err := parseJWE(data)
	switch {
	case err != nil:
		return nil
	case data[0] == '{':
		return []byte(jwe.FullSerialize())
	}
	return data
}

func parseJWE(data []byte) (*jose.JSONWebEncryption, error) {
	parse := jose.ParseEncryptedCompact
	if len(data) > 0 && data[0] == '{' {
		parse = jose.ParseEncryptedJSON
	}
	return parse(string(data), keyAlgorithms, []jose.ContentEncryption{jose.A256GCM})
}

// open decrypts a JWE: compact or flattened JSON, one recipient, to one of the
// published keys, A256GCM.
func (k *Keys) open(data []byte) ([]byte, *Problem) {
	jwe, err := parseJWE(bytes.TrimSpace(data))
	if err != nil {
		return nil, problem(400, "undecryptable", "", "not a JWE with %s or %s and %s", keyAlgorithms[0], keyAlgorithms[1], jose.A256GCM)
	}
	private, ok := k.private[jwe.Header.KeyID]
	if !ok {
		return nil, problem(400, "unknown_key", "", "the JWE names no published key: kid must be one of those of /v1/keys")
	}
	body, err := jwe.Decrypt(private)
	if err != nil {
		return nil, problem(400, "undecryptable", "", "the JWE does not open under the key it names")
	}
	if len(body) > MaxBody {
		return nil, problem(413, "too_large", "", "the body has more than %d bytes", MaxBody)
	}
	return body, nil
}
