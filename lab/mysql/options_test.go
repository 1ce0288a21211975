package mysql

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOptionFilesHaveEachNameOnceWithItsLastValue(t *testing.T) {
	o := Options{}.Set("server_id", "1", "sync_binlog", "0", "skip_name_resolve", "").Set("sync_binlog", "1")
	want := "[mysqld]\nserver_id = 1\nsync_binlog = 1\nskip_name_resolve\n"
	if diff := cmp.Diff(want, o.String()); diff != "" {
		t.Errorf("option file differs (-want +got):\n%s", diff)
	}
	if got, ok := o.Get("sync_binlog"); got != "1" || !ok {
		t.Errorf("got sync_binlog %q, %v; want the value set last", got, ok)
	}
	if got, ok := o.Get("server-id"); ok {
		t.Errorf("got %q for a name that was never set", got)
	}
}

func TestSettingAnOptionLeavesTheOriginalAlone(t *testing.T) {
	base := Options{}.Set("a", "1", "b", "2", "c", "3")
	// Appending to one backing array twice is how such a bug would show.
	left, right := base.Set("x", "left"), base.Set("x", "right")
	for _, c := range []struct {
		o    Options
		want string
	}{{left, "left"}, {right, "right"}, {base, ""}} {
		if got, _ := c.o.Get("x"); got != c.want {
			t.Errorf("got x = %q, want %q", got, c.want)
		}
	}
}

func TestANameWithoutAValueIsAProgrammingError(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("Set of an odd number of strings did not panic")
		}
	}()
	Options{}.Set("server_id")
}
