package match

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"

	"delenda/storage"
)

// Column is a column that subjects may be matched on.
type Column struct {
	Name string // logical name, or dotted path to a struct member
	Type string // as in the Delta schema: "long", "string", "decimal(10,2)", ...
}

// Set is the compiled keys of a batch, per column.
type Set struct{ columns []*ColumnKeys }

// Compile types the keys of subjects. The results are per subject: SubjectDone
// if its keys count, SubjectInvalid with a reason if one of them is not in the
// canonical form of its column's type; then none of its keys are in the set.
// Rows are zero. A column that cannot be compared, or that is not among
// columns, is a *storage.Refusal.
func Compile(subjects []storage.Subject, columns []Column) (*Set, []storage.SubjectResult, error) {
	builders := make(map[string]*builder, len(columns))
	set := &Set{}
	for _, c := range columns {
		if builders[c.Name] != nil {
			return nil, nil, storage.Refuse("ambiguous_column", "column %q is given twice", c.Name)
		}
		t, err := ParseType(c.Type)
		if err != nil {
			return nil, nil, fmt.Errorf("column %q: %w", c.Name, err)
		}
		builders[c.Name] = &builder{keys: &ColumnKeys{Name: c.Name, Type: t}}
	}
	results := make([]storage.SubjectResult, len(subjects))
	for i, subject := range subjects {
		values := make([]value, len(subject.Keys))
		results[i].State = storage.SubjectDone
		for j, key := range subject.Keys {
			b := builders[key.Column]
			if b == nil {
				return nil, nil, storage.Refuse("unknown_column", "column %q does not exist", key.Column)
			}
			v, err := parseKey(b.keys.Type, key.Value.Reveal())
			if err != nil {
				results[i] = storage.SubjectResult{
					State:  storage.SubjectInvalid,
					Reason: fmt.Sprintf("the value for column %q is not a canonical %s", key.Column, b.keys.Type),
				}
				break
			}
			values[j] = v
		}
		if results[i].State == storage.SubjectInvalid {
			continue
		}
		for j, key := range subject.Keys {
			builders[key.Column].add(values[j], i)
		}
	}
	for _, c := range columns {
		if k := builders[c.Name].build(); k.Len() > 0 {
			set.columns = append(set.columns, k)
		}
	}
	return set, results, nil
}

// Column returns the keys of a column, nil if no valid subject has one.
func (s *Set) Column(name string) *ColumnKeys {
	for _, k := range s.columns {
		if k.Name == name {
			return k
		}
	}
	return nil
}

// Columns returns the columns that have keys, in the order given to Compile.
func (s *Set) Columns() []*ColumnKeys { return slices.Clone(s.columns) }

// ColumnKeys is the set of keys of one column. Keys are numbered from 0 in
// ascending order of value.
type ColumnKeys struct {
	Name string
	Type Type

	ints     []int64  // KindInt: ascending, unique
	values   [][]byte // KindBytes, KindWide: ascending bytewise, unique
	subjects [][]int  // per key: ascending, unique

	filter  Filter
	table   []int32 // open addressing: key number plus one, 0 is free
	lengths uint64  // bit len&63 is set for each value's length
	basic   bool    // every value is isBasic
}

// Len returns the number of distinct keys.
func (k *ColumnKeys) Len() int { return len(k.subjects) }

// Subjects returns the indexes of the subjects that key number id belongs to.
// The caller must not change the slice.
func (k *ColumnKeys) Subjects(id int) []int { return k.subjects[id] }

// Filter returns the filter over the hashes of the keys.
func (k *ColumnKeys) Filter() Filter { return k.filter }

// FindInt returns the number of the key that equals v.
func (k *ColumnKeys) FindInt(v int64) (id int, ok bool) { return k.FindIntHash(HashInt(v), v) }

// FindIntHash is FindInt for a value whose HashInt is known.
func (k *ColumnKeys) FindIntHash(hash uint64, v int64) (id int, ok bool) {
	if len(k.ints) == 0 {
		return 0, false
	}
	mask := uint64(len(k.table) - 1) //nolint:gosec // a length is not negative
	for i := hash & mask; ; i = (i + 1) & mask {
		n := k.table[i]
		if n == 0 {
			return 0, false
		}
		if k.ints[n-1] == v {
			return int(n - 1), true
		}
	}
}

// FindBytes returns the number of the key that equals v.
func (k *ColumnKeys) FindBytes(v []byte) (id int, ok bool) { return k.FindBytesHash(HashBytes(v), v) }

// FindBytesHash is FindBytes for a value whose HashBytes is known.
func (k *ColumnKeys) FindBytesHash(hash uint64, v []byte) (id int, ok bool) {
	if len(k.values) == 0 {
		return 0, false
	}
	mask := uint64(len(k.table) - 1) //nolint:gosec // a length is not negative
	for i := hash & mask; ; i = (i + 1) & mask {
		n := k.table[i]
		if n == 0 {
			return 0, false
		}
		if bytes.Equal(k.values[n-1], v) {
			return int(n - 1), true
		}
	}
}

// Ints returns the keys of KindInt, ascending. They identify people, and the
// caller must not change the slice.
func (k *ColumnKeys) Ints() []int64 { return k.ints }

// Values returns the keys of KindBytes and KindWide, ascending bytewise. They
// identify people, and the caller must not change the slice.
func (k *ColumnKeys) Values() [][]byte { return k.values }

// Lengths has bit n&63 set if a key of n bytes exists.
func (k *ColumnKeys) Lengths() uint64 { return k.lengths }

// builder collects the keys of a column.
type builder struct {
	keys    *ColumnKeys
	entries []entry
}

type entry struct {
	value
	subject int
}

func (b *builder) add(v value, subject int) { b.entries = append(b.entries, entry{v, subject}) }

func (b *builder) build() *ColumnKeys {
	k := b.keys
	slices.SortFunc(b.entries, func(x, y entry) int {
		return cmp.Or(cmp.Compare(x.n, y.n), bytes.Compare(x.b, y.b), cmp.Compare(x.subject, y.subject))
	})
	k.basic = true
	for i, e := range b.entries {
		if i > 0 && e.n == b.entries[i-1].n && bytes.Equal(e.b, b.entries[i-1].b) {
			last := &k.subjects[len(k.subjects)-1]
			if (*last)[len(*last)-1] != e.subject {
				*last = append(*last, e.subject)
			}
			continue
		}
		k.subjects = append(k.subjects, []int{e.subject})
		if k.Type.Kind() == KindInt {
			k.ints = append(k.ints, e.n)
		} else {
			k.values = append(k.values, e.b)
			k.lengths |= 1 << (len(e.b) & 63)
			k.basic = k.basic && isBasic(e.b)
		}
	}
	k.index()
	return k
}

// index fills filter and table.
func (k *ColumnKeys) index() {
	n := len(k.subjects)
	k.filter = newFilter(n)
	k.table = make([]int32, 1<<bits.Len(uint(2*n)))
	mask := uint64(len(k.table) - 1) //nolint:gosec // a length is not negative
	for id := range n {
		var h uint64
		if k.ints != nil {
			h = HashInt(k.ints[id])
		} else {
			h = HashBytes(k.values[id])
		}
		k.filter.add(h)
		i := h & mask
		for k.table[i] != 0 {
			i = (i + 1) & mask
		}
		k.table[i] = int32(id + 1)
	}
}

// Filter answers quickly that a hash is not that of a key: a Bloom filter with
// two bits per key in one 64-bit word, so that a probe is one load.
type Filter struct {
	words []uint64
	shift uint8 // 64 - log2(len(words))
}

// bitsPerKey gives two bits per key about one false answer in a hundred.
const bitsPerKey = 16

func newFilter(keys int) Filter {
	log := max(bits.Len(uint(max(keys, 1)*bitsPerKey/64)), 1)
	return Filter{words: make([]uint64, 1<<log), shift: uint8(64 - log)} //nolint:gosec // between 0 and 63
}

func (f Filter) add(hash uint64) {
	f.words[hash>>f.shift] |= 1<<(hash&63) | 1<<(hash>>6&63)
}

// Has tells whether the hash may be that of a key. Without keys it is false.
func (f Filter) Has(hash uint64) bool {
	m := uint64(1)<<(hash&63) | uint64(1)<<(hash>>6&63)
	return f.words[hash>>(f.shift&63)]&m == m
}

const (
	hashSeed = 0x9E3779B97F4A7C15
	hashMul  = 0xD6E8FEB86659FD93
)

// HashInt hashes a value of KindInt.
func HashInt(v int64) uint64 {
	hi, lo := bits.Mul64(uint64(v)^hashSeed, hashMul) //nolint:gosec // bits as they are
	return hi ^ lo
}

// HashBytes hashes a value of KindBytes or KindWide.
func HashBytes(p []byte) uint64 {
	h := uint64(len(p)) * hashSeed
	if len(p) < 8 {
		var last uint64
		for _, c := range p {
			last = last<<8 | uint64(c)
		}
		hi, lo := bits.Mul64(last^hashSeed, h^hashMul)
		return hi ^ lo
	}
	for q := p; len(q) > 16; q = q[16:] {
		hi, lo := bits.Mul64(binary.LittleEndian.Uint64(q)^hashSeed, binary.LittleEndian.Uint64(q[8:])^h^hashMul)
		h = hi ^ lo
	}
	first := binary.LittleEndian.Uint64(p[max(len(p)-16, 0):])
	last := binary.LittleEndian.Uint64(p[len(p)-8:])
	hi, lo := bits.Mul64(first^hashSeed, last^h^hashMul)
	return hi ^ lo
}
