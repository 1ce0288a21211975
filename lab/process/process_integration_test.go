//go:build integration

package process_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/lab/process"
	"github.com/faultlab/faultlab/lab/server"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == process.NodeArg {
		process.NodeMain()
	}
	os.Exit(m.Run())
}

func TestTry(t *testing.T) {
	ctx := t.Context()
	f := lab.Flavor(os.Getenv("FLAVOR"))
	p := &process.Provider{Servers: server.Store{Dir: "/tmp/exp/h2cache", Roots: filepath.SplitList(os.Getenv("FAULTLAB_SERVER_ROOTS"))}, StateDir: t.TempDir(), Report: func(s string) { t.Log(s) }}
	spec := lab.Spec{Name: "try"}
	for _, n := range []string{"n1", "n2", "n3"} {
		spec.Nodes = append(spec.Nodes, lab.NodeSpec{Name: n, Flavor: f})
	}
	t0 := time.Now()
	step := func(s string) { t.Log(s, time.Since(t0)); t0 = time.Now() }
	if err := p.Preflight(ctx, spec); err != nil {
		t.Fatal(err)
	}
	step("preflight")
	l, err := p.Open(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	step("open")
	defer func() {
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
		step("close")
	}()
	for _, n := range l.Nodes() {
		err := n.Start(ctx, lab.Start{InitSQL: "CREATE USER u IDENTIFIED BY 'p';\n", Options: "[mysqld]\n" + os.Getenv("OPTIONS") + "\n"})
		if err != nil {
			t.Fatal(err)
		}
	}
	step("start")
	for _, n := range l.Nodes() {
		for {
			c, err := l.Client().Dial(ctx, "tcp", n.Addr())
			if err == nil {
				b := make([]byte, 100)
				c.SetDeadline(time.Now().Add(time.Second))
				k, err := c.Read(b)
				c.Close()
				if err == nil {
					t.Logf("%q", b[:k])
					break
				}
			}
			select {
			case <-n.Done():
				t.Fatal(n.Log(4000))
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	step("answering")
	t.Log(l.Nodes()[0].Log(5000))
	if os.Getenv("HOLD") != "" {
		time.Sleep(20 * time.Second)
	}
	for _, n := range l.Nodes() {
		t0 = time.Now()
		if err := n.Stop(ctx); err != nil {
			t.Error(err)
		}
		step("stop")
	}
}
