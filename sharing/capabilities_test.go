package sharing_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"delenda/sharing"
)

func TestParseCapabilities(t *testing.T) {
	t.Parallel()
	both := sharing.Capabilities{
		Formats:        []sharing.ResponseFormat{sharing.FormatDelta},
		ReaderFeatures: []string{"columnmapping", "deletionvectors"},
	}
	tests := map[string]struct {
		lines []string
		want  sharing.Capabilities
	}{
		"an absent header is the zero value": {nil, sharing.Capabilities{}},
		"an empty header is the zero value":  {[]string{""}, sharing.Capabilities{}},
		"the founding document's header is understood verbatim": {
			[]string{"responseFormat=delta,readerfeatures=deletionVectors,columnMapping"}, both,
		},
		"semicolons separate capabilities": {
			[]string{"responseformat=delta;readerfeatures=deletionvectors,columnmapping"}, both,
		},
		"spaces around every mark are trimmed": {
			[]string{" responseformat = delta ; readerfeatures = deletionvectors , columnmapping "}, both,
		},
		"repeated header lines are merged": {
			[]string{"responseformat=delta", "readerfeatures=deletionvectors", "readerfeatures=columnmapping"}, both,
		},
		"both formats keep their order": {
			[]string{"responseformat=parquet,delta"},
			sharing.Capabilities{Formats: []sharing.ResponseFormat{sharing.FormatParquet, sharing.FormatDelta}},
		},
		"an unknown format is told apart from none": {
			[]string{"responseformat=avro"}, sharing.Capabilities{UnknownFormat: true},
		},
		"an unknown format beside a known one leaves the known one": {
			[]string{"responseformat=avro,delta"},
			sharing.Capabilities{Formats: []sharing.ResponseFormat{sharing.FormatDelta}, UnknownFormat: true},
		},
		"unknown reader features are kept": {
			[]string{"readerfeatures=variantType-preview,deletionVectors,deletionvectors"},
			sharing.Capabilities{ReaderFeatures: []string{"deletionvectors", "varianttype-preview"}},
		},
		"unknown capabilities and their values are ignored": {
			[]string{"colour=red,green;responseformat=delta;flag;=;x="},
			sharing.Capabilities{Formats: []sharing.ResponseFormat{sharing.FormatDelta}},
		},
		"booleans are read whatever their case": {
			[]string{"includeEndStreamAction=True;asyncquery=TRUE"},
			sharing.Capabilities{IncludeEndStreamAction: true, AsyncQuery: true},
		},
		"a bad boolean is false": {
			[]string{"includeendstreamaction=yes;asyncquery=1"}, sharing.Capabilities{},
		},
		"an item with two equal signs is ignored with its list": {
			[]string{"responseformat=readerfeatures=delta,parquet;readerfeatures=columnmapping"},
			sharing.Capabilities{ReaderFeatures: []string{"columnmapping"}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := sharing.ParseCapabilities(test.lines)
			if diff := cmp.Diff(test.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestCapabilitiesAccepts(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		header         string
		delta, parquet bool
	}{
		"no header accepts parquet only":       {"", false, true},
		"delta alone refuses parquet":          {"responseformat=delta", true, false},
		"both are accepted":                    {"responseformat=delta,parquet", true, true},
		"features without format mean parquet": {"readerfeatures=deletionvectors", false, true},
		"an unknown format accepts nothing":    {"responseformat=avro", false, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := sharing.ParseCapabilities([]string{test.header})
			if got := c.Accepts(sharing.FormatDelta); got != test.delta {
				t.Errorf("delta: got %v", got)
			}
			if got := c.Accepts(sharing.FormatParquet); got != test.parquet {
				t.Errorf("parquet: got %v", got)
			}
		})
	}
}

func TestCapabilitiesString(t *testing.T) {
	t.Parallel()
	c := sharing.Capabilities{
		Formats:                []sharing.ResponseFormat{sharing.FormatDelta},
		ReaderFeatures:         []string{"deletionVectors"},
		IncludeEndStreamAction: true,
	}
	want := "responseformat=delta;readerfeatures=deletionvectors;includeendstreamaction=true"
	if got := c.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if !sharing.ParseCapabilities([]string{want}).Supports("DeletionVectors") {
		t.Error("a feature is found whatever the case of its letters")
	}
}

func FuzzParseCapabilities(f *testing.F) {
	f.Add("responseFormat=delta,readerfeatures=deletionVectors,columnMapping")
	f.Add("responseformat=delta,parquet;readerfeatures=deletionvectors;includeendstreamaction=true")
	f.Add("a=b=c,d;;=,=;responseformat=x")
	f.Fuzz(func(t *testing.T, line string) {
		c := sharing.ParseCapabilities([]string{line})
		c.UnknownFormat = false
		again := sharing.ParseCapabilities([]string{c.String()})
		if diff := cmp.Diff(c, again, cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
	})
}
