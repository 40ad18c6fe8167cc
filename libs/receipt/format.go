package receipt

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// ErrFormat is in the tree of every error about text that breaks the format.
var ErrFormat = errors.New("not in the receipt format")

func malformed(rule string) error { return fmt.Errorf("%w: %s", ErrFormat, rule) }

const (
	hashPrefix    = "sha3-256:"
	receiptPrefix = "receipt:" + hashPrefix
	keyIDPrefix   = "key:" + hashPrefix
)

// decodeHex fills dst from exactly 2·len(dst) lowercase hex digits.
func decodeHex(dst []byte, s string) bool {
	if len(s) != hex.EncodedLen(len(dst)) || strings.ToLower(s) != s {
		return false
	}
	_, err := hex.Decode(dst, []byte(s))
	return err == nil
}

func isReceiptID(s string) bool {
	var h [32]byte
	rest, ok := strings.CutPrefix(s, receiptPrefix)
	return ok && decodeHex(h[:], rest)
}
