// Package recipients keeps who may read which share: recipients, the hashes of
// their bearer tokens, and their grants, as records under recipients/{name}/ in
// the state prefix. A token is shown once, when it is issued; only its SHA-256
// is kept.
//
// A Directory reads and writes the records; a Registry is a replica's view of
// them, read again every few seconds and when it is told to. A grant or token
// that was taken away works no longer than that, and if the records cannot be
// read for longer than the registry's bound, nobody is let in.
package recipients

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"delenda/sharing"
	"delenda/sharing/ledger"
	"delenda/storage"
)

const (
	prefix = "recipients/"

	// tokenPrefix lets secret scanners recognise a token.
	tokenPrefix = "delenda_"
	idBytes     = 8
	secretBytes = 32

	keepRecords = 16 // of a recipient
)

// ErrUnknown tells that no recipient, or no token of the recipient, has this name.
var ErrUnknown = errors.New("no such recipient")

var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.@-]{0,127}$`)

// Recipient is one record.
type Recipient struct {
	Name      string    `json:"name"`
	CreatedAt time.Time `json:"created_at"`
	Tokens    []Token   `json:"tokens"`
	Shares    []string  `json:"shares"` // lower case, sorted, unique
	Removed   bool      `json:"removed,omitempty"`
}

// Token is what is kept of a bearer token.
type Token struct {
	ID        string    `json:"id"`
	SHA256    string    `json:"sha256"` // hex, of the whole token
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at,omitzero"` // zero never expires
}

// Granted tells whether the recipient may read the share.
func (r Recipient) Granted(share string) bool {
	return slices.Contains(r.Shares, strings.ToLower(share))
}

// Directory reads and writes the records. It is safe for concurrent use, also
// by several processes: no change is lost.
type Directory struct{ state storage.Bucket }

// NewDirectory returns the directory in the state prefix.
func NewDirectory(state storage.Bucket) *Directory { return &Directory{state} }

// Issue adds a token to the recipient, who is created if there is none of that
// name, and grants the shares besides those granted before. Other tokens stay,
// so that a recipient can change over. A zero expiresAt never expires.
func (d *Directory) Issue(ctx context.Context, name string, shares []string, expiresAt, now time.Time) (sharing.Token, error) {
	if !validName.MatchString(name) {
		return sharing.Token{}, errors.New("issue token: name of the recipient: want letters, digits and _ . @ -, at most 128")
	}
	id, secret := random(idBytes), random(secretBytes)
	value := tokenPrefix + id + "_" + secret
	sum := sha256.Sum256([]byte(value))
	err := d.change(ctx, name, func(r *Recipient) error {
		if r.CreatedAt.IsZero() || r.Removed {
			*r = Recipient{Name: name, CreatedAt: now.UTC()}
		}
		for _, share := range shares {
			r.Shares = append(r.Shares, strings.ToLower(share))
		}
		slices.Sort(r.Shares)
		r.Shares = slices.Compact(r.Shares)
		r.Tokens = append(r.Tokens, Token{id, hex.EncodeToString(sum[:]), now.UTC(), expiresAt.UTC()})
		return nil
	})
	if err != nil {
		return sharing.Token{}, fmt.Errorf("issue token: %w", err)
	}
	return sharing.NewToken(value), nil
}

// Revoke removes one token of a recipient.
func (d *Directory) Revoke(ctx context.Context, name, tokenID string) error {
	err := d.change(ctx, name, func(r *Recipient) error {
		n := len(r.Tokens)
		r.Tokens = slices.DeleteFunc(r.Tokens, func(t Token) bool { return t.ID == tokenID })
		if r.Removed || len(r.Tokens) == n {
			return ErrUnknown
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("revoke token: %w", err)
	}
	return nil
}

// SetShares replaces the grants of a recipient.
func (d *Directory) SetShares(ctx context.Context, name string, shares []string) error {
	err := d.change(ctx, name, func(r *Recipient) error {
		if r.CreatedAt.IsZero() || r.Removed {
			return ErrUnknown
		}
		r.Shares = nil
		for _, share := range shares {
			r.Shares = append(r.Shares, strings.ToLower(share))
		}
		slices.Sort(r.Shares)
		r.Shares = slices.Compact(r.Shares)
		return nil
	})
	if err != nil {
		return fmt.Errorf("set grants: %w", err)
	}
	return nil
}

// Remove takes every token and grant from a recipient.
func (d *Directory) Remove(ctx context.Context, name string) error {
	err := d.change(ctx, name, func(r *Recipient) error {
		if r.CreatedAt.IsZero() || r.Removed {
			return ErrUnknown
		}
		r.Tokens, r.Shares, r.Removed = nil, nil, true
		return nil
	})
	if err != nil {
		return fmt.Errorf("remove recipient: %w", err)
	}
	return nil
}

// All returns every recipient that was not removed, in order of their names.
func (d *Directory) All(ctx context.Context) ([]Recipient, error) {
	records, err := d.newer(ctx, nil)
	if err != nil {
		return nil, err
	}
	var all []Recipient
	for _, rec := range records {
		if !rec.recipient.Removed {
			all = append(all, rec.recipient)
		}
	}
	slices.SortFunc(all, func(a, b Recipient) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// record is the one in force of a recipient.
type record struct {
	number    int64
	recipient Recipient
}

// newer returns the record in force of every recipient by name, and reads
// those only that are not in known.
func (d *Directory) newer(ctx context.Context, known map[string]record) (map[string]record, error) {
	newest := map[string]int64{}
	for info, err := range d.state.List(ctx, prefix, "") {
		if err != nil {
			return nil, fmt.Errorf("list recipients: %w", err)
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(info.Key, prefix), "/")
		if n, ok := ledger.Number(prefix+name+"/", info.Key); ok {
			newest[name] = max(newest[name], n)
		}
	}
	records := make(map[string]record, len(newest))
	for name, number := range newest {
		rec, ok := known[name]
		if !ok || rec.number < number {
			r, entry, err := d.read(ctx, name)
			if err != nil {
				return nil, err
			}
			rec = record{entry.Number, r}
		}
		records[name] = rec
	}
	return records, nil
}

func (d *Directory) read(ctx context.Context, name string) (Recipient, ledger.Entry, error) {
	entry, err := ledger.New(d.state, prefix+name+"/").Newest(ctx, ledger.Entry{})
	if err != nil {
		return Recipient{}, ledger.Entry{}, fmt.Errorf("read recipient: %w", err)
	}
	var r Recipient
	if entry.Number > 0 {
		if err := json.Unmarshal(entry.Body, &r); err != nil {
			return Recipient{}, ledger.Entry{}, &storage.CorruptError{Key: ledger.Key(prefix+name+"/", entry.Number), Offset: -1, Field: "recipient", Reason: "not the JSON of a recipient"}
		}
	}
	return r, entry, nil
}

// change applies fn to the newest record until no other writer interferes.
func (d *Directory) change(ctx context.Context, name string, fn func(*Recipient) error) error {
	records := ledger.New(d.state, prefix+name+"/")
	for {
		r, newest, err := d.read(ctx, name)
		if err != nil {
			return err
		}
		if err := fn(&r); err != nil {
			return err
		}
		r.Name = name
		body, err := json.Marshal(r)
		if err != nil {
			return err
		}
		entry, err := records.Append(ctx, newest, body)
		if errors.Is(err, ledger.ErrLost) {
			continue
		}
		if err != nil {
			return err
		}
		_ = records.Trim(ctx, entry.Number, keepRecords, time.Time{}) // what stays goes with the next change
		return nil
	}
}

func random(n int) string {
	p := make([]byte, n)
	_, _ = rand.Read(p) // never fails
	return base64.RawURLEncoding.EncodeToString(p)
}
