package docker

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/api/types/versions"
	"github.com/docker/docker/api/types/volume"
	"github.com/docker/docker/client"
	"golang.org/x/sys/unix"

	"github.com/faultlab/faultlab/lab"
)

// minAPI is Docker 19.03's, of 2019.
const minAPI = "1.40"

// daemon is a connection to one Docker daemon.
type daemon struct{ *client.Client }

// connect makes a client for the daemon at host; "" is the one that the docker
// command would talk to. Nothing is sent yet.
func connect(host string) (daemon, error) {
	opts := []client.Opt{client.FromEnv, client.WithAPIVersionNegotiation()}
	theirs, err := contextOptions(os.Getenv)
	if err != nil {
		return daemon{}, err
	}
	opts = append(opts, theirs...)
	if host != "" {
		opts = append(opts, client.WithHost(host))
	}
	c, err := client.NewClientWithOpts(opts...)
	if err != nil {
		return daemon{}, fmt.Errorf("docker client: %w", err)
	}
	return daemon{c}, nil
}

// reach asks the daemon what it is. The error is lab.ErrCannot for a daemon
// that does not answer, does not let this user in, or is too old.
func (d daemon) reach(ctx context.Context) (system.Info, error) {
	if strings.HasPrefix(d.DaemonHost(), "ssh:") {
		return system.Info{}, elsewhere(d.DaemonHost(), "it is another machine's")
	}
	info, err := d.Info(ctx)
	switch {
	case ctx.Err() != nil:
		return info, ctx.Err()
	case errors.Is(err, fs.ErrPermission):
		return info, lab.Hint(fmt.Errorf("%w use Docker at %s: permission denied", lab.ErrCannot, d.DaemonHost()),
			"run it as root: sudo faultlab ...")
	case client.IsErrConnectionFailed(err):
		return info, lab.Hint(fmt.Errorf("%w use Docker: no daemon answers at %s", lab.ErrCannot, d.DaemonHost()),
			"start it: sudo systemctl start docker", "or say where it is: DOCKER_HOST=unix:///path", "or do without: --provider process")
	case err != nil:
		return info, fmt.Errorf("docker at %s: %w", d.DaemonHost(), err)
	}
	if v := d.ClientVersion(); versions.LessThan(v, minAPI) {
		return info, lab.Hint(fmt.Errorf("%w use Docker %s: its API is %s and this needs %s", lab.ErrCannot, info.ServerVersion, v, minAPI),
			"install Docker 19.03 or newer, or do without: --provider process")
	}
	return info, nil
}

// checkLocal says why the daemon's containers cannot be processes of this
// machine: faults are put on links inside their network namespaces.
func checkLocal(host string, info system.Info) error {
	var why string
	var u unix.Utsname
	switch {
	case info.OSType != "linux":
		why = "its containers are not Linux's but " + info.OSType
	case strings.Contains(info.OperatingSystem, "Docker Desktop"):
		why = "Docker Desktop runs its containers in a virtual machine"
	case unix.Uname(&u) == nil && info.KernelVersion != "" && info.KernelVersion != unix.ByteSliceToString(u.Release[:]):
		why = "it runs on another kernel than this (" + info.KernelVersion + ")"
	default:
		return nil
	}
	return elsewhere(host, why)
}

func elsewhere(host, why string) error {
	return lab.Hint(fmt.Errorf("%w reach the containers of Docker at %s: %s", lab.ErrCannot, host, why),
		"run faultlab on the machine of the daemon itself: the links are shaped inside the containers' network namespaces")
}

// contextOptions finds the daemon as the docker command does: DOCKER_HOST wins,
// then the context that DOCKER_CONTEXT or the user's configuration names.
func contextOptions(env func(string) string) ([]client.Opt, error) {
	if env("DOCKER_HOST") != "" {
		return nil, nil
	}
	dir := env("DOCKER_CONFIG")
	if dir == "" {
		dir = filepath.Join(env("HOME"), ".docker")
	}
	name := env("DOCKER_CONTEXT")
	if name == "" {
		var config struct{ CurrentContext string }
		if err := readJSON(filepath.Join(dir, "config.json"), &config); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		name = config.CurrentContext
	}
	if name == "" || name == "default" {
		return nil, nil
	}
	id := fmt.Sprintf("%x", sha256.Sum256([]byte(name)))
	var meta struct {
		Endpoints map[string]struct{ Host string }
	}
	err := readJSON(filepath.Join(dir, "contexts", "meta", id, "meta.json"), &meta)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, lab.Hint(fmt.Errorf("there is no docker context %q", name), "docker context ls", "or say where the daemon is: DOCKER_HOST=unix:///path")
	}
	if err != nil {
		return nil, err
	}
	opts := []client.Opt{client.WithHost(meta.Endpoints["docker"].Host)}
	if tls := filepath.Join(dir, "contexts", "tls", id, "docker"); exists(filepath.Join(tls, "ca.pem")) {
		opts = append(opts, client.WithTLSClientConfig(filepath.Join(tls, "ca.pem"), filepath.Join(tls, "cert.pem"), filepath.Join(tls, "key.pem")))
	}
	return opts, nil
}

func readJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// makeTimeout is what the daemon gets to make one thing.
const makeTimeout = 2 * time.Minute

// whole is a context for a request that makes something: it does not end with
// ctx. A request that is cut short may be carried out all the same, after all
// that was made has been looked for.
func whole(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	w, cancel := context.WithTimeout(context.WithoutCancel(ctx), makeTimeout)
	return w, cancel, nil
}

// create makes a container and returns its ID.
func (d daemon) create(ctx context.Context, config *container.Config, hostConfig *container.HostConfig, networks *network.NetworkingConfig, name string) (string, error) {
	ctx, cancel, err := whole(ctx)
	if err != nil {
		return "", err
	}
	defer cancel()
	c, err := d.ContainerCreate(ctx, config, hostConfig, networks, nil, name)
	return c.ID, err
}

func (d daemon) createVolume(ctx context.Context, name string, labels map[string]string) error {
	ctx, cancel, err := whole(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	_, err = d.VolumeCreate(ctx, volume.CreateOptions{Name: name, Labels: labels})
	return err
}

// Describe says in a few words what daemon answers at host, which is as
// Provider.Host, or why labs cannot be made there.
func Describe(ctx context.Context, host string) (string, error) {
	d, err := connect(host)
	if err != nil {
		return "", err
	}
	defer d.Close()
	info, err := d.reach(ctx)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s at %s, %s", info.ServerVersion, d.DaemonHost(), info.Driver), checkLocal(d.DaemonHost(), info)
}
