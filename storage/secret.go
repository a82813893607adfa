package storage

import (
	"fmt"
	"log/slog"
	"time"
)

const redacted = "[redacted]"

// Secret is a value that identifies a person. Whatever prints, logs or
// marshals it gets "[redacted]"; only Reveal gives the value, to code that
// compares or encrypts it. The zero Secret is the empty value.
type Secret struct{ value string }

// NewSecret wraps an identifying value.
func NewSecret(value string) Secret { return Secret{value} }

// Reveal returns the value. The result must not reach an error, log, metric,
// key, subject, message or commit.
func (s Secret) Reveal() string { return s.value }

// String returns "[redacted]".
func (Secret) String() string { return redacted }

// Format writes "[redacted]" for every verb, %#v included.
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// LogValue implements slog.LogValuer.
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText implements encoding.TextMarshaler: JSON and YAML show "[redacted]".
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// SignedURL is a pre-signed URL: a credential until ExpiresAt. It prints as
// "[redacted]"; only Reveal gives the URL, to code that hands it to a recipient.
type SignedURL struct {
	url       string
	ExpiresAt time.Time // UTC
}

// NewSignedURL wraps a pre-signed URL that works until expiresAt.
func NewSignedURL(url string, expiresAt time.Time) SignedURL {
	return SignedURL{url: url, ExpiresAt: expiresAt.UTC()}
}

// Reveal returns the URL. It must not reach an error, log or metric.
func (u SignedURL) Reveal() string { return u.url }

// String returns "[redacted]".
func (SignedURL) String() string { return redacted }

// Format writes "[redacted]" for every verb, %#v included.
func (SignedURL) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// LogValue implements slog.LogValuer.
func (SignedURL) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText implements encoding.TextMarshaler: JSON shows "[redacted]".
func (SignedURL) MarshalText() ([]byte, error) { return []byte(redacted), nil }
