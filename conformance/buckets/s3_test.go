package buckets

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"golang.org/x/sys/unix"

	"delenda/storage"
	"delenda/storage/storagetest"
)

// gateways are the running servers, by scheme.
var gateways = map[string]func() (string, error){
	"http":  sync.OnceValues(func() (string, error) { return startGateway("http") }),
	"https": sync.OnceValues(func() (string, error) { return startGateway("https") }),
}

func startGateway(scheme string) (string, error) {
	address, _, err := freeAddress()
	if err != nil {
		return "", err
	}
	root := filepath.Join(workDir, scheme)
	if err := os.Mkdir(root, 0o700); err != nil {
		return "", err
	}
	args := []string{"--port", address, "--quiet"}
	if scheme == "https" {
		args = append(args, "--cert", filepath.Join(workDir, "cert.pem"), "--key", filepath.Join(workDir, "key.pem"))
	}
	metadata, err := metadataArgs(root, filepath.Join(workDir, "metadata-"+scheme))
	if err != nil {
		return "", err
	}
	args = append(append(append(args, "posix"), metadata...), root)
	env := []string{"ROOT_ACCESS_KEY=" + os.Getenv("AWS_ACCESS_KEY_ID"), "ROOT_SECRET_KEY=" + os.Getenv("AWS_SECRET_ACCESS_KEY")}
	return scheme + "://" + address, start(address, os.Getenv(versitygwEnv), env, args...)
}

// metadataArgs keeps metadata with the files where the file system can: apart
// from them it is replaced a moment later than the content, and readers of an
// object that is being replaced would see a checksum that does not fit.
func metadataArgs(root, apart string) ([]string, error) {
	if err := unix.Setxattr(root, "user.delenda", []byte("x"), 0); err == nil {
		return nil, nil
	}
	return []string{"--sidecar", apart}, os.Mkdir(apart, 0o700)
}

// s3URL makes a bucket on the server of that scheme.
func s3URL(t *testing.T, scheme, parameters string) string {
	t.Helper()
	endpoint, err := gateways[scheme]()
	if err != nil {
		t.Fatalf("start versitygw: %v", err)
	}
	client := s3.New(s3.Options{
		BaseEndpoint: &endpoint,
		Region:       "us-east-1",
		UsePathStyle: true,
		HTTPClient:   &http.Client{Transport: http.DefaultTransport},
		Credentials: credentials.NewStaticCredentialsProvider(
			os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY"), ""),
	})
	name := bucketName()
	if _, err := client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String(name)}); err != nil {
		t.Fatalf("create bucket: %v", err)
	}
	return "s3://" + name + "/deep/prefix?endpoint=" + url.QueryEscape(endpoint) + parameters
}

const trailers = "&request_checksum_calculation=when_supported&response_checksum_validation=when_supported"

func TestVersitygwConforms(t *testing.T) {
	need(t, versitygwEnv, "versitygw")
	t.Parallel()
	storagetest.Bucket(t, func(t *testing.T) storage.Bucket { t.Helper(); return open(t, s3URL(t, "http", "")) })
}

func TestVersitygwConformsOverTLS(t *testing.T) {
	need(t, versitygwEnv, "versitygw")
	t.Parallel()
	storagetest.Bucket(t, func(t *testing.T) storage.Bucket { t.Helper(); return open(t, s3URL(t, "https", "")) })
}

func TestVersitygwConformsOverTLSWithTrailingChecksums(t *testing.T) {
	need(t, versitygwEnv, "versitygw")
	t.Parallel()
	storagetest.Bucket(t, func(t *testing.T) storage.Bucket { t.Helper(); return open(t, s3URL(t, "https", trailers)) })
}

func TestVersitygwHasOneWinnerAmongProcesses(t *testing.T) {
	need(t, versitygwEnv, "versitygw")
	t.Parallel()
	storagetest.BucketProcesses(t, 200, func(t *testing.T) string { t.Helper(); return s3URL(t, "http", "") }, openURL)
}

func TestVersitygwSigns(t *testing.T) {
	need(t, versitygwEnv, "versitygw")
	t.Parallel()
	for _, scheme := range []string{"http", "https"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			b := open(t, s3URL(t, scheme, ""))
			p, ok := b.Presigner()
			if !ok {
				t.Fatal("it does not sign")
			}
			storagetest.Presigner(t, b, p, storagetest.SignChecks{Signature: true, Expiry: true, Suffix: true})
		})
	}
}
