package parquet

import (
	"bytes"
	"errors"
	"io"

	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
)

// Compression codecs, as the format numbers them.
const (
	codecUncompressed = 0
	codecSnappy       = 1
	codecGzip         = 2
	codecBrotli       = 4
	codecZstd         = 6
	codecLZ4Raw       = 7
)

// maxPage bounds the uncompressed size of a page of a key column.
const maxPage = 256 << 20

var errDecompress = errors.New("cannot be decompressed to its size")

// decompressor holds the state of the codecs for reuse.
type decompressor struct {
	zstd *zstd.Decoder
	gzip *gzip.Reader
	src  bytes.Reader
}

func supportedCodec(codec int32) bool {
	switch codec {
	case codecUncompressed, codecSnappy, codecGzip, codecBrotli, codecZstd, codecLZ4Raw:
		return true
	default:
		return false
	}
}

// decompress fills dst with what src decompresses to, exactly.
func (d *decompressor) decompress(codec int32, dst, src []byte) error {
	if len(dst) == 0 && len(src) == 0 {
		return nil
	}
	switch codec {
	case codecSnappy:
		n, err := s2.DecodedLen(src)
		if err != nil || n != len(dst) {
			return errDecompress
		}
		if _, err := s2.Decode(dst, src); err != nil {
			return errDecompress
		}
		return nil
	case codecZstd:
		return d.decompressZstd(dst, src)
	case codecGzip:
		return d.decompressGzip(dst, src)
	case codecBrotli, codecLZ4Raw:
		if len(dst) == 0 {
			return nil
		}
		c, err := compress.GetCodec(compress.Compression(codec))
		if err != nil {
			return err
		}
		out, err := compress.Decode(c, dst[:len(dst):len(dst)], src)
		if err != nil || len(out) != len(dst) {
			return errDecompress
		}
		return nil
	default:
		return errDecompress
	}
}

func (d *decompressor) decompressZstd(dst, src []byte) error {
	if d.zstd == nil {
		z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true))
		if err != nil {
			return err
		}
		d.zstd = z
	}
	out, err := d.zstd.DecodeAll(src, dst[:0:len(dst)])
	if err != nil || len(out) != len(dst) {
		return errDecompress
	}
	return nil
}

func (d *decompressor) decompressGzip(dst, src []byte) error {
	d.src.Reset(src)
	var err error
	if d.gzip == nil {
		d.gzip, err = gzip.NewReader(&d.src)
	} else {
		err = d.gzip.Reset(&d.src)
	}
	if err != nil {
		d.gzip = nil
		return errDecompress
	}
	if _, err := io.ReadFull(d.gzip, dst); err != nil {
		return errDecompress
	}
	var extra [1]byte
	if n, err := d.gzip.Read(extra[:]); n != 0 || !errors.Is(err, io.EOF) {
		return errDecompress
	}
	return nil
}
