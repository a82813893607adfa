package client

import (
	"net/http"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"delenda/sharing"
)

// FuzzReadAnswer: whatever a server sends, the client neither panics nor gives
// a part of an answer with an error, and a snapshot that it accepts has a log.
func FuzzReadAnswer(f *testing.F) {
	f.Add("responseformat=delta", `{"protocol":{"deltaProtocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["deletionVectors"],"writerFeatures":["deletionVectors"]}}}
{"metaData":{"deltaMetadata":{"id":"m","format":{"provider":"parquet"},"schemaString":"{\"type\":\"struct\",\"fields\":[{\"name\":\"a\",\"type\":\"long\",\"nullable\":true,\"metadata\":{}}]}","partitionColumns":[],"configuration":{}}}}
{"file":{"id":"f","deletionVectorFileId":"d","expirationTimestamp":5,"deltaSingleAction":{"add":{"path":"https://h/f?a=1","partitionValues":{"p":null},"size":4096,"modificationTime":1,"dataChange":true,"deletionVector":{"storageType":"p","pathOrInlineDv":"https://h/d","offset":1,"sizeInBytes":34,"cardinality":2}}}}}
{"endStreamAction":{"refreshToken":"r"}}
`)
	f.Add("", `{"protocol":{"minReaderVersion":1}}
{"metaData":{"id":"m","format":{"provider":"parquet"},"schemaString":"{\"type\":\"struct\",\"fields\":[]}","partitionColumns":[]}}
{"file":{"url":"https://h/f","id":"a b","partitionValues":{},"size":9}}`)
	c, err := New(sharing.Profile{Endpoint: "https://h"}, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, capabilitiesHeader, body string) {
		h := http.Header{}
		h.Set(sharing.HeaderTableVersion, "7")
		h.Set(sharing.HeaderCapabilities, capabilitiesHeader)
		a, err := c.readAnswer(h, strings.NewReader(body), capabilities)
		if err != nil {
			if a != nil {
				t.Fatal("a partial answer with an error")
			}
			return
		}
		s, err := newSnapshot(c, sharing.Table{}, QueryOptions{}, &a.answer)
		if err == nil && (len(s.fs.log) == 0 || len(s.files) != len(a.files)) {
			t.Error("the snapshot is not the answer")
		}
	})
}

// FuzzPartitionValue: a text is refused or gives a column of the type.
func FuzzPartitionValue(f *testing.F) {
	for _, text := range []string{"", "1", "-0.5", "true", "2020-01-01", "2020-01-01 00:00:00.5", "NaN", "-Infinity", "1e400"} {
		f.Add(text)
	}
	types := []arrow.DataType{&arrow.Decimal128Type{Precision: 9, Scale: 2}}
	for _, t := range primitives {
		types = append(types, t)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, want := range types {
			got, err := constant(memory.DefaultAllocator, want, &text, 3)
			if err != nil {
				continue
			}
			if got.Len() != 3 || !arrow.TypeEqual(got.DataType(), want) {
				t.Errorf("got %d of %s, want %s", got.Len(), got.DataType(), want)
			}
			got.Release()
		}
	})
}
