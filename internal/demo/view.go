package demo

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"delenda/sharing/client"
	"delenda/storage"
)

// sampleRows is how many of the person's rows a view shows.
const sampleRows = 3

// view is what the recipient sees of the table at one version.
type view struct {
	version int64
	rows    int64
	subject int64          // rows of the person
	key     storage.Secret // the person's value as Arrow writes it
	others  fingerprint    // of every other row
	header  []string
	sample  [][]string // some of the person's rows
}

// fingerprint tells apart two collections of rows whatever their order: the sum
// of each row's hash.
type fingerprint [2]uint64

func (f *fingerprint) add(row []string) {
	h := sha256.New()
	for _, v := range row {
		_ = binary.Write(h, binary.BigEndian, int64(len(v)))
		_, _ = io.WriteString(h, v)
	}
	sum := h.Sum(nil)
	f[0] += binary.BigEndian.Uint64(sum)
	f[1] += binary.BigEndian.Uint64(sum[8:])
}

// look reads every row of a snapshot as a recipient does.
func look(ctx context.Context, s *client.Snapshot, column string, value storage.Secret) (*view, error) {
	v := &view{version: s.Version}
	for _, f := range s.Schema().Fields() {
		v.header = append(v.header, f.Name)
	}
	for batch, err := range s.Read(ctx, nil) {
		if err != nil {
			return nil, err
		}
		key, err := find(batch, column)
		if err != nil {
			return nil, err
		}
		for i := range int(batch.NumRows()) {
			row := make([]string, batch.NumCols())
			for c, values := range batch.Columns() {
				row[c] = values.ValueStr(i)
			}
			v.rows++
			if text, ok := canonical(key, i); ok && text == value.Reveal() {
				v.subject++
				v.key = storage.NewSecret(key.ValueStr(i))
				if len(v.sample) < sampleRows {
					v.sample = append(v.sample, row)
				}
			} else {
				v.others.add(row)
			}
		}
	}
	return v, nil
}

// find returns a column by its dotted path.
func find(batch arrow.RecordBatch, path string) (arrow.Array, error) {
	names := strings.Split(path, ".")
	at := batch.Schema().FieldIndices(names[0])
	if len(at) != 1 {
		return nil, fmt.Errorf("read share: the table has no single column %s", path)
	}
	values := batch.Column(at[0])
	for _, name := range names[1:] {
		s, ok := values.(*array.Struct)
		if !ok {
			return nil, fmt.Errorf("read share: column %s is no struct's member", path)
		}
		n, ok := s.DataType().(*arrow.StructType).FieldIdx(name)
		if !ok {
			return nil, fmt.Errorf("read share: the table has no column %s", path)
		}
		values = s.Field(n)
	}
	return values, nil
}

// canonical is a value in the text form that requests use, false for null and
// for types that requests cannot name.
func canonical(values arrow.Array, i int) (string, bool) {
	if values.IsNull(i) {
		return "", false
	}
	switch c := values.(type) {
	case *array.Int8:
		return strconv.FormatInt(int64(c.Value(i)), 10), true
	case *array.Int16:
		return strconv.FormatInt(int64(c.Value(i)), 10), true
	case *array.Int32:
		return strconv.FormatInt(int64(c.Value(i)), 10), true
	case *array.Int64:
		return strconv.FormatInt(c.Value(i), 10), true
	case *array.String:
		return c.Value(i), true
	case *array.Boolean:
		return strconv.FormatBool(c.Value(i)), true
	case *array.Binary:
		return hex.EncodeToString(c.Value(i)), true
	case *array.FixedSizeBinary:
		return hex.EncodeToString(c.Value(i)), true
	case *array.Date32:
		return c.Value(i).ToTime().Format(time.DateOnly), true
	case *array.Timestamp:
		layout := "2006-01-02T15:04:05.999999"
		if t, ok := c.DataType().(*arrow.TimestampType); ok && t.TimeZone != "" {
			layout += "Z"
		}
		return c.Value(i).ToTime(c.DataType().(*arrow.TimestampType).Unit).UTC().Format(layout), true
	case *array.Decimal128:
		return c.Value(i).ToString(c.DataType().(*arrow.Decimal128Type).Scale), true
	}
	return "", false
}

// print shows the view to a person who watches: counts and some of the rows.
func (v *view) print(out io.Writer, what string) {
	_, _ = fmt.Fprintf(out, "  version %d: %s rows, %s of them %s\n", v.version, thousands(v.rows), thousands(v.subject), what)
	if len(v.sample) == 0 {
		return
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	shown := min(len(v.header), 7)
	_, _ = fmt.Fprintln(w, "    "+strings.Join(v.header[:shown], "\t"))
	for _, row := range v.sample {
		cells := make([]string, shown)
		for i := range cells {
			cells[i] = shorten(row[i])
		}
		_, _ = fmt.Fprintln(w, "    "+strings.Join(cells, "\t"))
	}
	_ = w.Flush()
	if more := v.subject - int64(len(v.sample)); more > 0 {
		_, _ = fmt.Fprintf(out, "    … and %s more\n", thousands(more))
	}
}

// shorten keeps a table narrow.
func shorten(s string) string {
	const most = 32
	r := []rune(s)
	if len(r) <= most {
		return s
	}
	return string(r[:most-1]) + "…"
}

// thousands writes 15044 as 15,044.
func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
