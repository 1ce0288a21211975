package process

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/faultlab/faultlab/lab"
)

func TestEverySiteHasAnAddressRangeAndEveryNodeAPlaceInIt(t *testing.T) {
	spec := lab.Spec{Name: "x", ClientSite: "b", Nodes: []lab.NodeSpec{
		{Name: "n1", Site: "a"}, {Name: "n2", Site: "b"}, {Name: "n3", Site: "a"}, {Name: "n4", Site: "c"},
	}}
	client, nodes := layout(spec)
	var got []string
	for _, p := range append(nodes, client) {
		got = append(got, p.name+" "+p.v4.String()+" "+p.v6.String()+" "+mac(p.v4.Addr()).String())
	}
	want := []string{
		"n1 198.18.0.11/15 2001:2::b/48 02:fa:c6:12:00:0b",
		"n2 198.18.1.11/15 2001:2:0:1::b/48 02:fa:c6:12:01:0b",
		"n3 198.18.0.12/15 2001:2::c/48 02:fa:c6:12:00:0c",
		"n4 198.18.2.11/15 2001:2:0:2::b/48 02:fa:c6:12:02:0b",
		"client 198.18.1.9/15 2001:2:0:1::9/48 02:fa:c6:12:01:09",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("layout (-want +got):\n%s", d)
	}
}

func TestTheClientIsAtTheFirstNodesSiteOrAtOneOfItsOwn(t *testing.T) {
	nodes := []lab.NodeSpec{{Name: "n1", Site: "a"}, {Name: "n2", Site: "b"}}
	for site, want := range map[string]string{"": "198.18.0.9", "b": "198.18.1.9", "c": "198.18.2.9"} {
		client, _ := layout(lab.Spec{Name: "x", Nodes: nodes, ClientSite: site})
		if got := client.v4.Addr().String(); got != want {
			t.Errorf("client of site %q: got %s, want %s", site, got, want)
		}
	}
}

func TestASpecThatCannotBeBuiltIsRefused(t *testing.T) {
	for what, s := range map[string]lab.Spec{
		"no nodes":        {Name: "x"},
		"bad name":        {Name: "X", Nodes: []lab.NodeSpec{{Name: "n1"}}},
		"bad node name":   {Name: "x", Nodes: []lab.NodeSpec{{Name: "n/1"}}},
		"a name twice":    {Name: "x", Nodes: []lab.NodeSpec{{Name: "n1"}, {Name: "n1"}}},
		"a reserved name": {Name: "x", Nodes: []lab.NodeSpec{{Name: "client"}}},
	} {
		if err := check(s); err == nil {
			t.Errorf("%s: %+v passes", what, s)
		}
	}
}

// A link is shaped for all addresses of its target, or half the traffic slips
// past it.
func TestAnEndpointHasBothAddressesOfItsPlace(t *testing.T) {
	client, nodes := layout(lab.Spec{Name: "x", Nodes: []lab.NodeSpec{{Name: "n1"}}})
	for _, pl := range append(nodes, client) {
		if e := endpoint("x", pl); e.Addr != pl.v4.Addr() || e.Addr6 != pl.v6.Addr() || !e.Addr6.IsValid() {
			t.Errorf("%s at %s and %s: got endpoint %+v", pl.name, pl.v4, pl.v6, e)
		}
	}
}
