//go:build integration

package netns

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// namespace makes one that ends with the test.
func namespace(t *testing.T, suffix string) (name, path string) {
	t.Helper()
	name = fmt.Sprintf("fl-%s-%d-%s", strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-")), os.Getpid(), suffix)
	t.Cleanup(func() {
		if err := Delete(name); err != nil {
			t.Error(err)
		}
	})
	err := Create(name)
	if errors.Is(err, ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return name, Path(name)
}

// pair wires two namespaces, 198.18.0.1 and 198.18.0.2, through a switch.
func pair(t *testing.T) (a, b string) {
	t.Helper()
	_, sw := namespace(t, "sw")
	if err := Bridge(sw, "br0"); err != nil {
		t.Fatal(err)
	}
	var paths []string
	for i, s := range []string{"a", "b"} {
		_, p := namespace(t, s)
		addrs := []netip.Prefix{
			netip.MustParsePrefix(fmt.Sprintf("198.18.0.%d/24", i+1)),
			netip.MustParsePrefix(fmt.Sprintf("2001:2::%d/64", i+1)),
		}
		if err := Join(sw, "br0", s, p, "eth0", addrs, nil); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, p)
	}
	return paths[0], paths[1]
}

func TestLifeOfANamespace(t *testing.T) {
	own, err := os.Stat("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	name, path := namespace(t, "a")
	if err := Create(name); !errors.Is(err, fs.ErrExist) {
		t.Errorf("second Create = %v, want one that is fs.ErrExist", err)
	}
	err = Do(path, func() error {
		in, err := os.Stat("/proc/thread-self/ns/net")
		if err == nil && os.SameFile(own, in) {
			t.Error("Do ran in the caller's namespace")
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if pids, err := Processes(path); err != nil || len(pids) != 0 {
		t.Errorf("Processes of a new namespace = %v, %v, want none", pids, err)
	}
	if leader, err := os.Stat("/proc/self/ns/net"); err != nil || !os.SameFile(own, leader) {
		t.Errorf("the process's first thread stayed elsewhere (%v)", err)
	}
	for range 2 {
		if err := Delete(name); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after Delete the name is still there: %v", err)
	}
}

func TestAHalfMadeNameIsDeleted(t *testing.T) {
	name := fmt.Sprintf("fl-half-%d", os.Getpid())
	if err := os.MkdirAll(Dir, 0o755); err != nil {
		t.Skip(err)
	}
	if err := os.WriteFile(Path(name), nil, 0); err != nil {
		t.Fatal(err)
	}
	if err := Delete(name); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(Path(name)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
}

func TestTheThreadComesHomeAfterDo(t *testing.T) {
	_, path := namespace(t, "a")
	own, err := os.Stat("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if err := Do(path, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		runtime.LockOSThread()
		in, err := os.Stat("/proc/thread-self/ns/net")
		runtime.UnlockOSThread()
		if err != nil || !os.SameFile(own, in) {
			t.Fatalf("a thread stayed in the namespace (%v)", err)
		}
	}
}

// hostNetwork is all that the host's network is configured to be.
func hostNetwork(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, args := range [][]string{{"link"}, {"addr"}, {"route", "show", "table", "all"}, {"rule"}, {"neigh"}} {
		out, err := exec.Command("ip", append([]string{"-o"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("ip %v: %v: %s", args, err, out)
		}
		all.Write(out)
	}
	return all.String()
}

func TestTheHostsNetworkIsTheSameBeforeDuringAndAfter(t *testing.T) {
	before := hostNetwork(t)
	var during string
	t.Run("lab", func(t *testing.T) { pair(t); during = hostNetwork(t) })
	after := hostNetwork(t)
	if during != before || after != before {
		t.Errorf("before:\n%s\nduring:\n%s\nafter:\n%s", before, during, after)
	}
}

func TestDialConnectsFromInsideTheNamespace(t *testing.T) {
	a, b := pair(t)
	for _, addr := range []string{"198.18.0.2:7000", "[2001:2::2]:7000"} {
		var l net.Listener
		err := Do(b, func() (err error) { l, err = net.Listen("tcp", addr); return })
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			if c, err := l.Accept(); err == nil {
				c.Write([]byte(c.RemoteAddr().String()))
				c.Close()
			}
		}()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		c, err := Dial(ctx, a, "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if got := c.RemoteAddr().String(); got != addr {
			t.Errorf("RemoteAddr = %s, want %s", got, addr)
		}
		buf := make([]byte, 64)
		n, _ := c.Read(buf)
		if got, want := string(buf[:n]), c.LocalAddr().String(); got != want {
			t.Errorf("the listener saw %q, the dialler says %q", got, want)
		}
	}
}

func TestDialSaysWhyItFailed(t *testing.T) {
	a, b := pair(t)
	_, err := Dial(context.Background(), a, "tcp", "198.18.0.2:1")
	if !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("closed port: %v, want connection refused", err)
	}
	// A listener whose queue is full neither accepts nor refuses.
	var fd int
	err = Do(b, func() (err error) {
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0); err != nil {
			return err
		}
		return errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Port: 7001}), unix.Listen(fd, 0))
	})
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	for range 5 {
		var c net.Conn
		if c, err = Dial(ctx, a, "tcp", "198.18.0.2:7001"); err != nil {
			break
		}
		defer c.Close()
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("full listener: %v, want deadline exceeded", err)
	}
	cancelled, cancel2 := context.WithCancel(context.Background())
	time.AfterFunc(50*time.Millisecond, cancel2)
	if _, err := Dial(cancelled, a, "tcp", "198.18.0.2:7001"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v, want canceled", err)
	}
}

func TestAFailedJoinLeavesNoWire(t *testing.T) {
	_, sw := namespace(t, "sw")
	_, node := namespace(t, "n")
	if err := Bridge(sw, "br0"); err != nil {
		t.Fatal(err)
	}
	twice := []netip.Prefix{netip.MustParsePrefix("198.18.0.1/24"), netip.MustParsePrefix("198.18.0.1/24")}
	if err := Join(sw, "br0", "p1", node, "eth0", twice, nil); err == nil {
		t.Fatal("Join with the same address twice succeeded")
	}
	if err := Join(sw, "br0", "p1", node, "eth0", twice[:1], nil); err != nil {
		t.Errorf("Join after a failed one: %v", err)
	}
}
