// Package config reads the one YAML file that all binaries share.
//
// Reading is strict: an unknown key, a value of the wrong shape, a missing or
// contradictory setting stops the start. Every problem is reported, each with
// file, line, key and reason, and never with the value, which may be a
// credential. Anchors, aliases and a second document are refused.
//
// Secrets may come from the environment instead of the file: see the env tags
// of Config. Relative paths start at the directory of the file.
//
// A Config is read once and not changed afterwards; it is safe for concurrent
// use.
package config

import "time"

// Config is the whole file. The doc tags are the reference that `delenda config`
// and the documentation print.
type Config struct {
	Installation string    `yaml:"installation" doc:"Name of this installation: lower-case letters, digits, '_' and '-'. It stands in tables' transaction ids: never change it."`
	State        string    `yaml:"state" env:"DELENDA_STATE" doc:"Path or bucket URL of the private state prefix. Never inside a table, nor around one."`
	Keeper       string    `yaml:"keeper" env:"DELENDA_KEEPER" doc:"Key that wraps every request's own key: a path (created with mode 0600 at the first start) or the URL of a key management service."`
	NATS         NATS      `yaml:"nats" doc:"The JetStream that carries the work."`
	Tables       []Table   `yaml:"tables" doc:"The tables that requests may name."`
	Limits       Limits    `yaml:"limits" doc:"A request that matches more than this is held until released."`
	Batch        Batch     `yaml:"batch" doc:"How requests are gathered so that one scan serves many."`
	Through      string    `yaml:"through" doc:"The last stage that a request is carried to. This release knows: hidden."`
	Ingest       Ingest    `yaml:"ingest" doc:"The service that takes requests."`
	Deleter      Deleter   `yaml:"deleter" doc:"The service that hides rows."`
	Publisher    Publisher `yaml:"publisher" doc:"The service that shares tables."`

	at map[string]position
}

// NATS says how to reach JetStream, or how `delenda up` embeds it.
type NATS struct {
	URL         string   `yaml:"url" env:"DELENDA_NATS_URL" doc:"nats:// or tls:// URL. Required by ingest, deleter and publisher."`
	Credentials string   `yaml:"credentials" env:"DELENDA_NATS_CREDENTIALS" doc:"Path of a NATS credentials file."`
	NKey        string   `yaml:"nkey" env:"DELENDA_NATS_NKEY" doc:"Path of a file that holds an nkey seed, for servers that know their users by public key."`
	TLS         NATSTLS  `yaml:"tls" doc:"Certificates for the connection."`
	Replicas    int      `yaml:"replicas" env:"DELENDA_NATS_REPLICAS" doc:"Copies that a cluster keeps of each stream: 1, 3 or 5."`
	Embedded    Embedded `yaml:"embedded" doc:"The server inside delenda up; other binaries ignore it."`
}

// NATSTLS is the client side of TLS to NATS.
type NATSTLS struct {
	CA   string `yaml:"ca" doc:"Path of the authority's certificate, PEM."`
	Cert string `yaml:"cert" doc:"Path of the client's certificate, PEM."`
	Key  string `yaml:"key" doc:"Path of the client's key, PEM."`
}

// Embedded is the NATS server of `delenda up`.
type Embedded struct {
	Dir    string `yaml:"dir" doc:"Directory of its storage."`
	Listen string `yaml:"listen" doc:"Address for other clients, such as delenda dlq. Without it the server is reached inside the process only."`
}

// Table is one table that requests may name.
type Table struct {
	Name       string            `yaml:"name" doc:"Name in requests and events: lower-case letters, digits, '_' and '-'."`
	URL        string            `yaml:"url" doc:"Path or bucket URL of the table's root."`
	Identities map[string]string `yaml:"identities" doc:"Identity type -> column that holds it; a dotted path for a struct's member."`
}

// Limits are the bounds above which a request is held.
type Limits struct {
	Rows  int64   `yaml:"rows" doc:"Rows of one table."`
	Share float64 `yaml:"share" doc:"Share of a table's live rows, above 0 and at most 1."`
}

// Batch bounds how the items of a table are gathered.
type Batch struct {
	Window time.Duration `yaml:"window" doc:"How long the first item waits for others."`
	Max    int           `yaml:"max" doc:"Most items of one batch."`
}

// TLS is a listener's certificate.
type TLS struct {
	Cert string `yaml:"cert" doc:"Path of the certificate chain, PEM."`
	Key  string `yaml:"key" doc:"Path of the key, PEM."`
}

// Listener is where a service takes HTTP requests.
type Listener struct {
	Listen   string `yaml:"listen" doc:"host:port. An address that is not loopback needs tls, or insecure: true."`
	TLS      TLS    `yaml:"tls" doc:"Certificate of the listener."`
	Insecure bool   `yaml:"insecure" doc:"Serve plain HTTP to other machines: only behind a proxy that speaks TLS."`
	Ops      string `yaml:"ops" doc:"host:port of /healthz, /readyz and /metrics, plain HTTP for the operator's network. Without it they are on listen if that is loopback (deleter: always)."`
}

// Ingest configures the service that takes requests.
type Ingest struct {
	Listener    `yaml:",inline"`
	PlainIntake bool     `yaml:"plain_intake" doc:"Accept unencrypted JSON on delenda.intake.{source}. Senders should encrypt to the key at /v1/keys."`
	Sources     []Source `yaml:"sources" doc:"Who may send requests."`
}

// Source is one sender of requests.
type Source struct {
	Name         string   `yaml:"name" doc:"Name in subjects: lower-case letters, digits, '_' and '-'."`
	TokensSHA256 []string `yaml:"tokens_sha256" doc:"SHA-256 of each bearer token it may use, in hex. The tokens themselves are not stored."`
}

// Deleter configures the service that hides rows.
type Deleter struct {
	Listener `yaml:",inline"`
	Parallel int `yaml:"parallel" doc:"Fragments that one batch scans at a time. 0: as many as there are processors."`
}

// Publisher configures the service that shares tables.
type Publisher struct {
	Listener  `yaml:",inline"`
	PublicURL string        `yaml:"public_url" doc:"URL that recipients reach the publisher at; stands in profiles and in the URLs of file buckets."`
	URLTTL    time.Duration `yaml:"url_ttl" doc:"How long a pre-signed URL works."`
	Poll      time.Duration `yaml:"poll" doc:"How often tables are asked for commits of other writers."`
	Shares    []Share       `yaml:"shares" doc:"What is shared."`
}

// Share is a set of schemas granted as a whole.
type Share struct {
	Name    string   `yaml:"name" doc:"Name of the share."`
	Schemas []Schema `yaml:"schemas" doc:"Its schemas."`
}

// Schema groups shared tables.
type Schema struct {
	Name   string        `yaml:"name" doc:"Name of the schema."`
	Tables []SharedTable `yaml:"tables" doc:"Its tables."`
}

// SharedTable is a table under the name that recipients see.
type SharedTable struct {
	Name  string `yaml:"name" doc:"Name that recipients see."`
	Table string `yaml:"table" doc:"Name of one of tables. Defaults to name."`
}

// Default returns the settings that hold where the file says nothing.
func Default() Config {
	return Config{
		NATS:    NATS{Replicas: 1},
		Limits:  Limits{Rows: 100_000, Share: 0.1},
		Batch:   Batch{Window: time.Second, Max: 10_000},
		Through: "hidden",
		Ingest:  Ingest{Listener: Listener{Listen: "127.0.0.1:8470"}},
		Deleter: Deleter{Listener: Listener{Listen: "127.0.0.1:8471"}},
		Publisher: Publisher{
			Listener: Listener{Listen: "127.0.0.1:8472"},
			URLTTL:   15 * time.Minute,
			Poll:     10 * time.Second,
		},
	}
}

// Table returns the configured table of that name.
func (c *Config) Table(name string) (Table, bool) {
	for _, t := range c.Tables {
		if t.Name == name {
			return t, true
		}
	}
	return Table{}, false
}
