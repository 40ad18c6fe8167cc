package pgtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// The instants around a commit at which a Breaker can break a connection.
const (
	BeforeCommit = 0  // the server has everything but the commit
	AnswerLost   = -1 // the server has committed and its client isn't told
)

// Breaker stands between a client and the server of a DSN, and breaks a
// connection off at an exact place: in the middle of a transaction, before its
// commit, or after it. What it does is what the end of the client's process, or
// of the network, does to the server. Sessions that only read are never broken.
type Breaker struct {
	t        testing.TB
	dsn      url.URL
	network  string
	upstream string
	listener net.Listener
	links    sync.WaitGroup

	mu    sync.Mutex
	armed bool
	at    int
	asked int // statements since it was armed
	broke bool
	open  map[net.Conn]struct{}
}

// NewBreaker starts one for a server that speaks without TLS, and ends it with
// the test.
func NewBreaker(t testing.TB, dsn string) *Breaker {
	t.Helper()
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	b := &Breaker{t: t, network: "tcp", open: map[net.Conn]struct{}{}}
	port := strconv.Itoa(int(cfg.Port))
	b.upstream = net.JoinHostPort(cfg.Host, port)
	if strings.HasPrefix(cfg.Host, "/") {
		b.network, b.upstream = "unix", filepath.Join(cfg.Host, ".s.PGSQL."+port)
	}
	dir, err := os.MkdirTemp("", "pgb") // short: a socket path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	if b.listener, err = (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(dir, ".s.PGSQL."+port)); err != nil {
		t.Fatal(err)
	}
	query := url.Values{"host": {dir}, "port": {port}, "sslmode": {"disable"}}
	b.dsn = url.URL{Scheme: "postgres", User: url.UserPassword(cfg.User, cfg.Password), Path: "/" + cfg.Database, RawQuery: query.Encode()}
	b.links.Go(b.accept)
	t.Cleanup(func() {
		_ = b.listener.Close()
		b.mu.Lock()
		for c := range b.open {
			_ = c.Close()
		}
		b.mu.Unlock()
		b.links.Wait()
		_ = os.RemoveAll(dir)
	})
	return b
}

// DSN is the way through the breaker.
func (b *Breaker) DSN() string { return b.dsn.String() }

// Arm breaks one connection: before the nth statement from now on, from 1, or
// BeforeCommit, or AnswerLost.
func (b *Breaker) Arm(at int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.armed, b.at, b.asked, b.broke = true, at, 0, false
}

// Disarm says whether a connection was broken, and breaks none any more.
func (b *Breaker) Disarm() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.armed = false
	return b.broke
}

// breaks says whether to break now: before a statement or its commit, or with
// told before the answer to a commit.
func (b *Breaker) breaks(commit, told bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.armed {
		return false
	}
	if !told {
		b.asked++
	}
	switch {
	case told:
		b.broke = b.at == AnswerLost
	case b.at == BeforeCommit:
		b.broke = commit
	default:
		b.broke = b.at == b.asked
	}
	b.armed = !b.broke
	return b.broke
}

func (b *Breaker) keep(c net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open[c] = struct{}{}
}

func (b *Breaker) drop(c net.Conn) {
	_ = c.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.open, c)
}

func (b *Breaker) accept() {
	for {
		client, err := b.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.DialTimeout(b.network, b.upstream, 10*time.Second)
		if err != nil {
			_ = client.Close()
			continue
		}
		b.keep(client)
		b.keep(server)
		l := &link{b: b, statements: map[string]bool{}}
		b.links.Go(func() {
			defer b.drop(client)
			defer b.drop(server)
			l.requests(client, server)
		})
		b.links.Go(func() {
			defer b.drop(client)
			defer b.drop(server)
			l.answers(server, client)
		})
	}
}

// link is one connection. Its protocol is PostgreSQL's, version 3.
type link struct {
	b          *Breaker
	statements map[string]bool // whether a prepared one is a commit
	bound      bool            // whether the portal that was bound last is a commit

	mu     sync.Mutex
	writes bool
}

func (l *link) writer() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.writes
}

// requests copies what the client says, message by message.
func (l *link) requests(from, to net.Conn) {
	start, err := message(from, nil)
	if err != nil {
		return
	}
	l.mu.Lock()
	l.writes = !bytes.Contains(start, []byte("default_transaction_read_only\x00on\x00"))
	l.mu.Unlock()
	if _, err := to.Write(start); err != nil {
		return
	}
	for {
		var kind [1]byte
		if _, err := io.ReadFull(from, kind[:]); err != nil {
			return
		}
		text, err := message(from, kind[:])
		if err != nil {
			return
		}
		if statement, commit := l.request(kind[0], text[5:]); statement && l.writer() && l.b.breaks(commit, false) {
			return
		}
		if _, err := to.Write(text); err != nil {
			return
		}
	}
}

// request says whether a message runs a statement, and whether that commits.
func (l *link) request(kind byte, body []byte) (statement, commit bool) {
	switch kind {
	case 'P': // Parse: name, text
		name, rest, _ := bytes.Cut(body, []byte{0})
		text, _, _ := bytes.Cut(rest, []byte{0})
		l.statements[string(name)] = commits(text)
	case 'B': // Bind: portal, name
		_, rest, _ := bytes.Cut(body, []byte{0})
		name, _, _ := bytes.Cut(rest, []byte{0})
		l.bound = l.statements[string(name)]
	case 'E':
		return true, l.bound
	case 'Q':
		text, _, _ := bytes.Cut(body, []byte{0})
		return true, commits(text)
	}
	return false, false
}

func commits(statement []byte) bool {
	text := bytes.TrimRight(statement, " ;\n")
	return len(text) >= 6 && bytes.EqualFold(text[len(text)-6:], []byte("commit"))
}

// answers copies what the server says, message by message.
func (l *link) answers(from, to net.Conn) {
	for {
		var kind [1]byte
		if _, err := io.ReadFull(from, kind[:]); err != nil {
			return
		}
		text, err := message(from, kind[:])
		if err != nil {
			return
		}
		if kind[0] == 'C' && bytes.Equal(text[5:], []byte("COMMIT\x00")) && l.writer() && l.b.breaks(true, true) {
			return
		}
		if _, err := to.Write(text); err != nil {
			return
		}
	}
}

// messageMax bounds one message of a test.
const messageMax = 64 << 20

// message reads the rest of one: its length, which counts itself, and its body.
func message(from io.Reader, kind []byte) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(from, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n < 4 || n > messageMax {
		return nil, errors.New("pgtest: not a message of PostgreSQL's protocol")
	}
	text := make([]byte, len(kind)+int(n))
	copy(text, kind)
	copy(text[len(kind):], size[:])
	_, err := io.ReadFull(from, text[len(kind)+4:])
	return text, err
}
