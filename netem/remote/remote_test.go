package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/faultlab/faultlab/netem"
)

// fake remembers what it was told.
type fake struct {
	mu     sync.Mutex
	links  []netem.Link
	fail   error
	block  chan struct{} // if not nil, Apply waits for it
	busy   int           // calls under way
	most   int           // of busy
	closed int
}

func (f *fake) Name() string { return "fake" }
func (f *fake) Apply(_ context.Context, links []netem.Link) error {
	f.mu.Lock()
	f.busy++
	f.most = max(f.most, f.busy)
	f.mu.Unlock()
	if f.block != nil {
		<-f.block
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.busy--
	if f.fail != nil {
		return f.fail
	}
	f.links = append(f.links, links...)
	return nil
}
func (f *fake) Clear(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.links = nil
	return f.fail
}
func (f *fake) Show(context.Context) ([]netem.LinkState, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []netem.LinkState
	for i, l := range f.links {
		out = append(out, netem.LinkState{Link: l, Packets: uint64(i + 1), Bytes: 1 << 40, Dropped: 3})
	}
	return out, f.fail
}
func (f *fake) Counters(context.Context) (netem.Counters, error) {
	return netem.Counters{Packets: 7, Overrun: 1, CPU: time.Second, LateP50: -time.Microsecond}, f.fail
}
func (f *fake) Close() error { f.closed++; return nil }

// serve gives the path of a socket on which b is served until the test ends, and
// what ends it sooner.
func serve(t *testing.T, b netem.Backend) (path string, end func()) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "netem.sock")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, l, b) }()
	end = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	t.Cleanup(end)
	return path, end
}

func dial(t *testing.T, path string) *Client {
	t.Helper()
	c, err := Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// full has every kind of field that a link can have.
func full() netem.Link {
	i, _, err := netem.Parse("delay 300us jitter 50us 25% distribution normal loss gemodel 1% 25% 70% 0.1% duplicate 1% reorder 25% 50% gap 5 corrupt 0.1% rate 10mbit burst 32kb limit 1000 slot 1ms 2ms packets 10 bytes 15kb seed 18446744073709551615")
	if err != nil {
		panic(err)
	}
	return netem.Link{
		From:       netem.Endpoint{Name: "n1", Netns: "/run/netns/a", Interface: "eth0", Addr: netip.MustParseAddr("198.18.0.1"), Addr6: netip.MustParseAddr("2001:2::1")},
		To:         netem.Endpoint{Name: "n2", Netns: "/run/netns/b", Interface: "eth0", Addr: netip.MustParseAddr("198.18.0.2")},
		Match:      []netem.Selector{{Prefix: netip.MustParsePrefix("10.0.0.0/8"), Port: 3306}, {Prefix: netip.MustParsePrefix("2001:2::/48")}},
		Impairment: i,
	}
}

var addrs = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

func TestAClientDoesWhatTheBackendDoes(t *testing.T) {
	f := &fake{}
	path, _ := serve(t, f)
	c := dial(t, path)
	ctx := t.Context()
	if got := c.Name(); got != "fake" {
		t.Errorf("Name: got %q, want fake", got)
	}
	if got, err := c.Show(ctx); err != nil || len(got) != 0 {
		t.Errorf("Show before Apply: got %v, %v", got, err)
	}
	table := full()
	table.Impairment.Distribution = netem.Distribution{Name: "own.dist", Text: "-8192 0 8192\n"}
	table.Match = nil
	want := []netem.Link{full(), table}
	if err := c.Apply(ctx, want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, f.links, addrs); diff != "" {
		t.Errorf("links that arrived (-want +got):\n%s", diff)
	}
	// Another process sees the same.
	got, err := dial(t, path).Show(ctx)
	wantStates, _ := f.Show(ctx)
	if diff := cmp.Diff(wantStates, got, addrs); err != nil || diff != "" {
		t.Errorf("Show: %v (-want +got):\n%s", err, diff)
	}
	counters, err := c.Counters(ctx)
	wantCounters, _ := f.Counters(ctx)
	if counters != wantCounters || err != nil {
		t.Errorf("Counters: got %+v, %v, want %+v", counters, err, wantCounters)
	}
	if err := c.Clear(ctx); err != nil || len(f.links) != 0 {
		t.Errorf("Clear: %v, still %v", err, f.links)
	}
}

func TestTheBackendsErrorIsTheClients(t *testing.T) {
	f := &fake{fail: errors.New("eth0 in /run/netns/a: no such device")}
	path, _ := serve(t, f)
	c := dial(t, path)
	ctx := t.Context()
	_, show := c.Show(ctx)
	_, counters := c.Counters(ctx)
	for what, err := range map[string]error{"Apply": c.Apply(ctx, nil), "Clear": c.Clear(ctx), "Show": show, "Counters": counters} {
		if err == nil || err.Error() != f.fail.Error() {
			t.Errorf("%s: got %v, want %v", what, err, f.fail)
		}
	}
	f.fail = nil
	if err := c.Apply(ctx, []netem.Link{full()}); err != nil {
		t.Errorf("Apply after an error: %v", err)
	}
}

func TestAnImpossibleLinkIsRefusedBeforeItIsSent(t *testing.T) {
	f := &fake{}
	path, _ := serve(t, f)
	bad := full()
	bad.Impairment.Delay = -1
	if err := dial(t, path).Apply(t.Context(), []netem.Link{full(), bad}); err == nil || !strings.Contains(err.Error(), "n1 to n2") {
		t.Errorf("got %v, want an error that names the link", err)
	}
	if len(f.links) > 0 {
		t.Errorf("it was sent: %v", f.links)
	}
}

func TestHangingUpLeavesTheLinks(t *testing.T) {
	f := &fake{}
	path, _ := serve(t, f)
	c := dial(t, path)
	if err := c.Apply(t.Context(), []netem.Link{full()}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if _, err := c.Show(t.Context()); !errors.Is(err, ErrNobody) {
		t.Errorf("Show after Close: got %v, want %v", err, ErrNobody)
	}
	if got, err := dial(t, path).Show(t.Context()); err != nil || len(got) != 1 || f.closed != 0 {
		t.Errorf("the next client sees %v, %v; the backend was closed %d times", got, err, f.closed)
	}
}

func TestWhoeverServesIsMissedWhenGone(t *testing.T) {
	path, end := serve(t, &fake{})
	c := dial(t, path)
	end()
	if _, err := c.Show(t.Context()); !errors.Is(err, ErrNobody) {
		t.Errorf("Show: got %v, want %v", err, ErrNobody)
	}
	if got := c.Name(); got != "" {
		t.Errorf("Name: got %q, want none", got)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
	for _, p := range []string{path, filepath.Join(path, "no", "folder")} {
		if _, err := Dial(p); !errors.Is(err, ErrNobody) && !strings.Contains(fmt.Sprint(err), "not a directory") {
			t.Errorf("Dial(%s): got %v, want %v", p, err, ErrNobody)
		}
	}
	// Killed, it leaves its socket behind.
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	l.(*listener).UnixListener.Close()
	if _, err := Dial(path); !errors.Is(err, ErrNobody) {
		t.Errorf("Dial of a socket left behind: got %v, want %v", err, ErrNobody)
	}
}

func TestACallEndsWithItsContext(t *testing.T) {
	f := &fake{block: make(chan struct{})}
	path, _ := serve(t, f)
	defer close(f.block)
	c := dial(t, path)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.Apply(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
	// Its answer must not be taken for another's.
	if _, err := c.Show(t.Context()); err == nil {
		t.Error("the connection is still in use")
	}
}

func TestCallsOfManyClientsAreDoneOneAtATime(t *testing.T) {
	f := &fake{block: make(chan struct{})}
	path, _ := serve(t, f)
	var wg sync.WaitGroup
	for range 8 {
		c := dial(t, path)
		wg.Go(func() {
			if err := c.Apply(t.Context(), []netem.Link{full()}); err != nil {
				t.Error(err)
			}
		})
	}
	close(f.block)
	wg.Wait()
	if f.most != 1 || len(f.links) != 8 {
		t.Errorf("%d at a time, %d links, want 1 and 8", f.most, len(f.links))
	}
}

func TestTheSocketIsForItsOwnerAloneHoweverLongItsPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long/", 40))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "netem.sock")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	fi, err := os.Stat(path)
	if err != nil || fi.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("got mode %v, %v, want a socket of 0600", fi.Mode(), err)
	}
	if c, err := Dial(path); err != nil {
		t.Error(err)
	} else {
		c.Close()
	}
	if _, err := Listen(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a second Listen: got %v, want an error that names %s", err, path)
	}
}

func TestNonsenseIsAnsweredOrHungUpOn(t *testing.T) {
	path, _ := serve(t, &fake{})
	for sent, want := range map[string]string{
		`{"Op":"explode"}` + "\n":     `unknown request "explode"`,
		`{"Op":"hello","X":1}` + "\n": `"Name":"fake"`,
		"GET / HTTP/1.0\r\n\r\n":      "",
	} {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, sent)
		conn.(*net.UnixConn).CloseWrite()
		var got bytes.Buffer
		got.ReadFrom(conn)
		conn.Close()
		if !strings.Contains(strings.ReplaceAll(got.String(), `\"`, `"`), want) || want != "" && !json.Valid(got.Bytes()) || want == "" && got.Len() > 0 {
			t.Errorf("%q: got %q, want %q in it", sent, got.String(), want)
		}
	}
}
