package ledgerwire

import (
	"strconv"
	"strings"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	usagev1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/usage/v1"
)

// Sources are the contract's values of what funded an event.
func Sources() map[string]usagev1.UsageSource {
	return map[string]usagev1.UsageSource{
		ledger.SourceReserved: usagev1.UsageSource_USAGE_SOURCE_RESERVED,
		ledger.SourceLeased:   usagev1.UsageSource_USAGE_SOURCE_LEASED,
		ledger.SourceOverage:  usagev1.UsageSource_USAGE_SOURCE_OVERAGE,
	}
}

// FromSource reads what funded an event; unspecified is none. An unknown value
// is not ok.
func FromSource(s usagev1.UsageSource) (source string, ok bool) {
	for source, wire := range Sources() {
		if wire == s {
			return source, true
		}
	}
	return "", s == usagev1.UsageSource_USAGE_SOURCE_UNSPECIFIED
}

// UsagePlace spells a place: in a list of one account the instant in unix
// nanoseconds, a dot and the request id; in one of all, the account id and a dot
// before. The beginning is empty.
func UsagePlace(q ledger.UsageQuery, p ledger.UsagePlace) string {
	if p == (ledger.UsagePlace{}) {
		return ""
	}
	nanos := int64(0) // a place without an instant stands before every record
	if !p.CommittedAt.IsZero() {
		nanos = p.CommittedAt.UnixNano()
	}
	text := strconv.FormatInt(nanos, 10) + "." + p.Request.String()
	if q.Account.IsZero() {
		return p.Account.String() + "." + text
	}
	return text
}

// FromUsagePlace reads a place of what q selects.
func FromUsagePlace(q ledger.UsageQuery, text string) (ledger.UsagePlace, error) {
	if text == "" {
		return ledger.UsagePlace{}, nil
	}
	place := ledger.UsagePlace{Account: q.Account}
	var err error
	if q.Account.IsZero() {
		account, rest, _ := strings.Cut(text, ".")
		if place.Account, err = ident.Parse(account); err != nil {
			return ledger.UsagePlace{}, badCursor()
		}
		text = rest
	}
	at, id, _ := strings.Cut(text, ".")
	nanos, err := strconv.ParseInt(at, 10, 64)
	if err != nil || nanos < 0 {
		return ledger.UsagePlace{}, badCursor()
	}
	if place.Request, err = ident.Parse(id); err != nil {
		return ledger.UsagePlace{}, badCursor()
	}
	if nanos != 0 {
		place.CommittedAt = time.Unix(0, nanos).UTC()
	}
	return place, nil
}

func badCursor() error {
	return fault.New(fault.Invalid, "INVALID_CURSOR", "cursor: must be one that this list gave out")
}

// Groups are the contract's values of what a summary tells apart.
func Groups(by ledger.UsageGroups) []usagev1.UsageDimension {
	var out []usagev1.UsageDimension
	for _, d := range []struct {
		asked bool
		wire  usagev1.UsageDimension
	}{
		{by.Account, usagev1.UsageDimension_USAGE_DIMENSION_ACCOUNT},
		{by.Key, usagev1.UsageDimension_USAGE_DIMENSION_KEY},
		{by.Model, usagev1.UsageDimension_USAGE_DIMENSION_MODEL},
		{by.Source, usagev1.UsageDimension_USAGE_DIMENSION_SOURCE},
		{by.Bucket == time.Hour, usagev1.UsageDimension_USAGE_DIMENSION_HOUR},
		{by.Bucket == day, usagev1.UsageDimension_USAGE_DIMENSION_DAY},
	} {
		if d.asked {
			out = append(out, d.wire)
		}
	}
	return out
}

const day = 24 * time.Hour

// FromGroups reads what a summary tells apart.
func FromGroups(by []usagev1.UsageDimension) (ledger.UsageGroups, error) {
	var out ledger.UsageGroups
	for _, d := range by {
		switch d {
		case usagev1.UsageDimension_USAGE_DIMENSION_ACCOUNT:
			out.Account = true
		case usagev1.UsageDimension_USAGE_DIMENSION_KEY:
			out.Key = true
		case usagev1.UsageDimension_USAGE_DIMENSION_MODEL:
			out.Model = true
		case usagev1.UsageDimension_USAGE_DIMENSION_SOURCE:
			out.Source = true
		case usagev1.UsageDimension_USAGE_DIMENSION_HOUR, usagev1.UsageDimension_USAGE_DIMENSION_DAY:
			if out.Bucket != 0 {
				return ledger.UsageGroups{}, fault.New(fault.Invalid, "GROUPS_INVALID", "by: an hour and a day exclude each other")
			}
			out.Bucket = time.Hour
			if d == usagev1.UsageDimension_USAGE_DIMENSION_DAY {
				out.Bucket = day
			}
		case usagev1.UsageDimension_USAGE_DIMENSION_UNSPECIFIED:
			return ledger.UsageGroups{}, fault.New(fault.Invalid, "GROUPS_INVALID", "by: must name what the groups tell apart")
		}
	}
	return out, nil
}
