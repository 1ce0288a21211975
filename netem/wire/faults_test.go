package wire

import (
	"encoding/binary"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faultlab/faultlab/netem"
)

func impairment(t testing.TB, text string) netem.Impairment {
	t.Helper()
	i, _, err := netem.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// A bench is an engine with one port that is connected to nothing: packets are
// put into its ring by hand and leave to a socket that nobody reads.
type bench struct {
	*engine
	p    *port
	l    *line
	put  int
	wall int64
	slot []byte // of one packet
}

func newBench(t testing.TB, i netem.Impairment, size int) *bench {
	t.Helper()
	e, err := newEngine(defaultTuning)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(e.bell) })
	// Sends fail at once, which counts as overrun and costs a system call as ever.
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { null.Close() })
	p := &port{frames: ringFrames(1), ring: make([]byte, ringFrames(1)*frameSize), send: int(null.Fd())}
	p.prepare()
	b := &bench{engine: e, p: p, l: &line{}}
	newChange(b.l, i).apply()
	to := netip.MustParseAddr("198.18.0.2")
	p.table = newTable(map[netem.Selector]*line{{Prefix: netip.PrefixFrom(to, 32)}: b.l})
	p.lines = []*line{b.l}
	e.attach(p)
	e.watch()

	const mac = 66 // where a frame lies in its slot
	b.slot = make([]byte, mac+size)
	binary.NativeEndian.PutUint32(b.slot, unix.TP_STATUS_USER)
	binary.NativeEndian.PutUint32(b.slot[4:], uint32(size)) // len
	binary.NativeEndian.PutUint32(b.slot[8:], uint32(size)) // snaplen
	binary.NativeEndian.PutUint16(b.slot[12:], mac)
	frame := b.slot[mac:]
	binary.BigEndian.PutUint16(frame[12:], unix.ETH_P_IP)
	frame[14] = 0x45
	addr := to.As4()
	copy(frame[30:], addr[:])
	return b
}

// arrive has n packets come in, now.
func (b *bench) arrive(n int) {
	_, wall := b.clock.now()
	binary.NativeEndian.PutUint32(b.slot[16:], uint32(wall/1e9))
	binary.NativeEndian.PutUint32(b.slot[20:], uint32(wall%1e9))
	for range n {
		copy(b.p.ring[b.put*frameSize:], b.slot)
		b.put = (b.put + 1) % b.p.frames
	}
}

var everything = []string{
	"delay 1us", "delay 1us loss 10%", "loss gemodel 10% 20%", "duplicate 30% corrupt 30%", "delay 1us reorder 25% 50%",
	"delay 2us jitter 1us 25% distribution normal", "rate 10gbit limit 40", "rate 10gbit burst 32kb", "slot 1us 2us packets 10", "partition",
}

func TestPacketsMakeNoGarbage(t *testing.T) {
	for _, text := range everything {
		b := newBench(t, impairment(t, text), 1000)
		round := func() {
			b.arrive(50)
			b.collect()
			b.nextDeadline()
			now, _ := b.clock.now()
			b.release(now + time.Millisecond)
		}
		for range 20 { // queues and pool grow to what is needed
			round()
		}
		if n := testing.AllocsPerRun(20, round); n != 0 {
			t.Errorf("%s: %v allocations for 50 packets", text, n)
		}
	}
}

func BenchmarkPacket(b *testing.B) {
	for _, text := range everything {
		b.Run(text, func(b *testing.B) {
			e := newBench(b, impairment(b, text), 200)
			for n := 0; n < b.N; n += 32 {
				b.StopTimer()
				e.arrive(32)
				b.StartTimer()
				e.collect()
				e.nextDeadline()
				now, _ := e.clock.now()
				e.release(now + time.Second)
			}
		})
	}
}
