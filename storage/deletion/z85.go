package deletion

import (
	"encoding/binary"
	"errors"
)

// Z85 (ZeroMQ RFC 32): 4 bytes, big-endian, become 5 characters, most
// significant first.
const z85Alphabet = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"

var (
	errZ85Length    = errors.New("z85: length is not a multiple of the block")
	errZ85Character = errors.New("z85: character outside the alphabet")
	errZ85Overflow  = errors.New("z85: block above 2^32-1")
)

// z85Value maps a byte to its digit plus one; zero is outside the alphabet.
var z85Value = func() (v [256]byte) {
	for i := range len(z85Alphabet) {
		v[z85Alphabet[i]] = byte(i + 1)
	}
	return v
}()

// EncodeZ85 returns the Z85 text of p, whose length is a multiple of 4.
func EncodeZ85(p []byte) (string, error) {
	if len(p)%4 != 0 {
		return "", errZ85Length
	}
	out := make([]byte, len(p)/4*5)
	for i := 0; i < len(p); i += 4 {
		v := binary.BigEndian.Uint32(p[i:])
		block := out[i/4*5:][:5]
		for j := 4; j >= 0; j-- {
			block[j] = z85Alphabet[v%85]
			v /= 85
		}
	}
	return string(out), nil
}

// DecodeZ85 returns the bytes of Z85 text. A block above 2^32-1, which some
// decoders wrap around, is an error.
func DecodeZ85(text string) ([]byte, error) {
	if len(text)%5 != 0 {
		return nil, errZ85Length
	}
	out := make([]byte, 0, len(text)/5*4)
	for i := 0; i < len(text); i += 5 {
		var v uint64
		for j := range 5 {
			d := z85Value[text[i+j]]
			if d == 0 {
				return nil, errZ85Character
			}
			v = v*85 + uint64(d-1)
		}
		if v > 0xFFFFFFFF {
			return nil, errZ85Overflow
		}
		out = binary.BigEndian.AppendUint32(out, uint32(v))
	}
	return out, nil
}
