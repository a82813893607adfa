package buckets

import (
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"delenda/storage"
	"delenda/storage/storagetest"
)

var azurite = sync.OnceValues(func() (string, error) {
	address, port, err := freeAddress()
	if err != nil {
		return "", err
	}
	env := []string{"AZURITE_ACCOUNTS=" + account + ":" + os.Getenv("AZURE_STORAGE_KEY")}
	return address, start(address, "node", env, os.Getenv(azuriteEnv),
		"--blobHost", "127.0.0.1", "--blobPort", port,
		"--inMemoryPersistence", "--skipApiVersionCheck", "--silent", "--disableTelemetry")
})

// azureURL makes a container on the server.
func azureURL(t *testing.T) string {
	t.Helper()
	address, err := azurite()
	if err != nil {
		t.Fatalf("start azurite: %v", err)
	}
	key, err := container.NewSharedKeyCredential(account, os.Getenv("AZURE_STORAGE_KEY"))
	if err != nil {
		t.Fatal(err)
	}
	name := bucketName()
	client, err := container.NewClientWithSharedKeyCredential("http://"+address+"/"+account+"/"+name, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Create(t.Context(), nil); err != nil {
		t.Fatalf("create container: %v", err)
	}
	return "azblob://" + name + "/deep/prefix?localemu=true&protocol=http&domain=" + address
}

func TestAzuriteConforms(t *testing.T) {
	need(t, azuriteEnv, "azurite")
	t.Parallel()
	storagetest.Bucket(t, func(t *testing.T) storage.Bucket { t.Helper(); return open(t, azureURL(t)) })
}

// TestAzuriteConformsBelowAPercentSign lets every key go through the raw
// client: the prefix holds what the portable one would rename.
func TestAzuriteConformsBelowAPercentSign(t *testing.T) {
	need(t, azuriteEnv, "azurite")
	t.Parallel()
	storagetest.Bucket(t, func(t *testing.T) storage.Bucket {
		t.Helper()
		return open(t, strings.Replace(azureURL(t), "/deep/prefix", "/ts=12%253A00/prefix", 1))
	})
}

func TestAzuriteHasOneWinnerAmongProcesses(t *testing.T) {
	need(t, azuriteEnv, "azurite")
	t.Parallel()
	storagetest.BucketProcesses(t, 200, azureURL, openURL)
}

func TestAzuriteSigns(t *testing.T) {
	need(t, azuriteEnv, "azurite")
	t.Parallel()
	b := open(t, azureURL(t))
	p, ok := b.Presigner()
	if !ok {
		t.Fatal("it does not sign")
	}
	storagetest.Presigner(t, b, p, storagetest.SignChecks{Signature: true, Expiry: true})
}
