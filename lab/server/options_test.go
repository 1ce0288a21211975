package server

import (
	"strings"
	"testing"

	"github.com/faultlab/faultlab/lab"
)

func TestTheOptionFileHoldsTheProvidersPartThenTheCallers(t *testing.T) {
	s := lab.Start{Options: "[mysqld]\nserver-id = 7\n"}
	for f, want := range map[lab.Flavor]struct{ has, hasNot []string }{
		lab.MySQL:   {[]string{"mysqlx = OFF", "secure-file-priv = NULL", "port = 3306"}, []string{"init-file"}},
		lab.PXC:     {[]string{"mysqlx = OFF"}, nil},
		lab.MariaDB: {[]string{"datadir = /var/lib/mysql"}, []string{"mysqlx", "secure-file-priv"}},
	} {
		got := OptionFile(f, s, "")
		for _, w := range want.has {
			if !strings.Contains(got, w+"\n") {
				t.Errorf("%s: no %q in\n%s", f, w, got)
			}
		}
		for _, w := range want.hasNot {
			if strings.Contains(got, w) {
				t.Errorf("%s: %q in\n%s", f, w, got)
			}
		}
		if !strings.HasSuffix(got, "\n"+s.Options) {
			t.Errorf("%s: the caller's part is not last in\n%s", f, got)
		}
	}
	if got := OptionFile(lab.MySQL, s, "/dev/stdin"); !strings.Contains(got, "init-file = /dev/stdin\n") {
		t.Errorf("no init file in\n%s", got)
	}
}
