package sharingtest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"delenda/sharing"
)

// presigned are the query parameters by which delta-kernel knows a URL that
// needs no credentials.
var presigned = []string{"x-amz-signature", "sp", "x-goog-credential", "x-oss-credential", "x-databricks-signature"}

// dvMagic begins the payload of a deletion vector.
const dvMagic = 1681511377

func files(t *testing.T, target Target, table Table) {
	t.Helper()
	r := target.do(t, request{method: http.MethodPost, path: table.path("/query"), body: "{}", header: capable(everything)})
	lines := r.lines(t)[2:]
	t.Run("every data file is read whole and in ranges", func(t *testing.T) {
		t.Parallel()
		for _, line := range lines {
			add := line.File.Action.Add
			whole := target.fetch(t, http.MethodGet, add.Path, "")
			if whole.status != http.StatusOK || int64(len(whole.body)) != add.SizeBytes || whole.header.Get("Content-Length") != fmt.Sprint(add.SizeBytes) {
				t.Fatalf("status %d, %d bytes, want %d", whole.status, len(whole.body), add.SizeBytes)
			}
			if !bytes.HasPrefix(whole.body, []byte("PAR1")) || !bytes.HasSuffix(whole.body, []byte("PAR1")) {
				t.Error("not a Parquet file")
			}
			if table.holdsRange(t, target, add.Path, whole.body) {
				continue
			}
			return
		}
	})
	t.Run("every URL looks pre-signed to clients, and is not the bearer token's", func(t *testing.T) {
		t.Parallel()
		for _, line := range lines {
			for _, text := range urls(line.File.Action.Add) {
				u, err := url.Parse(text)
				if err != nil || u.Scheme != "http" && u.Scheme != "https" {
					t.Fatal("not a URL")
				}
				known := false
				for name := range u.Query() {
					known = known || slices.Contains(presigned, strings.ToLower(name))
				}
				if !known || strings.Contains(text, target.Token) {
					t.Errorf("known %v", known)
				}
			}
		}
	})
	t.Run("a URL that was changed reads nothing", func(t *testing.T) {
		t.Parallel()
		if len(lines) == 0 {
			t.Skip("the table has no files")
		}
		text := lines[0].File.Action.Add.Path
		for i := len(text) - 30; i < len(text)-1; i += 7 {
			c := byte('A')
			if text[i] == c {
				c = 'B'
			}
			if got := target.fetch(t, http.MethodGet, text[:i]+string(c)+text[i+1:], ""); got.status < 400 {
				t.Errorf("status %d", got.status)
			}
		}
		for _, method := range []string{http.MethodPut, http.MethodDelete, http.MethodPost} {
			if got := target.fetch(t, method, text, ""); got.status < 400 {
				t.Errorf("%s: status %d", method, got.status)
			}
		}
	})
	t.Run("deletion vectors are where and what their descriptors say", func(t *testing.T) {
		t.Parallel()
		vectors := int64(0)
		seen := map[string]string{}
		for _, line := range lines {
			dv := line.File.Action.Add.DeletionVector
			if dv == nil {
				if line.File.DeletionVectorFileID != "" {
					t.Error("an id without a deletion vector")
				}
				continue
			}
			vectors++
			switch dv.StorageType {
			case "i":
				if line.File.DeletionVectorFileID != "" || dv.Offset != nil {
					t.Error("an inline deletion vector has an id or an offset")
				}
			case "p":
				if len(line.File.DeletionVectorFileID) != 64 {
					t.Error("a deletion vector on disk has no id")
				}
				if other, ok := seen[line.File.DeletionVectorFileID]; ok {
					t.Errorf("files %s and %s share the id of a deletion vector", other, line.File.ID)
				}
				seen[line.File.DeletionVectorFileID] = line.File.ID
				checkVector(t, target.fetch(t, http.MethodGet, dv.PathOrInlineDV, ""), dv)
			default:
				t.Errorf("storage type %q", dv.StorageType)
			}
		}
		if vectors != table.Vectors {
			t.Errorf("%d deletion vectors, want %d", vectors, table.Vectors)
		}
	})
}

func urls(add *sharing.AddFile) []string {
	all := []string{add.Path}
	if add.DeletionVector != nil && add.DeletionVector.StorageType == "p" {
		all = append(all, add.DeletionVector.PathOrInlineDV)
	}
	return all
}

// holdsRange reads parts of a file, as engines do.
func (table Table) holdsRange(t *testing.T, target Target, text string, whole []byte) bool {
	t.Helper()
	n := len(whole)
	for header, want := range map[string][]byte{
		"bytes=0-3":                          whole[:4],
		fmt.Sprintf("bytes=%d-%d", n/2, n-1): whole[n/2:],
		fmt.Sprintf("bytes=%d-", n-8):        whole[n-8:],
		"bytes=-8":                           whole[n-8:],
	} {
		got := target.fetch(t, http.MethodGet, text, header)
		if got.status != http.StatusPartialContent || !bytes.Equal(got.body, want) || got.header.Get("Content-Length") != fmt.Sprint(len(want)) {
			t.Errorf("%s: status %d, %d bytes", header, got.status, len(got.body))
			return false
		}
	}
	if got := target.fetch(t, http.MethodGet, text, fmt.Sprintf("bytes=%d-", n)); got.status != http.StatusRequestedRangeNotSatisfiable {
		t.Errorf("past the end: status %d", got.status)
	}
	head := target.fetch(t, http.MethodHead, text, "")
	// Stores that sign by method alone refuse a HEAD.
	if head.status == http.StatusOK && head.header.Get("Content-Length") != fmt.Sprint(n) {
		t.Errorf("HEAD: length %s, want %d", head.header.Get("Content-Length"), n)
	}
	return true
}

// checkVector decodes the frame of a deletion vector.
func checkVector(t *testing.T, r reply, dv *sharing.DeletionVector) {
	t.Helper()
	if r.status != http.StatusOK || len(r.body) == 0 || r.body[0] != 1 {
		t.Errorf("status %d, %d bytes", r.status, len(r.body))
		return
	}
	at, size := int64(1), int64(dv.SizeBytes)
	if dv.Offset != nil {
		at = int64(*dv.Offset)
	}
	if at+4+size+4 > int64(len(r.body)) {
		t.Errorf("%d bytes at %d do not fit into %d", size, at, len(r.body))
		return
	}
	frame := r.body[at:]
	payload := frame[4 : 4+size]
	if int64(binary.BigEndian.Uint32(frame)) != size || binary.LittleEndian.Uint32(payload) != dvMagic ||
		binary.BigEndian.Uint32(frame[4+size:]) != crc32.ChecksumIEEE(payload) {
		t.Error("size, magic or checksum is wrong")
	}
}

// fetch reads a pre-signed URL, without the bearer token.
func (target Target) fetch(t testing.TB, method, text, ranges string) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, text, http.NoBody)
	if err != nil {
		t.Fatal("a URL that cannot be requested")
	}
	if ranges != "" {
		req.Header.Set("Range", ranges)
	}
	r, err := target.send(req)
	if err != nil {
		t.Fatalf("a URL cannot be read: %d bytes of error", len(err.Error()))
	}
	return r
}
