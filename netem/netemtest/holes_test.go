package netemtest

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/faultlab/faultlab/netem/probe"
)

// packet is a TCP segment as a packet socket sees it.
func packet(v6 bool, from, to uint16, seq uint32, data int) []byte {
	ip := make([]byte, 20)
	if v6 {
		ip = make([]byte, 40)
		ip[0], ip[6] = 0x60, 6
		binary.BigEndian.PutUint16(ip[4:], uint16(20+data))
	} else {
		ip[0], ip[9] = 0x45, 6
		binary.BigEndian.PutUint16(ip[2:], uint16(40+data))
	}
	tcp := make([]byte, 20)
	binary.BigEndian.PutUint16(tcp, from)
	binary.BigEndian.PutUint16(tcp[2:], to)
	binary.BigEndian.PutUint32(tcp[4:], seq)
	tcp[12] = 5 << 4
	return append(ip, tcp...)
}

func TestHolesAreBetweenSegmentsOfNewData(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		h := holes{from: 5, port: 6}
		const mss = 1448
		seq := ^uint32(0) - 2*mss // wraps on the way
		see := func(segment int, data int) { h.see(packet(v6, 5, 6, seq+uint32(segment*mss), data)) }
		h.see(packet(v6, 6, 5, seq, mss)) // the way back
		h.see(packet(v6, 5, 7, seq, mss)) // another connection
		see(0, mss)
		see(1, 0)     // without data
		see(3, mss)   // 2 missing
		see(1, 2*mss) // sent again
		see(4, 3*mss) // a large one
		see(17, mss)  // 10 missing
		if got, want := fmt.Sprint(h.lengths), "[2 10]"; got != want {
			t.Errorf("IPv6 %v: holes of %s segments, want %s", v6, got, want)
		}
	}
}

func TestWhatIsNoSegmentMakesNoHole(t *testing.T) {
	h := holes{}
	whole := packet(false, 0, 0, 1, 100)
	for n := range whole {
		h.see(whole[:n])
	}
	other := packet(true, 0, 0, 1, 100)
	other[6] = 17
	h.see(other)
	h.see(make([]byte, 200))
	if h.begun {
		t.Error("something was taken for a segment")
	}
}

func TestClumpsBeginBehindAGap(t *testing.T) {
	var f probe.Flow
	for _, at := range []int{0, 1, 2, 40, 41, 90} {
		f.Arrivals = append(f.Arrivals, probe.Arrival{At: time.UnixMilli(int64(at))})
	}
	if got, want := fmt.Sprint(clumps(f, 15*ms)), "[0s 40ms 90ms]"; got != want {
		t.Errorf("clumps begin at %s, want %s", got, want)
	}
}
