package typed

import (
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// received is a message as it arrived. What can't be read is noted instead of
// failing in Connect, which would answer in its own words: so every refusal
// carries a Problem.
type received[M any] struct {
	msg        M
	unreadable error // of the codec; it may quote what was sent, so it is logged only
}

// reader is what a codec decodes into.
type reader interface {
	target() proto.Message
	note(err error)
}

func (r *received[M]) target() proto.Message {
	m, _ := any(&r.msg).(proto.Message) // every M here is a generated message
	return m
}

func (r *received[M]) note(err error) { r.unreadable = err }

// codecs replace Connect's own under their names.
func codecs() connect.HandlerOption {
	return connect.WithHandlerOptions(
		connect.WithCodec(codec{name: "proto", marshal: proto.MarshalOptions{}.MarshalAppend, unmarshal: proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal}),
		connect.WithCodec(codec{name: "json", marshal: protojson.MarshalOptions{}.MarshalAppend, unmarshal: protojson.Unmarshal}),
		connect.WithCodec(codec{name: "json; charset=utf-8", marshal: protojson.MarshalOptions{}.MarshalAppend, unmarshal: protojson.Unmarshal}),
	)
}

type codec struct {
	name      string
	marshal   func(b []byte, m proto.Message) ([]byte, error)
	unmarshal func(b []byte, m proto.Message) error
}

// Name implements connect.Codec.
func (c codec) Name() string { return c.name }

// Marshal implements connect.Codec.
func (c codec) Marshal(v any) ([]byte, error) { return c.MarshalAppend(nil, v) }

// MarshalAppend saves Connect a copy of each message.
func (c codec) MarshalAppend(b []byte, v any) ([]byte, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is no message", v)
	}
	return c.marshal(b, m)
}

// Unmarshal implements connect.Codec.
func (c codec) Unmarshal(b []byte, v any) error {
	switch to := v.(type) {
	case reader:
		to.note(c.unmarshal(b, to.target()))
		return nil
	case proto.Message:
		return c.unmarshal(b, to)
	}
	return fmt.Errorf("%T is no message", v)
}
