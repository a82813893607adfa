package cloud

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"
)

const (
	delegationLife  = 24 * time.Hour // asked for a user delegation key
	delegationSpare = time.Hour      // of it left when the next is asked for
)

// signerAzure signs with the account's key, or with a user delegation key that
// it gets by a token credential. It sets no start time, which a reader whose
// clock is behind would be refused by.
type signerAzure struct {
	container *container.Client
	service   *service.Client // nil: the account's key
	public    *url.URL        // nil: the container's own address

	mu      sync.Mutex
	key     *service.UserDelegationCredential
	expires time.Time
}

// newSignerAzure returns nil if the credentials cannot sign.
func newSignerAzure(c *container.Client, token azcore.TokenCredential, o *service.ClientOptions, publicEndpoint string) (*signerAzure, error) {
	s := &signerAzure{container: c}
	if publicEndpoint != "" {
		u, err := url.Parse(publicEndpoint)
		if err != nil {
			return nil, errors.New("read public_endpoint")
		}
		s.public = u
	}
	if token != nil {
		u, err := url.Parse(c.URL())
		if err != nil {
			return nil, errors.New("make service URL")
		}
		u.Path, u.RawPath = "/", ""
		if s.service, err = service.NewClient(u.String(), token, o); err != nil {
			return nil, fmt.Errorf("make service client: %w", err)
		}
		return s, nil
	}
	_, err := c.NewBlobClient("probe").GetSASURL(sas.BlobPermissions{Read: true}, time.Now().Add(time.Hour), nil)
	if errors.Is(err, bloberror.MissingSharedKeyCredential) {
		return nil, nil //nolint:nilnil // no signer is no error
	}
	return s, err
}

func (s *signerAzure) sign(ctx context.Context, key string, ttl time.Duration) (string, time.Time, error) {
	expiresAt := time.Now().UTC().Add(ttl).Truncate(time.Second)
	blobs := s.container.NewBlobClient(key)
	var signed string
	var err error
	if s.service == nil {
		signed, err = blobs.GetSASURL(sas.BlobPermissions{Read: true}, expiresAt, nil)
	} else {
		signed, expiresAt, err = s.delegated(ctx, blobs.URL(), key, expiresAt)
	}
	if err != nil {
		return "", time.Time{}, err
	}
	if signed, err = s.publish(signed); err != nil {
		return "", time.Time{}, err
	}
	return signed, expiresAt, nil
}

func (s *signerAzure) delegated(ctx context.Context, at, key string, expiresAt time.Time) (string, time.Time, error) {
	credential, until, err := s.delegation(ctx)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("get user delegation key: %w", err)
	}
	if until.Before(expiresAt) {
		expiresAt = until
	}
	parts, err := sas.ParseURL(at)
	if err != nil {
		return "", time.Time{}, errors.New("make blob URL")
	}
	token, err := sas.BlobSignatureValues{
		ContainerName: parts.ContainerName,
		BlobName:      key,
		Permissions:   (&sas.BlobPermissions{Read: true}).String(),
		ExpiryTime:    expiresAt,
	}.SignWithUserDelegation(credential)
	if err != nil {
		return "", time.Time{}, err
	}
	return at + "?" + token.Encode(), expiresAt, nil
}

// delegation returns a key that has time left, one request for all signatures.
func (s *signerAzure) delegation(ctx context.Context) (*service.UserDelegationCredential, time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now().UTC()
	if s.key != nil && now.Add(delegationSpare).Before(s.expires) {
		return s.key, s.expires, nil
	}
	start := now.Add(-5 * time.Minute).Format(sas.TimeFormat)
	end := now.Add(delegationLife).Truncate(time.Second)
	until := end.Format(sas.TimeFormat)
	key, err := s.service.GetUserDelegationCredential(ctx, service.KeyInfo{Start: &start, Expiry: &until}, nil)
	if err != nil {
		return nil, time.Time{}, err
	}
	s.key, s.expires = key, end
	return key, end, nil
}

// publish moves a URL to the public endpoint; the signature does not cover the
// host.
func (s *signerAzure) publish(signed string) (string, error) {
	if s.public == nil {
		return signed, nil
	}
	u, err := url.Parse(signed)
	if err != nil {
		return "", errors.New("make signed URL")
	}
	return strings.TrimSuffix(s.public.String(), "/") + u.EscapedPath() + "?" + u.RawQuery, nil
}
