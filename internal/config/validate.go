package config

import (
	"encoding/hex"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"delenda/events"
	"delenda/storage/bucket"
)

// Role is what a configuration is read for: it decides which settings are
// required.
type Role string

// The roles.
const (
	RoleIngest    Role = "ingest"
	RoleDeleter   Role = "deleter"
	RolePublisher Role = "publisher"
	RoleUp        Role = "up"       // all three in one process
	RoleOperator  Role = "operator" // a command that looks at state and tables
)

const (
	maxWindow     = 10 * time.Minute
	maxBatch      = 100_000
	minURLTTL     = time.Minute
	maxURLTTL     = 7 * 24 * time.Hour // the longest that clouds sign for
	minPoll       = 100 * time.Millisecond
	maxPoll       = time.Hour
	sha256Hex     = 64
	nameRule      = "must be 1 to 128 lower-case letters, digits, '_' or '-', and begin with a letter or digit"
	insecureRule  = "is not loopback: set tls, or insecure: true if a proxy in front speaks TLS"
	throughHidden = "hidden"
)

// resolve makes relative paths absolute and completes what follows from other
// settings.
func (c *Config) resolve(dir string) {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	paths := []*string{
		&c.State, &c.Keeper, &c.NATS.Credentials, &c.NATS.NKey, &c.NATS.TLS.CA, &c.NATS.TLS.Cert, &c.NATS.TLS.Key, &c.NATS.Embedded.Dir,
	}
	for _, l := range []*Listener{&c.Ingest.Listener, &c.Deleter.Listener, &c.Publisher.Listener} {
		paths = append(paths, &l.TLS.Cert, &l.TLS.Key)
	}
	for i := range c.Tables {
		paths = append(paths, &c.Tables[i].URL)
	}
	for _, p := range paths {
		if *p != "" && !strings.Contains(*p, "://") && !filepath.IsAbs(*p) {
			*p = filepath.Join(dir, *p)
		}
	}
	for i := range c.Publisher.Shares {
		for j := range c.Publisher.Shares[i].Schemas {
			tables := c.Publisher.Shares[i].Schemas[j].Tables
			for k := range tables {
				if tables[k].Table == "" {
					tables[k].Table = tables[k].Name
				}
			}
		}
	}
}

// validator checks a decoded configuration.
type validator struct {
	problems
	file string
	at   map[string]position
}

// fail reports a problem at a key, or at the nearest key above it that the
// file has.
func (v *validator) fail(key, format string, args ...any) {
	for k := key; k != ""; {
		if at, ok := v.at[k]; ok {
			v.add(at, key, format, args...)
			return
		}
		k = k[:max(0, strings.LastIndexAny(k, ".["))]
	}
	v.add(position{v.file, 0}, key, format, args...)
}

func (c *Config) validate(file string, role Role) error {
	v := &validator{file: file, at: c.at}
	v.name("installation", c.Installation)
	v.required("state", c.State, "needs a path or bucket URL, such as /var/lib/delenda/state or s3://bucket/delenda")
	if role != RoleOperator {
		v.required("keeper", c.Keeper, "needs a path outside the state prefix, such as /etc/delenda/keeper.key, or a key service's URL")
	}
	v.nats(c, role)
	v.tables(c)
	v.places(c)
	if c.Limits.Rows <= 0 {
		v.fail("limits.rows", "must be above 0")
	}
	if c.Limits.Share <= 0 || c.Limits.Share > 1 {
		v.fail("limits.share", "must be above 0 and at most 1")
	}
	v.between("batch.window", c.Batch.Window, 0, maxWindow)
	if c.Batch.Max < 1 || c.Batch.Max > maxBatch {
		v.fail("batch.max", "must be between 1 and %d", maxBatch)
	}
	if c.Through != throughHidden {
		v.fail("through", "must be %s: later stages are not served yet", throughHidden)
	}
	v.listener("ingest", c.Ingest.Listener)
	v.listener("deleter", c.Deleter.Listener)
	v.listener("publisher", c.Publisher.Listener)
	if c.Deleter.Parallel < 0 {
		v.fail("deleter.parallel", "must not be negative")
	}
	v.sources(c.Ingest.Sources)
	v.publisher(c, role)
	if role == RoleUp {
		v.distinctPorts(c)
	}
	return v.err()
}

func (v *validator) required(key, value, hint string) {
	if value == "" {
		v.fail(key, "%s", hint)
	}
}

func (v *validator) name(key, value string) {
	if !events.ValidName(value) {
		v.fail(key, nameRule)
	}
}

func (v *validator) between(key string, d, least, most time.Duration) {
	if d < least || d > most {
		v.fail(key, "must be between %v and %v", least, most)
	}
}

func (v *validator) nats(c *Config, role Role) {
	switch role {
	case RoleIngest, RoleDeleter, RolePublisher:
		v.required("nats.url", c.NATS.URL, "needs the URL of a NATS server with JetStream, such as nats://127.0.0.1:4222 (delenda up has one embedded)")
	case RoleUp:
		if c.NATS.URL != "" {
			v.fail("nats.url", "delenda up has NATS embedded: remove nats.url, or run ingest, deleter and publisher")
		}
		v.required("nats.embedded.dir", c.NATS.Embedded.Dir, "needs a directory for the embedded NATS server")
	case RoleOperator:
	}
	if c.NATS.URL != "" {
		for server := range strings.SplitSeq(c.NATS.URL, ",") {
			u, err := url.Parse(strings.TrimSpace(server))
			if err != nil || u.Host == "" || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme) {
				v.fail("nats.url", "must be a URL such as nats://host:4222 or tls://host:4222")
			}
		}
	}
	if c.NATS.Credentials != "" && c.NATS.NKey != "" {
		v.fail("nats.nkey", "is a second way to log in: keep it or nats.credentials")
	}
	if (c.NATS.TLS.Cert == "") != (c.NATS.TLS.Key == "") {
		v.fail("nats.tls", "needs cert and key together")
	}
	if !slices.Contains([]int{1, 3, 5}, c.NATS.Replicas) {
		v.fail("nats.replicas", "must be 1, 3 or 5")
	}
	if c.NATS.Embedded.Listen != "" {
		if _, loopback, ok := hostPort(c.NATS.Embedded.Listen); !ok {
			v.fail("nats.embedded.listen", "must be host:port")
		} else if !loopback {
			v.fail("nats.embedded.listen", "must be a loopback address: run a NATS server of its own for other machines")
		}
	}
}

func (v *validator) tables(c *Config) {
	if len(c.Tables) == 0 {
		v.fail("tables", "needs at least one table")
	}
	seen := map[string]bool{}
	for i, t := range c.Tables {
		key := index("tables", i)
		v.name(key+".name", t.Name)
		if seen[t.Name] {
			v.fail(key+".name", "is the name of an earlier table")
		}
		seen[t.Name] = true
		v.required(key+".url", t.URL, "needs the path or bucket URL of the table's root")
		if len(t.Identities) == 0 {
			v.fail(key+".identities", "needs at least one identity type and its column")
		}
		for typ, column := range t.Identities {
			v.name(key+".identities."+typ, typ)
			v.required(key+".identities."+typ, column, "needs a column")
		}
	}
}

// places checks that state, keeper and tables do not lie in one another.
func (v *validator) places(c *Config) {
	normal := func(key, raw string) string {
		if raw == "" {
			return ""
		}
		u, err := bucket.Normalize(raw)
		if err != nil {
			v.fail(key, "must be a path or a bucket URL (file, s3, gs, azblob)")
		}
		return u
	}
	overlap := func(a, b string) bool { return a != "" && b != "" && bucket.Overlap(a, b) }

	state := normal("state", c.State)
	keeper := ""
	if path, ok := c.KeeperFile(); ok {
		keeper = normal("keeper", path)
	}
	if overlap(state, keeper) {
		v.fail("keeper", "lies in the state prefix: whoever reads the one must not have the other")
	}
	roots := make([]string, len(c.Tables))
	for i, t := range c.Tables {
		roots[i] = normal(index("tables", i)+".url", t.URL)
		if overlap(state, roots[i]) {
			v.fail("state", "lies in the root of table %d (%s) or around it: state and tables must be apart", i+1, t.Name)
		}
		if overlap(keeper, roots[i]) {
			v.fail("keeper", "lies in the root of table %d (%s)", i+1, t.Name)
		}
		for j := range i {
			if overlap(roots[j], roots[i]) {
				v.fail(index("tables", i)+".url", "lies in the root of table %d (%s) or around it", j+1, c.Tables[j].Name)
			}
		}
	}
}

// KeeperFile returns the path of a keeper that is a local file.
func (c *Config) KeeperFile() (path string, ok bool) {
	if path, ok = strings.CutPrefix(c.Keeper, "file://"); ok {
		return path, true
	}
	return c.Keeper, c.Keeper != "" && !strings.Contains(c.Keeper, "://")
}

func (v *validator) listener(key string, l Listener) {
	_, loopback, ok := hostPort(l.Listen)
	switch {
	case !ok:
		v.fail(key+".listen", "must be host:port, such as 127.0.0.1:8470")
	case (l.TLS.Cert == "") != (l.TLS.Key == ""):
		v.fail(key+".tls", "needs cert and key together")
	case !loopback && l.TLS.Cert == "" && !l.Insecure:
		v.fail(key+".listen", insecureRule)
	}
	if l.Ops != "" {
		if _, _, ok := hostPort(l.Ops); !ok {
			v.fail(key+".ops", "must be host:port, such as 127.0.0.1:9470")
		}
	}
}

// Loopback reports whether only this machine reaches the listener.
func (l Listener) Loopback() bool {
	_, loopback, ok := hostPort(l.Listen)
	return ok && loopback
}

// hostPort splits an address and tells whether only this machine reaches it.
func hostPort(addr string) (port string, loopback, ok bool) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", false, false
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", false, false
	}
	ip := net.ParseIP(host)
	return port, host == "localhost" || ip != nil && ip.IsLoopback(), true
}

func (v *validator) distinctPorts(c *Config) {
	seen := map[string]string{}
	for key, addr := range map[string]string{
		"ingest.listen": c.Ingest.Listen, "deleter.listen": c.Deleter.Listen, "publisher.listen": c.Publisher.Listen,
	} {
		port, _, ok := hostPort(addr)
		if !ok || port == "0" {
			continue
		}
		if other, taken := seen[addr]; taken {
			v.fail(max(key, other), "is the address of %s", min(key, other))
		}
		seen[addr] = key
	}
}

func (v *validator) sources(sources []Source) {
	seen := map[string]bool{}
	tokens := map[string]bool{}
	for i, s := range sources {
		key := index("ingest.sources", i)
		v.name(key+".name", s.Name)
		if seen[s.Name] {
			v.fail(key+".name", "is the name of an earlier source")
		}
		seen[s.Name] = true
		for j, token := range s.TokensSHA256 {
			at := index(key+".tokens_sha256", j)
			lower := strings.ToLower(token)
			if _, err := hex.DecodeString(token); err != nil || len(token) != sha256Hex {
				v.fail(at, "must be a SHA-256 in hex: printf %%s \"$TOKEN\" | sha256sum")
			} else if tokens[lower] {
				v.fail(at, "stands here a second time: a token belongs to one source")
			}
			tokens[lower] = true
		}
	}
}

func (v *validator) publisher(c *Config, role Role) {
	p := c.Publisher
	v.between("publisher.url_ttl", p.URLTTL, minURLTTL, maxURLTTL)
	v.between("publisher.poll", p.Poll, minPoll, maxPoll)
	if p.PublicURL != "" {
		u, err := url.Parse(p.PublicURL)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
			v.fail("publisher.public_url", "must be an http or https URL without query")
		}
	} else if _, loopback, ok := hostPort(p.Listen); ok && !loopback && (role == RolePublisher || role == RoleUp) {
		v.fail("publisher.public_url", "needs the URL that recipients reach the publisher at")
	}
	shares := map[string]bool{}
	for i, share := range p.Shares {
		sk := index("publisher.shares", i)
		v.shared(sk, share.Name, shares)
		if len(share.Schemas) == 0 {
			v.fail(sk+".schemas", "needs at least one schema")
		}
		schemas := map[string]bool{}
		for j, schema := range share.Schemas {
			ck := index(sk+".schemas", j)
			v.shared(ck, schema.Name, schemas)
			tables := map[string]bool{}
			for k, t := range schema.Tables {
				tk := index(ck+".tables", k)
				v.shared(tk, t.Name, tables)
				if _, ok := c.Table(t.Table); !ok && t.Table != "" {
					v.fail(tk+".table", "is not the name of a configured table")
				}
			}
		}
	}
}

// shared checks a name that recipients see; those compare without case.
func (v *validator) shared(key, name string, seen map[string]bool) {
	lower := strings.ToLower(name)
	switch {
	case !events.ValidName(lower):
		v.fail(key+".name", "must be 1 to 128 letters, digits, '_' or '-', and begin with a letter or digit")
	case seen[lower]:
		v.fail(key+".name", "stands here a second time (names compare without case)")
	}
	seen[lower] = true
}
