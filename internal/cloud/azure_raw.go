package cloud

import (
	"context"
	"io"
	"iter"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	azblobs "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"delenda/storage"
)

const (
	azureBlockBytes = 8 << 20 // of an upload that does not fit into one request
	azureBlocks     = 4       // in memory at a time
)

// rawAzure reaches blobs by the names they have. Its errors are the SDK's.
type rawAzure struct{ container *container.Client }

func (r *rawAzure) Stat(ctx context.Context, key string) (storage.Info, error) {
	p, err := r.container.NewBlobClient(key).GetProperties(ctx, nil)
	if err != nil {
		return storage.Info{}, err
	}
	info := storage.Info{Key: key}
	if p.ContentLength != nil {
		info.SizeBytes = *p.ContentLength
	}
	if p.LastModified != nil {
		info.ModTime = *p.LastModified
	}
	return info, nil
}

func (r *rawAzure) Read(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	opts := &azblobs.DownloadStreamOptions{Range: azblobs.HTTPRange{Offset: offset}}
	if length > 0 {
		opts.Range.Count = length
	}
	resp, err := r.container.NewBlobClient(key).DownloadStream(ctx, opts)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

func (r *rawAzure) Put(ctx context.Context, key string, body io.Reader, opts storage.PutOptions) error {
	upload := &blockblob.UploadStreamOptions{
		BlockSize:   azureBlockBytes,
		Concurrency: azureBlocks,
		HTTPHeaders: &azblobs.HTTPHeaders{BlobContentType: &opts.ContentType},
	}
	if opts.IfAbsent {
		any := azcore.ETagAny
		upload.AccessConditions = &azblobs.AccessConditions{
			ModifiedAccessConditions: &azblobs.ModifiedAccessConditions{IfNoneMatch: &any},
		}
	}
	_, err := r.container.NewBlockBlobClient(key).UploadStream(ctx, body, upload)
	return err
}

func (r *rawAzure) Delete(ctx context.Context, key string) error {
	_, err := r.container.NewBlobClient(key).Delete(ctx, nil)
	return err
}

// List is not used: the portable part lists every name.
func (r *rawAzure) List(context.Context, string, string) iter.Seq2[storage.Info, error] {
	return func(func(storage.Info, error) bool) {}
}
