// Package buckets runs the conformance suite of storage.Bucket against servers
// that are too big for the main module's tests: versitygw for S3, over plain
// http and over https with trailing checksums, and Azurite for Azure Blob
// Storage. Both verify signatures and expiry.
//
// run.sh gets the servers, in pinned versions, and runs the tests. A server
// that cannot be had is skipped, and the summary says so.
package buckets
