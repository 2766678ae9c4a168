package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	incus "github.com/lxc/incus/v7/client"
	"github.com/lxc/incus/v7/shared/api"

	"mote/report"
)

// result is a command's exit code and output.
type result struct {
	code     int
	out, err string
}

// buffer collects output.
type buffer struct{ bytes.Buffer }

// Close makes a buffer an io.WriteCloser, which LXD's library expects.
func (*buffer) Close() error { return nil }

// request is a command with its input and the handler of its control socket.
type request struct {
	api.InstanceExecPost
	input   string
	control func(conn *websocket.Conn)
}

func command(words ...string) request {
	return request{InstanceExecPost: api.InstanceExecPost{Command: words, WaitForWS: true}}
}

func shell(script string) request { return command("sh", "-c", script) }

// run runs a command, and waits for its end and all of its output.
func run(server incus.InstanceServer, want request) (result, error) {
	var out, problems buffer
	if want.control == nil {
		want.control = hold
	}
	done := make(chan bool)
	args := incus.InstanceExecArgs{
		Stdin:    io.NopCloser(strings.NewReader(want.input)),
		Stdout:   &out,
		Stderr:   &problems,
		Control:  want.control,
		DataDone: done,
	}
	operation, err := server.ExecInstance("", want.InstanceExecPost, &args)
	if err != nil {
		return result{}, err
	}
	failure := operation.Wait()
	if failure == nil {
		<-done
	}
	code := -1
	if number, ok := operation.Get().Metadata["return"].(float64); ok {
		code = int(number)
	}
	return result{code, out.String(), problems.String()}, failure
}

// hold reads a control socket until the peer closes it. Without a handler, LXD's library does not
// open the socket. A socket without references is closed by Go's garbage collection, which kills
// the command.
func hold(conn *websocket.Conn) {
	for {
		if _, _, err := conn.NextReader(); err != nil {
			return
		}
	}
}

// ends requires an exit code, and ignores output and errors.
func ends(want request, code int) func(server incus.InstanceServer) error {
	return func(server incus.InstanceServer) error {
		seen, _ := run(server, want)
		return report.Same("the exit code", seen.code, code)
	}
}

// prints requires success and this output.
func prints(want request, text string) func(server incus.InstanceServer) error {
	return func(server incus.InstanceServer) error {
		seen, err := run(server, want)
		if err != nil {
			return err
		}
		return report.Same("the output", fmt.Sprint(seen.code, " ", seen.out, seen.err), "0 "+text)
	}
}

func execCases() {
	with("exec, the exit code arrives", ends(shell("exit 7"), 7))
	with("exec, a command that is not there is 127", ends(command("/no/such"), 127))
	with("exec, a command that cannot be executed is 126", ends(command("/etc/passwd"), 126))
	with("exec, death by a signal is 128 and the signal", ends(shell("kill -9 $$"), 137))
	both := shell("cat; echo problem >&2")
	both.input = "input "
	with("exec, input, output and errors arrive", prints(both, "input problem\n"))
	where := shell("echo $HOME $GREETING $(pwd)")
	where.Environment = map[string]string{"GREETING": "hello"}
	where.Cwd = "/tmp"
	with("exec, environment and directory are as asked", prints(where, "/root hello /tmp\n"))
	with("exec, 16 MiB through cat come back unchanged", big)
	terminal := shell("stty size")
	terminal.Interactive, terminal.Width, terminal.Height = true, 91, 33
	with("exec, a terminal has the size asked for", prints(terminal, "33 91\r\n"))
	with("exec, a terminal follows its size", resize)
	with("exec, a signal by the control socket arrives", signal)
	with("exec, 30 commands in turn", inTurn)
	with("exec, nobody connects and the operation says so", unconnected)
	with("exec, who comes late is told that the operation has ended", late)
	with("exec, the websocket of an unknown operation is an error", unknownWebsocket)
	with("operations, one that runs is listed and cannot be deleted", listed)
	// These are last: they keep a Go agent busy for long, and the second one may crash it.
	with("exec, 2 MiB of arguments that JSON doubles", arguments)
	with("exec, 20 commands at once", many)
}

func big(server incus.InstanceServer) error {
	want := command("cat")
	want.input = strings.Repeat("sixteen bytes...", 1<<20)
	seen, err := run(server, want)
	if err != nil {
		return err
	}
	sum := func(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }
	return report.Same("the checksum", sum(seen.out), sum(want.input))
}

// arguments passes almost as much as the kernel accepts: 2 MiB in total (a quarter of the stack's
// limit) and 128 KiB per argument.
func arguments(server incus.InstanceServer) error {
	words := []string{"sh", "-c", `echo $# ${#1}`, "sh"}
	const each, count = 120_000, 17
	for range count {
		words = append(words, strings.Repeat(`"`, each))
	}
	return prints(command(words...), fmt.Sprintf("%d %d\n", count, each))(server)
}

func resize(server incus.InstanceServer) error {
	want := shell(`i=0; while [ $i -lt 100 ]; do stty size; i=$((i + 1)); sleep 0.1; [ "$(stty size)" = "50 120" ] && break; done`)
	want.Interactive, want.Width, want.Height = true, 80, 25
	want.control = func(conn *websocket.Conn) {
		_ = conn.WriteJSON(api.InstanceExecControl{
			Command: "window-resize", Args: map[string]string{"width": "120", "height": "50"},
		})
		hold(conn)
	}
	seen, err := run(server, want)
	if err != nil {
		return err
	}
	if strings.Count(seen.out, "\n") > 50 {
		return errors.New("the size stays")
	}
	return report.Same("the exit code", seen.code, 0)
}

func signal(server incus.InstanceServer) error {
	// The signal may arrive before the trap is set, so it is sent until the command has ended.
	want := shell(`trap "exit 9" USR1; while true; do sleep 0.1; done`)
	ended := make(chan bool)
	want.control = func(conn *websocket.Conn) {
		for {
			select {
			case <-ended:
				return
			case <-time.After(500 * time.Millisecond):
				_ = conn.WriteJSON(api.InstanceExecControl{Command: "signal", Signal: 10})
			}
		}
	}
	seen, err := run(server, want)
	close(ended)
	if err != nil {
		return err
	}
	return report.Same("the exit code", seen.code, 9)
}

func many(server incus.InstanceServer) error {
	var wait sync.WaitGroup
	failures := make(chan error, 20)
	for number := range 20 {
		wait.Add(1)
		go func() {
			defer wait.Done()
			text := fmt.Sprintf("%d\n", number)
			if err := prints(shell(fmt.Sprintf("sleep 0.3; echo %d", number)), text)(server); err != nil {
				failures <- err
			}
		}()
	}
	wait.Wait()
	close(failures)
	return <-failures
}

func inTurn(server incus.InstanceServer) error {
	for number := range 30 {
		if err := prints(shell(fmt.Sprintf("echo %d", number)), fmt.Sprintf("%d\n", number))(server); err != nil {
			return err
		}
	}
	return nil
}

// bare requests a command, and does not connect its sockets.
func bare(server incus.InstanceServer) (incus.Operation, string, error) {
	operation, _, err := server.RawOperation("POST", "/exec", command("true").InstanceExecPost, "")
	if err != nil {
		return nil, "", err
	}
	fds, _ := operation.Get().Metadata["fds"].(map[string]any)
	secret, _ := fds["0"].(string)
	return operation, secret, nil
}

func unconnected(server incus.InstanceServer) error {
	operation, _, err := bare(server)
	if err != nil {
		return err
	}
	err = operation.Wait()
	if err == nil {
		return errors.New("it succeeds")
	}
	return report.Same("what it says", err, "Timed out waiting for websockets to connect")
}

func late(server incus.InstanceServer) error {
	operation, secret, err := bare(server)
	if err != nil {
		return err
	}
	_ = operation.Wait()
	conn, err := operation.GetWebsocket(secret)
	if err == nil {
		conn.Close()
		return errors.New("it is let in")
	}
	if errors.Is(err, websocket.ErrBadHandshake) {
		return nil // LXD's library does not read what is said
	}
	return report.Same("what it says", err, "Only running operations can be connected")
}

func unknownWebsocket(server incus.InstanceServer) error {
	conn, err := server.GetOperationWebsocket("6d7ea2d4-9f44-4b52-a3dd-8f4b4ad64f21", "secret")
	if err == nil {
		conn.Close()
		return errors.New("it is let in")
	}
	return nil
}

func listed(server incus.InstanceServer) error {
	want := shell("sleep 2")
	args := incus.InstanceExecArgs{Stdout: &buffer{}, Stderr: &buffer{}, Control: hold}
	operation, err := server.ExecInstance("", want.InstanceExecPost, &args)
	if err != nil {
		return err
	}
	all, err := server.GetOperations()
	if err != nil {
		return err
	}
	found := false
	for _, one := range all {
		found = found || one.ID == operation.Get().ID
	}
	if !found {
		return errors.New("it is not listed")
	}
	if report.Incus() {
		if err := server.DeleteOperation(operation.Get().ID); err == nil {
			return errors.New("it is deleted")
		}
	}
	return operation.Wait()
}
