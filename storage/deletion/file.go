package deletion

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"math"

	"delenda/storage"
)

// Deletion vector file ("Deletion Vector File Storage Format"):
//
//	0       u8      format version 1
//	repeat  i32 BE  size of the payload    <- Descriptor.Offset
//	        payload
//	        i32 BE  CRC-32 (IEEE) of the payload
const (
	fileVersion   = 1
	frameOverhead = 8
)

// FileWriter packs deletion vectors into one file. The zero value is ready.
type FileWriter struct{ buf []byte }

// Append adds a deletion vector and returns where it lies.
func (w *FileWriter) Append(s *Set) (Placement, error) {
	if len(w.buf) == 0 {
		w.buf = append(w.buf, fileVersion)
	}
	payload := EncodeDelta(s)
	if int64(len(w.buf))+int64(len(payload))+frameOverhead > math.MaxInt32 {
		return Placement{}, errors.New("append deletion vector: file would exceed 2 GiB")
	}
	at := Placement{Offset: int32(len(w.buf)), SizeInBytes: int32(len(payload))} //nolint:gosec // below 2 GiB, as checked
	w.buf = binary.BigEndian.AppendUint32(w.buf, uint32(len(payload)))           //nolint:gosec // below 2 GiB, as checked
	w.buf = append(w.buf, payload...)
	w.buf = binary.BigEndian.AppendUint32(w.buf, crc32.ChecksumIEEE(payload))
	return at, nil
}

// Len returns the length of the file so far in bytes.
func (w *FileWriter) Len() int { return len(w.buf) }

// Bytes returns the file. It aliases the writer's buffer.
func (w *FileWriter) Bytes() []byte { return w.buf }

// Frames yields the payloads of a deletion vector file in order, checked
// against their checksums. They alias file. After an error it ends.
func Frames(file []byte) iter.Seq2[Frame, error] {
	return func(yield func(Frame, error) bool) {
		if len(file) == 0 || file[0] != fileVersion {
			yield(Frame{}, (&fault{0, "format version", "is not 1"}).corrupt("", 0))
			return
		}
		for pos := 1; pos < len(file); {
			payload, f := frame(file[pos:])
			if f != nil {
				yield(Frame{}, f.corrupt("", int64(pos)))
				return
			}
			at := Placement{Offset: int32(pos), SizeInBytes: int32(len(payload))} //nolint:gosec // the size of the frame is bounded
			if !yield(Frame{at, payload}, nil) {
				return
			}
			pos += len(payload) + frameOverhead
		}
	}
}

// Frame is one deletion vector of a file.
type Frame struct {
	Placement Placement
	Payload   []byte
}

// frame returns the payload of the frame at the start of p.
func frame(p []byte) ([]byte, *fault) {
	if len(p) < 4 {
		return nil, &fault{0, "size", "truncated"}
	}
	size := int64(binary.BigEndian.Uint32(p))
	if size > math.MaxInt32 || size > int64(len(p))-frameOverhead {
		return nil, &fault{0, "size", "past the end"}
	}
	payload := p[4 : 4+size]
	if binary.BigEndian.Uint32(p[4+size:]) != crc32.ChecksumIEEE(payload) {
		return nil, &fault{4 + size, "checksum", "differs from the payload"}
	}
	return payload, nil
}

// Read returns the rows of the deletion vector that d describes, for a data
// file of physicalRows rows (-1 if unknown). b is rooted at the table. An
// absolute path (storage type p) is refused: resolve it and use ReadAt.
//
// Bytes that disagree with d or the specification are storage.ErrCorrupt; a
// missing file is storage.ErrNotFound.
func Read(ctx context.Context, b storage.Bucket, d Descriptor, physicalRows int64) (*Set, error) {
	key, err := d.Resolve("")
	if err != nil {
		return nil, err
	}
	return ReadAt(ctx, b, key, d, physicalRows)
}

// ReadAt is Read with the key of the file given; key is ignored for an inline
// vector.
func ReadAt(ctx context.Context, b storage.Bucket, key string, d Descriptor, physicalRows int64) (*Set, error) {
	if d.SizeInBytes < 0 || d.Cardinality < 0 || int64(d.SizeInBytes) > maxPayload(physicalRows) {
		return nil, d.corrupt("sizeInBytes", "out of range for the data file")
	}
	if d.StorageType == StorageInline {
		return decodeInline(d, physicalRows)
	}
	offset := int64(1) // readers disagree about an absent offset; 0 is the version byte
	if d.Offset != nil {
		offset = int64(*d.Offset)
	}
	if offset < 1 {
		return nil, d.corrupt("offset", "not past the version byte")
	}
	p, err := readRange(ctx, b, key, offset, int64(d.SizeInBytes)+frameOverhead)
	if err != nil {
		return nil, err
	}
	payload, f := frame(p)
	if f == nil && len(payload) != int(d.SizeInBytes) {
		f = &fault{0, "size", "differs from the descriptor"}
	}
	if f != nil {
		return nil, f.corrupt(key, offset)
	}
	s, f := decodeDelta(payload, d.Cardinality, physicalRows)
	if f != nil {
		return nil, f.corrupt(key, offset+4)
	}
	return s, nil
}

func readRange(ctx context.Context, b storage.Bucket, key string, offset, length int64) ([]byte, error) {
	r, err := b.Read(ctx, key, offset, length)
	if err != nil {
		return nil, fmt.Errorf("read deletion vector: %w", err)
	}
	p, err := io.ReadAll(io.LimitReader(r, length))
	if cerr := r.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, fmt.Errorf("read deletion vector %q: %w", key, err)
	}
	return p, nil
}

func decodeInline(d Descriptor, physicalRows int64) (*Set, error) {
	if d.SizeInBytes == 0 && d.PathOrInlineDV == "" && d.Cardinality == 0 {
		return &Set{}, nil // how Spark writes the empty vector
	}
	p, err := DecodeZ85(d.PathOrInlineDV)
	if err != nil {
		return nil, d.corrupt("pathOrInlineDv", err.Error())
	}
	if pad := len(p) - int(d.SizeInBytes); pad < 0 || pad > 3 {
		return nil, d.corrupt("sizeInBytes", "differs from the inline vector")
	}
	return DecodeDelta(p[:d.SizeInBytes], d.Cardinality, physicalRows)
}

// maxPayload bounds the payload for a data file of so many rows: in the worst
// case every block of 65536 rows is a container of runs, and every bucket of
// 2^32 rows has a header. It is a cap against absurd sizes, not a tight bound.
func maxPayload(physicalRows int64) int64 {
	if physicalRows < 0 {
		return math.MaxInt32
	}
	const maxContainer = 2 + 4*(1<<15) + 8 + 1
	blocks := physicalRows>>16 + 1
	if blocks > math.MaxInt32/maxContainer {
		return math.MaxInt32
	}
	return 64 + blocks*maxContainer
}
