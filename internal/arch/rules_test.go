package arch

// module is the path that all our packages start with.
const module = "delenda"

// vocabulary lists the roots that import the standard library only.
var vocabulary = []string{"events", "storage", "sharing"}

// testOnly lists the packages that only tests, or each other, import.
var testOnly = []string{
	"events/bus/bustest",
	"pipeline/internal/pipelinetest",
	"sharing/sharingtest",
	"storage/bucket/fault",
	"storage/storagetest",
}

// vendorRule says which of our packages may import a vendor's module. Names
// ending in "/..." mean the package and all below it.
type vendorRule struct {
	vendor string   // import path prefix
	only   []string // our packages that may import it; tests may always
	why    string
}

var vendorRules = []vendorRule{
	{
		"github.com/nats-io/nats.go",
		[]string{"events/bus/..."},
		"only events/bus speaks to NATS",
	},
	{
		"github.com/nats-io/nats-server",
		[]string{"events/bus/embedded"},
		"only events/bus/embedded runs a NATS server",
	},
	{
		"gocloud.dev",
		[]string{"storage/bucket/...", "internal/cloud/...", "cmd/..."},
		"only storage/bucket and the binaries see the cloud library",
	},
	{
		"github.com/aws",
		[]string{"storage/bucket/...", "internal/cloud/...", "cmd/..."},
		"cloud SDKs stay behind storage/bucket",
	},
	{
		"cloud.google.com",
		[]string{"storage/bucket/...", "internal/cloud/...", "cmd/..."},
		"cloud SDKs stay behind storage/bucket",
	},
	{
		"github.com/Azure",
		[]string{"storage/bucket/...", "internal/cloud/...", "cmd/..."},
		"cloud SDKs stay behind storage/bucket",
	},
	{
		"github.com/cenkalti/backoff",
		[]string{"storage/delta", "storage/lance", "pipeline/...", "sharing/...", "internal/service", "cmd/..."},
		"retries live in the commit loop and the service layer, not in adapters",
	},
	{
		"github.com/alecthomas/kong",
		[]string{"internal/cli/...", "cmd/..."},
		"flags are the business of the binaries",
	},
	{
		"go.yaml.in/yaml",
		[]string{"internal/config"},
		"configuration is read in one place",
	},
	{
		"github.com/prometheus",
		[]string{"internal/service", "cmd/..."},
		"packages report through hooks; only the service layer knows metrics",
	},
}

// rule forbids arrows from packages to others. With transitive set it looks at
// everything that is linked, not at direct imports alone.
type rule struct {
	from       []string
	except     []string // packages that from matches and the rule does not mean
	to         []string // our packages, or import path prefixes of vendors
	transitive bool
	why        string
}

var (
	nats   = []string{"github.com/nats-io"}
	clouds = []string{"gocloud.dev", "github.com/aws", "cloud.google.com", "github.com/Azure"}
)

var rules = []rule{
	{
		from: []string{"events/..."},
		to:   []string{"storage/...", "sharing/...", "pipeline/...", "internal/...", "cmd/..."},
		why:  "events are told to everyone and know no one",
	},
	{
		from: []string{"storage/..."},
		to:   []string{"events/...", "sharing/...", "pipeline/...", "internal/...", "cmd/..."},
		why:  "storage knows tables and objects, not why they are changed",
	},
	{
		from: []string{"storage/..."},
		to:   nats, transitive: true,
		why: "storage links no NATS",
	},
	{
		from: []string{"storage/delta/..."},
		to:   []string{"storage/lance/..."}, transitive: true,
		why: "the two formats are siblings that never meet",
	},
	{
		from: []string{"storage/lance/..."},
		to:   []string{"storage/delta/..."}, transitive: true,
		why: "the two formats are siblings that never meet",
	},
	{
		from: []string{"storage/delta/...", "storage/lance/...", "storage/deletion/...", "storage/match/...", "storage/parquet/..."},
		to:   append([]string{"storage/bucket/..."}, clouds...), transitive: true,
		why: "formats read objects through the storage.Bucket they are given",
	},
	{
		from: []string{"pipeline/..."},
		to:   []string{"sharing/...", "events/bus/...", "storage/bucket/...", "internal/...", "cmd/..."}, transitive: true,
		why: "decisions reach the world through functions they are given",
	},
	{
		from: []string{"pipeline/..."},
		to:   append(append([]string{}, nats...), clouds...), transitive: true,
		why: "decisions link neither NATS nor a cloud SDK",
	},
	{
		from: []string{"pipeline/audit/..."},
		to: []string{
			"pipeline", "storage/delta/...", "storage/lance/...", "storage/deletion/...",
			"storage/match/...", "storage/parquet/...",
		},
		transitive: true,
		why:        "the auditor reads by small readers of its own",
	},
	{
		from: []string{"sharing/..."},
		to:   []string{"pipeline/...", "events/bus/...", "storage/bucket/...", "internal/...", "cmd/..."},
		why:  "sharing serves what the table says, through what it is given",
	},
	{
		from: []string{"sharing/client/..."},
		to:   append(append([]string{"events/...", "pipeline/...", "storage/bucket/...", "sharing/server/...", "sharing/snapshot/..."}, nats...), clouds...), transitive: true,
		why: "a recipient links neither NATS nor a cloud SDK",
	},
	{
		from: []string{"internal/..."},
		to:   []string{"cmd/..."},
		why:  "nobody imports a binary",
	},
	{
		from: []string{"..."}, except: []string{"internal/...", "cmd/..."},
		to:  []string{"internal/...", "cmd/..."},
		why: "internal packages serve the binaries only",
	},
}
