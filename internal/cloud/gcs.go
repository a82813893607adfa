package cloud

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	gcs "cloud.google.com/go/storage"
	"gocloud.dev/blob"
	"gocloud.dev/blob/gcsblob"
	"gocloud.dev/gcp"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"delenda/storage"
	"delenda/storage/bucket"
)

// gcsAttempts bounds the SDK's own retries, which otherwise end with the
// context only.
const gcsAttempts = 4

func (p patience) openGCS(ctx context.Context, u *url.URL, publicEndpoint string) (*bucket.Cloud, error) {
	opener, key, err := p.gcsOpener(ctx, u.Query())
	if err != nil {
		return nil, err
	}
	b, err := opener.OpenBucketURL(ctx, u)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	var client *gcs.Client
	if !b.As(&client) {
		return nil, errors.New("gcs: internal error: no client")
	}
	client.SetRetry(gcs.WithMaxAttempts(gcsAttempts))
	c := &bucket.Cloud{
		Bucket:      b,
		Classify:    classifyGCS,
		Check:       checkPortable,
		BeforeList:  beforeListGCS,
		BeforeRead:  beforeReadGCS,
		BeforeWrite: beforeWriteGCS,
		Name:        nameGCS,
	}
	if key.accessID != "" {
		s := &signerGCS{bucket: client.Bucket(u.Host), key: key}
		if s.scheme, s.host, s.path = gcsHost(publicEndpoint); s.path != "" {
			return nil, errors.New("read configuration: public_endpoint of gs:// has no path")
		}
		c.Sign = s.sign
	}
	return c, nil
}

// gcsKey signs URLs: as accessID, by a private key, or without one by the IAM
// service on behalf of the client.
type gcsKey struct {
	accessID   string
	privateKey []byte
}

// gcsOpener finds credentials as gocloud.dev does, but says so if there are
// none instead of printing a warning and going on without.
func (p patience) gcsOpener(ctx context.Context, q url.Values) (*gcsblob.URLOpener, gcsKey, error) {
	var key gcsKey
	opener := &gcsblob.URLOpener{Client: gcp.NewAnonymousHTTPClient(p.transport())}
	if os.Getenv("STORAGE_EMULATOR_HOST") != "" { // gocloud.dev takes another client then
		opener.Options.ClientOptions = append(opener.Options.ClientOptions, option.WithHTTPClient(&opener.Client.Client))
	}
	anonymous := q.Get("anonymous") == "true" || q.Get("access_id") == "-"
	if !anonymous && os.Getenv("STORAGE_EMULATOR_HOST") == "" && os.Getenv("STORAGE_EMULATOR_HOST_GRPC") == "" {
		creds, err := gcp.DefaultCredentials(ctx)
		if err != nil {
			return nil, key, errors.New("find credentials: no Application Default Credentials; anonymous=true does without")
		}
		if opener.Client, err = gcp.NewHTTPClient(p.transport(), gcp.CredentialsTokenSource(creds)); err != nil {
			return nil, key, fmt.Errorf("find credentials: %w", err)
		}
		opener.TokenSource = gcp.CredentialsTokenSource(creds)
		if domain, err := creds.GetUniverseDomain(); err == nil && domain != "" {
			opener.Options.ClientOptions = append(opener.Options.ClientOptions, option.WithUniverseDomain(domain))
		}
		var file struct {
			ClientEmail string `json:"client_email"`
			PrivateKey  string `json:"private_key"`
		}
		if json.Unmarshal(creds.JSON, &file) == nil {
			key = gcsKey{file.ClientEmail, []byte(file.PrivateKey)}
		}
	}
	if id := q.Get("access_id"); id != "" && id != "-" && id != key.accessID {
		key = gcsKey{accessID: id}
	}
	if path := q.Get("private_key_path"); path != "" {
		p, err := os.ReadFile(path) //nolint:gosec // the operator names the key file
		if err != nil {
			return nil, key, fmt.Errorf("read private_key_path: %w", err)
		}
		key.privateKey = p
	}
	return opener, key, nil
}

// classifyGCS keeps refusal and absence apart; the portable code reports both
// as absence.
func classifyGCS(err error) error {
	if errors.Is(err, gcs.ErrBucketNotExist) {
		return &bucket.CodeError{Code: "NoSuchBucket", Status: http.StatusNotFound}
	}
	if errors.Is(err, gcs.ErrObjectNotExist) {
		return storage.ErrNotFound
	}
	var api *googleapi.Error
	if errors.As(err, &api) {
		switch api.Code {
		case http.StatusNotFound:
			return storage.ErrNotFound
		case http.StatusUnauthorized, http.StatusForbidden:
			return storage.ErrDenied
		case http.StatusPreconditionFailed:
			return storage.ErrExists
		case http.StatusRequestedRangeNotSatisfiable:
			return bucket.ErrRange
		}
		return &bucket.CodeError{Code: codeOr(reason(api), api.Code), Status: api.Code}
	}
	switch code := status.Code(err); code {
	case codes.OK, codes.Unknown, codes.Canceled, codes.DeadlineExceeded:
		return nil
	case codes.NotFound:
		return storage.ErrNotFound
	case codes.PermissionDenied, codes.Unauthenticated:
		return storage.ErrDenied
	case codes.FailedPrecondition, codes.AlreadyExists:
		return storage.ErrExists
	case codes.OutOfRange:
		return bucket.ErrRange
	default:
		return &bucket.CodeError{Code: code.String()}
	}
}

func reason(err *googleapi.Error) string {
	if len(err.Errors) == 0 {
		return ""
	}
	return err.Errors[0].Reason
}

func beforeListGCS(as func(any) bool, prefix, after string) error {
	var query *gcs.Query
	if !as(&query) {
		return errors.New("gcs: internal error: no list request")
	}
	query.Prefix = prefix
	query.StartOffset = after // inclusive
	return query.SetAttrSelection([]string{"Name", "Size", "Updated"})
}

// beforeReadGCS asks for the stored bytes where the store would decompress.
func beforeReadGCS(as func(any) bool) error {
	var object **gcs.ObjectHandle
	if !as(&object) {
		return errors.New("gcs: internal error: no read request")
	}
	*object = (*object).ReadCompressed(true)
	return nil
}

func beforeWriteGCS(as func(any) bool, small bool) error {
	var w *gcs.Writer
	if !as(&w) {
		return errors.New("gcs: internal error: no write request")
	}
	if small {
		w.ChunkSize = googleapi.MinUploadChunkSize
	}
	return nil
}

func nameGCS(o *blob.ListObject) (string, bool) {
	var raw gcs.ObjectAttrs
	if !o.As(&raw) || raw.Prefix != "" {
		return "", false
	}
	return raw.Name, true
}

type signerGCS struct {
	bucket             *gcs.BucketHandle
	key                gcsKey
	scheme, host, path string
}

// gcsHost returns where signed URLs point: the public endpoint, the emulator,
// or nothing for Google's own.
func gcsHost(publicEndpoint string) (scheme, host, path string) {
	if publicEndpoint != "" {
		if u, err := url.Parse(publicEndpoint); err == nil {
			return u.Scheme, u.Host, strings.TrimSuffix(u.Path, "/")
		}
	}
	if emulator := os.Getenv("STORAGE_EMULATOR_HOST"); emulator != "" {
		return "http", strings.TrimPrefix(emulator, "http://"), ""
	}
	return "https", "", ""
}

func (s *signerGCS) sign(_ context.Context, key string, ttl time.Duration) (string, time.Time, error) {
	signed, err := s.bucket.SignedURL(key, &gcs.SignedURLOptions{
		GoogleAccessID: s.key.accessID,
		PrivateKey:     s.key.privateKey,
		Method:         http.MethodGet,
		Expires:        time.Now().Add(ttl + 900*time.Millisecond), // the SDK cuts what is left to whole seconds
		Scheme:         gcs.SigningSchemeV4,
		Hostname:       s.host,
		Insecure:       s.scheme == "http",
	})
	if err != nil {
		return "", time.Time{}, err
	}
	expiresAt, err := expiryOf(signed, "X-Goog-Date", "X-Goog-Expires")
	return signed, expiresAt, err
}
