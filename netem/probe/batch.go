package probe

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// A batch reads many messages with one system call: what packets cost to look
// at bounds how fast a link can be measured on a slow machine.
type batch struct {
	messages []mmsghdr
	iov      []unix.Iovec
	from     []unix.RawSockaddrLinklayer
	data     []byte
	control  []byte
	size     int
}

const (
	atOnce      = 64 // messages
	controlSize = 256
)

type mmsghdr struct {
	header unix.Msghdr
	length uint32
}

// newBatch reads the first size bytes of each message; 0 for those that are
// nothing but control messages.
func newBatch(size int) *batch {
	b := &batch{
		messages: make([]mmsghdr, atOnce), iov: make([]unix.Iovec, atOnce), from: make([]unix.RawSockaddrLinklayer, atOnce),
		data: make([]byte, atOnce*size), control: make([]byte, atOnce*controlSize), size: size,
	}
	for i := range b.messages {
		h := &b.messages[i].header
		h.Name = (*byte)(unsafe.Pointer(&b.from[i]))
		h.Control = &b.control[i*controlSize]
		if size > 0 {
			b.iov[i].Base = &b.data[i*size]
			b.iov[i].SetLen(size)
			h.Iov = &b.iov[i]
			h.SetIovlen(1)
		}
	}
	return b
}

// read gives all messages that a socket that does not block has now. What each
// gets is valid until it returns.
func (b *batch) read(fd, flags int, each func(data, control []byte, from *unix.RawSockaddrLinklayer)) {
	for {
		for i := range b.messages {
			h := &b.messages[i].header
			h.Namelen = uint32(unsafe.Sizeof(b.from[i]))
			h.SetControllen(controlSize)
		}
		n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&b.messages[0])), atOnce, uintptr(flags), 0, 0)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return
		}
		for i := range int(n) {
			m := &b.messages[i]
			each(b.data[i*b.size:][:min(int(m.length), b.size)], b.control[i*controlSize:][:m.header.Controllen], &b.from[i])
		}
		if n < atOnce {
			return
		}
	}
}
