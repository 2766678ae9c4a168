// Command pipe connects standard input and output to the agent's SFTP stream, as `incus file mount`
// does for sshfs and as `sftp -D` expects.
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
