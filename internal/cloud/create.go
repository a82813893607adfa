package cloud

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"gocloud.dev/blob/s3blob"
)

// CreateBucket makes the bucket of an s3:// URL that names an endpoint, unless
// it is there already; created tells. Buckets of the clouds themselves are made with the
// cloud's own tools, which know of regions, policies and accounts: for every other
// URL it does nothing.
func CreateBucket(ctx context.Context, rawURL string) (created bool, err error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme != "s3" || !u.Query().Has("endpoint") {
		return false, nil
	}
	q := u.Query()
	q.Del("public_endpoint")
	if err := s3Defaults(q); err != nil {
		return false, err
	}
	b, err := new(s3blob.URLOpener).OpenBucketURL(ctx, &url.URL{Scheme: u.Scheme, Host: u.Host, RawQuery: q.Encode()})
	if err != nil {
		return false, fmt.Errorf("read configuration: %w", err)
	}
	defer func() { _ = b.Close() }()
	var client *s3.Client
	if !b.As(&client) {
		return false, errors.New("s3: internal error: no client")
	}
	_, err = client.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: aws.String(u.Host)})
	var owned *types.BucketAlreadyOwnedByYou
	if errors.As(err, &owned) {
		return false, nil
	}
	var exists *types.BucketAlreadyExists
	if errors.As(err, &exists) { // some stores say so of one's own
		if _, headErr := client.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: aws.String(u.Host)}); headErr == nil {
			return false, nil
		}
	}
	if err != nil {
		return false, fmt.Errorf("create bucket %s: %w", u.Host, err)
	}
	return true, nil
}
