// Command sftp uses pkg/sftp, the client of LXD and Incus, on an agent's SFTP stream.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"sort"
	"strings"
	"time"

	"github.com/pkg/sftp"

	"mote/agent"
	"mote/report"
)

var client *sftp.Client

// root is a directory in the guest for this program.
var root = path.Join(report.Env("MOTE_FILES"), "pkg-sftp")

func main() {
	conn, err := agent.Sftp()
	if err == nil {
		client, err = sftp.NewClientPipe(conn, conn)
	}
	if err == nil {
		err = client.MkdirAll(root)
	}
	if err != nil {
		fmt.Println("a session opens:", err)
		return
	}
	report.Case("1 MiB is written and read back", content)
	report.Case("a file is created, appended to and cut", cut)
	report.Case("a directory can be opened, as `file pull -r` does before it asks", directory)
	report.Case("a tree is pulled as `file pull -r` pulls it", tree)
	report.Case("300 files are open at once", handles)
	report.Case("a rename replaces a file that is there", rename)
	report.Case("a posix-rename does too", posixRename)
	report.Case("links, symbolic and hard", links)
	report.Case("modes and times are set and read", attributes)
	report.Case("2,000 names are listed", names)
	report.Case("what is not there is `not exist`", missing)
	report.Case("REMOVE of a full directory fails", full)
	report.Case("statvfs tells of the file system", space)
	report.Case("64 requests are under way at once", concurrent)
}

// write creates a file with this text and returns its path.
func write(name, text string) (string, error) {
	where := path.Join(root, name)
	file, err := client.Create(where)
	if err != nil {
		return where, err
	}
	if _, err := file.Write([]byte(text)); err != nil {
		return where, err
	}
	return where, file.Close()
}

func read(where string) (string, error) {
	file, err := client.Open(where)
	if err != nil {
		return "", err
	}
	defer file.Close()
	text, err := io.ReadAll(file)
	return string(text), err
}

// holds requires that a file exists and has this content.
func holds(where, wanted string) error {
	text, err := read(where)
	if err != nil {
		return err
	}
	return report.Same(path.Base(where), text, wanted)
}

func content() error {
	want := bytes.Repeat([]byte("0123456789abcde\n"), 1<<16)
	where, err := write("big", string(want))
	if err != nil {
		return err
	}
	text, err := read(where)
	if err != nil {
		return err
	}
	if text != string(want) {
		return errors.New("they differ")
	}
	return nil
}

func cut() error {
	where, err := write("cut", "one two")
	if err != nil {
		return err
	}
	file, err := client.OpenFile(where, os.O_RDWR)
	if err != nil {
		return err
	}
	if _, err := file.Seek(0, io.SeekEnd); err != nil {
		return err
	}
	if _, err := file.Write([]byte(" three")); err != nil {
		return err
	}
	if err := file.Truncate(9); err != nil {
		return err
	}
	file.Close()
	return holds(where, "one two t")
}

// directory opens a directory and queries it afterwards, as the servers do with any path.
func directory() error {
	file, err := client.Open(root)
	if err != nil {
		return err
	}
	defer file.Close()
	about, err := file.Stat()
	if err != nil {
		return fmt.Errorf("FSTAT: %w", err)
	}
	return report.Same("whether it is a directory", about.IsDir(), true)
}

func tree() error {
	top := path.Join(root, "tree")
	for _, name := range []string{"a/b", "a/c", "d"} {
		if err := client.MkdirAll(path.Join(top, name)); err != nil {
			return err
		}
	}
	for _, name := range []string{"tree/one", "tree/a/two", "tree/a/b/three"} {
		if _, err := write(name, name); err != nil {
			return err
		}
	}
	var found []string
	if err := pull(top, &found); err != nil {
		return err
	}
	sort.Strings(found)
	return report.Same("the tree", strings.Join(found, " "), "a a/b a/b/three a/c a/two d one")
}

// pull makes the calls of incusd's instance_file.go: open, then lstat, then list or read.
func pull(where string, found *[]string) error {
	file, err := client.Open(where)
	if err != nil {
		return err
	}
	defer file.Close()
	about, err := client.Lstat(where)
	if err != nil {
		return err
	}
	if name := strings.TrimPrefix(where, path.Join(root, "tree")+"/"); name != where {
		*found = append(*found, name)
	}
	if !about.IsDir() {
		return holds(where, strings.TrimPrefix(where, root+"/"))
	}
	entries, err := client.ReadDir(where)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := pull(path.Join(where, entry.Name()), found); err != nil {
			return err
		}
	}
	return nil
}

func handles() error {
	where, err := write("many", "text")
	if err != nil {
		return err
	}
	var open []*sftp.File
	defer func() {
		for _, file := range open {
			file.Close()
		}
	}()
	for number := range 300 {
		file, err := client.Open(where)
		if err != nil {
			return fmt.Errorf("number %d: %w", number, err)
		}
		open = append(open, file)
	}
	return holds(where, "text")
}

func replaces(how func(from, to string) error) error {
	from, err := write("from", "new")
	if err != nil {
		return err
	}
	to, err := write("to", "old")
	if err != nil {
		return err
	}
	if err := how(from, to); err != nil {
		return err
	}
	return holds(to, "new")
}

func rename() error { return replaces(client.Rename) }

func posixRename() error { return replaces(client.PosixRename) }

func links() error {
	target, err := write("target", "text")
	if err != nil {
		return err
	}
	symbolic, hard := path.Join(root, "symbolic"), path.Join(root, "hard")
	if err := errors.Join(client.Symlink("target", symbolic), client.Link(target, hard)); err != nil {
		return err
	}
	to, err := client.ReadLink(symbolic)
	if err != nil {
		return err
	}
	return errors.Join(report.Same("where it leads", to, "target"), holds(symbolic, "text"), holds(hard, "text"))
}

func attributes() error {
	where, err := write("attributes", "")
	if err != nil {
		return err
	}
	when := time.Unix(1_000_000_000, 0)
	if err := errors.Join(client.Chmod(where, 0o4751), client.Chtimes(where, when, when)); err != nil {
		return err
	}
	about, err := client.Stat(where)
	if err != nil {
		return err
	}
	seen := fmt.Sprint(about.Mode(), " ", about.ModTime().Unix())
	return report.Same("what it has", seen, "urwxr-x--x 1000000000")
}

func names() error {
	where := path.Join(root, "names")
	if err := client.MkdirAll(where); err != nil {
		return err
	}
	for number := range 2000 {
		file, err := client.Create(path.Join(where, fmt.Sprintf("a rather long name, number %04d", number)))
		if err != nil {
			return err
		}
		file.Close()
	}
	entries, err := client.ReadDir(where)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := client.Remove(path.Join(where, entry.Name())); err != nil {
			return err
		}
	}
	return errors.Join(report.Same("how many", len(entries), 2000), client.RemoveDirectory(where))
}

func missing() error {
	_, err := client.Stat(path.Join(root, "missing"))
	if !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("it is %v", err)
	}
	_, err = client.Open(path.Join(root, "missing"))
	if !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("OPEN is %v", err)
	}
	return nil
}

func full() error {
	if err := client.MkdirAll(path.Join(root, "full/inner")); err != nil {
		return err
	}
	if client.Remove(path.Join(root, "full")) == nil {
		return errors.New("it is gone")
	}
	return nil
}

func space() error {
	seen, err := client.StatVFS(root)
	if err != nil {
		return err
	}
	if seen.Blocks == 0 || seen.FreeSpace() == 0 {
		return fmt.Errorf("%d blocks, %d bytes free", seen.Blocks, seen.FreeSpace())
	}
	return nil
}

func concurrent() error {
	where, err := write("concurrent", strings.Repeat("x", 1<<20))
	if err != nil {
		return err
	}
	failures := make(chan error)
	for range 64 {
		go func() {
			text, err := read(where)
			if err == nil {
				err = report.Same("the size", len(text), 1<<20)
			}
			failures <- err
		}()
	}
	var all error
	for range 64 {
		all = errors.Join(all, <-failures)
	}
	return all
}
