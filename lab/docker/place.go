package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/network"
	"golang.org/x/sys/unix"

	"github.com/faultlab/faultlab/lab"
	"github.com/faultlab/faultlab/lab/server"
	"github.com/faultlab/faultlab/netem"
)

// placeImage holds the program of every place. Another program needs another
// tag.
const placeImage = "faultlab/place:1"

// A place is the container that holds a node's, or the client's, network and
// process namespace, and a node's data. A server is a container of its own that
// joins it; so it can be stopped, killed and started with all else as it was, and
// what is done to its links stays.
//
// The place's program ends when its standard input does. That is a connection
// of this process: when the process dies, however, the place ends, and the
// kernel ends with it all servers in its process namespace.
type place struct {
	id       string
	endpoint netem.Endpoint
	hold     types.HijackedResponse
	process  *process
}

// placeSpec says what a place is.
type placeSpec struct {
	name    string // the container's
	member  string // the node's, or "client"
	network labNetwork
	host    byte
	hosts   []string // name:address, for /etc/hosts
	volume  string   // "" for none
	labels  map[string]string
}

// createPlace makes the container and does not start it: its volume can be
// filled.
func (d daemon) createPlace(ctx context.Context, s placeSpec) (*place, error) {
	address := &network.EndpointIPAMConfig{IPv4Address: host(s.network.v4, s.host).String()}
	p := &place{endpoint: netem.Endpoint{Name: s.member, Addr: host(s.network.v4, s.host)}}
	if s.network.v6.IsValid() {
		p.endpoint.Addr6 = host(s.network.v6, s.host)
		address.IPv6Address = p.endpoint.Addr6.String()
	}
	hc := &container.HostConfig{
		NetworkMode: container.NetworkMode(s.network.name), ExtraHosts: s.hosts,
		CapDrop: []string{"ALL"}, SecurityOpt: []string{"no-new-privileges"},
	}
	if s.volume != "" {
		hc.Mounts = dataMount(s.volume)
	}
	var err error
	p.id, err = d.create(ctx, &container.Config{
		Image: placeImage, User: "65534:65534", Hostname: s.member, Labels: s.labels, StopSignal: "SIGKILL",
		OpenStdin: true, StdinOnce: true, AttachStdin: true,
	}, hc, &network.NetworkingConfig{EndpointsConfig: map[string]*network.EndpointSettings{s.network.name: {IPAMConfig: address}}}, s.name)
	return p, taken(s.name, err)
}

// dataMount shows a node's volume where its server has its data, and nothing of
// what the image has there.
func dataMount(volume string) []mount.Mount {
	return []mount.Mount{{Type: mount.TypeVolume, Source: volume, Target: server.DataDir, VolumeOptions: &mount.VolumeOptions{NoCopy: true}}}
}

// start runs the place and finds its network namespace.
func (d daemon) startPlace(ctx context.Context, p *place) (err error) {
	if p.hold, err = d.ContainerAttach(ctx, p.id, container.AttachOptions{Stream: true, Stdin: true}); err != nil {
		return err
	}
	if err := d.ContainerStart(ctx, p.id, container.StartOptions{}); err != nil {
		return err
	}
	if p.process, err = d.process(ctx, p.id); err != nil {
		return err
	}
	if p.process == nil {
		return fmt.Errorf("the place of %s has ended", p.endpoint.Name)
	}
	p.endpoint.Netns = fmt.Sprintf("/proc/%d/ns/net", p.process.pid)
	if p.endpoint.Interface, err = findInterface(p.endpoint.Netns, p.endpoint.Addr); err != nil {
		return lab.Hint(fmt.Errorf("%w find the network namespace of %s by its process, %d: %w", lab.ErrCannot, p.endpoint.Name, p.process.pid, err),
			"run faultlab on the machine of the daemon itself, outside of containers")
	}
	return nil
}

// release ends the place and with it its servers.
func (p *place) release() error {
	if p.hold.Conn != nil {
		p.hold.Close()
	}
	if p.process == nil {
		return nil
	}
	// Also without a daemon that sees the end of the connection.
	err := errors.Join(p.process.signal(unix.SIGKILL), p.process.file.Close())
	p.process = nil
	return err
}

// makePlaceImage makes the image of places unless the daemon has it.
func (d daemon) makePlaceImage(ctx context.Context) error {
	if ok, err := d.hasImage(ctx, placeImage); ok || err != nil {
		return err
	}
	program, err := placeProgram(runtime.GOARCH)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	t := tar.NewWriter(&b)
	// Where the volume of a node is mounted.
	for _, dir := range []string{"var/", "var/lib/", server.DataDir[1:] + "/"} {
		if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}); err != nil {
			return err
		}
	}
	if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "place", Mode: 0o755, Size: int64(len(program))}); err != nil {
		return err
	}
	if _, err := t.Write(program); err != nil {
		return err
	}
	if err := t.Close(); err != nil {
		return err
	}
	return d.importImage(ctx, io.Reader(&b), placeImage, `ENTRYPOINT ["/place"]`, "LABEL "+labelFaultlab+"=place")
}

// Programs of a place, by processor: they ignore the end of children, which
// makes the kernel reap the orphans of the servers, read standard input to its
// end, and end. No image is sure to have a program that does, and one made of
// this program itself would be as large as it is and as many as it has builds.
//
// Each is followed by its struct sigaction: the handler SIG_IGN, then zeros.
var placePrograms = map[string]struct {
	machine uint16 // ELF's number of the processor
	code    []byte
}{
	"amd64": {62, []byte{
		0xb8, 13, 0, 0, 0, // mov eax, 13 (rt_sigaction)
		0xbf, 17, 0, 0, 0, // mov edi, 17 (SIGCHLD)
		0x48, 0x8d, 0x35, 42, 0, 0, 0, // lea rsi, [rip+42] (sigaction)
		0x31, 0xd2, // xor edx, edx
		0x41, 0xba, 8, 0, 0, 0, // mov r10d, 8
		0x0f, 0x05, // syscall
		// read:
		0x31, 0xc0, // xor eax, eax (read)
		0x31, 0xff, // xor edi, edi
		0x48, 0x89, 0xe6, // mov rsi, rsp
		0xba, 8, 0, 0, 0, // mov edx, 8
		0x0f, 0x05, // syscall
		0x85, 0xc0, // test eax, eax
		0x7f, 0xee, // jg read
		0x83, 0xf8, 0xfc, // cmp eax, -4 (EINTR)
		0x74, 0xe9, // je read
		0xb8, 60, 0, 0, 0, // mov eax, 60 (exit)
		0x31, 0xff, // xor edi, edi
		0x0f, 0x05, // syscall
	}},
	"arm64": {183, words(
		0xd28010c8, // mov x8, #134 (rt_sigaction)
		0xd2800220, // mov x0, #17 (SIGCHLD)
		0x10000201, // adr x1, #64 (sigaction)
		0xd2800002, // mov x2, #0
		0xd2800103, // mov x3, #8
		0xd4000001, // svc #0
		// read:
		0xd28007e8, // mov x8, #63 (read)
		0xd2800000, // mov x0, #0
		0x910003e1, // mov x1, sp
		0xd2800102, // mov x2, #8
		0xd4000001, // svc #0
		0xf100001f, // cmp x0, #0
		0x54ffff4c, // b.gt read
		0xb100101f, // cmn x0, #4 (EINTR)
		0x54ffff00, // b.eq read
		0xd2800ba8, // mov x8, #93 (exit)
		0xd2800000, // mov x0, #0
		0xd4000001, // svc #0
	)},
}

func words(w ...uint32) []byte {
	var b []byte
	for _, i := range w {
		b = binary.LittleEndian.AppendUint32(b, i)
	}
	return b
}

// placeProgram is a place's program as an ELF file: the header, one segment that
// is the whole file, the code.
func placeProgram(arch string) ([]byte, error) {
	p, ok := placePrograms[arch]
	if !ok {
		return nil, fmt.Errorf("%w build labs of containers on %s: no program of a place is known for it", lab.ErrCannot, arch)
	}
	const at, headers = 0x400000, 64 + 56
	code := append(bytes.Clone(p.code), 1)
	code = append(code, make([]byte, 31)...)
	var b bytes.Buffer
	for _, v := range []any{
		[]byte("\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00"),
		uint16(2), p.machine, uint32(1), uint64(at + headers), uint64(64), uint64(0), // executable, entry, program headers, no sections
		uint32(0), uint16(64), uint16(56), uint16(1), uint16(0), uint16(0), uint16(0),
		uint32(1), uint32(5), uint64(0), uint64(at), uint64(at), // load, readable and executable
		uint64(headers + len(code)), uint64(headers + len(code)), uint64(0x10000),
		code,
	} {
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}
