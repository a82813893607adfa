package intake

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// Problem is why a request is refused. Its JSON is that of RFC 9457.
type Problem struct {
	Status int
	Code   string // lower_snake_case, stable
	Field  string // the member that is wrong; empty if it is not a member
	Detail string // for people; never a value
}

// Error returns field and detail.
func (p *Problem) Error() string {
	if p.Field == "" {
		return p.Detail
	}
	return p.Field + ": " + p.Detail
}

// MarshalJSON returns the members of RFC 9457, and code and field.
func (p *Problem) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail,omitempty"`
		Code   string `json:"code"`
		Field  string `json:"field,omitempty"`
	}{"urn:delenda:problem:" + p.Code, http.StatusText(p.Status), p.Status, p.Detail, p.Code, p.Field})
}

func problem(status int, code, field, format string, args ...any) *Problem {
	return &Problem{Status: status, Code: code, Field: field, Detail: fmt.Sprintf(format, args...)}
}

// malformed is a member that has not the right form.
func malformed(field, format string, args ...any) *Problem {
	return problem(http.StatusBadRequest, "malformed", field, format, args...)
}
