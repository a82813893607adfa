package delta

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"strconv"

	"delenda/storage"
	"delenda/storage/deletion"
	"delenda/storage/delta/log"
)

// change is what a commit does to one file.
type change struct {
	hit     *hit
	hidden  *deletion.Set // nil when the file is dropped
	result  storage.FragmentResult
	vector  *deletion.Descriptor // of hidden, once written
	restate string               // statistics of the new add
}

// changes applies the approved subjects' rows to the files of the plan. Files
// of which nothing new is hidden are not among them.
func (p *plan) changes(held []bool) []*change {
	var out []*change
	for _, h := range p.hits {
		var union *deletion.Set
		all := false
		for i := range h.matches {
			m := &h.matches[i]
			switch {
			case held[m.subject]:
			case m.all:
				all = true
			case union == nil:
				union = m.rows
			default:
				union = union.Union(m.rows)
			}
		}
		before := h.old.Cardinality()
		c := &change{hit: h, result: storage.FragmentResult{Fragment: path.Base(h.add.Path), PhysicalRows: h.physical}}
		if !all {
			if union == nil {
				continue
			}
			c.hidden = union.Union(h.old)
			all = c.hidden.Cardinality() == h.physical
		}
		if all {
			c.hidden = nil
			c.result.Outcome, c.result.RowsHidden = storage.Dropped, h.physical
		} else {
			c.result.Outcome, c.result.RowsHidden = c.hidden.Kind(), c.hidden.Cardinality()
		}
		if c.result.RowsDeleted = c.result.RowsHidden - before; c.result.RowsDeleted == 0 {
			continue
		}
		out = append(out, c)
	}
	return out
}

// maxVectorFile keeps a deletion vector file below the reach of its offsets.
const maxVectorFile = 1 << 30

// writeVectors writes all deletion vectors of the changes into one file and
// sets their descriptors. The file's name derives from the batch and from its
// bytes: the same plan writes the same object, another plan another one.
func (t *Table) writeVectors(ctx context.Context, s *log.Snapshot, b storage.Batch, changes []*change) error {
	var w deletion.FileWriter
	var places []deletion.Placement
	for _, c := range changes {
		if c.hidden == nil {
			continue
		}
		at, err := w.Append(c.hidden)
		if err != nil {
			return fmt.Errorf("write deletion vectors: %w", err)
		}
		if w.Len() > maxVectorFile {
			return storage.Refuse("deletion_vectors_too_large", "one commit's deletion vectors exceed %d bytes", maxVectorFile)
		}
		places = append(places, at)
	}
	if len(places) == 0 {
		return nil
	}
	id, prefix := vectorName(s, b, w.Bytes())
	if err := putVectors(ctx, t.bucket, deletion.FileKey(prefix, id), w.Bytes()); err != nil {
		return err
	}
	for _, c := range changes {
		if c.hidden == nil {
			continue
		}
		d := deletion.NewDescriptor(prefix, id, places[0], c.hidden.Cardinality())
		c.vector, places = &d, places[1:]
	}
	return nil
}

// vectorName derives a UUID (version 8, RFC 9562) from batch and content, and
// the random-looking prefix that some tables ask for.
func vectorName(s *log.Snapshot, b storage.Batch, content []byte) (id [16]byte, prefix string) {
	h := sha256.New()
	_, _ = h.Write([]byte(b.App + "\x00")) // a hash does not fail
	_ = binary.Write(h, binary.BigEndian, b.Number)
	_, _ = h.Write(content)
	sum := h.Sum(nil)
	copy(id[:], sum)
	id[6] = id[6]&0x0f | 0x80
	id[8] = id[8]&0x3f | 0x80
	if s.Metadata.IsTrue("delta.randomizeFilePrefixes") {
		n, err := strconv.Atoi(s.Metadata.Configuration["delta.randomPrefixLength"])
		if err != nil || n < 1 || n > 16 {
			n = 2
		}
		prefix = hex.EncodeToString(sum[16:])[:n]
	}
	return id, prefix
}

// putVectors writes the file, or finds that it is there with the same bytes,
// from an earlier try or another replica.
func putVectors(ctx context.Context, b storage.Bucket, key string, p []byte) error {
	err := b.Put(ctx, key, bytes.NewReader(p), storage.PutOptions{IfAbsent: true})
	if errors.Is(err, storage.ErrExists) {
		there, rerr := storage.ReadObject(ctx, b, key, int64(len(p)))
		if rerr != nil && !errors.Is(rerr, storage.ErrTooLarge) {
			return fmt.Errorf("write deletion vectors: %w", rerr)
		}
		if rerr != nil || !bytes.Equal(there, p) {
			return fmt.Errorf("write deletion vectors: %w", &storage.CorruptError{Key: key, Offset: -1, Field: "file", Reason: "an object with our name and other bytes"})
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("write deletion vectors: %w", err)
	}
	return nil
}
