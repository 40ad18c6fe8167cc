package idempotency

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// An Answer is a finished completion, as it is given again.
type Answer struct {
	Headers []Header // in order
	Body    []byte
}

// A Header is one header of an Answer.
type Header struct{ Name, Value string }

// Errors of sealing and opening. None says anything of an answer.
var (
	ErrNoKeys     = errors.New("no answer key is configured")
	ErrTooLarge   = errors.New("the answer is larger than what is kept")
	ErrUnknownKey = errors.New("the answer was sealed with a key that is not configured")
	ErrMalformed  = errors.New("the kept bytes are no sealed answer")
	ErrForged     = errors.New("the kept bytes are not this request's answer")
)

const (
	envelopeVersion = 1
	answerVersion   = 1
	sealLabel       = "tollgate sealed answer v1\n"
	gcmOverhead     = 12 + 16 // nonce and tag
	maxHeaders      = 16
	maxHeader       = 1024 // bytes of a name or a value
)

// Seal closes an answer with the current key: version ‖ kid's length ‖ kid ‖
// nonce ‖ ciphertext ‖ tag. ErrNoKeys and ErrTooLarge say why it is not kept.
func (k *Keys) Seal(account, request ident.ID, a Answer) ([]byte, error) {
	if !k.Seals() {
		return nil, ErrNoKeys
	}
	s := k.seals[0]
	size := 2 + len(s.kid) + gcmOverhead + a.size()
	if size > ledger.MaxSealedAnswer || !a.encodable() {
		return nil, ErrTooLarge
	}
	out := make([]byte, 0, size)
	out = append(out, envelopeVersion, byte(len(s.kid))) //nolint:gosec // at most maxKid
	out = append(out, s.kid...)
	return s.aead.Seal(out, nil, a.encode(), boundTo(account, request, s.kid)), nil //nolint:gosec // the mode draws its own nonce
}

// Open gives the answer that was sealed for this request of this account.
func (k *Keys) Open(account, request ident.ID, sealed []byte) (Answer, error) {
	kid, box, err := envelope(sealed)
	if err != nil {
		return Answer{}, err
	}
	for _, s := range k.seals {
		if s.kid != kid {
			continue
		}
		plain, err := s.aead.Open(nil, nil, box, boundTo(account, request, kid))
		if err != nil {
			return Answer{}, ErrForged
		}
		return decode(plain)
	}
	return Answer{}, ErrUnknownKey
}

// boundTo is the associated data: it ends with the only part that varies in length.
func boundTo(account, request ident.ID, kid string) []byte {
	b := make([]byte, 0, len(sealLabel)+len(account)+len(request)+len(kid))
	b = append(b, sealLabel...)
	b = append(b, account[:]...)
	b = append(b, request[:]...)
	return append(b, kid...)
}

// envelope takes a sealed answer apart.
func envelope(b []byte) (kid string, box []byte, err error) {
	if len(b) < 2 || len(b) > ledger.MaxSealedAnswer || b[0] != envelopeVersion {
		return "", nil, ErrMalformed
	}
	n := int(b[1])
	if len(b) < 2+n+gcmOverhead {
		return "", nil, ErrMalformed
	}
	kid = string(b[2 : 2+n])
	if !validKid(kid) {
		return "", nil, ErrMalformed
	}
	return kid, b[2+n:], nil
}

// size is the length of the encoding.
func (a Answer) size() int {
	n := 2 + len(a.Body)
	for _, h := range a.Headers {
		n += 4 + len(h.Name) + len(h.Value)
	}
	return n
}

// encodable says whether the headers are within their bounds.
func (a Answer) encodable() bool {
	for _, h := range a.Headers {
		if len(h.Name) > maxHeader || len(h.Value) > maxHeader {
			return false
		}
	}
	return len(a.Headers) <= maxHeaders
}

// encode writes version ‖ number of headers ‖ each name and value after its
// length (two bytes, big endian) ‖ body.
func (a Answer) encode() []byte {
	b := make([]byte, 0, a.size())
	b = append(b, answerVersion, byte(len(a.Headers))) //nolint:gosec // at most maxHeaders
	for _, h := range a.Headers {
		for _, s := range [2]string{h.Name, h.Value} {
			b = binary.BigEndian.AppendUint16(b, uint16(len(s))) //nolint:gosec // at most maxHeader
			b = append(b, s...)
		}
	}
	return append(b, a.Body...)
}

func decode(b []byte) (Answer, error) {
	if len(b) < 2 || b[0] != answerVersion || b[1] > maxHeaders {
		return Answer{}, ErrMalformed
	}
	n := int(b[1])
	b = b[2:]
	text := func() (string, bool) {
		if len(b) < 2 {
			return "", false
		}
		n := int(binary.BigEndian.Uint16(b))
		if n > maxHeader || len(b) < 2+n {
			return "", false
		}
		s := string(b[2 : 2+n])
		b = b[2+n:]
		return s, true
	}
	var a Answer
	for range n {
		name, ok := text()
		if !ok {
			return Answer{}, ErrMalformed
		}
		value, ok := text()
		if !ok {
			return Answer{}, ErrMalformed
		}
		a.Headers = append(a.Headers, Header{name, value})
	}
	a.Body = slices.Clip(b)
	return a, nil
}
