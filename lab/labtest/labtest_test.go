package labtest_test

import (
	"testing"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/lab/labtest"
)

func TestTheFakeIsAProvider(t *testing.T) {
	labtest.Provider(t, lab.MySQL, func(t *testing.T) lab.Provider {
		f := &labtest.Fake{}
		t.Cleanup(func() {
			if open := f.OpenLabs(); len(open) > 0 {
				t.Errorf("labs left open: %v", open)
			}
		})
		return f
	})
}
