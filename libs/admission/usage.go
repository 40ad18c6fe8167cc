package admission

import "time"

// UsageSource says what funded a charge.
type UsageSource uint8

const (
	// SourceLease charges are ingested against their lease.
	SourceLease UsageSource = iota + 1
	// SourceReserved charges close their reservation; they are never ingested.
	SourceReserved
	// SourceOverage charges were funded by nothing: OverageUnits is Units.
	SourceOverage
)

// UsageEvent is one charge to be billed.
type UsageEvent struct {
	Source    UsageSource
	RequestID RequestID
	AccountID AccountID
	KeyID     KeyID
	// LeaseID and Fence name the lease that funded Units − OverageUnits. A
	// reserved request has only the fence of its grant.
	LeaseID LeaseID
	Fence   uint64
	// Units is the whole charge; OverageUnits is the part of it that neither
	// lease nor grant funded.
	Units, OverageUnits CostUnits
	Items               uint64
	PolicyRevision      PolicyRevision
	CommittedAt         time.Time
}
