package topology

import (
	"testing"

	"github.com/faultlab/faultlab/lab"
)

func TestSettingsOfTheUserComeLastAndKeepWhatTheyDoNotSpeakOf(t *testing.T) {
	if got := settings(&lab.Cluster{}); got != "" {
		t.Errorf("without settings: %q", got)
	}
	got := settings(&lab.Cluster{Settings: map[string]string{"wsrep_provider_options": "evs.send_window=512", "innodb_buffer_pool_size": "64M"}})
	want := "[mysqld]\ninnodb_buffer_pool_size = 64M\nwsrep_provider_options = gcache.size=128M;evs.send_window=512\n"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
