package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/faultlab/faultlab/netem"
)

// Parent and helper exchange JSON objects, one a line, over the helper's
// standard input and output. The end of input ends the helper.

type op string

const (
	opHello    op = "hello"
	opApply    op = "apply"
	opClear    op = "clear"
	opShow     op = "show"
	opCounters op = "counters"
)

type request struct {
	Seq   uint64
	Op    op
	Links []netem.Link `json:",omitempty"`
}

type reply struct {
	Seq         uint64
	Error       string            `json:",omitempty"`
	Unsupported bool              `json:",omitempty"` // Error is of the kind ErrUnsupported
	Counters    netem.Counters    `json:",omitzero"`
	Links       []netem.LinkState `json:",omitempty"`
}

func failed(seq uint64, err error) reply {
	return reply{Seq: seq, Error: err.Error(), Unsupported: errors.Is(err, ErrUnsupported)}
}

func (r reply) err() error {
	switch {
	case r.Error == "":
		return nil
	case r.Unsupported:
		return unsupported{r.Error}
	}
	return errors.New(r.Error)
}

// unsupported is an ErrUnsupported that came through the pipe as text.
type unsupported struct{ text string }

func (u unsupported) Error() string        { return u.text }
func (u unsupported) Is(target error) bool { return target == ErrUnsupported }

type conn struct {
	dec *json.Decoder
	enc *json.Encoder
}

func newConn(r io.Reader, w io.Writer) *conn {
	return &conn{json.NewDecoder(r), json.NewEncoder(w)}
}

func (c *conn) read(v any) error {
	if err := c.dec.Decode(v); err != nil {
		return fmt.Errorf("read: %w", err)
	}
	return nil
}

func (c *conn) write(v any) error {
	if err := c.enc.Encode(v); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}
