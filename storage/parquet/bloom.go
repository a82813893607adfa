package parquet

import (
	"context"
	"encoding/binary"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/cespare/xxhash/v2"
)

// Split block Bloom filter (format document "Bloom Filter"):
//
//	BloomFilterHeader  1 i32 numBytes, 2 algorithm (1 BLOCK), 3 hash (1 XXHASH),
//	                   4 compression (1 UNCOMPRESSED)
//	numBytes/32 blocks of eight u32 LE; XXH64 of the PLAIN value without its
//	length: the high half picks the block, the low half a bit of each word
const (
	bloomBlock     = 32
	bloomHeaderMax = 256

	// maxBloomKeys: with more keys, one of them is likely to pass by chance.
	maxBloomKeys = 50
)

var bloomSalt = [8]uint32{
	0x47b6137b, 0x44974d91, 0x8824ad5b, 0xa2b7289d, 0x705495c7, 0x2df1424b, 0x9efc4947, 0x5c6bfb31,
}

// pruneBloom tells from the chunk's Bloom filter that no key is in it. A
// filter that is absent, of an unknown kind, or larger than half of the chunk
// says nothing.
func (f *File) pruneBloom(ctx context.Context, rg int, leaf Leaf, p *probe, st *Stats) (bool, error) {
	meta := f.meta.RowGroups[rg].Columns[leaf.index].MetaData
	offset := meta.GetBloomFilterOffset()
	if offset <= 0 || p.keys.Len() > maxBloomKeys || !p.direct() || !plainKeys(leaf) {
		return false, nil
	}
	half := meta.TotalCompressedSize / 2
	head, err := f.span(ctx, offset, min(bloomHeaderMax, f.size-offset), "bloom filter", st)
	if err != nil {
		return false, err
	}
	size, n, ok := parseBloomHeader(head)
	if !ok || int64(size) > min(half, maxIndex) {
		return false, nil
	}
	blocks, err := f.span(ctx, offset+int64(n), int64(size), "bloom filter", st)
	if err != nil {
		return false, err
	}
	for _, v := range p.keys.Ints() {
		if bloomHas(blocks, plainInt(leaf, v)) {
			return false, nil
		}
	}
	for _, v := range p.keys.Values() {
		if bloomHas(blocks, v) {
			return false, nil
		}
	}
	return true, nil
}

// parseBloomHeader returns the size of the filter and the length of its
// header, and false for a kind that this package does not know.
func parseBloomHeader(p []byte) (size int32, n int, ok bool) {
	r := thriftReader{p: p}
	known := 0
	r.fields(func(id int16, typ byte) {
		switch {
		case id == 1:
			size = r.i32(typ)
		case id >= 2 && id <= 4 && typ == thriftStruct: // unions whose first member is the only one known
			r.fields(func(member int16, typ byte) {
				if member == 1 {
					known++
				}
				r.skip(typ, 1)
			})
		default:
			r.skip(typ, 0)
		}
	})
	return size, r.pos, r.err == nil && known == 3 && size > 0 && size%bloomBlock == 0
}

// plainKeys tells whether a key, as it is compared, gives the one PLAIN value
// that equals it. Several values of an INT96 are one microsecond.
func plainKeys(leaf Leaf) bool {
	t := leaf.column.PhysicalType()
	return isInt(t) || isBytes(t)
}

func plainInt(leaf Leaf, v int64) []byte {
	if leaf.column.PhysicalType() == parquet.Types.Int32 {
		return binary.LittleEndian.AppendUint32(nil, uint32(v)) //nolint:gosec // the value is an INT32
	}
	return binary.LittleEndian.AppendUint64(nil, uint64(v)) //nolint:gosec // bits as they are
}

func bloomHas(blocks, plain []byte) bool {
	h := xxhash.Sum64(plain)
	n := uint64(len(blocks) / bloomBlock)
	block := blocks[(h>>32)*n>>32*bloomBlock:]
	for i, salt := range bloomSalt {
		bit := uint32(h) * salt >> 27 //nolint:gosec // the low half
		if leUint32(block[4*i:])>>bit&1 == 0 {
			return false
		}
	}
	return true
}
