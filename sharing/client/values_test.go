package client_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"delenda/sharing/client"
)

// value is a cell as JSON would hold it: numbers exact, decimals, dates and
// times as text, binary as base64.
func value(t *testing.T, a arrow.Array, i int) any {
	t.Helper()
	if a.IsNull(i) {
		return nil
	}
	switch a := a.(type) {
	case *array.Null:
		return nil
	case *array.Struct:
		out := map[string]any{}
		st := a.DataType().(*arrow.StructType)
		for f := range st.NumFields() {
			out[st.Field(f).Name] = value(t, a.Field(f), i)
		}
		return out
	case *array.Map:
		from, to := a.ValueOffsets(i)
		out := map[string]any{}
		for j := from; j < to; j++ {
			out[fmt.Sprint(value(t, a.Keys(), int(j)))] = value(t, a.Items(), int(j))
		}
		return out
	case *array.List:
		from, to := a.ValueOffsets(i)
		out := []any{}
		for j := from; j < to; j++ {
			out = append(out, value(t, a.ListValues(), int(j)))
		}
		return out
	case *array.String:
		return a.Value(i)
	case *array.Binary:
		return base64.StdEncoding.EncodeToString(a.Value(i))
	case *array.Boolean:
		return a.Value(i)
	case *array.Date32:
		return a.Value(i).ToTime().Format("2006-01-02")
	case *array.Timestamp:
		return a.Value(i).ToTime(arrow.Microsecond).Format("2006-01-02 15:04:05.000000")
	case *array.Decimal128:
		return a.Value(i).ToString(a.DataType().(*arrow.Decimal128Type).Scale)
	case *array.Int8, *array.Int16, *array.Int32, *array.Int64:
		return json.Number(a.ValueStr(i))
	case *array.Float32, *array.Float64:
		return json.Number(a.ValueStr(i))
	}
	t.Fatalf("no value of %s", a.DataType())
	return nil
}

// rows reads a snapshot whole.
func rows(t *testing.T, s *client.Snapshot, o *client.ReadOptions) []map[string]any {
	t.Helper()
	var out []map[string]any
	for batch, err := range s.Read(t.Context(), o) {
		if err != nil {
			t.Fatal(err)
		}
		for i := range int(batch.NumRows()) {
			row := map[string]any{}
			for c, field := range batch.Schema().Fields() {
				row[field.Name] = value(t, batch.Column(c), i)
			}
			out = append(out, row)
		}
	}
	return out
}

// wantRows reads what the writer of a foreign table says is in it.
func wantRows(t *testing.T, table string) []map[string]any {
	t.Helper()
	text, err := os.ReadFile(foreign(t, table+".rows.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var out []map[string]any
	for line := range strings.Lines(string(text)) {
		d := json.NewDecoder(strings.NewReader(line))
		d.UseNumber()
		row := map[string]any{}
		if err := d.Decode(&row); err != nil {
			t.Fatal(err)
		}
		out = append(out, row)
	}
	return out
}

// sorted orders rows by customer_id.
func sorted(rows []map[string]any) []map[string]any {
	number := func(row map[string]any) *big.Float {
		f, _, _ := big.ParseFloat(fmt.Sprint(row["customer_id"]), 10, 200, big.ToNearestEven)
		return f
	}
	slices.SortFunc(rows, func(a, b map[string]any) int { return number(a).Cmp(number(b)) })
	return rows
}
