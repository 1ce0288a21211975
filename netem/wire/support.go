package wire

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/faultlab/faultlab/netem"
	"github.com/faultlab/faultlab/netem/netns"
)

// Probe tries everything that the delay line needs, in a namespace of its
// own that is gone afterwards. Its error says what is missing, and wraps
// ErrUnsupported when it is for want of a right or of a part of the kernel.
func Probe() error {
	err := netns.Scratch(func(path string) error {
		p, err := openPort(netem.Endpoint{Netns: path, Interface: "lo"}, ringFrames(1))
		if err != nil {
			return err
		}
		defer p.close()
		if err := p.detour.add(netem.Selector{Prefix: netip.MustParsePrefix("198.18.0.1/32")}); err != nil {
			return err
		}
		missing, err := p.detour.missing()
		if err == nil && len(missing) > 0 {
			err = fmt.Errorf("%w: the kernel took a filter and does not have it", ErrUnsupported)
		}
		return err
	})
	if errors.Is(err, netns.ErrUnsupported) && !errors.Is(err, ErrUnsupported) {
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	return err
}
