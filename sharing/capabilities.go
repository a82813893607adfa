package sharing

import (
	"slices"
	"strings"
)

// ResponseFormat names the form of an answer's lines.
type ResponseFormat string

// The response formats, as they stand in the header.
const (
	FormatParquet ResponseFormat = "parquet"
	FormatDelta   ResponseFormat = "delta"
)

// Reader features of Delta tables as they stand in the header: lower case.
const (
	FeatureDeletionVectors = "deletionvectors"
	FeatureColumnMapping   = "columnmapping"
	FeatureTimestampNTZ    = "timestampntz"
)

const (
	keyResponseFormat   = "responseformat"
	keyReaderFeatures   = "readerfeatures"
	keyIncludeEndStream = "includeendstreamaction"
	keyAsyncQuery       = "asyncquery"
)

// Capabilities is the content of the delta-sharing-capabilities header, in a
// request what the client can handle, in an answer what the server used. The
// zero value is an absent header: parquet format, no features.
type Capabilities struct {
	// Formats are the known response formats that were named, unique, in
	// order. Empty means that none was named or none of them is known:
	// UnknownFormat tells which.
	Formats []ResponseFormat
	// UnknownFormat tells that a response format was named that is not known.
	UnknownFormat bool
	// ReaderFeatures are lower case, sorted and unique. Names that are not
	// known are kept.
	ReaderFeatures         []string
	IncludeEndStreamAction bool
	AsyncQuery             bool
}

// ParseCapabilities reads the header, all of whose lines are given. It never
// fails: what it cannot read it ignores, as the protocol demands.
//
// Both forms are accepted, also mixed, with spaces anywhere around a mark:
//
//	responseformat=delta;readerfeatures=deletionvectors,columnmapping
//	responseFormat=delta,readerfeatures=deletionVectors,columnMapping
//
// In the second one, an item between commas that contains '=' starts a new
// capability. Keys and values compare without regard to case. Lists of a
// repeated key are joined; of a repeated boolean the last decides, and one that
// is not "true" is false. An item with two '=' is ignored with its list.
func ParseCapabilities(lines []string) Capabilities {
	var c Capabilities
	for _, line := range lines {
		for part := range strings.SplitSeq(strings.ToLower(line), ";") {
			key := ""
			for item := range strings.SplitSeq(part, ",") {
				k, v, found := strings.Cut(item, "=")
				if found {
					key = strings.TrimSpace(k)
					if strings.Contains(v, "=") {
						key = ""
					}
					item = v
				}
				c.add(key, strings.TrimSpace(item))
			}
		}
	}
	slices.Sort(c.ReaderFeatures)
	c.ReaderFeatures = slices.Compact(c.ReaderFeatures)
	return c
}

func (c *Capabilities) add(key, value string) {
	switch key {
	case keyResponseFormat:
		f := ResponseFormat(value)
		switch {
		case f != FormatDelta && f != FormatParquet:
			c.UnknownFormat = c.UnknownFormat || value != ""
		case !slices.Contains(c.Formats, f):
			c.Formats = append(c.Formats, f)
		}
	case keyReaderFeatures:
		if value != "" {
			c.ReaderFeatures = append(c.ReaderFeatures, value)
		}
	case keyIncludeEndStream:
		c.IncludeEndStreamAction = value == "true"
	case keyAsyncQuery:
		c.AsyncQuery = value == "true"
	}
}

// Accepts tells whether an answer may have format f. Without the header only
// parquet is accepted.
func (c Capabilities) Accepts(f ResponseFormat) bool {
	if len(c.Formats) == 0 && !c.UnknownFormat {
		return f == FormatParquet
	}
	return slices.Contains(c.Formats, f)
}

// Supports tells whether the reader feature is listed, whatever the case of
// its letters.
func (c Capabilities) Supports(feature string) bool {
	_, ok := slices.BinarySearch(c.ReaderFeatures, strings.ToLower(feature))
	return ok
}

// String formats the header in the form that every known client reads: lower
// case, ';' between capabilities and ',' between values. It is empty if there
// is nothing to say.
func (c Capabilities) String() string {
	var parts []string
	if len(c.Formats) > 0 {
		names := make([]string, len(c.Formats))
		for i, f := range c.Formats {
			names[i] = string(f)
		}
		parts = append(parts, keyResponseFormat+"="+strings.Join(names, ","))
	}
	if len(c.ReaderFeatures) > 0 {
		parts = append(parts, keyReaderFeatures+"="+strings.ToLower(strings.Join(c.ReaderFeatures, ",")))
	}
	if c.IncludeEndStreamAction {
		parts = append(parts, keyIncludeEndStream+"=true")
	}
	if c.AsyncQuery {
		parts = append(parts, keyAsyncQuery+"=true")
	}
	return strings.Join(parts, ";")
}
