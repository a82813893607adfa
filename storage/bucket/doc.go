// Package bucket implements storage.Bucket on directories, in memory, and on
// S3, Google Cloud Storage and Azure Blob Storage through gocloud.dev/blob.
//
// # URLs
//
//	/var/lib/lake, ./lake          a directory: the same as its file URL
//	file:///var/lib/lake           a directory, absolute
//	mem://name                     memory, shared by name inside one process
//	s3://bucket/prefix?region=…    any S3-compatible store
//	gs://bucket/prefix             Google Cloud Storage
//	azblob://container/prefix      Azure Blob Storage
//
// A path inside a cloud bucket roots all keys there. Query parameters are
// those of gocloud.dev for the scheme, and public_endpoint, the base under
// which readers of pre-signed URLs reach the store. Credentials come from the
// environment as each cloud's SDK finds them, never from the URL.
//
// # Keys
//
// A key is 1 to 1,024 bytes of UTF-8 in segments separated by '/'. Empty
// segments, "." and "..", a leading or trailing '/' and control characters are
// refused on every store; everything else reaches the store byte for byte or
// is refused by that store (CheckKey, and the notes of each cloud).
//
// # Directories
//
// A write goes to a temporary file beside its target, is synced, and becomes
// visible by hard link (put-if-absent) or rename (replace); then the directory
// is synced. A hard link has exactly one winner among all processes. On a file
// system without hard links put-if-absent holds among the goroutines of one
// process only: AtomicAcrossProcesses tells, and the Logger is told. Symbolic
// links are followed inside the root and refused where they lead out of it.
// Names that begin with ".delenda-tmp-" are reserved for temporary files, are
// never listed, and are removed when a day old.
//
// # Guarantees
//
// Those of storage.Bucket. Errors name the operation and the key; the causes
// that SDKs give are reduced to their code, so no URL, signature or response
// body is in them. There are no retries beyond what an SDK does by itself, and
// after an unclear answer an SDK's own retry may turn a won put-if-absent into
// storage.ErrExists: read back what is there before believing that a race is
// lost. A store may also refuse one put-if-absent because another was under way
// and is not there yet, or never will be; that is storage.ErrExists too.
//
// List yields objects of other writers by the names they have, also those that
// are no keys here, such as the "dir/" that some tools store for a directory.
// Azure cannot begin a listing after a key: it is read from the start of the
// prefix and passed over.
//
// All types are safe for concurrent use.
package bucket
