package oltp

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/faultlab/faultlab/lab/workload"
)

// server speaks as much of the MySQL protocol as a session asks for. It keeps
// what it was told, and answers OK unless the test says otherwise.
type server struct {
	t *testing.T
	// answer may give a statement another answer than OK, by its text: an error
	// code, or cut, which is to hang up instead.
	answer func(text string) int

	mu  sync.Mutex
	log []call
}

// call is a statement that was run.
type call struct {
	text string
	args []any // int64 or string; nil for statements that were sent as text
}

const cut = -1

func (s *server) target() workload.Target {
	return workload.Target{Addr: "192.0.2.1:3306", User: "u", Password: "p", Dial: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go s.serve(theirs)
		return ours, nil
	}}
}

func (s *server) serve(c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	send := func(seq byte, payload []byte) {
		head := []byte{byte(len(payload)), byte(len(payload) >> 8), 0, seq}
		_, _ = c.Write(append(head, payload...))
	}
	receive := func() ([]byte, error) {
		var head [4]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return nil, err
		}
		payload := make([]byte, int(head[0])|int(head[1])<<8|int(head[2])<<16)
		_, err := io.ReadFull(r, payload)
		return payload, err
	}
	// Protocol::HandshakeV10: protocol 4.1, secure connection, plugin auth.
	hello := append([]byte{10}, "8.0.0\x00\x01\x00\x00\x00abcdefgh\x00\x00\xa2\x21\x02\x00\x08\x00\x15"...)
	hello = append(hello, make([]byte, 10)...)
	hello = append(hello, "ijklmnopqrst\x00mysql_native_password\x00"...)
	ok := []byte{0, 0, 0, 2, 0, 0, 0}
	send(0, hello)
	if _, err := receive(); err != nil {
		return
	}
	send(2, ok)
	var prepared []string
	for {
		p, err := receive()
		if err != nil {
			return
		}
		var did call
		switch p[0] {
		case 0x01: // COM_QUIT
			return
		case 0x03: // COM_QUERY
			did.text = string(p[1:])
		case 0x16: // COM_STMT_PREPARE
			text := string(p[1:])
			if text == "BEGIN" {
				send(1, serverError(1295))
				continue
			}
			prepared = append(prepared, text)
			params := strings.Count(text, "?")
			head := make([]byte, 12)
			binary.LittleEndian.PutUint32(head[1:], uint32(len(prepared)))
			head[7] = byte(params)
			send(1, head)
			for i := range params {
				send(byte(2+i), []byte("def"))
			}
			if params > 0 {
				send(byte(2+params), []byte{0xfe, 0, 0, 2, 0})
			}
			continue
		case 0x17: // COM_STMT_EXECUTE
			did.text = prepared[binary.LittleEndian.Uint32(p[1:])-1]
			did.args = arguments(p[10:], strings.Count(did.text, "?"))
		default:
			s.t.Errorf("server got command %#x", p[0])
			return
		}
		s.mu.Lock()
		s.log = append(s.log, did)
		s.mu.Unlock()
		code := 0
		if s.answer != nil {
			code = s.answer(did.text)
		}
		switch code {
		case 0:
			send(1, ok)
		case cut:
			return
		default:
			send(1, serverError(code))
		}
	}
}

func serverError(code int) []byte {
	return fmt.Appendf([]byte{0xff, byte(code), byte(code >> 8)}, "#HY000as the test wants")
}

// arguments reads the values of COM_STMT_EXECUTE, all bound, BIGINT or string.
func arguments(p []byte, n int) []any {
	if n == 0 {
		return []any{}
	}
	p = p[(n+7)/8+1:]
	types, p := p[:2*n], p[2*n:]
	var all []any
	for i := range n {
		if types[2*i] == 0x08 {
			all, p = append(all, int64(binary.LittleEndian.Uint64(p))), p[8:]
			continue
		}
		length := int(p[0])
		all, p = append(all, string(p[1:1+length])), p[1+length:]
	}
	return all
}
