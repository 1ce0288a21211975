package docker

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// program writes this machine's program of a place to a file.
func program(t *testing.T) string {
	t.Helper()
	b, err := placeProgram(runtime.GOARCH)
	if err != nil {
		t.Skip(err)
	}
	path := filepath.Join(t.TempDir(), "place")
	if err := os.WriteFile(path, b, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestThePlaceEndsWithItsStandardInputAndNotBefore(t *testing.T) {
	cmd := exec.Command(program(t))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { cmd.Process.Kill() })
	if _, err := io.Copy(in, bytes.NewReader(make([]byte, 100))); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		t.Fatalf("it ended with its input open: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	in.Close()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("status: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it goes on without input")
	}
}

// The code is followed by what its first instructions refer to, and jumps to
// its read: checked here for the processors that this machine is not.
func TestProgramsOfPlacesReferToWhatFollowsThem(t *testing.T) {
	amd64 := placePrograms["amd64"].code
	const lea = 10 // 7 bytes, of which the last 4 are the distance from its end
	if got := lea + 7 + int(int32(binary.LittleEndian.Uint32(amd64[lea+3:]))); got != len(amd64) {
		t.Errorf("amd64: sigaction at %d, want %d", got, len(amd64))
	}
	arm64 := placePrograms["arm64"].code
	adr := binary.LittleEndian.Uint32(arm64[8:])
	if got := 8 + int(adr>>5&0x7ffff)<<2 + int(adr>>29&3); got != len(arm64) {
		t.Errorf("arm64: sigaction at %d, want %d", got, len(arm64))
	}
	for arch := range placePrograms {
		if b, err := placeProgram(arch); err != nil || len(b) > 400 {
			t.Errorf("%s: %d bytes, %v", arch, len(b), err)
		}
	}
}
