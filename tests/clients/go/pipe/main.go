// Command pipe is the agent's SFTP stream on standard input and output, as `incus file mount` gives it
// to sshfs and as `sftp -D` wants it.
package main

import (
	"fmt"
	"io"
	"os"

	"mote/agent"
)

func main() {
	conn, err := agent.Sftp()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	go func() {
		_, _ = io.Copy(conn, os.Stdin)
		conn.Close()
	}()
	_, _ = io.Copy(os.Stdout, conn)
}
