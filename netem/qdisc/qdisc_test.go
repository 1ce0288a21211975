package qdisc

import (
	"encoding/hex"
	"flag"
	"fmt"
	"math"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/faultlab/faultlab/netem"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// vocabulary is every clause of the text form, and the corners of its values.
func vocabulary() []string {
	return []string{
		"none",
		"delay 250us", "delay 0.5ms", "delay 0.5s", "delay 300s", "delay 1ns",
		"delay 10ms jitter 2ms", "delay 10ms jitter 2ms 25%", "jitter 2s",
		"delay 10ms jitter 2ms distribution uniform", "delay 10ms jitter 2ms distribution normal",
		"delay 10ms jitter 2ms distribution pareto", "delay 10ms jitter 2ms 10% distribution paretonormal",
		"loss 1%", "loss 0.0000001%", "loss 100%", "loss 1% 25%",
		"loss gemodel 1%", "loss gemodel 1% 10% 70% 0.1%", "loss gemodel 0% 0% 100% 0%",
		"loss state 1%", "loss state 1% 30% 5% 90% 0.1%",
		"duplicate 1%", "duplicate 1% 5%",
		"delay 10ms reorder 25%", "delay 10ms reorder 25% 50% gap 5",
		"corrupt 0.1%", "corrupt 0.1% 5%",
		"rate 8kbit", "rate 10mbit", "rate 100gbit", "rate 10mbit burst 32kb", "rate 100gbit burst 1mb", "delay 5ms jitter 1ms rate 10mbit burst 32kb",
		"limit 1", "delay 100ms limit 100000000",
		"slot 1ms", "slot 1ms 2ms packets 10 bytes 15kb", "slot 300s",
		"loss 1% seed 1", "loss 1% seed 18446744073709551615",
		"partition",
		"delay 1ms jitter 0.1ms 25% distribution pareto loss 1% 25% duplicate 1% reorder 25% 50% gap 5 corrupt 0.1% 5% rate 10mbit limit 1000 slot 1ms 2ms packets 10 bytes 15kb seed 42",
	}
}

func parse(t testing.TB, text string) netem.Impairment {
	t.Helper()
	i, _, err := netem.Parse(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return i
}

const frame = 1518 // of Ethernet

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := "testdata/" + name
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s differs (-want +got), go test -update rewrites it:\n%s", path, d)
	}
}

func TestAttributesAreThoseOfTheKernel(t *testing.T) {
	if native.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the golden files are of a little-endian machine")
	}
	var out strings.Builder
	dump := func(what string, b []byte) {
		fmt.Fprintf(&out, "  %s\n", what)
		for len(b) > 0 {
			n := min(len(b), 32)
			fmt.Fprintf(&out, "    %s\n", hex.EncodeToString(b[:n]))
			b = b[n:]
		}
	}
	for _, text := range vocabulary() {
		i := parse(t, text)
		fmt.Fprintln(&out, text)
		dump("tbf "+shaperOf(i, frame).String(), shaperOf(i, frame).encode())
		dump("netem "+optionsOf(i).String(), optionsOf(i).encode(nil))
	}
	fmt.Fprintln(&out, "all links")
	dump("htb", encodeRoot())
	dump("class", encodeClass())
	for _, s := range someSelectors() {
		fmt.Fprintln(&out, s)
		for _, f := range filtersOf(s, classOf(7)) {
			dump(f.String(), f.encode())
		}
	}
	fmt.Fprintln(&out, "neighbour discovery")
	for _, f := range discovery() {
		dump(f.String(), f.encode())
	}
	golden(t, "attributes.golden", out.String())
}

func someSelectors() []netem.Selector {
	var out []netem.Selector
	for _, p := range []string{"198.18.0.2/32", "198.18.0.0/15", "0.0.0.0/0", "2001:2::2/128", "2001:2::/48", "::/0"} {
		for _, port := range []uint16{0, 3306} {
			out = append(out, netem.Selector{Prefix: netip.MustParsePrefix(p), Port: port})
		}
	}
	return out
}

func TestWhatIsEncodedIsDecodedAgain(t *testing.T) {
	for _, text := range vocabulary() {
		i := parse(t, text)
		o := optionsOf(i)
		got, err := decodeOptions(o.encode(nil))
		if err != nil || got != o {
			t.Errorf("%s: decoded %+v, %v, want %+v", text, got, err, o)
		}
		s := shaperOf(i, frame)
		gotShaper, err := decodeShaper(s.encode())
		if s.largest = 0; err != nil || gotShaper != s {
			t.Errorf("%s: decoded %+v, %v, want %+v", text, gotShaper, err, s)
		}
	}
	for _, s := range someSelectors() {
		for _, want := range filtersOf(s, classOf(7)) {
			class, keys, ok, err := decodeFilter(want.encode())
			got := filter{want.preference, want.protocol, class, keys}
			if err != nil || !ok || got.same() != want.same() {
				t.Errorf("%s: decoded %v, %v, want %v", s, got, err, want)
			}
			if back, ok := got.selector(); !ok || back != s {
				t.Errorf("filter %s is of %v, %v, want %v", got, back, ok, s)
			}
		}
	}
	for _, f := range discovery() {
		if s, ok := f.selector(); ok {
			t.Errorf("neighbour discovery passes for %v", s)
		}
	}
}

func TestTruncatedAnswersAreErrors(t *testing.T) {
	whole := optionsOf(parse(t, "delay 1ms loss gemodel 1% slot 1ms seed 3")).encode(nil)
	for n := range whole {
		if _, err := decodeOptions(whole[:n]); n < 24 && err == nil {
			t.Errorf("%d bytes of netem's options are read without error", n)
		}
	}
}

// A link that another process has made is shown in the words that made it.
func TestALinkIsTheImpairmentThatItWasMadeOf(t *testing.T) {
	for _, text := range vocabulary() {
		want := parse(t, text)
		got := impairment(optionsOf(want), shaperOf(want, frame))
		want.Seed, want.Distribution = 0, netem.Distribution{} // are not told
		switch {
		case want.Loss.Chance == netem.Whole && want == netem.Impairment{Loss: want.Loss}:
			want = netem.Impairment{Partition: true} // is the same
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

func TestMoreSpecificSelectorsAreAskedFirst(t *testing.T) {
	for _, c := range [][2]string{
		{"198.18.0.2/32 3306", "198.18.0.2/32 0"}, {"198.18.0.2/32 0", "198.18.0.2/31 3306"}, {"198.18.0.0/15 0", "0.0.0.0/0 3306"},
		{"2001:2::2/128 3306", "2001:2::2/128 0"}, {"2001:2::2/128 0", "2001:2::/48 3306"}, {"2001:2::/48 0", "::/0 1"},
	} {
		first, second := filtersOf(selectorOf(t, c[0]), 0)[0].preference, filtersOf(selectorOf(t, c[1]), 0)[0].preference
		if first >= second {
			t.Errorf("%s is asked at %d, %s at %d", c[0], first, c[1], second)
		}
	}
	if low := filtersOf(selectorOf(t, "2001:2::2/128 1"), 0)[0].preference; preferDiscovery >= low {
		t.Errorf("neighbour discovery is asked at %d, behind %d", preferDiscovery, low)
	}
	if all6 := filtersOf(selectorOf(t, "::/0 0"), 0)[0].preference; all6 >= prefer4 {
		t.Errorf("a preference of IPv6, %d, is one of IPv4, from %d on", all6, prefer4)
	}
}

func selectorOf(t *testing.T, text string) netem.Selector {
	t.Helper()
	var prefix string
	var port uint16
	if _, err := fmt.Sscan(text, &prefix, &port); err != nil {
		t.Fatal(err)
	}
	return netem.Selector{Prefix: netip.MustParsePrefix(prefix), Port: port}
}

func TestUniformJitterHasATableToo(t *testing.T) {
	table := table(parse(t, "jitter 1ms"))
	sum, least, most := 0, math.MaxInt, math.MinInt
	for n, v := range table {
		sum += int(v)
		least, most = min(least, int(v)), max(most, int(v))
		if n > 0 && v <= table[n-1] {
			t.Fatalf("entry %d is %d, not more than %d", n, v, table[n-1])
		}
	}
	if mean := float64(sum) / float64(len(table)); math.Abs(mean) > 1 || least < -8192 || least > -8180 || most > 8192 || most < 8180 {
		t.Errorf("mean %g, from %d to %d, want 0 and -8192 to 8192", mean, least, most)
	}
}

func TestCommandsAreThoseOfTC(t *testing.T) {
	from := netem.Endpoint{Name: "n1", Netns: "/run/netns/faultlab-golden-n1", Interface: "eth0"}
	other := netem.Endpoint{Name: "db", Netns: "/proc/0/ns/net", Interface: "eth0"}
	n2 := netem.Endpoint{Name: "n2", Addr: netip.MustParseAddr("198.18.0.2"), Addr6: netip.MustParseAddr("2001:2::2")}
	own := parse(t, "jitter 1ms")
	own.Distribution = netem.Distribution{Name: "wan.dist", Text: "-8192 0 8192"}
	links := []netem.Link{
		{From: from, To: n2, Impairment: parse(t, "delay 0.3ms")},
		{From: from, To: netem.Endpoint{Name: "n3", Addr: netip.MustParseAddr("198.18.0.3")}, Impairment: parse(t, "delay 10ms jitter 2ms 25% distribution normal loss gemodel 1% 10% 70% 0.1%")},
		{From: from, Match: []netem.Selector{selectorOf(t, "198.19.0.0/16 3306")}, Impairment: parse(t, "rate 10mbit burst 32kb")},
		{From: from, Match: []netem.Selector{selectorOf(t, "2001:2:0:1::/64 0")}, Impairment: own},
		{From: other, To: n2, Impairment: parse(t, "partition")},
	}
	golden(t, "commands.golden", strings.Join(Commands(links), "\n")+"\n")
}

func TestWhatMendsALackIsOfTheDistributionAndItsKernel(t *testing.T) {
	const (
		ubuntu = "NAME=\"Ubuntu\"\nID=ubuntu\nID_LIKE=debian\n"
		debian = "ID=debian\nVERSION_CODENAME=bookworm\n"
		alma   = "ID=\"almalinux\"\nID_LIKE=\"rhel centos fedora\"\n"
	)
	for _, c := range []struct{ osRelease, kernel, want string }{
		{ubuntu, "6.8.0-41-generic", "sudo apt-get install linux-modules-extra-6.8.0-41-generic"},
		{ubuntu, "6.8.0-1012-aws", "sudo apt-get install linux-modules-extra-6.8.0-1012-aws"},
		{debian, "6.1.0-25-cloud-amd64", "sudo apt-get install linux-image-amd64, and start that kernel"},
		{alma, "5.14.0-427.el9.x86_64", "sudo dnf install kernel-modules-extra-5.14.0-427.el9.x86_64"},
		{ubuntu, "5.15.167.4-microsoft-standard-WSL2", "--emulator user"},
		{debian, "6.1.102-fc-v1", "--emulator user"},
		{debian, "6.1.0-25-amd64", "--emulator user"}, // Debian's own has it: this is another
		{"", "6.10.1", "--emulator user"},
	} {
		if got := mend(c.osRelease, c.kernel); !strings.Contains(got, c.want) {
			t.Errorf("kernel %s, %q: got %q, want %q in it", c.kernel, c.osRelease, got, c.want)
		}
	}
}
