// Package receipttest is a second, plainly written verifier of receipt chains,
// for tests only. It doesn't import the format package: it parses with
// encoding/json, builds its own canonical text and knows the rules from the
// contract, so that a mistake in the format cannot excuse itself.
//
// It is slow, reads whole files, and keeps no state.
package receipttest

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha3"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Entry is what Check read of one line.
type Entry struct {
	ID, Verdict, Answers, Status string
	Codes                        []string
	CallDigest                   string
	Request, Response            any // text or nil
	IssuedAt                     string
}

// Check verifies a chain whose entries and anchors are all signed by the one
// key in pub, and gives its entries.
func Check(log, anchor, pub []byte) ([]Entry, error) {
	key, err := readKey(pub)
	if err != nil {
		return nil, err
	}
	var entries []Entry
	var previous any
	open := map[string]bool{}
	for i, line := range splitLines(log) {
		e, err := checkEntry(line, previous, key)
		if err != nil {
			return nil, fmt.Errorf("entry %d: %w", i+1, err)
		}
		if e.Verdict == "allow" {
			open[e.ID] = true
		}
		if e.Answers != "" {
			if !open[e.Answers] {
				return nil, fmt.Errorf("entry %d answers no open allow", i+1)
			}
			delete(open, e.Answers)
		}
		previous = e.ID
		entries = append(entries, e)
	}
	for i, line := range splitLines(anchor) {
		if err := checkAnchor(line, entries, key); err != nil {
			return nil, fmt.Errorf("anchor %d: %w", i+1, err)
		}
	}
	return entries, nil
}

func splitLines(b []byte) []string {
	if len(b) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
}

type publicKey struct {
	raw ed25519.PublicKey
	id  string
}

func readKey(pub []byte) (publicKey, error) {
	text, ok := strings.CutPrefix(strings.TrimSpace(string(pub)), "ed25519-public:")
	raw, err := hex.DecodeString(text)
	if !ok || err != nil || len(raw) != 32 {
		return publicKey{}, fmt.Errorf("bad key file %q", pub)
	}
	return publicKey{raw, "key:" + h(raw)}, nil
}

func (k publicKey) check(m map[string]any, message string) error {
	text, ok := m["signature"].(string)
	raw, err := hex.DecodeString(strings.TrimPrefix(text, "ed25519:"))
	if !ok || err != nil || !strings.HasPrefix(text, "ed25519:") || text != strings.ToLower(text) {
		return fmt.Errorf("signature %v", m["signature"])
	}
	if m["key_id"] != k.id || !ed25519.Verify(k.raw, []byte(message), raw) {
		return fmt.Errorf("not signed by %s", k.id)
	}
	return nil
}

func h(b []byte) string {
	s := sha3.Sum256(b)
	return "sha3-256:" + hex.EncodeToString(s[:])
}

func decode(line string) (map[string]any, error) {
	d := json.NewDecoder(strings.NewReader(line))
	d.UseNumber()
	var m map[string]any
	if err := d.Decode(&m); err != nil {
		return nil, err
	}
	if d.More() {
		return nil, fmt.Errorf("more than one value in %q", line)
	}
	return m, nil
}

// canon writes a flat object canonically with encoding/json, undoing the
// escapes it insists on.
func canon(m map[string]any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(m); err != nil { // maps are written in key order
		return nil, err
	}
	out := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	var text []byte
	for i := 0; i < len(out); i++ {
		switch {
		case bytes.HasPrefix(out[i:], []byte(`\u2028`)):
			text, i = append(text, "\u2028"...), i+5
		case bytes.HasPrefix(out[i:], []byte(`\u2029`)):
			text, i = append(text, "\u2029"...), i+5
		case out[i] == '\\':
			text, i = append(text, out[i], out[i+1]), i+1
		default:
			text = append(text, out[i])
		}
	}
	return text, nil
}

var (
	decisionFields = []string{"call_digest", "decision_hash", "issued_at", "policy_hash", "previous_receipt_hash", "proposal_hash", "reason_codes", "verdict", "version"}
	outcomeFields  = []string{"decision_receipt_id", "issued_at", "previous_receipt_hash", "request_sha256", "response_sha256", "status", "version"}
	unhashed       = []string{"receipt_id", "key_id", "signature"}
)

func checkEntry(line string, previous any, key publicKey) (Entry, error) {
	m, err := decode(line)
	if err != nil {
		return Entry{}, err
	}
	e := Entry{Request: m["request_sha256"], Response: m["response_sha256"]}
	fields := decisionFields
	switch m["version"] {
	case "infinity.receipt.v2":
		e.Verdict, _ = m["verdict"].(string)
		if !slices.Contains([]string{"allow", "deny", "await_human_approval"}, e.Verdict) {
			return Entry{}, fmt.Errorf("verdict %v", m["verdict"])
		}
		codes, _ := m["reason_codes"].([]any)
		for _, c := range codes {
			text, _ := c.(string)
			e.Codes = append(e.Codes, text)
		}
		e.CallDigest, _ = m["call_digest"].(string)
		if (e.Verdict == "allow") != (e.CallDigest != "") {
			return Entry{}, fmt.Errorf("%s with call digest %v", e.Verdict, m["call_digest"])
		}
	case "infinity.outcome.v1":
		fields = outcomeFields
		e.Answers, _ = m["decision_receipt_id"].(string)
		e.Status, _ = m["status"].(string)
		if e.Status != "completed" && e.Status != "failed" {
			return Entry{}, fmt.Errorf("status %v", m["status"])
		}
	default:
		return Entry{}, fmt.Errorf("version %v", m["version"])
	}
	e.ID, _ = m["receipt_id"].(string)
	e.IssuedAt, _ = m["issued_at"].(string)

	material := map[string]any{}
	for name, v := range m {
		if slices.Contains(fields, name) {
			material[name] = v
		} else if !slices.Contains(unhashed, name) {
			return Entry{}, fmt.Errorf("field %q", name)
		}
	}
	if material["previous_receipt_hash"] != previous {
		return Entry{}, fmt.Errorf("follows %v, not %v", material["previous_receipt_hash"], previous)
	}
	text, err := canon(material)
	if err != nil {
		return Entry{}, err
	}
	if want := "receipt:" + h(text); e.ID != want {
		return Entry{}, fmt.Errorf("id %s, contents hash to %s", e.ID, want)
	}
	if whole, err := canon(m); err != nil || string(whole) != line {
		return Entry{}, fmt.Errorf("not stored canonically: %q", line)
	}
	return e, key.check(m, "infinity-core/entry/v1\n"+key.id+"\n"+e.ID)
}

func checkAnchor(line string, entries []Entry, key publicKey) error {
	m, err := decode(line)
	if err != nil {
		return err
	}
	number, _ := m["count"].(json.Number)
	count, err := number.Int64()
	if err != nil || m["version"] != "infinity.anchor.v1" || count < 1 || len(m) != 5 {
		return fmt.Errorf("malformed: %s", line)
	}
	if count > int64(len(entries)) || m["head_receipt_id"] != entries[count-1].ID {
		return fmt.Errorf("%d entries ending at %v: not this log", count, m["head_receipt_id"])
	}
	return key.check(m, fmt.Sprintf("infinity-core/anchor/v1\n%s\n%d\n%s", key.id, count, m["head_receipt_id"]))
}
