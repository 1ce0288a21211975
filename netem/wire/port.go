package wire

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/netem/netns"
)

const (
	// tapPrefix and the interface's index make the name of its sink.
	tapPrefix = "faultlab"

	vnetHeader = 10      // struct virtio_net_hdr
	frameSize  = 2 << 10 // of a ring slot; larger packets come through the socket
	blockSize  = 64 << 10
	sendBatch  = 64
)

// ringFrames is how many packets the ring of each of so many ports holds: what
// the fastest senders make in some milliseconds. Rings are memory that nobody
// else gets, 4 MB each, or half of it where they are many.
func ringFrames(ports int) int {
	if ports > 8 {
		return 1 << 10
	}
	return 2 << 10
}

// A port is one endpoint's side of the delay line: where packets come in and
// where they leave.
type port struct {
	detour detour // not for the engine's thread, which alone uses the rest once it is attached

	tap    int     // holding it keeps the device alive
	mac    [6]byte // the device's
	recv   int     // packet socket with the ring
	send   int     // packet socket on the interface
	ring   []byte
	frames int // that it holds
	next   int // ring slot that the kernel fills next

	table  *table // of lines
	lines  []*line
	active []*line // that hold packets

	out  []mmsghdr
	iov  []unix.Iovec
	held [][]byte        // what out refers to
	due  []time.Duration // when each of them was to leave
}

type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
}

// openPort makes the sink and the sockets, with a ring for so many packets. No
// packet is redirected yet.
func openPort(e netem.Endpoint, frames int) (p *port, err error) {
	p = &port{tap: -1, recv: -1, send: -1, frames: frames, table: &table{}}
	defer func() {
		if err != nil {
			p.close()
			p = nil
			err = fmt.Errorf("%s in %s: %w", e.Interface, e.Netns, err)
		}
	}()
	err = netns.Do(e.Netns, func() error {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		p.detour.h = h
		eth, err := h.LinkByName(e.Interface)
		if err != nil {
			return err
		}
		p.detour.from = eth.Attrs().Index
		if err := p.openTap(); err != nil {
			return err
		}
		// The device's name was free, so filters of ours are a dead helper's,
		// and would come before the new ones.
		if err := removeFilters(h, p.detour.from); err != nil {
			return err
		}
		if err := p.openRing(); err != nil {
			return err
		}
		return p.openSend()
	})
	return p, err
}

func (p *port) openTap() error {
	var err error
	if p.tap, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
		return lacks("no TUN device (/dev/net/tun)", err)
	}
	name := tapPrefix + strconv.Itoa(p.detour.from)
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(p.tap, unix.TUNSETIFF, ifr); err != nil {
		return lacks("cannot make a TAP device", err)
	}
	if err := p.offload(true); err != nil {
		return err
	}
	// Nobody reads the device: drop everything at its door.
	drop := [1]unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}}
	prog := unix.SockFprog{Len: 1, Filter: &drop[0]}
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(p.tap), unix.TUNATTACHFILTER, uintptr(unsafe.Pointer(&prog))); e != 0 {
		return lacks("TAP device without filter", e)
	}
	// The sink's own address resolution would only be noise.
	err = os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("1"), 0)
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.EROFS) {
		return err
	}
	h := p.detour.h
	tap, err := h.LinkByName(name)
	if err != nil {
		return err
	}
	p.detour.to = tap.Attrs().Index
	copy(p.mac[:], tap.Attrs().HardwareAddr)
	if err := h.LinkSetTxQLen(tap, 0); err != nil {
		return err
	}
	return h.LinkSetUp(tap)
}

// offload says whether packets come as the sender leaves them to the card:
// uncut and not summed up. Without it the kernel does both before the sink sees
// them, each as it would be on the wire. (What `ethtool -K` says of a veth does
// not bring that about: TCP makes large packets all the same since Linux 4.17.)
func (p *port) offload(on bool) error {
	var flags int
	if on { // what newer kernels have beside is not everywhere
		flags = unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6 | unix.TUN_F_TSO_ECN
	}
	if err := unix.IoctlSetInt(p.tap, unix.TUNSETOFFLOAD, flags); err != nil {
		return lacks("TAP device without offloads", err)
	}
	return nil
}

func (p *port) openRing() (err error) {
	// No protocol yet: nothing is received before the socket is bound.
	p.recv, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return lacks("no packet sockets", err)
	}
	opt := func(level, name, value int) {
		if err == nil {
			err = os.NewSyscallError("setsockopt", unix.SetsockoptInt(p.recv, level, name, value))
		}
	}
	opt(unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V2)
	opt(unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1)
	// What is too large for a slot goes the socket's way.
	opt(unix.SOL_PACKET, unix.PACKET_COPY_THRESH, frameSize)
	opt(unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)
	if err != nil {
		return lacks("packet socket", err)
	}
	err = unix.SetsockoptTpacketReq(p.recv, unix.SOL_PACKET, unix.PACKET_RX_RING, &unix.TpacketReq{
		Block_size: blockSize, Block_nr: uint32(p.frames * frameSize / blockSize),
		Frame_size: frameSize, Frame_nr: uint32(p.frames),
	})
	if err != nil {
		return lacks("packet ring", err)
	}
	if p.ring, err = unix.Mmap(p.recv, 0, p.frames*frameSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return os.NewSyscallError("mmap", err)
	}
	return os.NewSyscallError("bind", unix.Bind(p.recv, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: p.detour.to}))
}

func (p *port) openSend() (err error) {
	p.send, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return lacks("no packet sockets", err)
	}
	for _, o := range [][3]int{
		{unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1},
		{unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1},
		{unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 64 << 20},
	} {
		if err := unix.SetsockoptInt(p.send, o[0], o[1], o[2]); err != nil {
			return lacks("packet socket", err)
		}
	}
	p.prepare()
	return os.NewSyscallError("bind", unix.Bind(p.send, &unix.SockaddrLinklayer{Ifindex: p.detour.from}))
}

// prepare makes what packets are sent with, a batch at once.
func (p *port) prepare() {
	p.out = make([]mmsghdr, sendBatch)
	p.iov = make([]unix.Iovec, sendBatch)
	p.held = make([][]byte, 0, sendBatch)
	p.due = make([]time.Duration, 0, sendBatch)
	for i := range p.out {
		p.out[i].hdr.Iov = &p.iov[i]
		p.out[i].hdr.SetIovlen(1)
	}
}

// close gives everything back. The device vanishes, and with it whatever the
// filters still redirect.
func (p *port) close() {
	if p.ring != nil {
		unix.Munmap(p.ring)
	}
	for _, fd := range []int{p.recv, p.send, p.tap} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	if p.detour.h != nil {
		p.detour.h.Close()
	}
}

// An arrival is a packet in the ring, valid until the next call of next.
type arrival struct {
	frame []byte // behind its virtio header; of a large packet the beginning
	wall  int64  // when it came, by the kernel's wall clock
	large bool   // the whole packet is to be had from takeLarge
	cut   bool   // the rest of the packet is lost
}

// arrived gives the packet that came first, if there is one. free must follow.
func (p *port) arrived() (a arrival, ok bool) {
	slot := p.ring[p.next*frameSize:][:frameSize]
	h := (*unix.Tpacket2Hdr)(unsafe.Pointer(&slot[0]))
	status := atomic.LoadUint32(&h.Status)
	if status&unix.TP_STATUS_USER == 0 {
		return a, false
	}
	start := int(h.Mac) - vnetHeader
	a.frame = slot[start:min(start+vnetHeader+int(h.Snaplen), frameSize)]
	a.wall = int64(h.Sec)*1e9 + int64(h.Nsec)
	a.large = status&unix.TP_STATUS_COPY != 0
	a.cut = !a.large && h.Snaplen < h.Len
	return a, true
}

// free gives the slot of the packet that came first back to the kernel.
func (p *port) free() {
	status := (*uint32)(unsafe.Pointer(&p.ring[p.next*frameSize]))
	atomic.StoreUint32(status, unix.TP_STATUS_KERNEL)
	if p.next++; p.next == p.frames {
		p.next = 0
	}
}

// takeLarge reads the packet that came first and did not fit into its slot. A
// buffer that is too short, or empty, takes it away all the same.
func (p *port) takeLarge(buf []byte) int {
	n, _, e := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(p.recv), uintptr(unsafe.Pointer(unsafe.SliceData(buf))), uintptr(len(buf)), 0, 0, 0)
	if e != 0 {
		return 0
	}
	return int(n)
}

// drops reads and resets how many packets found the ring full.
func (p *port) drops() uint64 {
	s, err := unix.GetsockoptTpacketStats(p.recv, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return 0
	}
	return uint64(s.Drops)
}

// fromSink tells a frame that the sink itself sent, as the kernel makes every
// interface do.
func (p *port) fromSink(frame []byte) bool {
	return len(frame) < vnetHeader+14 || [6]byte(frame[vnetHeader+6:]) == p.mac
}

// push has a packet wait on a line of the port.
func (p *port) push(l *line, c packet) {
	if l.q.len() == 0 {
		p.active = append(p.active, l)
	}
	l.q.push(c)
}

// idle takes the i-th of the active lines out.
func (p *port) idle(i int) {
	last := len(p.active) - 1
	p.active[i] = p.active[last]
	p.active = p.active[:last]
}

// queue holds a packet for flush, which must come after sendBatch of them.
func (p *port) queue(b []byte, at time.Duration) {
	i := len(p.held)
	p.iov[i].Base = &b[0]
	p.iov[i].SetLen(len(b))
	p.held = append(p.held, b)
	p.due = append(p.due, at)
}

// flush sends what was queued and reports how many packets the kernel did not
// take.
func (p *port) flush() (lost uint64) {
	for i := 0; i < len(p.held); {
		var n uintptr
		var e unix.Errno
		if len(p.held) == 1 {
			_, _, e = unix.RawSyscall6(unix.SYS_SENDTO, uintptr(p.send), uintptr(unsafe.Pointer(&p.held[0][0])), uintptr(len(p.held[0])), 0, 0, 0)
			n = 1
		} else {
			n, _, e = unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(p.send), uintptr(unsafe.Pointer(&p.out[i])), uintptr(len(p.held)-i), 0, 0, 0)
		}
		switch {
		case e == unix.EINTR:
			continue
		case e != 0: // of the first one; go on behind it
			lost++
			i++
		default:
			i += int(n)
		}
	}
	return lost
}

// Detach takes away what a helper that was killed left on an endpoint whose
// namespace lives on. Without it the endpoint's shaped links stay cut. The clsact
// stays, since it may be somebody else's: see Bare and Strip.
func Detach(e netem.Endpoint) error { return inside(e, removeFilters) }

// Bare tells that an endpoint's interface has no clsact, so that one which is
// there later came with a helper.
func Bare(e netem.Endpoint) (bare bool, err error) {
	err = inside(e, func(h *netlink.Handle, ifIndex int) error {
		all, err := h.QdiscList(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: ifIndex}})
		bare = !slices.ContainsFunc(all, func(q netlink.Qdisc) bool { return q.Attrs().Parent == netlink.HANDLE_CLSACT })
		return err
	})
	return bare, err
}

// Strip takes the clsact out of an endpoint's interface, if no filter is in it.
func Strip(e netem.Endpoint) error { return inside(e, removeClsact) }

// inside does f with netlink in an endpoint's namespace and its interface.
func inside(e netem.Endpoint, f func(h *netlink.Handle, ifIndex int) error) error {
	return netns.Do(e.Netns, func() error {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer h.Close()
		eth, err := h.LinkByName(e.Interface)
		if err != nil {
			return err
		}
		return f(h, eth.Attrs().Index)
	})
}

// lacks says what of this machine is missing, for errors that a second attempt
// will not mend.
func lacks(what string, err error) error {
	switch {
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%w: %s: needs root: %w", ErrUnsupported, what, err)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO), errors.Is(err, unix.EOPNOTSUPP),
		errors.Is(err, unix.EAFNOSUPPORT), errors.Is(err, unix.ENOPROTOOPT), errors.Is(err, unix.ENOTTY):
		return fmt.Errorf("%w: %s: %w", ErrUnsupported, what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

// clock is the engine's: monotonic, with the kernel's wall-clock stamps
// brought onto it.
type clock struct{ base time.Time }

func (c clock) now() (mono time.Duration, wall int64) {
	t := time.Now()
	return t.Sub(c.base), t.UnixNano()
}
