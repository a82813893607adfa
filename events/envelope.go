package events

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrEnvelope matches every envelope that Decode refuses.
var ErrEnvelope = errors.New("not a delenda event")

// Event is a CloudEvents 1.0 envelope in structured JSON mode.
//
//	{"specversion":"1.0","id":…,"source":"/delenda/{installation}/{service}",
//	 "type":…,"subject":…,"time":RFC 3339 UTC,"datacontenttype":"application/json","data":{…}}
type Event struct {
	ID      string          // unique per source; also the Nats-Msg-Id; derived from the content, see New
	Source  string          // /delenda/{installation}/{service}
	Type    Type            //
	Subject string          // the NATS subject it is published on
	Time    time.Time       // UTC
	Data    json.RawMessage // one of this package's payload types
}

type envelope struct {
	SpecVersion     string          `json:"specversion"`
	ID              string          `json:"id"`
	Source          string          `json:"source"`
	Type            Type            `json:"type"`
	Subject         string          `json:"subject"`
	Time            time.Time       `json:"time"`
	DataContentType string          `json:"datacontenttype"`
	Data            json.RawMessage `json:"data"`
}

// New returns an event on subject. Its id is a hash of type, subject and key:
// two events with the same key say the same thing, and a stream keeps one of
// them inside its duplicate window. The key is built from request ids, tables,
// states and versions, never from an identity. payload is one of this
// package's payload types.
func New(source string, typ Type, subject, key string, at time.Time, payload any) (Event, error) {
	data, err := json.Marshal(payload)
	if err != nil {
		return Event{}, fmt.Errorf("encode %s: %w", typ, err)
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{string(typ), subject, key}, "\x00")))
	return Event{
		ID: hex.EncodeToString(sum[:16]), Source: source, Type: typ,
		Subject: subject, Time: at.UTC(), Data: data,
	}, nil
}

// Encode returns the structured JSON form.
func (e Event) Encode() ([]byte, error) {
	return json.Marshal(envelope{"1.0", e.ID, e.Source, e.Type, e.Subject, e.Time.UTC(), "application/json", e.Data})
}

// Decode parses the structured JSON form. Errors match ErrEnvelope and carry
// no content.
func Decode(p []byte) (Event, error) {
	var v envelope
	if err := json.Unmarshal(p, &v); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return Event{}, fmt.Errorf("%w: invalid JSON at %d", ErrEnvelope, syntax.Offset)
		}
		return Event{}, fmt.Errorf("%w: a member has the wrong type", ErrEnvelope)
	}
	switch {
	case v.SpecVersion != "1.0":
		return Event{}, fmt.Errorf("%w: specversion is not 1.0", ErrEnvelope)
	case v.ID == "" || v.Source == "" || v.Type == "":
		return Event{}, fmt.Errorf("%w: id, source or type is missing", ErrEnvelope)
	case v.Time.UTC().Year() < 1 || v.Time.UTC().Year() > 9999:
		return Event{}, fmt.Errorf("%w: time is out of range", ErrEnvelope)
	}
	return Event{v.ID, v.Source, v.Type, v.Subject, v.Time, v.Data}, nil
}

// Payload decodes the event's data, an object, into T. Unknown members are
// ignored.
func Payload[T any](e Event) (T, error) {
	var v, none T
	if !bytes.HasPrefix(bytes.TrimSpace(e.Data), []byte("{")) || json.Unmarshal(e.Data, &v) != nil {
		return none, fmt.Errorf("%w: data is not of the type's form", ErrEnvelope)
	}
	return v, nil
}
