package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v2"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/netem"
)

func threeNodes() lab.State {
	s := lab.State{Name: "l", Client: lab.StateNode{Name: "client", Endpoint: netem.Endpoint{Name: "client"}}}
	for i := range 3 {
		name := fmt.Sprintf("n%d", i+1)
		s.Nodes = append(s.Nodes, lab.StateNode{Name: name, Endpoint: netem.Endpoint{Name: name, Addr: netip.AddrFrom4([4]byte{198, 18, 0, byte(i + 1)})}})
	}
	return s
}

func TestNamesOfEndsStandForDirectedLinks(t *testing.T) {
	for _, c := range []struct {
		from, to string
		oneWay   bool
		want     string
	}{
		{"n1", "n2", false, "n1-n2 n2-n1"},
		{"n1", "n2", true, "n1-n2"},
		{"client", "n3", true, "client-n3"},
		{"n1", "nodes", true, "n1-n2 n1-n3"},
		{"nodes", "n1", true, "n2-n1 n3-n1"},
		{"nodes", "nodes", true, "n1-n2 n1-n3 n2-n1 n2-n3 n3-n1 n3-n2"},
		{"nodes", "nodes", false, "n1-n2 n2-n1 n1-n3 n3-n1 n2-n3 n3-n2"}, // each once
		{"client", "nodes", false, "client-n1 n1-client client-n2 n2-client client-n3 n3-client"},
		{"n1", "all", true, "n1-n2 n1-n3 n1-client"},
	} {
		links, err := linksOf(threeNodes(), c.from, c.to, c.oneWay)
		var got []string
		for _, l := range links {
			got = append(got, l.From.Name+"-"+l.To.Name)
		}
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%s to %s, one way %v: got %v, %v, want %s", c.from, c.to, c.oneWay, got, err, c.want)
		}
	}
	for _, c := range [][2]string{{"n1", "n1"}, {"client", "client"}, {"n9", "n1"}, {"n1", ""}, {"N1", "n2"}} {
		links, err := linksOf(threeNodes(), c[0], c[1], false)
		var e *exit
		if !errors.As(err, &e) || e.code != exitUsage || len(hints(err)) == 0 {
			t.Errorf("%s to %s: got %v, %v, want a usage error with a hint", c[0], c[1], links, err)
		}
	}
}

// parsed runs askedFor as a command with these arguments would.
func parsed(args ...string) (i netem.Impairment, roundTrip bool, err error) {
	app := &cli.App{Name: "faultlab", Flags: impairmentFlags(), ExitErrHandler: func(*cli.Context, error) {}, Writer: &strings.Builder{},
		Action: func(ctx *cli.Context) (err error) {
			i, roundTrip, err = askedFor(ctx, strings.Join(ctx.Args().Slice(), " "))
			return err
		}}
	err = app.Run(permute(app, append([]string{"faultlab"}, args...)))
	return i, roundTrip, err
}

func TestOptionsAndTextSayTheSame(t *testing.T) {
	for text, options := range map[string][]string{
		"rtt 0.6ms":          {"--rtt", "0.6ms"},
		"delay 300us":        {"--delay", "300us"},
		"rtt 0.6ms loss 1%":  {"--loss", "1%", "--rtt=0.6ms"},
		"loss 1% 25%":        {"--loss", "1% 25%"},
		"loss gemodel 1% 9%": {"--loss", "gemodel 1% 9%"},
		"partition":          {"--partition"},
		"delay 10ms jitter 1ms 25% distribution normal": {"--delay", "10ms", "--jitter", "1ms 25%", "--distribution", "normal"},
		"delay 1ms slot 1ms 2ms packets 10 bytes 15kb":  {"--delay", "1ms", "--slot", "1ms 2ms packets 10 bytes 15kb"},
		"delay 1ms duplicate 1% reorder 25% 50% gap 5 corrupt 0.1% rate 10mbit burst 32kb limit 1000 seed 42": {
			"--delay", "1ms", "--duplicate", "1%", "--reorder", "25% 50%", "--gap", "5", "--corrupt", "0.1%",
			"--rate", "10mbit", "--burst", "32kb", "--limit", "1000", "--seed", "42"},
	} {
		a, aTrip, aErr := parsed(strings.Fields(text)...)
		b, bTrip, bErr := parsed(options...)
		if a != b || aTrip != bTrip || aErr != nil || bErr != nil || a == (netem.Impairment{}) {
			t.Errorf("%s: got %v, %v, %v\n%q: got %v, %v, %v", text, a, aTrip, aErr, options, b, bTrip, bErr)
		}
	}
	if i, _, err := parsed("none"); err != nil || i != (netem.Impairment{}) {
		t.Errorf("none: got %v, %v", i, err)
	}
}

func TestATableOfJitterIsReadFromItsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "own.dist")
	if err := os.WriteFile(file, []byte("# mine\n-8192 0 8192\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--delay", "1ms", "--jitter", "1ms", "--distribution", file}, {"delay 1ms jitter 1ms distribution " + file}} {
		i, _, err := parsed(args...)
		if err != nil || len(i.Distribution.Table()) != 3 || i.Distribution.Name != "own.dist" {
			t.Errorf("%q: got %v, %v, want the table of three", args, i.Distribution, err)
		}
	}
}

func TestReportedFault11AWordThatIsNotKnownIsAnErrorAndNeverPassedOver(t *testing.T) {
	for _, args := range [][]string{
		{"delay 1ms los 1%"}, {"delay 1ms latency 5ms"}, {"dealy 1ms"}, {"delay 1ms delay 2ms"}, {"--toxicity", "1"},
		{"--loss", "1% 2% 3%"}, {"--partition", "delay", "1ms"}, {"--limit", "1.5"}, {"--seed", "0"},
	} {
		if i, _, err := parsed(args...); err == nil {
			t.Errorf("%q: got %v, want an error", args, i)
		}
	}
}

func TestWhatIsClearedLeavesTheEmulatorWithTheLastLink(t *testing.T) {
	s := threeNodes()
	all, _ := linksOf(s, "n1", "nodes", false)
	var states []netem.LinkState
	for _, l := range all {
		l.Impairment.Delay = 1
		states = append(states, netem.LinkState{Link: l})
	}
	named, _ := linksOf(s, "n1", "n2", false)
	links, rest := toClear(states, named)
	if len(links) != 2 || rest != 2 || links[0].Impairment != (netem.Impairment{}) {
		t.Errorf("n1 n2 of n1 nodes: got %v and %d others, want 2 that do nothing and 2 others", links, rest)
	}
	states[2].Impairment, states[3].Impairment = netem.Impairment{}, netem.Impairment{}
	if _, rest := toClear(states, named); rest != 0 {
		t.Errorf("got %d others where the others do nothing", rest)
	}
	other, _ := linksOf(s, "n2", "n3", false)
	if links, _ := toClear(states, other); len(links) != 0 {
		t.Errorf("n2 n3: got %v, which are not shaped", links)
	}
}

func TestLinksAreShownInTheOrderOfTheNodes(t *testing.T) {
	s := threeNodes()
	s.Nodes[1].Name, s.Nodes[1].Endpoint.Name = "n10", "n10"
	s.Nodes[2].Name, s.Nodes[2].Endpoint.Name = "n9", "n9"
	links, _ := linksOf(s, "all", "all", false)
	var states []netem.LinkState
	for _, l := range slices.Backward(links) {
		states = append(states, netem.LinkState{Link: l})
	}
	sortLinks(states, endNames(s))
	var got []string
	for _, st := range states {
		got = append(got, st.From.Name+"-"+st.To.Name)
	}
	want := strings.Fields("n1-n10 n1-n9 n1-client n10-n1 n10-n9 n10-client n9-n1 n9-n10 n9-client client-n1 client-n10 client-n9")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// fakeEmulator counts what becomes of it.
type fakeEmulator struct {
	netem.Backend
	applied, closed int
	dead            bool
}

var errDead = errors.New("the emulator is dead")

func (f *fakeEmulator) Name() string { return "fake" }
func (f *fakeEmulator) Apply(context.Context, []netem.Link) error {
	f.applied++
	return f.err()
}
func (f *fakeEmulator) Clear(context.Context) error { return f.err() }
func (f *fakeEmulator) Show(context.Context) ([]netem.LinkState, error) {
	return make([]netem.LinkState, f.applied), f.err()
}
func (f *fakeEmulator) Counters(context.Context) (netem.Counters, error) {
	return netem.Counters{Packets: 1}, f.err()
}
func (f *fakeEmulator) Close() error { f.closed++; return nil }
func (f *fakeEmulator) err() error {
	if f.dead {
		return errDead
	}
	return nil
}

func TestAnEmulatorIsThereWhileLinksAreShaped(t *testing.T) {
	var opened []*fakeEmulator
	var detached []string
	o := &onDemand{log: filepath.Join(t.TempDir(), "log"), choose: func() (emulatorKind, error) {
		return emulatorKind{
			open: func(context.Context, io.Writer) (netem.Backend, error) {
				opened = append(opened, &fakeEmulator{})
				return opened[len(opened)-1], nil
			},
			detach: func(e netem.Endpoint, _ bool) error { detached = append(detached, e.Name); return nil },
		}, nil
	}}
	ctx := t.Context()
	asleep := func(when string) {
		t.Helper()
		links, err := o.Show(ctx)
		counters, cerr := o.Counters(ctx)
		if len(links) != 0 || counters != (netem.Counters{}) || o.Name() != "" || err != nil || cerr != nil || o.Clear(ctx) != nil {
			t.Errorf("%s: got %v, %v, %v, %v, want nothing", when, links, counters, err, cerr)
		}
	}
	asleep("before the first link")
	links, _ := linksOf(threeNodes(), "n1", "n2", false)
	for range 2 {
		if err := o.Apply(ctx, links); err != nil {
			t.Fatal(err)
		}
	}
	if len(opened) != 1 || opened[0].applied != 2 || o.Name() != "fake" {
		t.Fatalf("after two changes %d were opened", len(opened))
	}
	if err := o.Clear(ctx); err != nil || opened[0].closed != 1 || detached != nil {
		t.Errorf("Clear: %v, closed %d times, detached %v", err, opened[0].closed, detached)
	}
	asleep("after Clear")

	// One that has died is told, cuts its links until Clear, and has a heir.
	if err := o.Apply(ctx, links); err != nil {
		t.Fatal(err)
	}
	opened[1].dead = true
	if err := o.Apply(ctx, links); !errors.Is(err, errDead) {
		t.Errorf("Apply of a dead one: got %v", err)
	}
	if _, err := o.Show(ctx); !errors.Is(err, errDead) {
		t.Errorf("Show of a dead one: got %v", err)
	}
	err := o.Clear(ctx)
	slices.Sort(detached)
	if err != nil || !slices.Equal(detached, []string{"n1", "n2"}) {
		t.Errorf("Clear of a dead one: %v, detached %v, want both ends", err, detached)
	}
	asleep("after Clear of a dead one")
	if err := o.Apply(ctx, links); err != nil || len(opened) != 3 {
		t.Errorf("its heir: %v, %d opened", err, len(opened))
	}
	if err := errors.Join(o.Close(), o.Close()); err != nil || opened[2].closed != 1 {
		t.Errorf("Close: %v, closed %d times", err, opened[2].closed)
	}
}

func kinds(kernel, user error) []emulatorKind {
	return []emulatorKind{
		{name: "kernel", about: "k", probe: func() error { return kernel }},
		{name: "user", about: "u", probe: func() error { return user }},
	}
}

var (
	errNoNetem = lab.Hint(errors.New("no sch_netem"), "modprobe sch_netem")
	errNoTUN   = lab.Hint(errors.New("no TUN"), "modprobe tun")
)

// Where kernel netem is missing other tools go on without effect.
func TestReportedFault08WithoutNetemAnotherEmulatorIsTakenOrTheLackIsTold(t *testing.T) {
	for _, c := range []struct {
		name         string
		kernel, user error
		want         string   // emulator
		says         []string // error and hints
	}{
		{"auto", nil, nil, "kernel", nil},
		{"auto", errNoNetem, nil, "user", nil},
		{"auto", nil, errNoTUN, "kernel", nil},
		{"auto", errNoNetem, errNoTUN, "", []string{"no emulator works here", "kernel: no sch_netem", "user: no TUN", "modprobe sch_netem", "modprobe tun", "faultlab doctor"}},
		{"kernel", nil, errNoTUN, "kernel", nil},
		{"kernel", errNoNetem, nil, "", []string{"kernel: no sch_netem", "modprobe sch_netem"}}, // and never user in its place
		{"user", nil, errNoTUN, "", []string{"user: no TUN", "modprobe tun"}},
		{"magic", nil, nil, "", []string{`emulator "magic" is not auto, kernel or user`}},
	} {
		k, err := chooseEmulator(c.name, kinds(c.kernel, c.user))
		said := fmt.Sprint(err, hints(err))
		if k.name != c.want || (err == nil) != (c.want != "") {
			t.Errorf("--emulator %s with kernel %v, user %v: got %q, %v, want %q", c.name, c.kernel, c.user, k.name, err, c.want)
		}
		for _, s := range c.says {
			if !strings.Contains(said, s) {
				t.Errorf("--emulator %s with kernel %v, user %v: got %q, want %q in it", c.name, c.kernel, c.user, said, s)
			}
		}
	}
}

func TestDoctorSaysOfEachEmulatorWhatItLacksAndWhichOneIsTaken(t *testing.T) {
	for _, c := range []struct {
		kernel, user error
		want         []finding
	}{
		{nil, errNoTUN, []finding{{Check: "emulator kernel", OK: true, Found: "k"}, {Check: "emulator user", Found: "no TUN", Mend: "modprobe tun"},
			{Check: "emulator auto", OK: true, Needed: true, Found: "takes kernel"}}},
		{errNoNetem, nil, []finding{{Check: "emulator kernel", Found: "no sch_netem", Mend: "modprobe sch_netem"}, {Check: "emulator user", OK: true, Found: "u"},
			{Check: "emulator auto", OK: true, Needed: true, Found: "takes user"}}},
		{errNoNetem, errNoTUN, []finding{{Check: "emulator kernel", Found: "no sch_netem", Mend: "modprobe sch_netem"}, {Check: "emulator user", Found: "no TUN", Mend: "modprobe tun"},
			{Check: "emulator auto", Needed: true, Found: "links cannot be shaped: no emulator works here"}}},
	} {
		if diff := cmp.Diff(c.want, examineEmulators(kinds(c.kernel, c.user))); diff != "" {
			t.Errorf("kernel %v, user %v (-want +got):\n%s", c.kernel, c.user, diff)
		}
	}
}

// Other tools shape what fits the address or the port.
func TestReportedFault10AnAddressAndAPortMeanBothTogether(t *testing.T) {
	for text, want := range map[string]netem.Selector{
		"10.0.0.5":              {Prefix: netip.MustParsePrefix("10.0.0.5/32")},
		"10.0.0.5:3306":         {Prefix: netip.MustParsePrefix("10.0.0.5/32"), Port: 3306},
		"10.0.0.0/8":            {Prefix: netip.MustParsePrefix("10.0.0.0/8")},
		"10.0.0.0/8:3306":       {Prefix: netip.MustParsePrefix("10.0.0.0/8"), Port: 3306},
		"0.0.0.0/0:65535":       {Prefix: netip.MustParsePrefix("0.0.0.0/0"), Port: 65535},
		"2001:db8::1":           {Prefix: netip.MustParsePrefix("2001:db8::1/128")},
		"2001:db8::3306":        {Prefix: netip.MustParsePrefix("2001:db8::3306/128")}, // no port
		"2001:db8::/32":         {Prefix: netip.MustParsePrefix("2001:db8::/32")},
		"[2001:db8::1]":         {Prefix: netip.MustParsePrefix("2001:db8::1/128")},
		"[2001:db8::1]:3306":    {Prefix: netip.MustParsePrefix("2001:db8::1/128"), Port: 3306},
		"[2001:db8::]/32:3306":  {Prefix: netip.MustParsePrefix("2001:db8::/32"), Port: 3306},
		"[2001:db8::]/32":       {Prefix: netip.MustParsePrefix("2001:db8::/32")},
		"[2001:db8::/32]:3306":  {Prefix: netip.MustParsePrefix("2001:db8::/32"), Port: 3306}, // as Selector prints it
		"[::ffff:10.0.0.5]:306": {Prefix: netip.MustParsePrefix("10.0.0.5/32"), Port: 306},
	} {
		got, err := targets([]string{text})
		if err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("--to %s: got %v, %v, want %v", text, got, err, want)
			continue
		}
		// Its own name is read again.
		if again, err := targets([]string{got.endpoint().Name}); err != nil || again[0] != want {
			t.Errorf("--to %s is called %s, which is read as %v, %v", text, got.endpoint().Name, again, err)
		}
		match := strings.Join(detourCommands(netem.Link{Match: got}), "\n")
		if with := strings.Count(match, want.Prefix.String()); with != strings.Count(match, "tc filter") || want.Port != 0 && with != strings.Count(match, fmt.Sprintf("dport %d ", want.Port)) {
			t.Errorf("--to %s: not every filter asks for both:\n%s", text, match)
		}
	}
	for _, text := range []string{"", "db", "10.0.0", "10.0.0.5:", "10.0.0.5:x", "10.0.0.256", "10.0.0.5/8", ":3306", "10.0.0.5/33", "10.0.0.5:0", "[10.0.0.5", "2001:db8::1/129", "fe80::1%eth0", "10.0.0.5:3306:1", "10.0.0.5 "} {
		got, err := targets([]string{text})
		var e *exit
		if !errors.As(err, &e) || e.code != exitUsage || len(hints(err)) == 0 {
			t.Errorf("--to %q: got %v, %v, want a usage error with a hint", text, got, err)
		}
	}
	a, _ := targets([]string{"10.0.0.5", "10.0.0.6:1"})
	b, _ := targets([]string{"10.0.0.6:1", "10.0.0.5"})
	if a.endpoint() != b.endpoint() {
		t.Errorf("the order of --to makes two links: %v and %v", a.endpoint(), b.endpoint())
	}
}

func TestAShapeHasAUsableNameOfItsPlace(t *testing.T) {
	for in, want := range map[[2]string]string{
		{"eth0", "1234"}:                      "shape-eth0-1234",
		{"eth0.100", "My_NS"}:                 "shape-eth0-100-my-ns",
		{"eth0", "/run/docker/netns/ab12"}:    "shape-eth0-ab12",
		{"eth0", strings.Repeat("-x", 40)}:    "shape-eth0-x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-x",
		{"wg_ü", "ns"}:                        "shape-wg-ns",
		{"eth0", "/run/netns/..strange name"}: "shape-eth0-strange-name",
	} {
		got := shapeName(in[0], in[1])
		if got != want || lab.CheckName(got) != nil {
			t.Errorf("%q: got %q (%v), want %q", in, got, lab.CheckName(got), want)
		}
	}
}

// Numbers of processes and names mean another namespace later.
func TestWhatAShapeLeftIsLookedForInItsOwnNamespaceAlone(t *testing.T) {
	var st syscall.Stat_t
	if err := syscall.Stat("/proc/self/ns/net", &st); err != nil {
		t.Fatal(err)
	}
	ours := place{Endpoint: netem.Endpoint{Name: "x", Netns: "/proc/self/ns/net", Interface: "nosuch0"}, Emulator: "user", Dev: st.Dev, Ino: st.Ino}
	if path, ok := ours.path(); !ok || path != ours.Netns {
		t.Errorf("got %q, %v, want %q", path, ok, ours.Netns)
	}
	ours.Netns = "/proc/4194305/ns/net" // the process has ended, others live there
	if path, ok := ours.path(); !ok || path == ours.Netns {
		t.Errorf("got %q, %v, want another process's", path, ok)
	}
	gone := ours
	gone.Netns, gone.Ino = "/proc/self/ns/net", 1 // the number is another's by now
	if path, ok := gone.path(); ok {
		t.Errorf("found %q, which is another namespace", path)
	}
	if err := gone.restore(); err != nil {
		t.Errorf("nothing is left of it: got %v", err)
	}
	gone.Emulator = "magic"
	if err := gone.restore(); err == nil {
		t.Error("an emulator that nobody knows was restored")
	}
}
