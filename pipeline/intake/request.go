package intake

import (
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"delenda/events"
	"delenda/pipeline"
	"delenda/storage"
)

// Bounds of a body.
const (
	MaxBody       = 256 << 10 // bytes
	maxKey        = 255       // bytes of an idempotency key
	maxIdentities = 100
	maxValue      = 4096 // bytes of an identity
	maxTables     = 10_000
)

// Regulations that a request may name.
var regulations = []string{"gdpr", "uk_gdpr", "ccpa", "lgpd", "other"}

var identityType = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)

// request is a body whose form is right.
type request struct {
	key              string
	regulation       string
	subjectRequestID string
	receivedAt       time.Time // zero: not given
	tables           []string  // nil: all
	identities       []pipeline.Identity
	canonical        []byte
}

// read checks everything about a body that does not depend on configuration
// and time.
func read(body []byte) (*request, *Problem) {
	root, p := parse(body)
	if p != nil {
		return nil, p
	}
	if p := known(root, "", "idempotency_key", "regulation", "subject_request_id", "received_at", "tables", "identities"); p != nil {
		return nil, p
	}
	r := &request{canonical: canonical(root)}
	for _, step := range []func(object) *Problem{r.readKey, r.readRegulation, r.readID, r.readTime, r.readTables, r.readIdentities} {
		if p := step(root); p != nil {
			return nil, p
		}
	}
	return r, nil
}

// known refuses members that are none of names.
func known(o object, path string, names ...string) *Problem {
	var unknown []string
	for name := range o {
		if !slices.Contains(names, name) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	slices.Sort(unknown)
	return problem(http.StatusBadRequest, "unknown_member", member(path, unknown[0]), "no such member; known are %s", strings.Join(names, ", "))
}

// text returns a member that must be a string if it is there.
func text(o object, path, name string) (s string, there bool, p *Problem) {
	v, ok := o[name]
	if !ok {
		return "", false, nil
	}
	s, ok = v.(string)
	if !ok {
		return "", false, malformed(member(path, name), "must be a string")
	}
	return s, true, nil
}

func missing(field string) *Problem {
	return problem(http.StatusBadRequest, "missing_member", field, "is mandatory")
}

func (r *request) readKey(root object) *Problem {
	s, there, p := text(root, "", "idempotency_key")
	switch {
	case p != nil:
		return p
	case !there:
		return missing("idempotency_key")
	case s == "" || len(s) > maxKey:
		return malformed("idempotency_key", "must have 1 to %d bytes", maxKey)
	}
	r.key = s
	return nil
}

func (r *request) readRegulation(root object) *Problem {
	s, there, p := text(root, "", "regulation")
	if p == nil && there && !slices.Contains(regulations, s) {
		p = malformed("regulation", "must be one of %s", strings.Join(regulations, ", "))
	}
	r.regulation = s
	return p
}

func (r *request) readID(root object) *Problem {
	s, there, p := text(root, "", "subject_request_id")
	if p != nil || !there {
		return p
	}
	u, err := uuid.Parse(s)
	if err != nil || !strings.EqualFold(u.String(), s) {
		return malformed("subject_request_id", "must be a UUID in its usual text form")
	}
	r.subjectRequestID = u.String()
	return nil
}

func (r *request) readTime(root object) *Problem {
	s, there, p := text(root, "", "received_at")
	if p != nil || !there {
		return p
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil || t.IsZero() {
		return malformed("received_at", "must be a time as of RFC 3339")
	}
	r.receivedAt = t.UTC().Truncate(time.Millisecond)
	return nil
}

func (r *request) readTables(root object) *Problem {
	v, there := root["tables"]
	if !there || v == "all" {
		return nil
	}
	list, ok := v.([]any)
	if !ok {
		return malformed("tables", `must be "all" or a list of names`)
	}
	if len(list) == 0 || len(list) > maxTables {
		return malformed("tables", "must name 1 to %d tables", maxTables)
	}
	seen := map[string]bool{}
	for i, e := range list {
		field := "tables[" + strconv.Itoa(i) + "]"
		s, ok := e.(string)
		if !ok || !events.ValidName(s) {
			return malformed(field, "must be the name of a table")
		}
		if seen[s] {
			return malformed(field, "names a table twice")
		}
		seen[s] = true
		r.tables = append(r.tables, s)
	}
	return nil
}

func (r *request) readIdentities(root object) *Problem {
	v, there := root["identities"]
	if !there {
		return missing("identities")
	}
	list, ok := v.([]any)
	if !ok || len(list) == 0 || len(list) > maxIdentities {
		return malformed("identities", "must be a list of 1 to %d identities", maxIdentities)
	}
	for i, e := range list {
		path := identityField(i)
		o, ok := e.(object)
		if !ok {
			return malformed(path, "must be an object")
		}
		if p := known(o, path, "type", "value", "format"); p != nil {
			return p
		}
		id, p := readIdentity(o, path)
		if p != nil {
			return p
		}
		r.identities = append(r.identities, id)
	}
	return nil
}

func identityField(i int) string { return "identities[" + strconv.Itoa(i) + "]" }

func readIdentity(o object, path string) (id pipeline.Identity, p *Problem) {
	typ, there, p := text(o, path, "type")
	switch {
	case p != nil:
		return id, p
	case !there:
		return id, missing(path + ".type")
	case !identityType.MatchString(typ):
		return id, malformed(path+".type", "must be lower-case letters, digits and '_', at most 64, a letter first")
	}
	value, there, p := text(o, path, "value")
	switch {
	case p != nil:
		return id, p
	case !there:
		return id, missing(path + ".value")
	case value == "" || len(value) > maxValue:
		return id, malformed(path+".value", "must have 1 to %d bytes", maxValue)
	}
	format, there, p := text(o, path, "format")
	if p != nil {
		return id, p
	}
	if there {
		switch format {
		case "raw":
		case "md5", "sha1", "sha256":
			return id, problem(http.StatusUnprocessableEntity, "unsupported_format", path+".format",
				"%s is not served yet; send the value as raw", format)
		default:
			return id, malformed(path+".format", "must be raw, md5, sha1 or sha256")
		}
	}
	return pipeline.Identity{Type: typ, Value: storage.NewSecret(value)}, nil
}
