// Package identity says who calls the control plane and what each procedure
// allows: roles, bearer tokens that are read from files, and the guard that
// stands in front of every handler.
//
// Promises: a call is authenticated and authorised before a byte of its body is
// read; a procedure without an entry in the table is refused to everybody. Only
// keyed digests of tokens are kept, and no token reaches a log or an answer.
//
// A Registry is one generation of identities at a time. Reload stages the next,
// validates it whole and swaps it in atomically; on any fault the last good one
// stays. Everything here is safe for concurrent use.
//
// Failure: closed. Who can't be identified is unauthenticated, whatever else is
// wrong with the call.
package identity

import (
	"fmt"
	"strings"
)

// Role is what an authenticated caller may be. Roles are disjoint: none
// includes another.
type Role uint8

// The roles. Provisioner is part of the contract; no manifest may name it yet.
const (
	Instance Role = iota + 1
	Operator
	Provisioner
)

// String is the role's name in manifests and logs.
func (r Role) String() string {
	switch r {
	case Instance:
		return "instance"
	case Operator:
		return "operator"
	case Provisioner:
		return "provisioner"
	}
	return "none"
}

// ParseRole reads a role's name.
func ParseRole(text string) (Role, error) {
	for r := Instance; r <= Provisioner; r++ {
		if text == r.String() {
			return r, nil
		}
	}
	return 0, fmt.Errorf("must be instance or operator, not %q", text)
}

// Set is the roles that may call a procedure. The zero Set allows nobody.
type Set uint8

// Anyone also lets in who presents no credential. Health checks have it.
const Anyone Set = 1

// Of makes the set of the roles.
func Of(roles ...Role) Set {
	var s Set
	for _, r := range roles {
		s |= 1 << r
	}
	return s
}

// Has says whether the role is in the set.
func (s Set) Has(r Role) bool { return r != 0 && s&(1<<r) != 0 }

// String lists the set for people: "instance, operator", "anyone" or "nobody".
func (s Set) String() string {
	if s&Anyone != 0 {
		return "anyone"
	}
	var names []string
	for r := Instance; r <= Provisioner; r++ {
		if s.Has(r) {
			names = append(names, r.String())
		}
	}
	if names == nil {
		return "nobody"
	}
	return strings.Join(names, ", ")
}

// Table gives a procedure, as "/tollgate.lease.v1.LeaseService/Acquire", the
// roles that may call it.
type Table map[string]Set
