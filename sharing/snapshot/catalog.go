package snapshot

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	"delenda/events"
	"delenda/sharing"
	"delenda/storage"
)

// Share configures one share.
type Share struct {
	Name    string
	Schemas []Schema
}

// Schema configures one schema of a share.
type Schema struct {
	Name   string
	Tables []SharedTable
}

// SharedTable configures one table of a schema.
type SharedTable struct {
	Name  string
	Table string // configured name of the table that is shared
}

// Source is a table that shares take from.
type Source struct {
	Bucket storage.Bucket // rooted at the table
	// Presigner signs URLs of the bucket's objects; nil: the publisher serves
	// the bytes itself.
	Presigner storage.Presigner
	// IdentityColumns are the columns, dotted for members of structs, whose
	// minimum and maximum never leave in an answer.
	IdentityColumns []string
}

// Ref names one shared table.
type Ref struct {
	sharing.Table
	Source string // configured name of the table that is shared
}

// Key is "{share}.{schema}.{table}" in lower case: the name in the state
// prefix, in the feed, and of the subject.
func (r Ref) Key() string {
	return strings.ToLower(r.Share + "." + r.Schema + "." + r.Name)
}

// Catalog is the configured shares. Names are looked up without regard to
// case. It does not change and is safe for concurrent use.
type Catalog struct {
	shares []sharing.Share
	byName map[string]*share
	refs   []Ref
}

type share struct {
	sharing.Share
	schemas []sharing.Schema
	tables  map[string][]Ref // by lower-case schema
}

// NewCatalog checks the names: letters, digits, '_' and '-', no two that
// differ by case only.
func NewCatalog(config []Share) (*Catalog, error) {
	c := &Catalog{byName: map[string]*share{}}
	for _, s := range config {
		if err := checkName("share", s.Name); err != nil {
			return nil, err
		}
		lower := strings.ToLower(s.Name)
		if _, twice := c.byName[lower]; twice {
			return nil, fmt.Errorf("share %q is configured twice", s.Name)
		}
		sh := &share{Share: sharing.Share{Name: s.Name, ID: stableID(lower)}, tables: map[string][]Ref{}}
		c.byName[lower] = sh
		for _, sc := range s.Schemas {
			if err := sh.add(sc); err != nil {
				return nil, fmt.Errorf("share %q: %w", s.Name, err)
			}
		}
		slices.SortFunc(sh.schemas, func(a, b sharing.Schema) int { return compareFold(a.Name, b.Name) })
		for _, sc := range sh.schemas {
			c.refs = append(c.refs, sh.tables[strings.ToLower(sc.Name)]...)
		}
		c.shares = append(c.shares, sh.Share)
	}
	slices.SortFunc(c.shares, func(a, b sharing.Share) int { return compareFold(a.Name, b.Name) })
	return c, nil
}

func (s *share) add(config Schema) error {
	if err := checkName("schema", config.Name); err != nil {
		return err
	}
	lower := strings.ToLower(config.Name)
	if _, twice := s.tables[lower]; twice {
		return fmt.Errorf("schema %q is configured twice", config.Name)
	}
	tables := []Ref{}
	for _, t := range config.Tables {
		if err := checkName("table", t.Name); err != nil {
			return fmt.Errorf("schema %q: %w", config.Name, err)
		}
		ref := Ref{sharing.Table{Name: t.Name, Schema: config.Name, Share: s.Name, ShareID: s.ID}, t.Table}
		ref.ID = stableID(ref.Key())
		if slices.ContainsFunc(tables, func(o Ref) bool { return strings.EqualFold(o.Name, t.Name) }) {
			return fmt.Errorf("schema %q: table %q is configured twice", config.Name, t.Name)
		}
		tables = append(tables, ref)
	}
	slices.SortFunc(tables, func(a, b Ref) int { return compareFold(a.Name, b.Name) })
	s.tables[lower] = tables
	s.schemas = append(s.schemas, sharing.Schema{Name: config.Name, Share: s.Name})
	return nil
}

// Shares returns all shares in order of their names.
func (c *Catalog) Shares() []sharing.Share { return c.shares }

// Share returns one share.
func (c *Catalog) Share(name string) (sharing.Share, bool) {
	s, ok := c.byName[strings.ToLower(name)]
	if !ok {
		return sharing.Share{}, false
	}
	return s.Share, true
}

// Schemas returns the schemas of a share in order of their names.
func (c *Catalog) Schemas(shareName string) ([]sharing.Schema, bool) {
	s, ok := c.byName[strings.ToLower(shareName)]
	if !ok {
		return nil, false
	}
	return s.schemas, true
}

// Tables returns the tables of a schema in order of their names.
func (c *Catalog) Tables(shareName, schema string) ([]Ref, bool) {
	s, ok := c.byName[strings.ToLower(shareName)]
	if !ok {
		return nil, false
	}
	tables, ok := s.tables[strings.ToLower(schema)]
	return tables, ok
}

// AllTables returns the tables of a share in order of schema and name.
func (c *Catalog) AllTables(shareName string) ([]Ref, bool) {
	s, ok := c.byName[strings.ToLower(shareName)]
	if !ok {
		return nil, false
	}
	var all []Ref
	for _, sc := range s.schemas {
		all = append(all, s.tables[strings.ToLower(sc.Name)]...)
	}
	return all, true
}

// Table returns one shared table.
func (c *Catalog) Table(shareName, schema, table string) (Ref, bool) {
	tables, _ := c.Tables(shareName, schema)
	for _, ref := range tables {
		if strings.EqualFold(ref.Name, table) {
			return ref, true
		}
	}
	return Ref{}, false
}

// Refs returns every shared table.
func (c *Catalog) Refs() []Ref { return c.refs }

func checkName(what, name string) error {
	if !events.ValidName(strings.ToLower(name)) {
		return fmt.Errorf("%s %q: want letters, digits, '_' and '-', first a letter or digit, at most 128", what, name)
	}
	return nil
}

func compareFold(a, b string) int { return strings.Compare(strings.ToLower(a), strings.ToLower(b)) }

// stableID derives a UUID from a name, so that every replica gives the same.
func stableID(name string) string {
	sum := sha256.Sum256([]byte("delenda/share/" + name))
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80 // version 8: custom
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// defaults of the intervals.
const (
	DefaultPoll   = 10 * time.Second
	DefaultURLTTL = 15 * time.Minute
)
