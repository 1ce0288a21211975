package qdisc

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	vns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/netem/netns"
)

// A conn speaks with the kernel about the queues of one interface. It has a
// socket of its own, since netlink.Handle's cannot be told to report the
// kernel's own words for an error.
type conn struct {
	sockets map[int]*nl.SocketHandle
	index   int32 // of the interface
}

// dial opens a connection into the endpoint's namespace.
func dial(e netem.Endpoint) (*conn, error) {
	var s *nl.NetlinkSocket
	err := netns.Do(e.Netns, func() (err error) {
		s, err = nl.GetNetlinkSocketAt(vns.None(), vns.None(), unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		return nil, err
	}
	c := &conn{sockets: map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: s}}}
	// Kernels before 4.12 have no words.
	if err := s.SetExtAck(true); err != nil && !errors.Is(err, unix.ENOPROTOOPT) {
		c.close()
		return nil, fmt.Errorf("netlink socket: %w", err)
	}
	timeout := unix.Timeval{Sec: 20}
	s.SetSendTimeout(&timeout)
	s.SetReceiveTimeout(&timeout)
	l, err := c.link(e.Interface)
	if err != nil {
		c.close()
		return nil, err
	}
	c.index = int32(l.Attrs().Index)
	return c, nil
}

func (c *conn) close() { c.sockets[unix.NETLINK_ROUTE].Close() }

func (c *conn) request(kind, flags int) *nl.NetlinkRequest {
	q := nl.NewNetlinkRequest(kind, flags)
	q.Sockets = c.sockets
	return q
}

func (c *conn) link(name string) (netlink.Link, error) {
	q := c.request(unix.RTM_GETLINK, 0)
	q.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	q.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)))
	all, err := q.Execute(unix.NETLINK_ROUTE, 0)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", name, err)
	}
	return netlink.LinkDeserialize(nil, all[0])
}

// A message is one of RTM_*QDISC, RTM_*TCLASS and RTM_*TFILTER.
type message struct {
	handle, parent, info uint32
	kind                 string // none when something is only taken away
	options              []byte
}

const (
	create  = unix.NLM_F_CREATE | unix.NLM_F_EXCL
	replace = unix.NLM_F_CREATE | unix.NLM_F_REPLACE
	change  = 0
)

// do sends one message and waits until it is carried out.
func (c *conn) do(kind, flags int, m message) error {
	q := c.request(kind, flags|unix.NLM_F_ACK)
	q.AddData(&nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: c.index, Handle: m.handle, Parent: m.parent, Info: m.info})
	if m.kind != "" {
		q.AddData(nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated(m.kind)))
		q.AddData(nl.NewRtAttr(nl.TCA_OPTIONS, m.options))
	}
	_, err := q.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// A queue is a qdisc as the kernel has it.
type queue struct {
	message
	stats stats
}

// stats are a qdisc's counters.
type stats struct {
	packets, bytes   uint64
	dropped, backlog uint32 // packets
}

// queues lists the interface's qdiscs by their handles.
func (c *conn) queues() ([]queue, error) {
	var out []queue
	err := c.dump(unix.RTM_GETQDISC, unix.RTM_NEWQDISC, 0, func(m message, attrs []nlAttr) error {
		q := queue{message: m}
		for _, a := range attrs {
			if a.Attr.Type == nl.TCA_STATS2 {
				if err := q.stats.read(a.Value); err != nil {
					return err
				}
			}
		}
		out = append(out, q)
		return nil
	})
	return out, err
}

// dump lists what there is under parent.
func (c *conn) dump(ask int, answer uint16, parent uint32, each func(message, []nlAttr) error) error {
	q := c.request(ask, unix.NLM_F_DUMP)
	q.AddData(&nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: c.index, Parent: parent})
	all, err := q.Execute(unix.NETLINK_ROUTE, answer)
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		// Somebody else changed queues meanwhile; there will be an end to it.
		all, err = q.Execute(unix.NETLINK_ROUTE, answer)
	}
	if err != nil {
		return err
	}
	for _, b := range all {
		head := nl.DeserializeTcMsg(b)
		if head.Ifindex != c.index {
			continue
		}
		attrs, err := nl.ParseRouteAttr(b[head.Len():])
		if err != nil {
			return err
		}
		m := message{handle: head.Handle, parent: head.Parent, info: head.Info}
		for _, a := range attrs {
			switch a.Attr.Type {
			case nl.TCA_KIND:
				m.kind = nl.BytesToString(a.Value)
			case nl.TCA_OPTIONS:
				m.options = a.Value
			}
		}
		if err := each(m, attrs); err != nil {
			return err
		}
	}
	return nil
}
