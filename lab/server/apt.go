package server

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/faultlab/faultlab/lab"
)

// MirrorEnv names a Debian archive for machines whose apt knows none.
const MirrorEnv = "FAULTLAB_DEBIAN_MIRROR"

// Mirror is the Debian archive that the machine's apt, configured in aptDir,
// takes packages from; $FAULTLAB_DEBIAN_MIRROR comes first.
func Mirror(aptDir string) (string, error) {
	if m := os.Getenv(MirrorEnv); m != "" {
		return m, nil
	}
	var all []source
	for _, pattern := range []string{"sources.list", "sources.list.d/*.list", "sources.list.d/*.sources"} {
		paths, err := filepath.Glob(filepath.Join(aptDir, pattern))
		if err != nil {
			return "", err
		}
		for _, p := range paths {
			b, err := os.ReadFile(p)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return "", err
			}
			if strings.HasSuffix(p, ".sources") {
				all = append(all, parseDeb822(string(b))...)
			} else {
				all = append(all, parseOneLine(string(b))...)
			}
		}
	}
	if m := pickMirror(all, readMirrorList); m != "" {
		return m, nil
	}
	return "", lab.Hint(fmt.Errorf("%w find Debian's packages: nothing in %s names Debian's main archive", lab.ErrCannot, aptDir),
		"name one: "+MirrorEnv+"=URL of a Debian archive", "apt must trust its keys: sudo apt-get install debian-archive-keyring")
}

// source is one archive that apt is told of.
type source struct {
	uris, suites, components []string
	signedBy                 string
}

// parseOneLine reads the sources.list format:
// deb [option=value ...] URI suite component...
func parseOneLine(text string) []source {
	var out []source
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		kind, rest, ok := cutSpace(line)
		if !ok || kind != "deb" {
			continue
		}
		var s source
		if strings.HasPrefix(rest, "[") {
			options, after, ok := strings.Cut(rest[1:], "]")
			if !ok {
				continue
			}
			for _, o := range strings.Fields(options) {
				if v, ok := strings.CutPrefix(o, "signed-by="); ok {
					s.signedBy = v
				}
			}
			rest = after
		}
		f := strings.Fields(rest)
		if len(f) < 2 {
			continue
		}
		s.uris, s.suites, s.components = f[:1], f[1:2], f[2:]
		out = append(out, s)
	}
	return out
}

func cutSpace(line string) (first, rest string, ok bool) {
	line = strings.TrimSpace(line)
	i := strings.IndexAny(line, " \t")
	if i < 0 {
		return line, "", false
	}
	return line[:i], strings.TrimSpace(line[i:]), true
}

// parseDeb822 reads the .sources format: stanzas of fields, parted by empty
// lines; a line that begins with space continues the field before it.
func parseDeb822(text string) []source {
	var out []source
	fields := map[string]string{}
	last := ""
	end := func() {
		f := func(name string) []string { return strings.Fields(fields[name]) }
		if slices.Contains(f("types"), "deb") && !disabled(fields["enabled"]) && len(f("uris")) > 0 && len(f("suites")) > 0 {
			out = append(out, source{f("uris"), f("suites"), f("components"), strings.TrimSpace(fields["signed-by"])})
		}
		fields, last = map[string]string{}, ""
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		switch {
		case strings.HasPrefix(line, "#"):
		case strings.TrimSpace(line) == "":
			end()
		case line[0] == ' ' || line[0] == '\t':
			if last != "" {
				fields[last] += "\n" + strings.TrimSpace(line)
			}
		default:
			name, value, ok := strings.Cut(line, ":")
			if !ok {
				last = ""
				continue
			}
			last = strings.ToLower(strings.TrimSpace(name))
			fields[last] = strings.TrimSpace(value)
		}
	}
	end()
	return out
}

// disabled follows apt's own reading of a truth value.
func disabled(v string) bool {
	return slices.Contains([]string{"no", "false", "without", "off", "disable", "0"}, strings.ToLower(strings.TrimSpace(v)))
}

// debianPath is how Debian's archive ends on every mirror, snapshots included.
// Others end so as well; score tells them apart.
var debianPath = regexp.MustCompile(`/debian(/\d{8}T\d{6}Z)?/*$`)

// pickMirror chooses the source that is most surely Debian's main archive, ""
// if none may be. list reads the file that a mirror+file: URI names.
func pickMirror(all []source, list func(path string) []string) string {
	best, mirror := 0, ""
	for _, s := range all {
		var uris []string
		for _, u := range s.uris {
			if path, ok := strings.CutPrefix(u, "mirror+file:"); ok {
				uris = append(uris, list("/"+strings.TrimLeft(path, "/"))...)
				continue
			}
			uris = append(uris, u)
		}
		for _, u := range uris {
			if n := score(s, u); n > best {
				best, mirror = n, strings.TrimRight(u, "/")
			}
		}
	}
	return mirror
}

// score is 0 for what cannot be Debian's main archive. Third parties, too,
// have a /debian and a main; they have neither its other suites nor its keys.
func score(s source, uri string) int {
	u, err := url.Parse(uri)
	if err != nil || !slices.Contains([]string{"http", "https", "ftp", "file", "copy"}, u.Scheme) ||
		!debianPath.MatchString(u.Path) || !slices.Contains(s.components, "main") {
		return 0
	}
	n := 0
	for _, suite := range s.suites {
		switch base, pocket, _ := strings.Cut(suite, "-"); {
		case strings.Contains(suite, "/") || pocket == "security":
			return 0
		case pocket == "updates" || pocket == "backports" || pocket == "proposed":
			n = max(n, 3)
		case pocket == "" && base != "":
			n = max(n, 1)
		}
	}
	if n > 0 && strings.Contains(s.signedBy, "debian-archive-") {
		n += 4
	}
	if n > 0 && s.signedBy == "" {
		n += 2 // trusted by apt's own keys
	}
	return n
}

// readMirrorList reads a list of mirrors: a URI and its properties a line.
func readMirrorList(path string) []string {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	var out []string
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 0 && !strings.HasPrefix(f[0], "#") {
			out = append(out, f[0])
		}
	}
	return out
}
