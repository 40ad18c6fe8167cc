package receipt

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// The first line of every salted digest says what is digested, so that no
// request can pass for a reply.
const (
	domainRequest  = "llm-gateway/request/v1\n"
	domainReply    = "llm-gateway/reply/v1\n"
	domainRawReply = "llm-gateway/raw-reply/v1\n"
)

// Digest is a SHA-256 as receipts carry it.
type Digest [sha256.Size]byte

const digestPrefix = "sha256:"

// String gives the one spelling: "sha256:" and 64 lowercase hex digits.
func (d Digest) String() string { return digestPrefix + hex.EncodeToString(d[:]) }

// ParseDigest reads the one spelling of a Digest; anything else is ErrFormat.
func ParseDigest(s string) (Digest, error) {
	var d Digest
	rest, ok := strings.CutPrefix(s, digestPrefix)
	if !ok || !decodeHex(d[:], rest) {
		return Digest{}, malformed(`a digest is "sha256:" and 64 lowercase hex digits`)
	}
	return d, nil
}

// Salt keeps a digest from being tested against a guess. The caller gets it
// once; it is never kept in the clear.
type Salt [32]byte

// NewSalt makes a random Salt.
func NewSalt() Salt {
	var s Salt
	_, _ = rand.Read(s[:]) // crypto/rand.Read never fails: it crashes the program
	return s
}

// Hex gives the spelling of the x-receipt-salt header: 64 lowercase hex digits.
// There is no String, so that a salt does not slip into a log.
func (s Salt) Hex() string { return hex.EncodeToString(s[:]) }

// ParseSalt reads the spelling of Hex; anything else is ErrFormat.
func ParseSalt(text string) (Salt, error) {
	var s Salt
	if !decodeHex(s[:], text) {
		return Salt{}, malformed("a salt is 64 lowercase hex digits")
	}
	return s, nil
}

// RequestDigest binds a request's body, exactly as it was sent.
func RequestDigest(salt Salt, body []byte) Digest {
	h := salted(salt, domainRequest)
	h.Write(body)
	return sum(h)
}

func salted(salt Salt, domain string) hash.Hash {
	h := sha256.New()
	h.Write(salt[:])
	h.Write([]byte(domain))
	return h
}

func sum(h hash.Hash) (d Digest) {
	h.Sum(d[:0])
	return d
}

// Reply digests an answer while it streams: feed it every delta in order, and
// ask for the Digest at any moment. Content and reasoning are hashed as they
// pass and not kept; tool calls are kept whole until the end, because their
// deltas interleave, so the caller bounds the answer.
type Reply struct {
	salt      Salt
	content   text
	reasoning text
	tools     map[int]*tool
}

type tool struct {
	id              string
	name, arguments strings.Builder
}

// NewReply starts the digest of an empty answer.
func NewReply(salt Salt) *Reply {
	return &Reply{salt: salt, content: text{h: sha256.New()}, reasoning: text{h: sha256.New()}}
}

// Content adds answer text.
func (r *Reply) Content(delta string) { r.content.add(delta) }

// Reasoning adds reasoning text.
func (r *Reply) Reasoning(delta string) { r.reasoning.add(delta) }

// Tool adds a delta of the tool call at index. The first id that is not empty
// stands; names and arguments are concatenated.
func (r *Reply) Tool(index int, id, name, arguments string) {
	t := r.tools[index]
	if t == nil {
		if r.tools == nil {
			r.tools = map[int]*tool{}
		}
		t = &tool{}
		r.tools[index] = t
	}
	if t.id == "" {
		t.id = id
	}
	t.name.WriteString(name)
	t.arguments.WriteString(arguments)
}

// Digest binds everything added so far. More may be added after it.
func (r *Reply) Digest() Digest {
	tools := sha256.New()
	for _, i := range slices.Sorted(maps.Keys(r.tools)) {
		t := r.tools[i]
		line := strconv.Itoa(i) + "\x1f" + t.id + "\x1f" + t.name.String() + "\x1f" + t.arguments.String() + "\x1e"
		tools.Write([]byte(line))
	}
	h := salted(r.salt, domainReply)
	for _, part := range []hash.Hash{r.content.h, r.reasoning.h, tools} {
		d := sum(part)
		h.Write(d[:])
	}
	return sum(h)
}

// text hashes strings without copying each to the heap.
type text struct {
	h   hash.Hash
	buf [256]byte
}

func (t *text) add(s string) {
	for len(s) > 0 {
		n := copy(t.buf[:], s)
		t.h.Write(t.buf[:n])
		s = s[n:]
	}
}

// RawReply digests a passthrough answer: every byte relayed, in order.
type RawReply struct{ h hash.Hash }

// NewRawReply starts the digest of no bytes.
func NewRawReply(salt Salt) *RawReply { return &RawReply{h: salted(salt, domainRawReply)} }

// Write adds relayed bytes. It never fails.
func (r *RawReply) Write(p []byte) (int, error) { return r.h.Write(p) }

// Digest binds everything written so far. More may be written after it.
func (r *RawReply) Digest() Digest { return sum(r.h) }
