package decide

import "github.com/tollgate-platform/tollgate/libs/kit/ident"

// A KeyUse is a commit with a key of an account, to be stored.
type KeyUse struct {
	Key         ident.ID
	AccountN    int64
	CommittedAt int64
}

// activityMax bounds the keys whose last stored use is remembered.
const activityMax = 65_536

// Activity remembers in which minute a use of each key was last stored, so that
// a busy key costs one write a minute instead of one an event. Its zero value
// remembers nothing; it is for one goroutine.
type Activity struct {
	minutes map[activityKey]int64
	due     map[activityKey]int // index in uses
	uses    []KeyUse
}

// activityKey has the account, since an event may name another's key.
type activityKey struct {
	key      ident.ID
	accountN int64
}

// Due gives what is to be stored of a group's events: for each key its newest
// commit, if that is in a later minute than the one stored last. The slice is
// valid until the next call.
func (a *Activity) Due(events []Event) []KeyUse {
	a.uses = a.uses[:0]
	clear(a.due)
	for i := range events {
		e := &events[i]
		k := activityKey{e.Key, e.AccountN}
		if e.Key.IsZero() || MinuteOf(e.CommittedAt) <= a.minutes[k] {
			continue
		}
		if at, twice := a.due[k]; twice {
			a.uses[at].CommittedAt = max(a.uses[at].CommittedAt, e.CommittedAt)
			continue
		}
		if a.due == nil {
			a.due = map[activityKey]int{}
		}
		a.due[k] = len(a.uses)
		a.uses = append(a.uses, KeyUse{Key: e.Key, AccountN: e.AccountN, CommittedAt: e.CommittedAt})
	}
	return a.uses
}

// Stored remembers that what Due gave last is committed. Who doesn't call it,
// since the group failed, is given the same again.
func (a *Activity) Stored() {
	if a.minutes == nil || len(a.minutes) > activityMax {
		a.minutes = map[activityKey]int64{}
	}
	for _, u := range a.uses {
		a.minutes[activityKey{u.Key, u.AccountN}] = MinuteOf(u.CommittedAt)
	}
	a.uses = a.uses[:0]
}
