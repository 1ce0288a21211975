package probe

import (
	"encoding/binary"
	"testing"
	"time"
)

func TestChecksumOfAMessageWithItsChecksumIsZero(t *testing.T) {
	b := []byte{8, 0, 0, 0, 0x12, 0x34, 0, 1, 0xff, 0xfe}
	binary.BigEndian.PutUint16(b[2:], checksum(b))
	if got := checksum(b); got != 0 {
		t.Errorf("checksum = %#x, want 0", got)
	}
}

func TestOnlyEchoRepliesAreTakenFromThePacket(t *testing.T) {
	reply := make([]byte, 28)
	reply[0] = 0x45
	binary.BigEndian.PutUint16(reply[24:], 7)
	binary.BigEndian.PutUint16(reply[26:], 9)
	if id, seq, ok := parseReply(reply, false); !ok || id != 7 || seq != 9 {
		t.Errorf("parseReply = %d, %d, %t, want 7, 9, true", id, seq, ok)
	}
	request := append([]byte(nil), reply...)
	request[20] = echoRequest
	long := append([]byte(nil), reply...)
	long[0] = 0x4f // a header longer than the packet
	for name, b := range map[string][]byte{"empty": nil, "request": request, "short": reply[:27], "header": long} {
		if _, _, ok := parseReply(b, false); ok {
			t.Errorf("%s: taken for a reply", name)
		}
	}
}

func TestQuantileIsAnObservedValue(t *testing.T) {
	var v []time.Duration
	for i := 1; i <= 200; i++ {
		v = append(v, time.Duration(i))
	}
	for _, c := range []struct {
		q    float64
		want time.Duration
	}{{0, 1}, {0.5, 100}, {0.99, 198}, {1, 200}} {
		if got := Quantile(v, c.q); got != c.want {
			t.Errorf("Quantile(1..200, %v) = %d, want %d", c.q, got, c.want)
		}
	}
	if got := Quantile(nil, 0.5); got != 0 {
		t.Errorf("Quantile of nothing = %d, want 0", got)
	}
}

func TestProbesBetweenTwoChangesAreThoseThatMetNeither(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(100, 0).Add(time.Duration(ms) * time.Millisecond) }
	s := Stat{From: "n1", To: "n2", Probes: []Probe{
		{At: at(-10), RTT: time.Millisecond}, // before
		{At: at(0), RTT: time.Millisecond}, {At: at(200), Lost: true}, {At: at(400), RTT: 3 * time.Millisecond},
		{At: at(950), Lost: true},                  // its reply may have met the second change
		{At: at(800), RTT: 150 * time.Millisecond}, // as may this one
	}}
	got := s.Between(at(0), at(1000))
	if got.Sent != 3 || got.Lost != 1 || got.P50 != time.Millisecond || got.Max != 3*time.Millisecond || got.From != "n1" {
		t.Errorf("got %+v, want 3 sent, 1 lost, 1 and 3 ms", got)
	}
}
