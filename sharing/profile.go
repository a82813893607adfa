package sharing

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"
)

const redacted = "[redacted]"

// Token is a bearer token. Whatever prints, logs or marshals it gets
// "[redacted]"; only Reveal gives the value.
type Token struct{ value string }

// NewToken wraps a bearer token.
func NewToken(value string) Token { return Token{value} }

// Reveal returns the token, to code that sends, hashes or writes it into a
// profile file. It must not reach an error or a log, nor a data URL's host.
func (t Token) Reveal() string { return t.value }

// String returns "[redacted]".
func (Token) String() string { return redacted }

// Format writes "[redacted]" for every verb, %#v included.
func (Token) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// LogValue implements slog.LogValuer.
func (Token) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText implements encoding.TextMarshaler: JSON shows "[redacted]".
func (Token) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Profile is what a recipient needs to reach a server: the content of a
// profile file with a bearer token.
type Profile struct {
	Version     int    // 1 or 2; the zero value is written as 1
	Endpoint    string // absolute http or https URL without a trailing '/'
	BearerToken Token
	ExpiresAt   time.Time // UTC; the zero value never expires
}

// Expired tells whether the token no longer works at now.
func (p Profile) Expired(now time.Time) bool {
	return !p.ExpiresAt.IsZero() && !now.Before(p.ExpiresAt)
}

// profileFile is the JSON of a profile file; members that are not listed are
// ignored.
type profileFile struct {
	Version     int    `json:"shareCredentialsVersion"`
	Type        string `json:"type,omitempty"`
	Endpoint    string `json:"endpoint"`
	BearerToken string `json:"bearerToken,omitempty"`
	Expiration  string `json:"expirationTime,omitempty"`
}

const typeBearer = "bearer_token"

// otherTypes are the types of the protocol that are not supported.
var otherTypes = map[string]bool{
	"oauth_client_credentials":               true,
	"oauth_jwt_bearer_private_key_jwt":       true,
	"basic":                                  true,
	"persistent_oauth2.0":                    true,
	"experimental_managed_identity":          true,
	"oauth_client_credentials_with_audience": true,
}

// ParseProfile reads a profile file of version 1, or of version 2 with a bearer
// token. Errors name the member that is wrong and never a value of it, but for
// the version and the names of types that the protocol knows.
func ParseProfile(p []byte) (Profile, error) {
	var f profileFile
	if err := json.Unmarshal(p, &f); err != nil {
		return Profile{}, fmt.Errorf("parse profile: %s", describe(err))
	}
	if f.Version < 1 || f.Version > 2 {
		return Profile{}, fmt.Errorf("parse profile: shareCredentialsVersion %d is not supported, 1 and 2 are", f.Version)
	}
	switch {
	case f.Type == "" || f.Type == typeBearer:
	case otherTypes[f.Type]:
		return Profile{}, fmt.Errorf("parse profile: type %s is not supported, only %s is", f.Type, typeBearer)
	default:
		return Profile{}, fmt.Errorf("parse profile: type is unknown, only %s is supported", typeBearer)
	}
	if err := checkToken(f.BearerToken); err != nil {
		return Profile{}, fmt.Errorf("parse profile: %w", err)
	}
	endpoint, err := cleanEndpoint(f.Endpoint)
	if err != nil {
		return Profile{}, fmt.Errorf("parse profile: %w", err)
	}
	profile := Profile{Version: f.Version, Endpoint: endpoint, BearerToken: NewToken(f.BearerToken)}
	if f.Expiration != "" {
		t, err := time.Parse(time.RFC3339, f.Expiration)
		if err != nil || t.IsZero() {
			return Profile{}, fmt.Errorf("parse profile: expirationTime is not an ISO 8601 time with a zone")
		}
		profile.ExpiresAt = t.UTC()
	}
	return profile, nil
}

// FormatProfile writes a profile file, the token in clear: the bytes are a
// credential. A profile of version 2 gets its type.
func FormatProfile(p Profile) ([]byte, error) {
	endpoint, err := cleanEndpoint(p.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("format profile: %w", err)
	}
	if err := checkToken(p.BearerToken.Reveal()); err != nil {
		return nil, fmt.Errorf("format profile: %w", err)
	}
	f := profileFile{Version: p.Version, Endpoint: endpoint, BearerToken: p.BearerToken.Reveal()}
	switch p.Version {
	case 0:
		f.Version = 1
	case 1:
	case 2:
		f.Type = typeBearer
	default:
		return nil, fmt.Errorf("format profile: shareCredentialsVersion %d is not supported", p.Version)
	}
	if !p.ExpiresAt.IsZero() {
		f.Expiration = p.ExpiresAt.UTC().Format(time.RFC3339Nano)
	}
	out, err := json.MarshalIndent(f, "", "  ") //nolint:gosec // a profile file is where the token belongs
	if err != nil {
		return nil, fmt.Errorf("format profile: %s", describe(err))
	}
	return append(out, '\n'), nil
}

// checkToken holds to what an Authorization header can carry.
func checkToken(token string) error {
	if token == "" {
		return fmt.Errorf("bearerToken is missing")
	}
	for _, r := range token {
		if r <= ' ' || r >= 0x7f {
			return fmt.Errorf("bearerToken holds a character that a header cannot carry")
		}
	}
	return nil
}

func cleanEndpoint(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" {
		return "", fmt.Errorf("endpoint is not an absolute http or https URL")
	}
	if u.User != nil || u.RawQuery != "" || u.ForceQuery || strings.Contains(endpoint, "#") {
		return "", fmt.Errorf("endpoint carries a user, a query or a fragment")
	}
	return strings.TrimRight(endpoint, "/"), nil
}

// ParseTableRef splits "<profile>#share.schema.table", the way that clients
// name a table: at the last '#', and then at the last two dots, since a share's
// name may hold dots. Only the names of the table are set.
func ParseTableRef(ref string) (profile string, table Table, err error) {
	i := strings.LastIndexByte(ref, '#')
	if i < 0 {
		return "", Table{}, fmt.Errorf("parse table reference: no '#' between profile and table")
	}
	profile, rest := ref[:i], ref[i+1:]
	last := strings.LastIndexByte(rest, '.')
	middle := -1
	if last >= 0 {
		middle = strings.LastIndexByte(rest[:last], '.')
	}
	if middle < 0 {
		return "", Table{}, fmt.Errorf("parse table reference: after '#' comes share.schema.table")
	}
	table = Table{Share: rest[:middle], Schema: rest[middle+1 : last], Name: rest[last+1:]}
	if profile == "" || table.Share == "" || table.Schema == "" || table.Name == "" {
		return "", Table{}, fmt.Errorf("parse table reference: profile, share, schema and table must not be empty")
	}
	return profile, table, nil
}
