package typed

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"unicode/utf16"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	gatewayv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/gateway/v1"
)

// asked is what ChatRequest and CompleteRequest have in common.
type asked interface {
	proto.Message
	GetModel() string
	GetMessages() []*gatewayv1.Message
	GetParams() *structpb.Struct
	GetMetadata() *structpb.Struct
	GetIdempotencyKey() string
	GetHoldId() string
}

const depthMax = 32

var (
	errNumber = errors.New("must not hold a number that is infinite or no number")
	errDepth  = errors.New("must not be nested deeper than 32")
	errValue  = errors.New("must not hold a value without a kind")
)

// fieldError says which field of a request has no native form.
type fieldError struct {
	field string
	err   error
}

func (e *fieldError) Error() string { return e.field + ": " + e.err.Error() }

// nativeBody writes a typed request as the body of the native endpoints, in the
// canonical form of RFC 8785 (sorted names, no white space): the same request
// has the same body whatever codec or protocol it came in, and a client can
// write it too. Receipts bind this body; docs/adr/0006 is its contract.
//
// A field that is empty, and an object that was not sent, is left out.
func nativeBody(m asked) ([]byte, error) {
	b := make([]byte, 0, 512)
	b = append(b, '{')
	var err error
	if len(m.GetMessages()) > 0 {
		b = append(b, `"messages":[`...)
		for i, msg := range m.GetMessages() {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendMessage(b, msg)
		}
		b = append(b, ']')
	}
	if m.GetMetadata() != nil {
		if b, err = appendStruct(appendName(b, "metadata"), m.GetMetadata(), 0); err != nil {
			return nil, &fieldError{"metadata", err}
		}
	}
	if m.GetModel() != "" {
		b = appendString(appendName(b, "model"), m.GetModel())
	}
	if m.GetParams() != nil {
		if b, err = appendStruct(appendName(b, "params"), m.GetParams(), 0); err != nil {
			return nil, &fieldError{"params", err}
		}
	}
	return append(b, '}'), nil
}

// appendMessage writes a turn as OpenAI has it.
func appendMessage(b []byte, m *gatewayv1.Message) []byte {
	b = append(b, '{')
	switch c := m.GetContent().(type) {
	case *gatewayv1.Message_Text:
		b = appendString(appendName(b, "content"), c.Text)
	case *gatewayv1.Message_Parts:
		b = append(appendName(b, "content"), '[')
		for i, p := range c.Parts.GetParts() {
			if i > 0 {
				b = append(b, ',')
			}
			if p.GetImageUrl() != "" {
				b = append(appendString(append(b, `{"image_url":{"url":`...), p.GetImageUrl()), `},"type":"image_url"}`...)
			} else {
				b = append(appendString(append(b, `{"text":`...), p.GetText()), `,"type":"text"}`...)
			}
		}
		b = append(b, ']')
	}
	if m.GetName() != "" {
		b = appendString(appendName(b, "name"), m.GetName())
	}
	b = appendString(appendName(b, "role"), m.GetRole())
	if m.GetToolCallId() != "" {
		b = appendString(appendName(b, "tool_call_id"), m.GetToolCallId())
	}
	if len(m.GetToolCalls()) > 0 {
		b = append(appendName(b, "tool_calls"), '[')
		for i, t := range m.GetToolCalls() {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendString(append(b, `{"function":{"arguments":`...), t.GetArguments())
			b = appendString(append(b, `,"name":`...), t.GetName())
			b = append(appendString(append(b, `},"id":`...), t.GetId()), `,"type":"function"}`...)
		}
		b = append(b, ']')
	}
	return append(b, '}')
}

// appendName writes a member's name, after a comma unless it is the first.
func appendName(b []byte, name string) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	return append(appendString(b, name), ':')
}

func appendStruct(b []byte, s *structpb.Struct, depth int) ([]byte, error) {
	if depth == depthMax {
		return nil, errDepth
	}
	names := make([]string, 0, len(s.GetFields()))
	for name := range s.GetFields() {
		names = append(names, name)
	}
	slices.SortFunc(names, compareUTF16)
	b = append(b, '{')
	var err error
	for _, name := range names {
		if b, err = appendValue(appendName(b, name), s.GetFields()[name], depth+1); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

func appendValue(b []byte, v *structpb.Value, depth int) ([]byte, error) {
	switch k := v.GetKind().(type) {
	case *structpb.Value_NullValue:
		return append(b, "null"...), nil
	case *structpb.Value_BoolValue:
		return strconv.AppendBool(b, k.BoolValue), nil
	case *structpb.Value_NumberValue:
		return appendNumber(b, k.NumberValue)
	case *structpb.Value_StringValue:
		return appendString(b, k.StringValue), nil
	case *structpb.Value_StructValue:
		return appendStruct(b, k.StructValue, depth)
	case *structpb.Value_ListValue:
		if depth == depthMax {
			return nil, errDepth
		}
		b = append(b, '[')
		var err error
		for i, e := range k.ListValue.GetValues() {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = appendValue(b, e, depth+1); err != nil {
				return nil, err
			}
		}
		return append(b, ']'), nil
	}
	return nil, errValue
}

// compareUTF16 orders names as RFC 8785 does: by UTF-16 code units.
func compareUTF16(a, b string) int {
	return slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)))
}

// appendNumber writes a double as ECMAScript does: the shortest digits that
// read back the same, with an exponent below 1e-6 and from 1e21.
func appendNumber(b []byte, f float64) ([]byte, error) {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return nil, errNumber
	}
	if f == 0 {
		return append(b, '0'), nil // minus zero too
	}
	const fixedMin, fixedMax = 1e-6, 1e21
	if abs := math.Abs(f); abs >= fixedMin && abs < fixedMax {
		return strconv.AppendFloat(b, f, 'f', -1, 64), nil
	}
	b = strconv.AppendFloat(b, f, 'e', -1, 64)
	if n := len(b); b[n-4] == 'e' && b[n-2] == '0' { // e-07 is e-7
		b[n-2] = b[n-1]
		b = b[:n-1]
	}
	return b, nil
}

// appendString writes s, which is UTF-8 (every codec checks), with no more
// escapes than JSON demands.
func appendString(b []byte, s string) []byte {
	const hexDigits = "0123456789abcdef"
	b = append(b, '"')
	start := 0
	for i := range len(s) {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\b':
			b = append(b, '\\', 'b')
		case '\t':
			b = append(b, '\\', 't')
		case '\n':
			b = append(b, '\\', 'n')
		case '\f':
			b = append(b, '\\', 'f')
		case '\r':
			b = append(b, '\\', 'r')
		default:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xf])
		}
	}
	return append(append(b, s[start:]...), '"')
}
