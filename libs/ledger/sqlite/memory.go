package sqlite

import (
	"context"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/decide"
)

// memoryMax bounds the accounts and the keys that are remembered.
const memoryMax = 10_000

// memory is what the decide loop remembers of its last groups, so that a busy
// account isn't read again for each of them: accounts, keys and the current
// minute's counters, as the last commit left them.
//
// It is never older than the file. One process writes (the lock), through one
// connection; SQLite's data_version tells when anybody else did after all, and
// then everything is forgotten. So it is after an administrative transaction
// and after any group that failed.
type memory struct {
	version  int64 // data_version, valid while accounts isn't empty
	minute   int64 // of the counters
	accounts map[ident.ID]*decide.Account
	keys     map[ident.ID]*decide.Key
	minutes  map[decide.MinuteKey]*decide.Minute
	seldom   map[int64]seldom // of accounts, by number, as the file has it
}

func newMemory() memory {
	return memory{
		accounts: map[ident.ID]*decide.Account{},
		keys:     map[ident.ID]*decide.Key{},
		minutes:  map[decide.MinuteKey]*decide.Minute{},
		seldom:   map[int64]seldom{},
	}
}

func (m *memory) forget() {
	clear(m.accounts)
	clear(m.keys)
	clear(m.minutes)
	clear(m.seldom)
}

// recall drops what isn't true any more at the beginning of a group.
func (l *Ledger) recall(ctx context.Context, tx *session) error {
	m := &l.memory
	var version int64
	if err := tx.QueryRowContext(ctx, "PRAGMA data_version").Scan(&version); err != nil {
		return err
	}
	if version != m.version || len(m.accounts) > memoryMax || len(m.keys) > memoryMax {
		m.forget()
		m.version = version
	}
	if now := decide.MinuteOf(l.state.Now()); now != m.minute || len(m.minutes) > memoryMax {
		clear(m.minutes)
		m.minute = now
	}
	return nil
}

// remember keeps what a committed group wrote that wasn't there before. The
// rows that were loaded are in memory already, and the group changed them there.
func (l *Ledger) remember() {
	for _, row := range l.state.Writes().Minutes {
		if row.Minute == l.memory.minute {
			l.memory.minutes[row.MinuteKey] = row
		}
	}
}

// missing moves into the state what of ids is remembered, and gives the rest.
func missing[K comparable, V any](ids []K, remembered map[K]V, add func(V)) []K {
	rest := ids[:0]
	for _, id := range ids {
		if v, ok := remembered[id]; ok {
			add(v)
		} else {
			rest = append(rest, id)
		}
	}
	return rest
}
