// Package cloud holds the drivers of bucket.Open for S3-compatible stores
// (s3://), Google Cloud Storage (gs://) and Azure Blob Storage (azblob://). It
// alone links their SDKs, and binaries alone import it.
//
// Query parameters are those of gocloud.dev's URL openers. An s3:// URL with an
// endpoint names a store that is not Amazon's; for it the defaults are
// use_path_style=true, region us-east-1 if none is configured, and
// request_checksum_calculation=when_required, because older stores keep the
// framing of trailing checksums as content. Checksums of responses are verified
// only if response_checksum_validation=when_supported asks for it.
//
// A store that takes a request and does not begin to answer is given up after a
// minute; its SDK may then ask again, a few times.
package cloud

import (
	"net/http"
	"strings"
	"time"

	"delenda/storage/bucket"
)

// Drivers returns the drivers by URL scheme.
func Drivers() map[string]bucket.Driver {
	return driversWith(answerWithin)
}

// answerWithin bounds the time between a request and the begin of its answer.
const answerWithin = time.Minute

// patience is how long a driver waits for the begin of an answer.
type patience time.Duration

func driversWith(d time.Duration) map[string]bucket.Driver {
	p := patience(d)
	return map[string]bucket.Driver{
		"s3":     p.openS3,
		"gs":     p.openGCS,
		"azblob": p.openAzure,
	}
}

// transport is Go's own with patience.
func (p patience) transport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // it is one
	t.ResponseHeaderTimeout = time.Duration(p)
	t.MaxIdleConnsPerHost = 10 // scans read several files at once
	return t
}

// escaped reports whether gocloud.dev's portable part would store the key under
// another name: it writes characters as __0x<hex>__, and so must escape what
// looks like that, and the '/' after "..".
func escaped(key string) bool {
	return strings.Contains(key, "__0x") || strings.Contains(key, "../")
}

func checkPortable(key string) error {
	if escaped(key) {
		return bucket.RefuseKey("holds __0x or ../, which this store's driver would rename")
	}
	return nil
}
