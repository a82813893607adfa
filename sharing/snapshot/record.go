package snapshot

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"

	"delenda/storage"
)

// The files of a manifest are records, one after the other until the end:
//
//	1      version of the record: 1
//	uvarint + bytes   path as it stands in the log
//	uvarint + bytes   id of the deletion vector's file, empty for none on disk
//	uvarint + bytes   key of the deletion vector's file in the table, empty for none on disk
//	uvarint           live rows plus 1; 0 if not known
//	uvarint + bytes   delta format: what follows the data file's URL in the add, up to its end or to the URL of its deletion vector
//	uvarint + bytes   delta format: what follows the URL of the deletion vector, empty for none on disk
//	uvarint + bytes   parquet format: what follows the data file's URL, empty if the file has a deletion vector
const recordVersion = 1

// maxFieldBytes bounds one field: statistics of wide tables and inline
// deletion vectors fit many times over.
const maxFieldBytes = 64 << 20

type record struct {
	path        string
	dvID, dvKey string
	rows        int64 // live; -1 unknown
	addTail     []byte
	dvTail      []byte
	parquetTail []byte
}

func (r *record) appendTo(p []byte) []byte {
	p = append(p, recordVersion)
	p = appendField(p, r.path)
	p = appendField(p, r.dvID)
	p = appendField(p, r.dvKey)
	p = binary.AppendUvarint(p, uint64(max(0, r.rows+1)))
	p = appendField(p, r.addTail)
	p = appendField(p, r.dvTail)
	return appendField(p, r.parquetTail)
}

func appendField[T string | []byte](p []byte, field T) []byte {
	p = binary.AppendUvarint(p, uint64(len(field)))
	return append(p, field...)
}

// recordReader reads records; its buffers are reused by each call of next.
type recordReader struct {
	r     *bufio.Reader
	name  string
	n     int64
	texts [3][]byte

	presigned bool // URLs follow each record
}

func newRecordReader(r io.Reader, name string) *recordReader {
	return &recordReader{r: bufio.NewReaderSize(r, 32<<10), name: name}
}

// next fills rec; its byte slices are valid until the next call. io.EOF stands
// after the last record.
func (d *recordReader) next(rec *record) error {
	version, err := d.r.ReadByte()
	if err != nil {
		return err // io.EOF between records is the end
	}
	if version != recordVersion {
		return d.corrupt("version", "unknown")
	}
	for i, into := range []*string{&rec.path, &rec.dvID, &rec.dvKey} {
		if d.texts[i], err = d.field(d.texts[i], "text", maxFieldBytes); err != nil {
			return err
		}
		if *into != string(d.texts[i]) {
			*into = string(d.texts[i])
		}
	}
	rows, err := binary.ReadUvarint(d.r)
	if err != nil {
		return d.fail("rows", err)
	}
	if rows > 1<<62 {
		return d.corrupt("rows", "out of range")
	}
	rec.rows = int64(rows) - 1
	for _, into := range []*[]byte{&rec.addTail, &rec.dvTail, &rec.parquetTail} {
		if *into, err = d.field(*into, "tail", maxFieldBytes); err != nil {
			return err
		}
	}
	if rec.path == "" || len(rec.addTail) == 0 || (rec.dvKey == "") != (len(rec.dvTail) == 0) {
		return d.corrupt("record", "incomplete")
	}
	d.n++
	return nil
}

func (d *recordReader) field(buf []byte, name string, most uint64) ([]byte, error) {
	n, err := binary.ReadUvarint(d.r)
	if err != nil {
		return nil, d.fail(name, err)
	}
	if n > most {
		return nil, d.corrupt(name, "longer than allowed")
	}
	buf = buf[:0]
	left := int(n) //nolint:gosec // at most maxFieldBytes
	for left > 0 { // grows with what is there, not with what is claimed
		part, err := d.r.Peek(min(left, d.r.Size()))
		if err != nil {
			return nil, d.fail(name, err)
		}
		buf = append(buf, part...)
		_, _ = d.r.Discard(len(part))
		left -= len(part)
	}
	return buf, nil
}

// fail keeps the errors of the store below, and names those of the encoding.
func (d *recordReader) fail(field string, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return d.corrupt(field, "cut off")
	}
	return err
}

func (d *recordReader) corrupt(field, reason string) error {
	return &storage.CorruptError{Key: d.name, Offset: d.n, Field: field, Reason: reason}
}
