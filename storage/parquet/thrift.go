package parquet

import "encoding/binary"

func leUint32(p []byte) uint32 { return binary.LittleEndian.Uint32(p) }

func leUint64(p []byte) uint64 { return binary.LittleEndian.Uint64(p) }
