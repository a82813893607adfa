package cloud

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"gocloud.dev/blob"
	"gocloud.dev/blob/azureblob"

	"delenda/storage"
	"delenda/storage/bucket"
)

func (p patience) openAzure(ctx context.Context, u *url.URL, publicEndpoint string) (*bucket.Cloud, error) {
	credential := azureCredential{client: &http.Client{Transport: p.transport()}}
	opener := &azureblob.URLOpener{
		MakeClient:        credential.open,
		ServiceURLOptions: *azureblob.NewDefaultServiceURLOptions(),
	}
	b, err := opener.OpenBucketURL(ctx, u)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	var client *container.Client
	if !b.As(&client) {
		return nil, errors.New("azure: internal error: no client")
	}
	c := &bucket.Cloud{
		Bucket:     b,
		Classify:   classifyAzure,
		Check:      checkAzure,
		Portable:   portableAzure,
		Raw:        &rawAzure{client},
		BeforeList: beforeListAzure,
		Name:       nameAzure,
	}
	s, err := newSignerAzure(client, credential.token, nil, publicEndpoint)
	if err != nil {
		return nil, err
	}
	if s != nil {
		c.Sign = s.sign
	}
	return c, nil
}

// azureCredential makes clients with what the environment gives, in
// gocloud.dev's order, and remembers a token credential for signing.
type azureCredential struct {
	client *http.Client
	token  azcore.TokenCredential
}

func (a *azureCredential) open(service azureblob.ServiceURL, name azureblob.ContainerName) (*container.Client, error) {
	at, err := url.JoinPath(string(service), string(name))
	if err != nil {
		return nil, errors.New("make service URL")
	}
	account, key := os.Getenv("AZURE_STORAGE_ACCOUNT"), os.Getenv("AZURE_STORAGE_KEY")
	connection := os.Getenv("AZURE_STORAGE_CONNECTION_STRING")
	if connection == "" {
		connection = os.Getenv("AZURE_STORAGEBLOB_CONNECTIONSTRING")
	}
	common := azcore.ClientOptions{Transport: a.client}
	o := &container.ClientOptions{ClientOptions: common}
	switch {
	case account != "" && key != "":
		shared, err := container.NewSharedKeyCredential(account, key)
		if err != nil {
			return nil, errors.New("read AZURE_STORAGE_KEY: malformed")
		}
		return container.NewClientWithSharedKeyCredential(at, shared, o)
	case os.Getenv("AZURE_STORAGE_SAS_TOKEN") != "":
		return container.NewClientWithNoCredential(at, o)
	case connection != "":
		c, err := container.NewClientFromConnectionString(connection, string(name), o)
		if err != nil {
			return nil, errors.New("read AZURE_STORAGE_CONNECTION_STRING: malformed")
		}
		return c, nil
	}
	token, err := azidentity.NewDefaultAzureCredential(&azidentity.DefaultAzureCredentialOptions{ClientOptions: common})
	if err != nil {
		return nil, errors.New("find credentials: none in the environment")
	}
	a.token = token
	return container.NewClient(at, token, o)
}

// portableAzure reports whether gocloud.dev passes the key on as it is: it
// rewrites these characters, which data files' names do hold (Spark escapes
// partition values with %).
func portableAzure(key string) bool {
	return !escaped(key) && !strings.ContainsAny(key, "%?#\"")
}

// checkAzure refuses what the service itself would store under another name.
func checkAzure(key string) error {
	if strings.Contains(key, `\`) {
		return bucket.RefuseKey(`holds a \, which Azure turns into /`)
	}
	for segment := range strings.SplitSeq(key, "/") {
		if strings.HasSuffix(segment, ".") {
			return bucket.RefuseKey("holds a segment that ends with a dot, which Azure drops")
		}
	}
	return nil
}

func classifyAzure(err error) error {
	var response *azcore.ResponseError
	if !errors.As(err, &response) {
		return nil
	}
	switch bloberror.Code(response.ErrorCode) { //nolint:exhaustive // the others go by status
	case bloberror.BlobAlreadyExists, bloberror.ConditionNotMet, bloberror.TargetConditionNotMet:
		return storage.ErrExists
	case bloberror.BlobNotFound:
		return storage.ErrNotFound
	case bloberror.InvalidRange:
		return bucket.ErrRange
	case bloberror.ContainerNotFound, bloberror.ContainerBeingDeleted, bloberror.AccountIsDisabled:
		return &bucket.CodeError{Code: response.ErrorCode, Status: response.StatusCode}
	}
	switch response.StatusCode {
	case http.StatusNotFound:
		return storage.ErrNotFound
	case http.StatusUnauthorized, http.StatusForbidden:
		return storage.ErrDenied
	case http.StatusRequestedRangeNotSatisfiable:
		return bucket.ErrRange
	}
	return &bucket.CodeError{Code: codeOr(response.ErrorCode, response.StatusCode), Status: response.StatusCode}
}

// beforeListAzure has no start: the service cannot begin after a name, so what
// comes before it is fetched and passed over.
func beforeListAzure(as func(any) bool, prefix, _ string) error {
	var opts *container.ListBlobsHierarchyOptions
	if !as(&opts) {
		return errors.New("azure: internal error: no list request")
	}
	opts.Prefix = &prefix
	return nil
}

func nameAzure(o *blob.ListObject) (string, bool) {
	var raw container.BlobItem
	if !o.As(&raw) || raw.Name == nil {
		return "", false
	}
	if p := raw.Properties; p != nil && p.ResourceType != nil && *p.ResourceType == "directory" {
		return "", false // an account with a hierarchical namespace lists them
	}
	return *raw.Name, true
}
