package keeper

import (
	// The key services that a keeper URL may name: awskms://, gcpkms:// and
	// azurekeyvault://. Credentials come from the environment.
	_ "gocloud.dev/secrets/awskms"
	_ "gocloud.dev/secrets/azurekeyvault"
	_ "gocloud.dev/secrets/gcpkms"
)
