package cloud_test

import (
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"delenda/internal/cloud"
	"delenda/storage/bucket"
)

func TestPublicEndpoint(t *testing.T) {
	t.Setenv("AZURE_STORAGE_ACCOUNT", "account1")
	t.Setenv("AZURE_STORAGE_KEY", "c2VjcmV0LWtleQ==")
	key := writeKey(t)
	for _, test := range []struct{ name, address, option, want string }{
		{"s3, path style", "s3://bucket/p?endpoint=http://store:9000", "https://public.example:8443", "https://public.example:8443/bucket/p/dir/k%20%25"},
		{"s3, virtual host", "s3://bucket/p?endpoint=http://store:9000&use_path_style=false", "https://public.example", "https://bucket.public.example/p/dir/k%20%25"},
		{"s3 with a path", "s3://bucket/p?endpoint=http://store:9000", "https://public.example/store", "https://public.example/store/bucket/p/dir/k%20%25"},
		{"s3 of Amazon", "s3://bucket/p?region=eu-central-1", "", "https://bucket.s3.eu-central-1.amazonaws.com/p/dir/k%20%25"},
		{"the URL's wins", "s3://bucket/p?endpoint=http://store:9000&public_endpoint=http://mine:1", "https://public.example", "http://mine:1/bucket/p/dir/k%20%25"},
		{"gs", "gs://b/p?access_id=a&private_key_path=" + url.QueryEscape(key), "https://public.example", "https://public.example/b/p/dir/k%20%25"},
		{"azblob", "azblob://c/p", "https://public.example/store/", "https://public.example/store/c/p%2Fdir%2Fk%20%25"},
		{"azblob of Microsoft", "azblob://c/p", "", "https://account1.blob.core.windows.net/c/p%2Fdir%2Fk%20%25"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b, err := bucket.Open(t.Context(), test.address, &bucket.Options{Drivers: cloud.Drivers(), PublicEndpoint: test.option})
			if err != nil {
				t.Fatal(err)
			}
			p, ok := b.Presigner()
			if !ok {
				t.Fatal("it does not sign")
			}
			u, err := p.SignGet(t.Context(), "dir/k %", time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			got, _, _ := strings.Cut(u.Reveal(), "?")
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if s := b.URL(); strings.ContainsAny(s, "?@") || !strings.HasSuffix(s, "/p") {
				t.Errorf("the bucket calls itself %s", s)
			}
		})
	}
}

func TestASignedURLDiesWithItsCredential(t *testing.T) {
	soon := time.Now().Add(90 * time.Second).UTC().Truncate(time.Second)
	script := t.TempDir() + "/credentials"
	body := "#!/bin/sh\necho '" + `{"Version":1,"AccessKeyId":"a","SecretAccessKey":"s","SessionToken":"t","Expiration":"` + soon.Format(time.RFC3339) + `"}'` + "\n"
	config := t.TempDir() + "/config"
	for path, content := range map[string]string{script: body, config: "[profile short]\ncredential_process = " + script + "\n"} {
		if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("AWS_CONFIG_FILE", config)
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	p, ok := open(t, "s3://b?region=r&profile=short").Presigner()
	if !ok {
		t.Fatal("it does not sign")
	}
	u, err := p.SignGet(t.Context(), "k", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if u.ExpiresAt.After(soon) {
		t.Errorf("it expires %v after its credential", u.ExpiresAt.Sub(soon))
	}
}

func TestAnonymousBucketsDoNotSign(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"s3://b?region=r&anonymous=true", "gs://b?anonymous=true", "gs://b"} {
		if _, ok := open(t, address).Presigner(); ok {
			t.Errorf("%s signs", address)
		}
	}
}
