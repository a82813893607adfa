package cloud

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	"gocloud.dev/blob"
	"gocloud.dev/blob/s3blob"

	"delenda/storage"
	"delenda/storage/bucket"
)

func (p patience) openS3(ctx context.Context, u *url.URL, publicEndpoint string) (*bucket.Cloud, error) {
	q := u.Query()
	if err := s3Defaults(q); err != nil {
		return nil, err
	}
	u.RawQuery = q.Encode()
	b, client, err := p.clientS3(ctx, u)
	if err != nil {
		return nil, err
	}
	c := &bucket.Cloud{
		Bucket:     b,
		Classify:   classifyS3,
		Check:      checkPortable,
		BeforeList: beforeListS3,
		Name:       nameS3,
		Delete: func(ctx context.Context, key string) error {
			_, err := client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: aws.String(u.Host), Key: aws.String(key)})
			return err
		},
	}
	if creds := client.Options().Credentials; creds != nil && !aws.IsCredentialsProvider(creds, aws.AnonymousCredentials{}) {
		c.Sign = (&signerS3{
			bucket:      u.Host,
			credentials: creds,
			client:      publicS3(client, publicEndpoint),
		}).sign
	}
	return c, nil
}

// clientS3 opens a bucket as gocloud.dev does, but with patience.
func (p patience) clientS3(ctx context.Context, u *url.URL) (*blob.Bucket, *s3.Client, error) {
	var opener s3blob.URLOpener
	b, err := opener.OpenBucketURL(ctx, u)
	if err != nil {
		return nil, nil, fmt.Errorf("read configuration: %w", err)
	}
	var client *s3.Client
	if !b.As(&client) {
		return nil, nil, errors.New("s3: internal error: no client")
	}
	o := client.Options()
	h, ok := o.HTTPClient.(*awshttp.BuildableClient)
	if !ok {
		return nil, nil, errors.New("s3: internal error: no transport")
	}
	o.HTTPClient = h.WithTransportOptions(func(t *http.Transport) { t.ResponseHeaderTimeout = time.Duration(p) })
	client = s3.New(o)
	b, err = s3blob.OpenBucket(ctx, client, u.Host, &opener.Options) // what the URL asks for is in the options by now
	if err != nil {
		return nil, nil, fmt.Errorf("read configuration: %w", err)
	}
	return b, client, nil
}

// s3Defaults fills in what stores other than Amazon's need.
func s3Defaults(q url.Values) error {
	fallback := func(parameter, value string) {
		if !q.Has(parameter) {
			q.Set(parameter, value)
		}
	}
	// Otherwise the SDK writes a line to standard error for every object that
	// has no checksum.
	fallback("response_checksum_validation", "when_required")
	endpoint := q.Get("endpoint")
	if endpoint == "" {
		return nil
	}
	if e, err := url.Parse(endpoint); err != nil || e.Host == "" || e.Scheme != "http" && e.Scheme != "https" {
		return errors.New("read configuration: endpoint is not of the form https://host[:port]")
	}
	if !q.Has("s3ForcePathStyle") {
		fallback("use_path_style", "true")
	}
	if os.Getenv("AWS_REGION") == "" && os.Getenv("AWS_DEFAULT_REGION") == "" && q.Get("profile") == "" {
		fallback("region", "us-east-1")
	}
	fallback("request_checksum_calculation", "when_required")
	return nil
}

// classifyS3 goes by the service's code first. An absent bucket and a redirect
// to another region are not absent objects.
func classifyS3(err error) error {
	var code string
	var status int
	var api smithy.APIError
	var response *awshttp.ResponseError
	if errors.As(err, &api) {
		code = api.ErrorCode()
	}
	if errors.As(err, &response) {
		status = response.HTTPStatusCode()
	}
	switch code {
	case "NoSuchKey":
		return storage.ErrNotFound
	case "PreconditionFailed", "ConditionalRequestConflict", "OperationAborted":
		return storage.ErrExists
	case "InvalidRange":
		return bucket.ErrRange
	case "NoSuchBucket", "NoSuchUpload":
		return &bucket.CodeError{Code: code, Status: status}
	case "AccessDenied", "Forbidden", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken":
		return storage.ErrDenied
	}
	switch status {
	case http.StatusNotFound:
		return storage.ErrNotFound
	case http.StatusUnauthorized, http.StatusForbidden:
		return storage.ErrDenied
	case http.StatusPreconditionFailed:
		return storage.ErrExists
	case http.StatusRequestedRangeNotSatisfiable:
		return bucket.ErrRange
	case 0:
		return nil
	}
	return &bucket.CodeError{Code: codeOr(code, status), Status: status}
}

// codeOr returns the service's code if it is a plain word, else the status.
func codeOr(code string, status int) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_'
	}
	if code == "" || len(code) > 64 || strings.ContainsFunc(code, func(r rune) bool { return !plain(r) }) {
		return http.StatusText(status)
	}
	return code
}

func beforeListS3(as func(any) bool, prefix, after string) error {
	var in *s3.ListObjectsV2Input
	if !as(&in) {
		return errors.New("s3: internal error: no list request")
	}
	in.Prefix = aws.String(prefix)
	if after != "" {
		in.StartAfter = aws.String(after)
	}
	return nil
}

func nameS3(o *blob.ListObject) (string, bool) {
	var raw types.Object
	if !o.As(&raw) || raw.Key == nil {
		return "", false
	}
	return *raw.Key, true
}

type signerS3 struct {
	bucket      string
	client      *s3.PresignClient
	credentials aws.CredentialsProvider
}

// publicS3 signs for the host that readers will ask, since the host is signed.
func publicS3(client *s3.Client, publicEndpoint string) *s3.PresignClient {
	return s3.NewPresignClient(s3.New(client.Options(), func(o *s3.Options) {
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		if publicEndpoint != "" {
			o.EndpointResolver = nil //nolint:staticcheck // undoes what the URL opener sets
			o.EndpointResolverV2 = s3.NewDefaultEndpointResolverV2()
			o.BaseEndpoint = aws.String(publicEndpoint)
		}
	}))
}

func (s *signerS3) sign(ctx context.Context, key string, ttl time.Duration) (string, time.Time, error) {
	creds, err := s.credentials.Retrieve(ctx)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("find credentials: %w", err)
	}
	if creds.CanExpire {
		ttl = min(ttl, time.Until(creds.Expires).Truncate(time.Second))
		if ttl <= 0 {
			return "", time.Time{}, storage.ErrDenied
		}
	}
	signed, err := s.client.PresignGetObject(ctx,
		&s3.GetObjectInput{Bucket: aws.String(s.bucket), Key: aws.String(key)}, s3.WithPresignExpires(ttl))
	if err != nil {
		return "", time.Time{}, err
	}
	expiresAt, err := expiryOf(signed.URL, "X-Amz-Date", "X-Amz-Expires")
	return signed.URL, expiresAt, err
}

// expiryOf reads from a signed URL when it expires.
func expiryOf(signed, date, expires string) (time.Time, error) {
	u, err := url.Parse(signed)
	if err != nil {
		return time.Time{}, errors.New("read signed URL: malformed")
	}
	at, err := time.Parse("20060102T150405Z", u.Query().Get(date))
	if err != nil {
		return time.Time{}, fmt.Errorf("read signed URL: %s", date)
	}
	seconds, err := strconv.ParseInt(u.Query().Get(expires), 10, 32)
	if err != nil {
		return time.Time{}, fmt.Errorf("read signed URL: %s", expires)
	}
	return at.Add(time.Duration(seconds) * time.Second), nil
}
