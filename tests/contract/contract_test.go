package contract

import (
	"errors"
	"strings"
	"testing"

	validatepb "buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	adminv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/admin/v1"
	commonv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/common/v1"
	gatewayv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/gateway/v1"
	leasev1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/lease/v1"
	receiptsv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/receipts/v1"
	snapshotv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/snapshot/v1"
	usagev1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/usage/v1"
)

func files() []protoreflect.FileDescriptor {
	return []protoreflect.FileDescriptor{
		adminv1.File_tollgate_admin_v1_account_proto,
		adminv1.File_tollgate_admin_v1_admin_proto,
		commonv1.File_tollgate_common_v1_account_proto,
		commonv1.File_tollgate_common_v1_decision_proto,
		commonv1.File_tollgate_common_v1_hold_proto,
		commonv1.File_tollgate_common_v1_problem_proto,
		commonv1.File_tollgate_common_v1_role_proto,
		commonv1.File_tollgate_common_v1_usage_proto,
		gatewayv1.File_tollgate_gateway_v1_chat_proto,
		gatewayv1.File_tollgate_gateway_v1_gateway_proto,
		leasev1.File_tollgate_lease_v1_lease_proto,
		leasev1.File_tollgate_lease_v1_reservation_proto,
		receiptsv1.File_tollgate_receipts_v1_receipts_proto,
		snapshotv1.File_tollgate_snapshot_v1_snapshot_proto,
		usagev1.File_tollgate_usage_v1_usage_proto,
	}
}

func messages() []protoreflect.MessageDescriptor {
	var all []protoreflect.MessageDescriptor
	for _, f := range files() {
		for i := range f.Messages().Len() {
			all = append(all, f.Messages().Get(i))
		}
	}
	return all
}

// rules gives a field's rules; a field without any has empty ones.
func rules(t *testing.T, f protoreflect.FieldDescriptor) *validatepb.FieldRules {
	t.Helper()
	r, ok := proto.GetExtension(f.Options(), validatepb.E_Field).(*validatepb.FieldRules)
	if !ok {
		t.Fatalf("%s: its rules have another type", f.FullName())
	}
	return r
}

// requests are the messages that callers send, and what is inside of them.
func requests(t *testing.T) map[protoreflect.FullName]protoreflect.MessageDescriptor {
	t.Helper()
	sent := map[protoreflect.FullName]protoreflect.MessageDescriptor{}
	var add func(protoreflect.MessageDescriptor)
	add = func(m protoreflect.MessageDescriptor) {
		if sent[m.FullName()] != nil || !strings.HasPrefix(string(m.FullName()), "tollgate.") {
			return
		}
		sent[m.FullName()] = m
		for i := range m.Fields().Len() {
			if inner := m.Fields().Get(i).Message(); inner != nil {
				add(inner)
			}
		}
	}
	for _, f := range files() {
		for i := range f.Services().Len() {
			methods := f.Services().Get(i).Methods()
			for j := range methods.Len() {
				add(methods.Get(j).Input())
			}
		}
	}
	if len(sent) < 60 {
		t.Fatalf("found %d messages that are sent: the walk is wrong", len(sent))
	}
	return sent
}

// TestEveryRuleCompiles guards handlers: a rule that doesn't compile fails at the
// first request, with an error that is not the caller's.
func TestEveryRuleCompiles(t *testing.T) {
	t.Parallel()
	v, err := protovalidate.New(protovalidate.WithDisableLazy(), protovalidate.WithMessageDescriptors(messages()...))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range messages() {
		err := v.Validate(dynamicpb.NewMessage(m))
		if err == nil {
			continue
		}
		if _, ok := errors.AsType[*protovalidate.ValidationError](err); !ok {
			t.Errorf("%s: %v", m.FullName(), err)
		}
	}
}

// TestEverythingThatIsSentIsBounded guards memory: every text, list and byte
// string of a request has a largest size.
func TestEverythingThatIsSentIsBounded(t *testing.T) {
	t.Parallel()
	for _, m := range requests(t) {
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			r := rules(t, f)
			item := r
			if f.IsList() {
				if r.GetRepeated().GetMaxItems() == 0 {
					t.Errorf("%s: a list without max_items", f.FullName())
				}
				item = r.GetRepeated().GetItems()
			}
			switch f.Kind() {
			case protoreflect.StringKind:
				s := item.GetString()
				if s.GetMaxLen() == 0 && s.GetMaxBytes() == 0 && s.GetLen() == 0 && s.GetPattern() == "" && len(s.GetIn()) == 0 {
					t.Errorf("%s: a text without a bound", f.FullName())
				}
			case protoreflect.BytesKind:
				if b := item.GetBytes(); b.GetMaxLen() == 0 && b.GetLen() == 0 {
					t.Errorf("%s: bytes without a bound", f.FullName())
				}
			default: // fixed in size, or a message that is visited itself
			}
		}
	}
}

// TestMoneyIsNeverNegativeOnTheWire guards the books' borders.
func TestMoneyIsNeverNegativeOnTheWire(t *testing.T) {
	t.Parallel()
	for _, m := range requests(t) {
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			name := string(f.Name())
			if name != "units" && !strings.HasSuffix(name, "_units") && !strings.HasSuffix(name, "_nano_usd") {
				continue
			}
			n := rules(t, f).GetInt64()
			if _, floor := n.GetGreaterThan().(*validatepb.Int64Rules_Gte); f.Kind() != protoreflect.Int64Kind ||
				(!floor && n.GetGreaterThan() == nil) {
				t.Errorf("%s: money is an int64 with a floor", f.FullName())
			}
		}
	}
}

// TestEveryReservationRefusalHasAReason guards that a refusal can become a
// Problem without a table of its own.
func TestEveryReservationRefusalHasAReason(t *testing.T) {
	t.Parallel()
	other := map[string]string{
		"UNSPECIFIED":          "UNSPECIFIED",
		"UNKNOWN_ACCOUNT":      "ACCOUNT_NOT_FOUND",
		"REQUEST_RATE_LIMITED": "REQUESTS_PER_MINUTE",
		"TOKEN_RATE_LIMITED":   "TOKENS_PER_MINUTE",
	}
	for _, name := range leasev1.RefusalReason_name {
		short := strings.TrimPrefix(name, "REFUSAL_REASON_")
		if o, ok := other[short]; ok {
			short = o
		}
		if _, ok := commonv1.Reason_value["REASON_"+short]; !ok {
			t.Errorf("%s: no REASON_%s", name, short)
		}
	}
}

// TestRulesRefuseAndAccept walks the rules that are more than a bound.
func TestRulesRefuseAndAccept(t *testing.T) {
	t.Parallel()
	id := strings.Repeat("0a", 16)
	reserve := func(change func(*leasev1.ReserveRequest)) *leasev1.ReserveRequest {
		r := &leasev1.ReserveRequest{
			RequestId: id, HolderId: id, AccountId: id, KeyId: id, Units: 5, PromptUnits: 5,
			Tokens: 9, PromptTokens: 3, TtlNanos: 60e9, Endpoint: "stream",
		}
		change(r)
		return r
	}
	closing := func(o commonv1.Outcome, units int64) *leasev1.CloseBatchRequest {
		return &leasev1.CloseBatchRequest{Closings: []*leasev1.Closing{
			{AccountId: id, RequestId: id, Outcome: o, Units: units},
		}}
	}
	for _, c := range []struct {
		name    string
		message proto.Message
		field   string // that is refused; empty when the message is right
	}{
		{"a reservation", reserve(func(*leasev1.ReserveRequest) {}), ""},
		{"an id in upper case", reserve(func(r *leasev1.ReserveRequest) { r.KeyId = strings.ToUpper(id) }), "key_id"},
		{"an id with a newline", reserve(func(r *leasev1.ReserveRequest) { r.KeyId = id + "\n" }), "key_id"},
		{"an id that is short", reserve(func(r *leasev1.ReserveRequest) { r.KeyId = id[1:] }), "key_id"},
		{"a stated policy", reserve(func(r *leasev1.ReserveRequest) { r.PolicyRevision = id + id }), ""},
		{"a revision of the wrong size", reserve(func(r *leasev1.ReserveRequest) { r.PolicyRevision = id }), "policy_revision"},
		{"negative units", reserve(func(r *leasev1.ReserveRequest) { r.Units, r.PromptUnits = -1, -1 }), "units"},
		{"a prompt above the whole", reserve(func(r *leasev1.ReserveRequest) { r.PromptUnits = 6 }), "prompt_units"},
		{"prompt tokens above all tokens", reserve(func(r *leasev1.ReserveRequest) { r.PromptTokens = 10 }), "prompt_tokens"},
		{"no time to live", reserve(func(r *leasev1.ReserveRequest) { r.TtlNanos = 0 }), "ttl_nanos"},
		{"a short fingerprint", reserve(func(r *leasev1.ReserveRequest) {
			r.Idempotency = &leasev1.Idempotency{
				KeyHash: make([]byte, 32), Format: "stream", Fingerprints: [][]byte{make([]byte, 31)},
			}
		}), "idempotency.fingerprints"},
		{"a settled closing", closing(commonv1.Outcome_OUTCOME_SETTLED, 7), ""},
		{"a released closing", closing(commonv1.Outcome_OUTCOME_RELEASED, 0), ""},
		{"a released closing that bills", closing(commonv1.Outcome_OUTCOME_RELEASED, 1), "units"},
		{"a closing that claims the sweep's outcome", closing(commonv1.Outcome_OUTCOME_SWEPT, 0), "outcome"},
		{"a closing without an outcome", closing(commonv1.Outcome_OUTCOME_UNSPECIFIED, 0), "outcome"},
		{"no closings", &leasev1.CloseBatchRequest{}, "closings"},
		{"nothing deposited", &adminv1.DepositRequest{AccountId: id}, "units"},
		{"a slug with a slash", &adminv1.CreateAccountRequest{Slug: "a/b"}, "slug"},
		{"a lower limit for the account than for one principal", &snapshotv1.InstanceLimits{
			MaxConcurrentRequests: proto.Uint32(1), PrincipalMaxConcurrentRequests: proto.Uint32(2),
		}, "principal_max_concurrent_requests"},
		{"a key with a space", &gatewayv1.CompleteRequest{
			Messages: []*gatewayv1.Message{{Role: "user"}}, IdempotencyKey: "a b",
		}, "idempotency_key"},
		{"an event with more overage than units", &usagev1.UsageEvent{
			RequestId: id, AccountId: id, Units: 1, OverageUnits: 2, CommittedAtUnixNanos: 1,
			Source: &usagev1.UsageEvent_Overage{Overage: &usagev1.OverageSource{}},
		}, "overage_units"},
	} {
		err := protovalidate.Validate(c.message)
		switch {
		case c.field == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.field != "" && err == nil:
			t.Errorf("%s: accepted", c.name)
		case c.field != "" && !strings.Contains(err.Error(), c.field):
			t.Errorf("%s: the error names another field: %v", c.name, err)
		}
	}
}
