package sharing

// Share is a named set of schemas that is granted to recipients as a whole.
type Share struct {
	Name string `json:"name"`
	ID   string `json:"id,omitempty"`
}

// Schema groups tables of a share.
type Schema struct {
	Name  string `json:"name"`
	Share string `json:"share"`
}

// Table is a shared table. Names compare case-insensitively; answers carry the
// configured spelling.
type Table struct {
	Name    string `json:"name"`
	Schema  string `json:"schema"`
	Share   string `json:"share"`
	ShareID string `json:"shareId,omitempty"`
	ID      string `json:"id,omitempty"`
}

// Page is one page of a list answer. NextPageToken is empty on the last page;
// an empty page with a token is not the end.
type Page[T any] struct {
	Items         []T    `json:"items,omitempty"`
	NextPageToken string `json:"nextPageToken,omitempty"`
}

// Header names of the protocol.
const (
	HeaderCapabilities = "delta-sharing-capabilities"
	HeaderTableVersion = "Delta-Table-Version"
	HeaderFileIDHash   = "fileidhash"
)

// ErrorBody is the JSON of an error answer. Code is repeated under the
// spelling that hosted servers use.
type ErrorBody struct {
	Code    string `json:"errorCode"`
	Code2   string `json:"error_code,omitempty"`
	Message string `json:"message"`
}

// Error codes of the protocol.
const (
	CodeInvalidParameter     = "INVALID_PARAMETER_VALUE"
	CodeMalformedRequest     = "MALFORMED_REQUEST"
	CodeUnsupportedOperation = "UNSUPPORTED_OPERATION"
	CodeDoesNotExist         = "RESOURCE_DOES_NOT_EXIST"
	CodeUnauthenticated      = "UNAUTHENTICATED"
	CodeUnavailable          = "TEMPORARILY_UNAVAILABLE"
	CodeInternal             = "INTERNAL_ERROR"
)
