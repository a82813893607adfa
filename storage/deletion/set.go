package deletion

import (
	"iter"
	"math"
	"slices"

	"delenda/storage"

	"github.com/RoaringBitmap/roaring/v2"
)

// DefaultThreshold is the largest number of rows that a Set keeps as a sorted
// slice, and that counts as storage.Set. BenchmarkSetSize shows why: in a
// fragment of a million rows a slice of four bytes per row is smaller than a
// Roaring bitmap up to about 70 scattered rows, and never again above.
const DefaultThreshold = 64

// Set is a set of row offsets in [0, 2^63). The zero value is an empty set
// ready to use, and a nil *Set reads as empty.
type Set struct {
	threshold int             // 0 means DefaultThreshold
	rows      []uint32        // ascending, unique: the rows below 2^32 while bitmap is nil
	bitmap    *roaring.Bitmap // the rows below 2^32 once they are more than threshold
	high      []bucket        // the rows from 2^32 on
}

// bucket holds the rows that share their high 32 bits. Buckets of a Set are
// not empty and ascend by key, which is at least 1.
type bucket struct {
	key  uint32
	rows *roaring.Bitmap
}

// New returns a set of rows, given in any order.
func New(rows ...int64) *Set { return NewThreshold(DefaultThreshold, rows...) }

// NewThreshold is New with another limit for the sorted slice; a threshold
// below 1 means DefaultThreshold.
func NewThreshold(threshold int, rows ...int64) *Set {
	s := &Set{threshold: max(threshold, 0)}
	for _, row := range rows {
		s.Add(row)
	}
	return s
}

func (s *Set) limit() int {
	if s == nil || s.threshold <= 0 {
		return DefaultThreshold
	}
	return s.threshold
}

// Add puts row, which is not negative, into the set. Ascending rows are cheapest.
func (s *Set) Add(row int64) {
	if row < 0 {
		panic("deletion: internal error: negative row offset")
	}
	key, low := split(row)
	if key > 0 {
		s.highBucket(key).Add(low)
		return
	}
	if s.bitmap != nil {
		s.bitmap.Add(low)
		return
	}
	if n := len(s.rows); n == 0 || s.rows[n-1] < low {
		s.rows = append(s.rows, low)
	} else if i, found := slices.BinarySearch(s.rows, low); !found {
		s.rows = slices.Insert(s.rows, i, low)
	}
	s.settle()
}

// AddSorted puts ascending rows, none negative, into the set.
func (s *Set) AddSorted(rows []int64) {
	low := make([]uint32, 0, min(len(rows), 1<<16))
	for i, row := range rows {
		if row < 0 || row > math.MaxUint32 {
			s.addLow(low)
			for _, rest := range rows[i:] {
				s.Add(rest)
			}
			return
		}
		if low = append(low, uint32(row)); len(low) == cap(low) {
			s.addLow(low)
			low = low[:0]
		}
	}
	s.addLow(low)
}

func (s *Set) addLow(rows []uint32) {
	if len(rows) == 0 {
		return
	}
	if s.bitmap == nil {
		if len(s.rows)+len(rows) <= s.limit() {
			for _, row := range rows {
				s.Add(int64(row))
			}
			return
		}
		s.bitmap = roaring.BitmapOf(s.rows...)
		s.rows = nil
	}
	s.bitmap.AddMany(rows)
	s.settle()
}

// settle restores the rule that decides between slice and bitmap.
func (s *Set) settle() {
	limit := s.limit()
	switch {
	case s.bitmap == nil && len(s.rows) > limit:
		s.bitmap = roaring.BitmapOf(s.rows...)
		s.rows = nil
	case s.bitmap != nil && s.bitmap.GetCardinality() <= uint64(limit): //nolint:gosec // a limit is not negative
		s.rows = s.bitmap.ToArray()
		s.bitmap = nil
	}
	s.high = slices.DeleteFunc(s.high, func(b bucket) bool { return b.rows.IsEmpty() })
}

func (s *Set) highBucket(key uint32) *roaring.Bitmap {
	i, found := slices.BinarySearchFunc(s.high, key, compareKey)
	if !found {
		s.high = slices.Insert(s.high, i, bucket{key, roaring.New()})
	}
	return s.high[i].rows
}

func compareKey(b bucket, key uint32) int { return int(int64(b.key) - int64(key)) }

// Contains tells whether row is in the set.
func (s *Set) Contains(row int64) bool {
	if s == nil || row < 0 {
		return false
	}
	key, low := split(row)
	switch {
	case key > 0:
		i, found := slices.BinarySearchFunc(s.high, key, compareKey)
		return found && s.high[i].rows.Contains(low)
	case s.bitmap != nil:
		return s.bitmap.Contains(low)
	default:
		_, found := slices.BinarySearch(s.rows, low)
		return found
	}
}

// Cardinality returns the number of rows.
func (s *Set) Cardinality() int64 {
	if s == nil {
		return 0
	}
	n := int64(len(s.rows))
	if s.bitmap != nil {
		n = cardinality(s.bitmap)
	}
	for _, b := range s.high {
		n += cardinality(b.rows)
	}
	return n
}

// Max returns the largest row, or -1 for the empty set.
func (s *Set) Max() int64 {
	switch {
	case s == nil:
		return -1
	case len(s.high) > 0:
		b := s.high[len(s.high)-1]
		return join(b.key, b.rows.Maximum())
	case s.bitmap != nil:
		return int64(s.bitmap.Maximum())
	case len(s.rows) > 0:
		return int64(s.rows[len(s.rows)-1])
	default:
		return -1
	}
}

// All yields the rows in ascending order.
func (s *Set) All() iter.Seq[int64] {
	return func(yield func(int64) bool) {
		if s == nil {
			return
		}
		for _, row := range s.rows {
			if !yield(int64(row)) {
				return
			}
		}
		if s.bitmap != nil && !yieldAll(0, s.bitmap, yield) {
			return
		}
		for _, b := range s.high {
			if !yieldAll(b.key, b.rows, yield) {
				return
			}
		}
	}
}

func yieldAll(key uint32, rows *roaring.Bitmap, yield func(int64) bool) bool {
	var buf [256]uint32
	for it := rows.ManyIterator(); ; {
		n := it.NextMany(buf[:])
		if n == 0 {
			return true
		}
		for _, low := range buf[:n] {
			if !yield(join(key, low)) {
				return false
			}
		}
	}
}

// Kind says which of the two shapes of a deletion the set is: storage.Set up
// to the threshold, storage.Bitmap above it, storage.Kept when empty.
func (s *Set) Kind() storage.Outcome {
	switch n := s.Cardinality(); {
	case n == 0:
		return storage.Kept
	case n <= int64(s.limit()):
		return storage.Set
	default:
		return storage.Bitmap
	}
}

// Clone returns a copy that shares nothing with s.
func (s *Set) Clone() *Set {
	if s == nil {
		return &Set{}
	}
	c := &Set{threshold: s.threshold, rows: slices.Clone(s.rows)}
	if s.bitmap != nil {
		c.bitmap = s.bitmap.Clone()
	}
	for _, b := range s.high {
		c.high = append(c.high, bucket{b.key, b.rows.Clone()})
	}
	return c
}

// Union returns a new set of the rows that are in s or in o.
func (s *Set) Union(o *Set) *Set {
	u := s.Clone()
	if o == nil {
		return u
	}
	u.addLow(o.rows)
	if o.bitmap != nil {
		if u.bitmap == nil {
			rows := u.rows
			u.rows, u.bitmap = nil, o.bitmap.Clone()
			u.bitmap.AddMany(rows)
		} else {
			u.bitmap.Or(o.bitmap)
		}
	}
	for _, b := range o.high {
		u.highBucket(b.key).Or(b.rows)
	}
	u.settle()
	return u
}

// Minus returns a new set of the rows that are in s and not in o.
func (s *Set) Minus(o *Set) *Set {
	d := s.Clone()
	if o == nil {
		return d
	}
	if d.bitmap != nil {
		d.bitmap.AndNot(o.low())
	} else {
		d.rows = slices.DeleteFunc(d.rows, func(row uint32) bool { return o.Contains(int64(row)) })
	}
	for _, b := range d.high {
		if i, found := slices.BinarySearchFunc(o.high, b.key, compareKey); found {
			b.rows.AndNot(o.high[i].rows)
		}
	}
	d.settle()
	return d
}

// IsSubset tells whether every row of s is in o.
func (s *Set) IsSubset(o *Set) bool {
	if s == nil {
		return true
	}
	for _, row := range s.rows {
		if !o.Contains(int64(row)) {
			return false
		}
	}
	if s.bitmap != nil && (o == nil || s.bitmap.AndCardinality(o.low()) != s.bitmap.GetCardinality()) {
		return false
	}
	for _, b := range s.high {
		if o == nil {
			return false
		}
		i, found := slices.BinarySearchFunc(o.high, b.key, compareKey)
		if !found || b.rows.AndCardinality(o.high[i].rows) != b.rows.GetCardinality() {
			return false
		}
	}
	return true
}

// Equal tells whether both sets hold the same rows.
func (s *Set) Equal(o *Set) bool {
	return s.Cardinality() == o.Cardinality() && s.IsSubset(o)
}

// low returns the rows below 2^32 as a bitmap that the caller must not change.
func (s *Set) low() *roaring.Bitmap {
	if s.bitmap != nil {
		return s.bitmap
	}
	return roaring.BitmapOf(s.rows...)
}

func split(row int64) (key, low uint32) {
	return uint32(row >> 32), uint32(row & math.MaxUint32) //nolint:gosec // the halves of a row that is not negative
}

func join(key, low uint32) int64 { return int64(key)<<32 | int64(low) }

func cardinality(b *roaring.Bitmap) int64 {
	n := b.GetCardinality()
	if n > math.MaxInt64 {
		panic("deletion: internal error: cardinality overflow")
	}
	return int64(n)
}
