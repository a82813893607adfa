package sharing_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"delenda/sharing"
)

func decodeAll(d *sharing.Decoder) ([]sharing.Line, error) {
	var lines []sharing.Line
	for {
		line, err := d.Next()
		if errors.Is(err, io.EOF) {
			return lines, nil
		}
		if err != nil {
			return lines, err
		}
		lines = append(lines, line)
	}
}

const answer = `{"protocol":{"deltaProtocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["deletionVectors"],"writerFeatures":["deletionVectors"]}}}
{"metaData":{"deltaMetadata":{"id":"m","format":{"provider":"parquet","options":{}},"schemaString":"{}","partitionColumns":[],"configuration":{"a":"b"},"createdTime":1},"size":4096,"numFiles":1}}
{"file":{"id":"f","deletionVectorFileId":"d","expirationTimestamp":5,"deltaSingleAction":{"add":{"path":"https://h/f?a=1&b=2","partitionValues":{"p":null},"size":4096,"modificationTime":1,"dataChange":true,"stats":"{\"numRecords\":100}","deletionVector":{"storageType":"p","pathOrInlineDv":"https://h/d?a=1&b=2","offset":1,"sizeInBytes":34,"cardinality":2}}}}}
{"file":{"url":"https://h/g?a=1&b=2","id":"g","partitionValues":{},"size":7,"stats":"{}"}}
{"endStreamAction":{"refreshToken":"r","minUrlExpirationTimestamp":5}}
`

func TestDecoderReadsAnAnswer(t *testing.T) {
	t.Parallel()
	lines, err := decodeAll(sharing.NewDecoder(iotest.OneByteReader(strings.NewReader(answer)), 0))
	if err != nil {
		t.Fatal(err)
	}
	if len(lines) != 5 {
		t.Fatalf("got %d lines", len(lines))
	}
	dv := lines[2].File.Action.Add.DeletionVector
	if dv.StorageType != "p" || *dv.Offset != 1 || dv.Cardinality != 2 {
		t.Errorf("got %+v", dv)
	}
	if v, ok := lines[2].File.Action.Add.PartitionValues["p"]; !ok || v != nil {
		t.Error("a null partition value is kept as null")
	}
	var out bytes.Buffer
	enc := sharing.NewEncoder(&out)
	for _, line := range lines {
		if err := enc.Encode(line); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.Contains(out.String(), "a=1&b=2") {
		t.Error("URLs are written as they are")
	}
	again, err := decodeAll(sharing.NewDecoder(&out, 0))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(lines, again, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
}

func TestDecoder(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		in      string
		lines   int
		skipped int64
		err     string
	}{
		"an empty answer has no lines":             {in: ""},
		"blank lines are skipped":                  {in: "\n \r\n{\"protocol\":{}}\r\n\n", lines: 1},
		"a last line without an end counts":        {in: `{"protocol":{}}`, lines: 1},
		"unknown lines are skipped and counted":    {in: `{"queryStatus":{"x":1}}` + "\n" + `{"protocol":{}}` + "\n" + `{}`, lines: 1, skipped: 2},
		"unknown members are ignored":              {in: `{"protocol":{"minReaderVersion":1,"x":{"y":[1]}},"z":1}`, lines: 1},
		"a truncated line is an error":             {in: "{\"protocol\":{}}\n{\"file\":{\"id\":\"sesame", lines: 1, err: "line 2: not JSON at byte"},
		"what is no object is an error":            {in: `["sesame"]`, err: "line 1: wrong type"},
		"a wrong type names line and field":        {in: "\n{\"file\":{\"id\":17}}", err: "line 2: file.id: wrong type"},
		"a number that does not fit names a field": {in: `{"file":{"size":1e99}}`, err: "file.size"},
		"two members are an error":                 {in: `{"file":{"id":"sesame"},"protocol":{}}`, err: "line 1: more than one"},
		"a line above the bound is an error":       {in: "{\"protocol\":{}}\n" + strings.Repeat("x", 2000), lines: 1, err: "line 2: longer than 1000 bytes"},
		"two objects on one line are an error":     {in: `{"protocol":{}}{"protocol":{}}`, err: "not JSON at byte"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := sharing.NewDecoder(strings.NewReader(test.in), 1000)
			lines, err := decodeAll(d)
			if len(lines) != test.lines || d.Skipped() != test.skipped {
				t.Errorf("got %d lines, %d skipped", len(lines), d.Skipped())
			}
			if test.err == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Fatalf("got error %v, want one with %q", err, test.err)
			}
			if strings.Contains(err.Error(), "sesame") {
				t.Errorf("the error carries content: %v", err)
			}
		})
	}
}

func TestDecoderReadsLongLines(t *testing.T) {
	t.Parallel()
	schema := strings.Repeat("s", 3<<20)
	var buf bytes.Buffer
	line := sharing.Line{MetaData: &sharing.MetaDataLine{SchemaString: schema}}
	if err := sharing.NewEncoder(&buf).Encode(line); err != nil {
		t.Fatal(err)
	}
	got, err := sharing.NewDecoder(&buf, 0).Next()
	if err != nil {
		t.Fatal(err)
	}
	if got.MetaData.SchemaString != schema {
		t.Error("the line is not what was written")
	}
}

func TestDecoderReportsTheReadersError(t *testing.T) {
	t.Parallel()
	_, err := sharing.NewDecoder(iotest.ErrReader(io.ErrUnexpectedEOF), 0).Next()
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
}

func TestEncoderRefusesLinesWithoutExactlyOneMember(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	enc := sharing.NewEncoder(&out)
	two := sharing.Line{Protocol: &sharing.ProtocolLine{}, File: &sharing.FileLine{}}
	if enc.Encode(sharing.Line{}) == nil || enc.Encode(two) == nil || out.Len() != 0 {
		t.Error("a bad line was written")
	}
}

func FuzzDecoder(f *testing.F) {
	f.Add([]byte(answer))
	f.Add([]byte("{\"file\":{\"id\":17}}\n\n{}"))
	f.Fuzz(func(t *testing.T, in []byte) {
		lines, _ := decodeAll(sharing.NewDecoder(bytes.NewReader(in), 1<<16))
		var out bytes.Buffer
		enc := sharing.NewEncoder(&out)
		for _, line := range lines {
			if err := enc.Encode(line); err != nil {
				t.Fatal(err)
			}
		}
		again, err := decodeAll(sharing.NewDecoder(&out, 0))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(lines, again, cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
	})
}
