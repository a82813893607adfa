package deletion

import (
	"cmp"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"delenda/storage"

	gocmp "github.com/google/go-cmp/cmp"
)

func collect(s *Set) []int64 { return slices.Collect(s.All()) }

func TestEmptySetsReadAsEmpty(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]*Set{"nil": nil, "zero": {}, "new": New()} {
		if s.Cardinality() != 0 || s.Max() != -1 || s.Contains(0) || len(collect(s)) != 0 || s.Kind() != storage.Kept {
			t.Errorf("%s set is not empty", name)
		}
		if !s.Equal(nil) || !s.IsSubset(New(1)) || New(1).IsSubset(s) || s.Union(New(7)).Max() != 7 || s.Minus(New(1)).Max() != -1 {
			t.Errorf("%s set does not act as empty", name)
		}
	}
}

func TestKindFollowsTheThreshold(t *testing.T) {
	t.Parallel()
	s := New()
	for row := range int64(DefaultThreshold) {
		s.Add(row * 1000)
	}
	if got := s.Kind(); got != storage.Set {
		t.Errorf("at the threshold: %s", got)
	}
	s.Add(1)
	if got := s.Kind(); got != storage.Bitmap {
		t.Errorf("above the threshold: %s", got)
	}
	if got := s.Minus(New(1)).Kind(); got != storage.Set {
		t.Errorf("back at the threshold: %s", got)
	}
	if got := NewThreshold(2, 1, 2, 3).Kind(); got != storage.Bitmap {
		t.Errorf("above a set threshold: %s", got)
	}
}

// TestSetAgreesWithAMap runs random operations on sets and on maps. Rows come
// from few blocks, from the edges of buckets, and from the whole range.
func TestSetAgreesWithAMap(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 0))
		row := func() int64 {
			switch r.IntN(8) {
			case 0:
				return math.MaxUint32 + int64(r.IntN(4)) - 1
			case 1:
				return r.Int64N(1 << 40)
			case 2:
				return math.MaxInt64 - int64(r.IntN(3))
			default:
				return r.Int64N(500)
			}
		}
		rows := func(n int) []int64 {
			out := make([]int64, r.IntN(n))
			for i := range out {
				out[i] = row()
			}
			return out
		}
		s, model := NewThreshold(1+r.IntN(100)), map[int64]bool{}
		for step := range 40 {
			switch r.IntN(4) {
			case 0:
				add := row()
				s.Add(add)
				model[add] = true
			case 1:
				add := rows(120)
				slices.Sort(add)
				s.AddSorted(add)
				for _, v := range add {
					model[v] = true
				}
			case 2:
				add := rows(200)
				s = s.Union(New(add...))
				for _, v := range add {
					model[v] = true
				}
			case 3:
				remove := rows(300)
				o := New(remove...)
				subset := maps.Clone(model)
				for _, v := range remove {
					delete(model, v)
				}
				s2 := s.Minus(o)
				if !s2.IsSubset(s) || s.IsSubset(s2) != (len(model) == len(subset)) {
					t.Fatalf("seed %d step %d: subset", seed, step)
				}
				s = s2
			}
			want := slices.Sorted(maps.Keys(model))
			if diff := gocmp.Diff(want, collect(s), gocmp.Comparer(func(a, b []int64) bool { return slices.Equal(a, b) })); diff != "" {
				t.Fatalf("seed %d step %d (-want +got):\n%s", seed, step, diff)
			}
			if got := s.Cardinality(); got != int64(len(want)) {
				t.Fatalf("seed %d step %d: cardinality %d, want %d", seed, step, got, len(want))
			}
			if probe := row(); s.Contains(probe) != model[probe] {
				t.Fatalf("seed %d step %d: contains(%d) = %v", seed, step, probe, s.Contains(probe))
			}
			if got, want := s.Max(), cmp.Or(append(want, 0)[max(len(want)-1, 0)], -1); len(model) > 0 && got != want && want != -1 {
				t.Fatalf("seed %d step %d: max %d, want %d", seed, step, got, want)
			}
			back, err := DecodeDelta(EncodeDelta(s), s.Cardinality(), -1)
			if err != nil {
				t.Fatalf("seed %d step %d: %v", seed, step, err)
			}
			if !back.Equal(s) || !s.Equal(back) {
				t.Fatalf("seed %d step %d: decoding changed the rows", seed, step)
			}
		}
	}
}

func TestOperationsLeaveTheirOperandsAlone(t *testing.T) {
	t.Parallel()
	for _, n := range []int64{3, 500} {
		a, b := New(), New(1<<33)
		for i := range n {
			a.Add(i * 2)
			b.Add(i * 3)
		}
		before := [2][]int64{collect(a), collect(b)}
		u, d := a.Union(b), a.Minus(b)
		u.Add(99_999)
		d.Add(88_888)
		if after := [2][]int64{collect(a), collect(b)}; !gocmp.Equal(before, after) {
			t.Errorf("%d rows: an operand changed", n)
		}
	}
}
