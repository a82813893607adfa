package demo

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"

	"delenda/storage"
	"delenda/storage/delta"
)

// The person that the demo forgets.
const (
	subjectID    = 4711
	subjectName  = "Erika Mustermann"
	subjectEmail = "erika.mustermann@example.org"
)

// fragments says how many orders each data file holds, and how many of them
// are the person's: few, many, all, or none.
var fragments = []struct{ rows, subject int }{
	{28_000, 3}, {28_000, 40}, {28_000, 0}, {10_000, 10_000}, {28_000, 5_000}, {28_000, 0}, {25_000, 1}, {25_000, 0},
}

// Rows is how many orders the demo's table holds.
func Rows() int {
	n := 0
	for _, f := range fragments {
		n += f.rows
	}
	return n
}

const deltaSchema = `{"type":"struct","fields":[
{"name":"order_id","type":"long","nullable":false,"metadata":{}},
{"name":"customer_id","type":"long","nullable":true,"metadata":{}},
{"name":"customer","type":"string","nullable":true,"metadata":{}},
{"name":"email","type":"string","nullable":true,"metadata":{}},
{"name":"product","type":"string","nullable":true,"metadata":{}},
{"name":"amount","type":"decimal(10,2)","nullable":true,"metadata":{}},
{"name":"ordered_at","type":"timestamp","nullable":true,"metadata":{}}]}`

var (
	firstNames = []string{"Ada", "Alan", "Barbara", "Claude", "Donald", "Edsger", "Frances", "Grace", "Hedy", "Jean", "Joan", "Katherine", "Ken", "Leslie", "Margaret", "Niklaus", "Radia", "Shafi", "Sophie", "Tony"}
	lastNames  = []string{"Almeida", "Becker", "Costa", "Dubois", "Eriksen", "Fischer", "Garcia", "Haddad", "Ivanova", "Jansen", "Kowalska", "Lindberg", "Moreau", "Novak", "Okafor", "Papadopoulos", "Rossi", "Silva", "Tanaka", "Weber"}
	products   = []string{"coffee", "tea", "bread", "cheese", "apples", "olive oil", "chocolate", "newspaper", "flowers", "candles"}
)

// WriteTable makes the demo's table at the bucket's root: customers and their
// orders, the same at every call. progress, when not nil, is told of rows.
func WriteTable(ctx context.Context, b storage.Bucket, now func() time.Time, progress func(rows int)) (*delta.Table, error) {
	table, err := delta.Create(ctx, b, delta.Definition{Schema: deltaSchema, Name: "orders"}, &delta.Options{Now: now})
	if err != nil {
		return nil, fmt.Errorf("write demo table: %w", err)
	}
	random := rand.New(rand.NewPCG(1815, 1852)) //nolint:gosec // the demo's data is the same every time
	var files []delta.DataFile
	order := int64(1)
	for i, f := range fragments {
		var body bytes.Buffer
		if err := writeFragment(&body, random, order, f.rows, f.subject); err != nil {
			return nil, fmt.Errorf("write demo table: %w", err)
		}
		order += int64(f.rows)
		key := fmt.Sprintf("part-%05d.snappy.parquet", i)
		if err := b.Put(ctx, key, &body, storage.PutOptions{}); err != nil {
			return nil, fmt.Errorf("write demo table: %w", err)
		}
		files = append(files, delta.DataFile{Key: key})
		if progress != nil {
			progress(f.rows)
		}
	}
	if _, err := table.AppendFiles(ctx, files); err != nil {
		return nil, fmt.Errorf("write demo table: %w", err)
	}
	return table, nil
}

// orders are the rows of one data file, by column.
type orders struct {
	ids, customers    []int64
	names, emails     []parquet.ByteArray
	products          []parquet.ByteArray
	amounts, orderedA []int64
}

// writeFragment writes one data file whose rows begin with order number first;
// the person's rows lie evenly among the others.
func writeFragment(w *bytes.Buffer, random *rand.Rand, first int64, rows, subject int) error {
	o := orders{}
	start := time.Date(2024, 1, 1, 8, 0, 0, 0, time.UTC)
	for i := range rows {
		id := int64(1_000 + random.IntN(8_000))
		if id == subjectID {
			id++
		}
		name := firstNames[id%int64(len(firstNames))] + " " + lastNames[id/int64(len(firstNames))%int64(len(lastNames))]
		email := fmt.Sprintf("customer%d@example.org", id)
		if subject > 0 && i*subject/rows != (i+1)*subject/rows {
			id, name, email = subjectID, subjectName, subjectEmail
		}
		o.ids = append(o.ids, first+int64(i))
		o.customers = append(o.customers, id)
		o.names = append(o.names, parquet.ByteArray(name))
		o.emails = append(o.emails, parquet.ByteArray(email))
		o.products = append(o.products, parquet.ByteArray(products[random.IntN(len(products))]))
		o.amounts = append(o.amounts, int64(100+random.IntN(9_900)))
		o.orderedA = append(o.orderedA, start.Add(time.Duration(first+int64(i))*137*time.Second).UnixMicro())
	}
	return o.write(w)
}

func (o *orders) write(w *bytes.Buffer) error {
	fields, err := parquetFields()
	if err != nil {
		return err
	}
	root, err := schema.NewGroupNode("schema", parquet.Repetitions.Required, fields, -1)
	if err != nil {
		return err
	}
	out := file.NewParquetWriter(w, root, file.WithWriterProps(parquet.NewWriterProperties(parquet.WithCompression(compress.Codecs.Snappy))))
	group, err := out.AppendRowGroupChecked()
	if err != nil {
		return err
	}
	present := make([]int16, len(o.ids))
	for i := range present {
		present[i] = 1
	}
	for range fields {
		column, err := group.NextColumn()
		if err != nil {
			return err
		}
		if err := o.writeColumn(column, present); err != nil {
			return err
		}
		if err := column.Close(); err != nil {
			return err
		}
	}
	if err := group.Close(); err != nil {
		return err
	}
	return out.Close()
}

func (o *orders) writeColumn(column file.ColumnChunkWriter, present []int16) error {
	numbers := map[string][]int64{"order_id": o.ids, "customer_id": o.customers, "amount": o.amounts, "ordered_at": o.orderedA}
	texts := map[string][]parquet.ByteArray{"customer": o.names, "email": o.emails, "product": o.products}
	name := column.Descr().Name()
	var err error
	switch c := column.(type) {
	case *file.Int64ColumnChunkWriter:
		if column.Descr().MaxDefinitionLevel() == 0 {
			present = nil
		}
		_, err = c.WriteBatch(numbers[name], present, nil)
	case *file.ByteArrayColumnChunkWriter:
		_, err = c.WriteBatch(texts[name], present, nil)
	default:
		err = fmt.Errorf("column %s: no writer", name)
	}
	return err
}

func parquetFields() (schema.FieldList, error) {
	type field struct {
		name     string
		required bool
		logical  schema.LogicalType
		physical parquet.Type
	}
	var list schema.FieldList
	for _, f := range []field{
		{"order_id", true, schema.NoLogicalType{}, parquet.Types.Int64},
		{"customer_id", false, schema.NoLogicalType{}, parquet.Types.Int64},
		{"customer", false, schema.StringLogicalType{}, parquet.Types.ByteArray},
		{"email", false, schema.StringLogicalType{}, parquet.Types.ByteArray},
		{"product", false, schema.StringLogicalType{}, parquet.Types.ByteArray},
		{"amount", false, schema.NewDecimalLogicalType(10, 2), parquet.Types.Int64},
		{"ordered_at", false, schema.NewTimestampLogicalType(true, schema.TimeUnitMicros), parquet.Types.Int64},
	} {
		repetition := parquet.Repetitions.Optional
		if f.required {
			repetition = parquet.Repetitions.Required
		}
		n, err := schema.NewPrimitiveNodeLogical(f.name, repetition, f.logical, f.physical, 0, -1)
		if err != nil {
			return nil, err
		}
		list = append(list, n)
	}
	return list, nil
}
