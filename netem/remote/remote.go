// Package remote owns the reach of an emulator into other processes: a
// netem.Backend is served over a unix socket, and its Client is a netem.Backend
// too.
//
// Requests and answers are JSON objects, one a line, and a connection has one
// request under way. The socket is for its owner's eyes (mode 0600): whoever
// can write to it can cut links.
package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faultlab/faultlab/netem"
)

// ErrNobody is wrapped by errors of Dial and of calls when no process serves the
// socket, or none any more.
var ErrNobody = errors.New("the process that runs the emulator is gone")

type op string

const (
	opHello    op = "hello"
	opApply    op = "apply"
	opClear    op = "clear"
	opShow     op = "show"
	opCounters op = "counters"
)

type request struct {
	Op    op
	Links []netem.Link `json:",omitempty"`
}

type reply struct {
	Error    string            `json:",omitempty"`
	Name     string            `json:",omitempty"`
	Links    []netem.LinkState `json:",omitempty"`
	Counters netem.Counters    `json:",omitzero"`
}

// Listen makes the socket at path.
func Listen(path string) (net.Listener, error) {
	short, done, err := shorten(path)
	if err != nil {
		return nil, err
	}
	defer done()
	// The file takes its mode from the socket, so there is no moment in which
	// it has another.
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) }), err)
	}}
	l, err := lc.Listen(context.Background(), "unix", short)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, cause(err))
	}
	u := l.(*net.UnixListener)
	u.SetUnlinkOnClose(false) // it knows the short path, which means something else by then
	return &listener{u, path}, nil
}

type listener struct {
	*net.UnixListener
	path string
}

func (l *listener) Close() error {
	err := l.UnixListener.Close()
	if rerr := os.Remove(l.path); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) && err == nil {
		err = rerr
	}
	return err
}

// shorten gives another path of the same file: the kernel takes 107 bytes for a
// socket's, and folders lie deeper than that.
func shorten(path string) (short string, done func(), err error) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)), func() { dir.Close() }, nil
}

// cause takes the short path out of an error.
func cause(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

// Serve answers on l with what b does, one call at a time, until ctx ends or l
// fails. It closes l and all connections, and leaves b to its owner.
func Serve(ctx context.Context, l net.Listener, b netem.Backend) error {
	ctx, cancel := context.WithCancel(ctx)
	s := &server{backend: b}
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer func() {
		cancel()
		stop()
		l.Close()
		s.conns.Wait()
	}()
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("serve the emulator: %w", err)
		}
		s.conns.Go(func() {
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			s.serve(ctx, conn)
		})
	}
}

type server struct {
	conns   sync.WaitGroup
	mu      sync.Mutex // one call at a time
	backend netem.Backend
}

// serve returns when the other end hangs up or does not make sense.
func (s *server) serve(ctx context.Context, conn io.ReadWriter) {
	dec, enc := json.NewDecoder(conn), json.NewEncoder(conn)
	for {
		var q request
		if dec.Decode(&q) != nil || enc.Encode(s.answer(ctx, q)) != nil {
			return
		}
	}
}

func (s *server) answer(ctx context.Context, q request) (r reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	switch q.Op {
	case opHello:
		r.Name = s.backend.Name()
	case opApply:
		err = s.backend.Apply(ctx, q.Links)
	case opClear:
		err = s.backend.Clear(ctx)
	case opShow:
		r.Links, err = s.backend.Show(ctx)
	case opCounters:
		r.Counters, err = s.backend.Counters(ctx)
	default:
		err = fmt.Errorf("unknown request %q: is it of another version of this program?", q.Op)
	}
	if err != nil {
		return reply{Error: err.Error()}
	}
	return r
}

// Client is an emulator that another process runs. It is safe for concurrent
// use.
type Client struct {
	mu   sync.Mutex
	conn net.Conn
	dec  *json.Decoder
	enc  *json.Encoder
}

var _ netem.Backend = (*Client)(nil)

// Dial connects to the socket at path. Its error wraps ErrNobody if no process
// serves it.
func Dial(path string) (*Client, error) {
	short, done, err := shorten(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", ErrNobody, path)
	}
	if err != nil {
		return nil, err
	}
	defer done()
	conn, err := net.Dial("unix", short)
	if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("%w: %s", ErrNobody, path)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", path, cause(err))
	}
	return &Client{conn: conn, dec: json.NewDecoder(conn), enc: json.NewEncoder(conn)}, nil
}

// call sends one request and waits for its answer. After a call that ctx has cut
// short the connection is of no further use: it is closed. What was asked may
// have been done.
func (c *Client) call(ctx context.Context, q request) (reply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return reply{}, err
	}
	stop := context.AfterFunc(ctx, func() { c.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	var r reply
	err := c.enc.Encode(q)
	if err == nil {
		err = c.dec.Decode(&r)
	}
	switch {
	case err == nil && r.Error != "":
		return reply{}, errors.New(r.Error)
	case err == nil:
		return r, nil
	}
	c.conn.Close()
	if ctx.Err() != nil {
		return reply{}, fmt.Errorf("%s: no answer: %w", q.Op, ctx.Err())
	}
	return reply{}, fmt.Errorf("%w (%v)", ErrNobody, cause(err))
}

// patience is for an answer that needs nothing done.
const patience = 5 * time.Second

// Name is the served emulator's, "" if its process is gone.
func (c *Client) Name() string {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, _ := c.call(ctx, request{Op: opHello})
	return r.Name
}

// Apply makes the links as asked. Links that are impossible are not sent.
func (c *Client) Apply(ctx context.Context, links []netem.Link) error {
	for _, l := range links {
		if err := l.Validate(); err != nil {
			return err
		}
	}
	_, err := c.call(ctx, request{Op: opApply, Links: links})
	return err
}

// Clear takes the emulator out of the path of every link.
func (c *Client) Clear(ctx context.Context) error {
	_, err := c.call(ctx, request{Op: opClear})
	return err
}

// Show reads back every link.
func (c *Client) Show(ctx context.Context) ([]netem.LinkState, error) {
	r, err := c.call(ctx, request{Op: opShow})
	return r.Links, err
}

// Counters reads the totals.
func (c *Client) Counters(ctx context.Context) (netem.Counters, error) {
	r, err := c.call(ctx, request{Op: opCounters})
	return r.Counters, err
}

// Close hangs up. Unlike another backend's it leaves the links as they are: the
// emulator is the other process's, and goes on.
func (c *Client) Close() error {
	if err := c.conn.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
