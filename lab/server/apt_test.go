package server

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/faultlab/faultlab/lab"
)

func TestTheMirrorIsTheOneThatAptUses(t *testing.T) {
	t.Setenv(MirrorEnv, "")
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"deb822 with comments", map[string]string{"sources.list.d/debian.sources": `Types: deb
# http://snapshot.example/archive/debian/20250520T000000Z
URIs: http://a.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://a.example/debian-security
Suites: bookworm-security
Components: main
`}, "http://a.example/debian"},
		{"one line with options and a comment", map[string]string{"sources.list": `
# deb http://no.example/debian sid main
deb-src http://src.example/debian bookworm main
deb [arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] https://b.example/debian/ bookworm main contrib # why
`}, "https://b.example/debian"},
		{"a disabled stanza does not count", map[string]string{"sources.list.d/x.sources": `Enabled: no
Types: deb
URIs: http://off.example/debian
Suites: bookworm
Components: main

Enabled: yes
Types: deb-src deb
URIs: http://on.example/debian
Suites: bookworm
Components: main
`}, "http://on.example/debian"},
		{"several addresses, continued lines, tabs", map[string]string{"sources.list.d/x.sources": "Types: deb\nURIs:\n http://one.example/debian\n\thttp://two.example/debian\nSuites:\n\ttrixie\n # not a comment to apt, a strange suite\nComponents:\tmain\n"},
			"http://one.example/debian"},
		{"security under the same address", map[string]string{"sources.list": `
deb http://sec.example/debian bookworm-security main
deb http://main.example/mirrors/debian bookworm main
`}, "http://main.example/mirrors/debian"},
		{"third parties with a /debian and a main of their own", map[string]string{
			"sources.list.d/a.list":         "deb [signed-by=/etc/apt/keyrings/other.gpg] https://packages.example/thing/debian bookworm main\n",
			"sources.list.d/b.list":         "deb https://db.example/apt/debian bookworm/db-7 main\n",
			"sources.list.d/debian.sources": "Types: deb\nURIs: http://real.example/debian\nSuites: bookworm\nComponents: main\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n",
		}, "http://real.example/debian"},
		{"a snapshot", map[string]string{"sources.list": "deb http://snap.example/archive/debian/20250520T000000Z/ bookworm main\n"},
			"http://snap.example/archive/debian/20250520T000000Z"},
		{"none", map[string]string{"sources.list": "deb http://archive.example/ubuntu noble main universe\n"}, ""},
		{"not the component", map[string]string{"sources.list": "deb http://archive.example/debian bookworm stable\n"}, ""},
		{"an option that does not end", map[string]string{"sources.list": "deb [arch=amd64 http://archive.example/debian bookworm main\n"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range tt.files {
				path := filepath.Join(dir, name)
				os.MkdirAll(filepath.Dir(path), 0o755)
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			got, err := Mirror(dir)
			if got != tt.want {
				t.Errorf("got %q, want %q, of %q", got, tt.want, tt.files)
			}
			if (err != nil) != (tt.want == "") || err != nil && !errors.Is(err, lab.ErrCannot) {
				t.Errorf("got error %v", err)
			}
		})
	}
}

func TestAMirrorListIsRead(t *testing.T) {
	list := filepath.Join(t.TempDir(), "debian.list")
	if err := os.WriteFile(list, []byte("# ours\nhttps://listed.example/debian\tpriority:1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := source{uris: []string{"mirror+file:" + list}, suites: []string{"bookworm"}, components: []string{"main"}}
	if got, want := pickMirror([]source{s}, readMirrorList), "https://listed.example/debian"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTheEnvironmentNamesTheMirrorFirst(t *testing.T) {
	t.Setenv(MirrorEnv, "http://mine.example/debian")
	if got, err := Mirror(t.TempDir()); got != "http://mine.example/debian" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

func FuzzAnySourcesTextIsReadWithoutHarm(f *testing.F) {
	f.Add("Types: deb\nURIs: http://a.example/debian\nSuites: bookworm\nComponents: main\n")
	f.Add("deb [a=b] http://a.example/debian sid main\n")
	f.Add(" x\n:\n\n[\ndeb [")
	f.Fuzz(func(t *testing.T, text string) {
		for _, all := range [][]source{parseDeb822(text), parseOneLine(text)} {
			for _, s := range all {
				if len(s.uris) == 0 || len(s.suites) == 0 {
					t.Errorf("a source without address or suite: %+v of %q", s, text)
				}
			}
			pickMirror(all, func(string) []string { return nil })
		}
	})
}
