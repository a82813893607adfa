package config

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite docs/configuration.md")

const whole = `installation: acme
state: s3://private/delenda
keeper: /etc/delenda/keeper.key
nats:
  url: tls://nats.internal:4222
  credentials: nats.creds
  replicas: 3
tables:
  - name: orders
    url: s3://lake/orders
    identities:
      customer_id: customer_id
      email: contact.email
limits: {rows: 5_000, share: 0.25}
batch: {window: 250ms, max: 500}
ingest:
  listen: 0.0.0.0:8470
  tls: {cert: tls/cert.pem, key: tls/key.pem}
  sources:
    - name: shop
      tokens_sha256: [9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08]
publisher:
  public_url: https://share.example.org
  url_ttl: 30m
  shares:
    - name: Partners
      schemas:
        - name: sales
          tables:
            - {name: Orders, table: orders}
            - {name: orders_again, table: orders}
`

func noEnv(string) (string, bool) { return "", false }

func TestAWholeFileIsReadAsItSays(t *testing.T) {
	t.Parallel()
	got, err := Parse("/etc/delenda/delenda.yaml", []byte(whole), RoleIngest, noEnv)
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Installation = "acme"
	want.State = "s3://private/delenda"
	want.Keeper = "/etc/delenda/keeper.key"
	want.NATS.URL = "tls://nats.internal:4222"
	want.NATS.Credentials = "/etc/delenda/nats.creds"
	want.NATS.Replicas = 3
	want.Tables = []Table{{"orders", "s3://lake/orders", map[string]string{"customer_id": "customer_id", "email": "contact.email"}}}
	want.Limits = Limits{5000, 0.25}
	want.Batch = Batch{250 * time.Millisecond, 500}
	want.Ingest.Listener = Listener{"0.0.0.0:8470", TLS{"/etc/delenda/tls/cert.pem", "/etc/delenda/tls/key.pem"}, false, ""}
	want.Ingest.Sources = []Source{{"shop", []string{"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"}}}
	want.Publisher.PublicURL = "https://share.example.org"
	want.Publisher.URLTTL = 30 * time.Minute
	want.Publisher.Shares = []Share{{"Partners", []Schema{{"sales", []SharedTable{{"Orders", "orders"}, {"orders_again", "orders"}}}}}}
	got.at = nil
	if d := cmp.Diff(want, *got, cmp.AllowUnexported(Config{})); d != "" {
		t.Errorf("configuration (-want +got):\n%s", d)
	}
}

func TestTheExampleIsSound(t *testing.T) {
	t.Parallel()
	if _, err := Parse("delenda.yaml", []byte(Example), RoleUp, noEnv); err != nil {
		t.Error(err)
	}
}

func TestTheEnvironmentWinsOverTheFile(t *testing.T) {
	t.Parallel()
	env := func(key string) (string, bool) {
		v, ok := map[string]string{"DELENDA_NATS_URL": "nats://user:secret@host:4222", "DELENDA_KEEPER": "awskms://alias/delenda"}[key]
		return v, ok
	}
	got, err := Parse("delenda.yaml", []byte(whole), RoleDeleter, env)
	if err != nil {
		t.Fatal(err)
	}
	if got.NATS.URL != "nats://user:secret@host:4222" || got.Keeper != "awskms://alias/delenda" {
		t.Error("the file's value was kept")
	}
	if _, local := got.KeeperFile(); local {
		t.Error("a key service is not a file")
	}
}

// TestProblemsNameFileLineAndReason edits one line of a sound file at a time.
func TestProblemsNameFileLineAndReason(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		role     Role
		old, new string
		want     string
	}{
		"an unknown key at the top":                {RoleIngest, "limits:", "limit:", "c.yaml:14: limit: unknown key; known here: batch, deleter, "},
		"an unknown key in a list":                 {RoleIngest, "    url: s3://lake/orders", "    location: s3://lake/orders", "c.yaml:10: tables[0].location: unknown key; known here: identities, name, url"},
		"a key that stands twice":                  {RoleIngest, "state: s3://private/delenda", "installation: acme", "c.yaml:2: installation: stands here a second time"},
		"a text where a list belongs":              {RoleIngest, "  sources:\n", "  sources: shop\n  plain_intake: true\n  x:\n", "c.yaml:19: ingest.sources: must be a list"},
		"a list where keys belong":                 {RoleIngest, "limits: {rows: 5_000, share: 0.25}", "limits: [5000]", "c.yaml:14: limits: must be a list of keys"},
		"a malformed duration":                     {RoleIngest, "250ms", "fast", "c.yaml:15: batch.window: must be a duration such as 15m or 1s"},
		"a number without unit for a duration":     {RoleIngest, "250ms", "250", "c.yaml:15: batch.window: must be a duration"},
		"a malformed number":                       {RoleIngest, "5_000", "5k", "c.yaml:14: limits.rows: must be a whole number"},
		"a share that is no number":                {RoleIngest, "0.25", ".nan", "c.yaml:14: limits.share: must be a number"},
		"a share above one":                        {RoleIngest, "0.25", "25", "c.yaml:14: limits.share: must be above 0 and at most 1"},
		"a word for true":                          {RoleIngest, "  sources:\n", "  plain_intake: \"yes\"\n  sources:\n", "c.yaml:19: ingest.plain_intake: must be true or false"},
		"a key without a value":                    {RoleIngest, "state: s3://private/delenda", "state:", "c.yaml:2: state: has no value"},
		"a missing state":                          {RoleIngest, "state: s3://private/delenda\n", "", "c.yaml: state: needs a path or bucket URL"},
		"a missing keeper":                         {RoleIngest, "keeper: /etc/delenda/keeper.key\n", "", "c.yaml: keeper: needs a path"},
		"a name that no subject can carry":         {RoleIngest, "  - name: orders", "  - name: Orders.EU", "c.yaml:9: tables[0].name: must be 1 to 128 lower-case letters"},
		"state in a table":                         {RoleIngest, "s3://private/delenda", "s3://lake/orders/_state", "c.yaml:2: state: lies in the root of table 1 (orders) or around it"},
		"state around a table":                     {RoleIngest, "s3://private/delenda", "s3://lake", "c.yaml:2: state: lies in the root of table 1 (orders) or around it"},
		"two tables in one another":                {RoleIngest, "limits:", "  - {name: eu, url: s3://lake/orders/eu, identities: {email: email}}\nlimits:", "c.yaml:14: tables[1].url: lies in the root of table 1 (orders) or around it"},
		"two tables of one name":                   {RoleIngest, "limits:", "  - {name: orders, url: s3://lake/o2, identities: {email: email}}\nlimits:", "c.yaml:14: tables[1].name: is the name of an earlier table"},
		"a bucket of a kind we do not know":        {RoleIngest, "s3://lake/orders", "ftp://lake/orders", "c.yaml:10: tables[0].url: must be a path or a bucket URL"},
		"a table without identities":               {RoleIngest, "    identities:\n      customer_id: customer_id\n      email: contact.email\n", "", "c.yaml:9: tables[0].identities: needs at least one identity type"},
		"an open listener without TLS":             {RoleIngest, "  tls: {cert: tls/cert.pem, key: tls/key.pem}\n", "", "c.yaml:17: ingest.listen: is not loopback: set tls, or insecure: true"},
		"a certificate without key":                {RoleIngest, ", key: tls/key.pem", "", "c.yaml:18: ingest.tls: needs cert and key together"},
		"a listener without port":                  {RoleIngest, "0.0.0.0:8470", "localhost", "c.yaml:17: ingest.listen: must be host:port"},
		"a token in clear":                         {RoleIngest, "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", "hunter2", "c.yaml:21: ingest.sources[0].tokens_sha256[0]: must be a SHA-256 in hex"},
		"a share of a table that is not there":     {RoleIngest, "table: orders}\n            - {name: orders_again", "table: order}\n            - {name: orders_again", "c.yaml:30: publisher.shares[0].schemas[0].tables[0].table: is not the name of a configured table"},
		"shared names that differ by case":         {RoleIngest, "orders_again", "ORDERS", "c.yaml:31: publisher.shares[0].schemas[0].tables[1].name: stands here a second time"},
		"URLs that live too long":                  {RoleIngest, "30m", "200h", "c.yaml:24: publisher.url_ttl: must be between 1m0s and 168h0m0s"},
		"a stage of a later release":               {RoleIngest, "limits:", "through: purged\nlimits:", "c.yaml:14: through: must be hidden"},
		"a service without NATS":                   {RoleIngest, "  url: tls://nats.internal:4222\n", "", "c.yaml:4: nats.url: needs the URL of a NATS server"},
		"a NATS address without scheme":            {RoleIngest, "tls://nats.internal:4222", "nats.internal:4222", "c.yaml:5: nats.url: must be a URL"},
		"up beside a NATS of one's own":            {RoleUp, "limits:", "limits:", "c.yaml:5: nats.url: delenda up has NATS embedded"},
		"up without a directory for NATS":          {RoleUp, "  url: tls://nats.internal:4222\n", "", "c.yaml:4: nats.embedded.dir: needs a directory"},
		"up with two services on one address":      {RoleUp, "  public_url:", "  listen: 127.0.0.1:8471\n  public_url:", "publisher.listen: is the address of deleter.listen"},
		"an alias":                                 {RoleIngest, "limits: {rows: 5_000, share: 0.25}", "limits: &l {rows: 5_000, share: 0.25}", "c.yaml:14: limits: anchors and aliases are not supported"},
		"a second document":                        {RoleIngest, "limits: {rows: 5_000, share: 0.25}", "---", "a second YAML document"},
		"a line that is no YAML":                   {RoleIngest, "limits: {rows: 5_000, share: 0.25}", "limits: {rows: 5_000", "c.yaml:1"},
		"a file that is a list":                    {RoleIngest, whole, "- a\n- b\n", "c.yaml:1: must be a list of keys"},
		"an empty file":                            {RoleIngest, whole, "\n", "c.yaml: the file is empty"},
		"a keeper in the state prefix":             {RoleIngest, "s3://private/delenda", "/etc/delenda", "c.yaml:3: keeper: lies in the state prefix"},
		"a public URL with a query":                {RoleIngest, "https://share.example.org", "https://share.example.org/?a=b", "c.yaml:23: publisher.public_url: must be an http or https URL"},
		"an open publisher without its public URL": {RolePublisher, "  public_url: https://share.example.org", "  listen: :8472\n  insecure: true", "publisher.public_url: needs the URL that recipients reach"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(whole, test.old) {
				t.Fatalf("the sound file has no %q", test.old)
			}
			_, err := Parse("c.yaml", []byte(strings.Replace(whole, test.old, test.new, 1)), test.role, noEnv)
			var problems *Error
			if !errors.As(err, &problems) {
				t.Fatalf("got %v, want an *Error", err)
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %q, want it to contain %q", err, test.want)
			}
		})
	}
}

func TestEveryProblemIsReportedAtOnceInOrderOfLines(t *testing.T) {
	t.Parallel()
	src := strings.NewReplacer("0.25", "0", "250ms", "1h", "  - name: orders", "  - name: ORDERS").Replace(whole)
	_, err := Parse("c.yaml", []byte(src), RoleOperator, noEnv)
	var problems *Error
	if !errors.As(err, &problems) {
		t.Fatalf("got %v", err)
	}
	var lines []int
	for _, p := range problems.Problems {
		lines = append(lines, p.Line)
	}
	if d := cmp.Diff([]int{9, 14, 15, 30, 31}, lines); d != "" {
		t.Errorf("lines (-want +got):\n%s", d)
	}
}

func TestAProblemNeverShowsTheValue(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t"
	env := func(key string) (string, bool) { return secret + "://" + secret, strings.HasPrefix(key, "DELENDA_") }
	for _, line := range []string{"installation", "state", "keeper", "through"} {
		_, err := Parse("c.yaml", []byte(line+": "+secret+"://"+secret+"@host\nlimits: {rows: "+secret+"}\n"), RoleIngest, env)
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: got %v", line, err)
		}
	}
}

func TestRelativePathsStartAtTheFilesDirectory(t *testing.T) {
	t.Parallel()
	src := "installation: acme\nstate: state\ntables: [{name: t, url: ./tables/t, identities: {id: id}}]\n"
	c, err := Parse("/srv/delenda/c.yaml", []byte(src), RoleOperator, noEnv)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"/srv/delenda/state", "/srv/delenda/tables/t"}, []string{c.State, c.Tables[0].URL}); d != "" {
		t.Errorf("paths (-want +got):\n%s", d)
	}
}

func TestTheReferenceInTheDocsIsTheOneOfTheCode(t *testing.T) {
	t.Parallel()
	path := filepath.FromSlash("../../docs/configuration.md")
	docs, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, _, found := strings.Cut(string(docs), "\n| key |")
	want := head + "\n" + Reference()
	if *update && found {
		if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	} else if d := cmp.Diff(want, string(docs)); d != "" {
		t.Errorf("run go test ./internal/config -update (-want +got):\n%s", d)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte("a: &x [*x]\n<<: *x\n? [a]\n: b\n"))
	f.Fuzz(func(t *testing.T, src []byte) {
		c, err := Parse("c.yaml", src, RoleUp, noEnv)
		if (c == nil) == (err == nil) {
			t.Errorf("got %v and %v: want one of the two", c, err)
		}
	})
}
