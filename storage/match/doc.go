// Package match decides which rows are a subject's: it turns the keys of
// subjects into typed key sets, and compares values, partition values and
// statistics with them.
//
// Comparison is by type, exact, and lossless. Null equals nothing. A key is
// text in the one canonical form of its column's type; text in another form
// never matches and makes its subject invalid, with a reason that names column
// and type and never the value:
//
//	byte, short, integer, long   decimal digits, "-" before a negative number, no leading
//	                             zero, plus sign, space or separator: "7", "-12", "0"
//	decimal(p,s)                 the same, then optionally "." and 1 to s digits: the number
//	                             decides, so "123.4" and "123.40" are one key of decimal(10,2)
//	boolean                      "true" or "false"
//	date                         "2024-02-29": year 0001 to 9999
//	timestamp                    "2024-02-29T13:45:00Z", optionally "." and 1 to 6 digits
//	                             before the Z: always UTC, always with the Z
//	timestamp_ntz                the same without the Z
//	string                       the string itself, byte for byte: no case folding, no Unicode
//	                             normalisation, no trimming; the padding of a char(n) column
//	                             is part of its values
//	binary                       hexadecimal, lower case, two digits per byte; a UUID in 16
//	                             bytes is its 32 digits without hyphens
//
// Float and double are refused: two texts of one number, NaN and negative zero
// leave no exact answer. So are types without a scalar value.
//
// Pruning (OverlapsStats, OverlapsInts, OverlapsBytes, MayContain*) is sound:
// it answers false only if no row can match, whatever the writer truncated.
//
// A Set and its ColumnKeys do not change after Compile and are safe for
// concurrent use.
package match
