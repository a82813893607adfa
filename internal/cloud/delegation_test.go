package cloud

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"
)

type token struct{}

func (token) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: "token", ExpiresOn: time.Now().Add(time.Hour)}, nil
}

// TestAzureSignsByUserDelegation: with a token credential one key serves many
// signatures, and no URL outlives it.
func TestAzureSignsByUserDelegation(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("comp") != "userdelegationkey" || r.Header.Get("Authorization") != "Bearer token" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		asked.Add(1)
		now := time.Now().UTC()
		_, _ = fmt.Fprintf(w, `<?xml version="1.0" encoding="utf-8"?><UserDelegationKey><SignedOid>object</SignedOid><SignedTid>tenant</SignedTid>`+
			`<SignedStart>%s</SignedStart><SignedExpiry>%s</SignedExpiry><SignedService>b</SignedService><SignedVersion>2020-02-10</SignedVersion><Value>c2VjcmV0</Value></UserDelegationKey>`,
			now.Add(-time.Minute).Format(time.RFC3339), now.Add(24*time.Hour).Format(time.RFC3339))
	}))
	t.Cleanup(s.Close)
	client, err := container.NewClient(s.URL+"/container", token{}, &container.ClientOptions{ClientOptions: policy.ClientOptions{Transport: s.Client()}})
	if err != nil {
		t.Fatal(err)
	}
	signer, err := newSignerAzure(client, token{}, &service.ClientOptions{ClientOptions: policy.ClientOptions{Transport: s.Client()}}, "https://public.example")
	if err != nil {
		t.Fatal(err)
	}
	for ttl, longest := range map[time.Duration]time.Duration{time.Hour: time.Hour, 72 * time.Hour: delegationLife} {
		signed, expiresAt, err := signer.sign(t.Context(), "dir/k %25", ttl)
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(signed)
		if err != nil {
			t.Fatal(err)
		}
		q := u.Query()
		if u.Host != "public.example" || u.Path != "/container/dir/k %25" || q.Get("skoid") != "object" || q.Get("sp") != "r" || q.Get("sig") == "" {
			t.Errorf("signed: %s %s %v", u.Host, u.Path, q)
		}
		if q.Get("se") != expiresAt.Format(time.RFC3339) || expiresAt.After(time.Now().Add(longest)) {
			t.Errorf("ttl %v: expires at %v, the URL says %s", ttl, expiresAt, q.Get("se"))
		}
	}
	if asked.Load() != 1 {
		t.Errorf("asked for %d keys", asked.Load())
	}
	none, err := container.NewClientWithNoCredential(s.URL+"/container", nil)
	if err != nil {
		t.Fatal(err)
	}
	if signer, err := newSignerAzure(none, nil, nil, ""); signer != nil || err != nil {
		t.Errorf("without a credential: %v, %v", signer, err)
	}
}
