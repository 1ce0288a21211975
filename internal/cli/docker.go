package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/docker/go-units"
	"github.com/urfave/cli/v2"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/lab/docker"
)

// Flags of labs of containers.
var dockerFlags = []cli.Flag{
	&cli.StringSliceFlag{Name: "image", Usage: "run a flavor of servers from this image: `FLAVOR=IMAGE` (repeatable; needs --provider docker)"},
	&cli.Float64Flag{Name: "cpus", Usage: "the most processors that one server may use: `N` (needs --provider docker)"},
	&cli.StringFlag{Name: "memory", Usage: "the most memory that one server may use: `SIZE` such as 1G (needs --provider docker)"},
	&cli.IntFlag{Name: "mtu", Usage: "largest packet of the lab's network: `BYTES` (needs --provider docker)"},
}

// withoutDocker refuses flags that another provider would ignore.
func withoutDocker(ctx *cli.Context) error {
	for _, f := range dockerFlags {
		if name := f.Names()[0]; ctx.IsSet(name) {
			return lab.Hint(usage("--%s is of use for containers only", name), "add --provider docker")
		}
	}
	return nil
}

func dockerProvider(ctx *cli.Context, report func(string)) (*docker.Provider, error) {
	p := &docker.Provider{Servers: servers(ctx), Report: report, Images: map[lab.Flavor]string{}, CPUs: ctx.Float64("cpus"), MTU: ctx.Int("mtu")}
	flavors := []string{string(lab.MySQL), string(lab.MariaDB), string(lab.PXC)}
	for _, s := range ctx.StringSlice("image") {
		flavor, ref, ok := strings.Cut(s, "=")
		if !ok || ref == "" || !slices.Contains(flavors, flavor) {
			return nil, lab.Hint(usage("--image %s is not FLAVOR=IMAGE", s), "flavors: "+strings.Join(flavors, ", "), "for example: --image mysql=mysql:8.4")
		}
		p.Images[lab.Flavor(flavor)] = ref
	}
	// Docker counts hundredths: less would be no limit at all.
	if ctx.IsSet("cpus") && !(p.CPUs >= 0.01 && p.CPUs <= 10_000) {
		return nil, usage("--cpus must be 0.01 to 10000, not %g", p.CPUs)
	}
	if p.MTU != 0 && (p.MTU < 1280 || p.MTU > 65535) {
		return nil, usage("--mtu must be 1280 to 65535, not %d", p.MTU)
	}
	if s := ctx.String("memory"); s != "" {
		n, err := units.RAMInBytes(s)
		if err != nil {
			return nil, lab.Hint(usage("--memory %s is no size", s), "for example: --memory 1G")
		}
		if n < 256<<20 {
			return nil, usage("--memory must be at least 256M: a server does not start with less")
		}
		p.Memory = n
	}
	return p, nil
}

// serversImage makes images of server roots.
func (c *command) serversImage(ctx *cli.Context) error {
	flavors, err := flavorArgs(ctx)
	if err != nil {
		return err
	}
	for _, f := range flavors {
		srv, err := servers(ctx).Find(ctx.Context, f)
		if err != nil {
			return err
		}
		fmt.Fprintf(c.stderr, "%s: making an image of %s\n", f, srv.Root)
		ref, err := docker.MakeImage(ctx.Context, "", srv)
		if err != nil {
			return err
		}
		fmt.Fprintln(c.stdout, ref)
	}
	return nil
}

// examineDocker says whether labs of containers can be made.
func examineDocker(ctx context.Context) finding {
	f := finding{Check: "docker", OK: true}
	var err error
	if f.Found, err = docker.Describe(ctx, ""); err != nil {
		f.OK, f.Found = false, err.Error()+" (for --provider docker)"
		f.Mend = strings.Join(hints(err), "; ")
	}
	return f
}
