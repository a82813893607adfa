// Package intake takes erasure requests in: by HTTP, and from JetStream as
// JWE. It validates them, resolves their tables, stores them and hands their
// items to the deleters; only then it answers.
//
// # The body
//
// One JSON object, the same by every way:
//
//	idempotency_key     string, 1 to 255 bytes, mandatory; names the request for the sender
//	regulation          string: gdpr, uk_gdpr, ccpa, lgpd, other
//	subject_request_id  string, UUID
//	received_at         string, RFC 3339: when the subject asked; not in the
//	                    future and not older than Options.MaxAge; by default now
//	tables              "all", which is the default, or a list of configured names
//	identities          list of 1 to 100 of
//	    type            string: an identity type that a table maps
//	    value           string, 1 to 4096 bytes, in the canonical form of the column's type
//	    format          "raw", which is the default; md5, sha1 and sha256 are refused by name
//
// Member names are exact, none may come twice, and one that is not listed here
// is refused by its name. Text that is not well-formed Unicode is refused,
// since it could not be compared.
//
// # Idempotency
//
// The request's id follows from source and idempotency key. If it is known,
// the stored answer is given again, whatever the configuration says by now; a
// body that differs in more than the order of members and white space is a
// conflict. Bodies are compared by a MAC of their canonical form: members
// sorted by name, no white space, strings as encoding/json writes them.
//
// # Refusals
//
// A refusal is a Problem: an HTTP status, a stable code, and the member that
// is wrong, as identities[2].value. It never holds what was in that member.
package intake
