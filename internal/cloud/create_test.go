package cloud

import (
	"net/http/httptest"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

func TestABucketIsMadeOnceAndOnlyWhereAnEndpointIsNamed(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	server := httptest.NewServer(gofakes3.New(s3mem.New()).Server())
	defer server.Close()
	url := "s3://lake/orders?endpoint=" + server.URL + "&public_endpoint=https://files.example.org"
	for i, want := range []bool{true, false} {
		if created, err := CreateBucket(t.Context(), url); err != nil || created != want {
			t.Errorf("call %d: created %t, %v", i, created, err)
		}
	}
	for _, url := range []string{"s3://lake/orders?region=eu-central-1", "gs://lake", "/srv/lake", "file:///srv/lake"} {
		if created, err := CreateBucket(t.Context(), url); created || err != nil {
			t.Errorf("%s: created %t, %v", url, created, err)
		}
	}
}
