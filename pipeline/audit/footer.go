package audit

import (
	"encoding/binary"
	"errors"
)

// arrow-go builds a footer recursively and allocates what its lists claim: a few
// bytes could end the process. Footers are walked before.

const (
	// maxFooter bounds the footer; those of thousands of columns in many row
	// groups take tens of megabytes.
	maxFooter = 64 << 20
	// maxDepth bounds how deep groups of a schema nest, and maxNodes how many
	// there are: each takes far more memory than bytes.
	maxDepth  = 256
	maxNodes  = 1 << 18
	maxChunks = 1 << 21
	// maxValues bounds how deep values nest: those of the format take 9.
	maxValues = 24
)

var errFooter = errors.New("footer out of bounds")

// Types of the compact Thrift protocol that have a meaning here.
const (
	thriftI32    = 5
	thriftI64    = 6
	thriftBinary = 8
	thriftList   = 9
	thriftStruct = 12
)

// part is what a field of FileMetaData must be where a reader does not look at
// what is written: it takes a list's elements for what the format says.
type part struct {
	typ    byte // of the field
	elem   byte // of a list's elements
	schema bool // the list of schema elements
	chunks bool // the list of column chunks
	fields map[int16]*part
}

func listOf(elem byte) *part { return &part{typ: thriftList, elem: elem} }

func structs(fields map[int16]*part) *part {
	return &part{typ: thriftList, elem: thriftStruct, fields: fields}
}

func structOf(fields map[int16]*part) *part { return &part{typ: thriftStruct, fields: fields} }

// fileMetaData holds every list of a footer, by the ids of the Parquet format.
func fileMetaData() *part {
	chunk := map[int16]*part{
		3: structOf(map[int16]*part{ // meta_data
			2: listOf(thriftI32), 3: listOf(thriftBinary), 8: structs(nil), 13: structs(nil), // encodings, path, key-values, encoding statistics
			16: structOf(map[int16]*part{2: listOf(thriftI64), 3: listOf(thriftI64)}), // size statistics
			17: structOf(map[int16]*part{2: listOf(thriftI32)}),                       // geospatial statistics
		}),
		8: structOf(map[int16]*part{2: structOf(map[int16]*part{1: listOf(thriftBinary)})}), // crypto_metadata
	}
	schema, chunks := structs(map[int16]*part{5: {typ: thriftI32}}), structs(chunk)
	schema.schema, chunks.chunks = true, true
	groups := structs(map[int16]*part{1: chunks, 4: structs(nil)})
	return structOf(map[int16]*part{2: schema, 4: groups, 5: structs(nil), 7: structs(nil)})
}

// checkFooter reports whether the end of a file is a footer that can be built.
func checkFooter(p []byte) error {
	if len(p) < 12 {
		return errFooter
	}
	n := int64(binary.LittleEndian.Uint32(p[len(p)-8:]))
	if n > maxFooter || n > int64(len(p)-12) {
		return errFooter
	}
	w := footer{p: p[len(p)-8-int(n) : len(p)-8]}
	w.value(thriftStruct, fileMetaData(), 0)
	if w.bad {
		return errFooter
	}
	return nil
}

// footer walks the front of p, which shrinks.
type footer struct {
	p        []byte
	bad      bool
	children int64 // num_children of the schema element at hand
	chunks   int
}

func (w *footer) skip(n uint64) {
	if w.bad = w.bad || n > uint64(len(w.p)); !w.bad {
		w.p = w.p[n:]
	}
}

func (w *footer) byte() (b byte) {
	if len(w.p) > 0 {
		b = w.p[0]
	}
	w.skip(1)
	return b
}

func (w *footer) varint() uint64 {
	v, n := binary.Uvarint(w.p)
	if w.bad = w.bad || n <= 0; w.bad {
		return 0
	}
	w.p = w.p[n:]
	return v
}

func (w *footer) zigzag() int64 {
	u := w.varint()
	return int64(u>>1) ^ -int64(u&1)
}

// value passes over a field's value; in may be nil.
func (w *footer) value(typ byte, in *part, depth int) {
	if w.bad = w.bad || depth > maxValues; w.bad {
		return
	}
	switch typ {
	case 1, 2: // a bool is its type
	case 3:
		w.skip(1)
	case 4, thriftI32, thriftI64:
		if v := w.zigzag(); in != nil {
			w.children = v
		}
	case 7:
		w.skip(8)
	case thriftBinary:
		w.skip(w.varint())
	case thriftList, 10:
		w.list(in, depth)
	case 11:
		n := w.varint()
		if n == 0 {
			return
		}
		types := w.byte()
		for ; n > 0 && !w.bad; n-- {
			w.element(types>>4, nil, depth)
			w.element(types&15, nil, depth)
		}
	case thriftStruct:
		w.fields(in, depth)
	case 13:
		w.skip(16)
	default:
		w.bad = true
	}
}

func (w *footer) fields(in *part, depth int) {
	for id := int64(0); !w.bad; {
		head := w.byte()
		if head == 0 {
			return
		}
		if id += int64(head >> 4); head>>4 == 0 {
			id = w.zigzag()
		}
		if w.bad = w.bad || id != int64(int16(id)); w.bad { //nolint:gosec // the test of it
			return
		}
		var child *part
		if in != nil {
			child = in.fields[int16(id)] //nolint:gosec // in range
		}
		if child != nil && child.typ != head&15 {
			child = nil // a reader passes over it
		}
		w.value(head&15, child, depth+1)
	}
}

func (w *footer) list(in *part, depth int) {
	head := w.byte()
	n := uint64(head >> 4)
	if n == 15 {
		n = w.varint()
	}
	w.bad = w.bad || n > uint64(len(w.p))
	elem := head & 15
	if in != nil && n > 0 {
		w.bad = w.bad || elem != in.elem || in.schema && n > maxNodes
		if in.chunks && !w.bad {
			w.chunks += int(n)
			w.bad = w.chunks > maxChunks
		}
	}
	var members []int64 // of the groups around an element: how many follow
	unmet := int64(0)   // all of them
	for i := uint64(0); i < n && !w.bad; i++ {
		w.children = 0
		w.element(elem, in, depth)
		if in == nil || !in.schema {
			continue
		}
		for len(members) > 0 && members[len(members)-1] == 0 {
			members = members[:len(members)-1]
		}
		if len(members) > 0 {
			members[len(members)-1]--
			unmet--
		} else if i > 0 {
			w.bad = true // two roots
		}
		left := int64(n-i-1) - unmet
		members = append(members, w.children)
		unmet += w.children
		w.bad = w.bad || w.children < 0 || w.children > left || len(members) > maxDepth
	}
	w.bad = w.bad || unmet != 0
}

// element passes over an element of a container, where a bool is a byte.
func (w *footer) element(typ byte, in *part, depth int) {
	if typ == 1 || typ == 2 {
		w.skip(1)
		return
	}
	if in != nil && typ != thriftStruct {
		in = nil
	}
	w.value(typ, in, depth+1)
}
