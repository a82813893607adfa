package probe

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestAnAnswerIsTakenAsItIs(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxAnswer+1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, "/ok", http.StatusFound)
		case "/long":
			_, _ = w.Write([]byte(long))
		case "/bad":
			http.Error(w, "why not", http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	tests := map[string]struct {
		path string
		ok   bool
		body int
	}{
		"success":              {"/ok", true, 0},
		"a refusal says why":   {"/bad", false, len("why not\n")},
		"no redirect is gone":  {"/away", false, len("<a href=\"/ok\">Found</a>.\n\n")},
		"no more than so much": {"/long", true, maxAnswer},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Get(t.Context(), server.URL+test.path)
			if err != nil || got.OK != test.ok || len(got.Body) != test.body {
				t.Errorf("got %t, %s, %d bytes, %v", got.OK, got.Status, len(got.Body), err)
			}
		})
	}
}
