package server

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/faultlab/faultlab/lab"
)

// WriteImage writes the file system of a container image as a tar stream: what
// a jail shows of the server root, with the accounts and folders that the
// server needs, so that no packaged option file or account gets in.
func WriteImage(ctx context.Context, srv Server, w io.Writer) error {
	if srv.Root == "/" {
		return lab.Hint(fmt.Errorf("%s %s is this machine's own: an image of it would be the whole machine", srv.Flavor, srv.Version),
			"faultlab servers install "+string(srv.Flavor))
	}
	t := imageWriter{tar.NewWriter(w), map[uint64]string{}}
	for _, d := range []struct {
		name string
		mode int64
		uid  int
	}{
		{"dev", 0o755, 0}, {"etc", 0o755, 0}, {"etc/mysql", 0o755, 0}, {"proc", 0o555, 0}, {"run", 0o755, 0}, {"sys", 0o555, 0},
		{"tmp", 0o1777, 0}, {"var", 0o755, 0}, {"var/lib", 0o755, 0}, {"var/tmp", 0o1777, 0},
		{DataDir[1:], 0o750, UID}, {RunDir[1:], 0o755, UID},
	} {
		if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: d.name + "/", Mode: d.mode, Uid: d.uid, Gid: d.uid}); err != nil {
			return err
		}
	}
	if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: "var/run", Linkname: "/run", Mode: 0o777}); err != nil {
		return err
	}
	for _, f := range accounts() {
		if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f[0], Mode: 0o644, Size: int64(len(f[1]))}); err != nil {
			return err
		}
		if _, err := io.WriteString(t, f[1]); err != nil {
			return err
		}
	}
	for _, name := range shared() {
		if err := t.add(ctx, srv.Root, name); err != nil {
			return fmt.Errorf("image of %s: %w", srv.Root, err)
		}
	}
	return t.Close()
}

// imageWriter also remembers where it has written files with several names.
type imageWriter struct {
	*tar.Writer
	linked map[uint64]string // inode to name
}

// add writes root/name and all below it under that name. It is no error that
// there is none.
func (t imageWriter) add(ctx context.Context, root, name string) error {
	return filepath.WalkDir(filepath.Join(root, name), func(path string, de fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path == filepath.Join(root, name) {
			return nil
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		fi, err := de.Info()
		if err != nil {
			return err
		}
		to := ""
		if fi.Mode()&fs.ModeSymlink != 0 {
			if to, err = os.Readlink(path); err != nil {
				return err
			}
		}
		if !fi.IsDir() && !fi.Mode().IsRegular() && to == "" {
			return nil // devices are the daemon's to make
		}
		h, err := tar.FileInfoHeader(fi, to)
		if err != nil {
			return err
		}
		if h.Name, err = filepath.Rel(root, path); err != nil {
			return err
		}
		// Names of this machine's users say nothing in another root.
		h.Uname, h.Gname = "", ""
		if st, ok := fi.Sys().(*syscall.Stat_t); ok && fi.Mode().IsRegular() && st.Nlink > 1 {
			if first, ok := t.linked[st.Ino]; ok {
				h.Typeflag, h.Linkname, h.Size = tar.TypeLink, first, 0
				return t.WriteHeader(h)
			}
			t.linked[st.Ino] = h.Name
		}
		if fi.IsDir() {
			h.Name += "/"
		}
		if err := t.WriteHeader(h); err != nil || !fi.Mode().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(t, f)
		return err
	})
}
