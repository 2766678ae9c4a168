// Command bridge PORT SOCKET forwards connections from a vsock port of this guest to a unix socket
// in it, so that clients on the host reach devlxd. With tcp:ADDRESS instead of PORT, it forwards
// from a TCP address.
package main

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/mdlayher/vsock"
)

func main() {
	listener, err := listen(os.Args[1])
	if err != nil {
		panic(err)
	}
	fmt.Println("listening")
	for {
		conn, err := listener.Accept()
		if err != nil {
			panic(err)
		}
		go carry(conn.(side), os.Args[2])
	}
}

// side is a connection of which one direction can be closed.
type side interface {
	net.Conn
	CloseWrite() error
}

func listen(where string) (net.Listener, error) {
	if address, found := strings.CutPrefix(where, "tcp:"); found {
		return net.Listen("tcp", address)
	}
	port, err := strconv.ParseUint(where, 10, 32)
	if err != nil {
		return nil, err
	}
	return vsock.Listen(uint32(port), nil)
}

func carry(outside side, path string) {
	defer outside.Close()
	conn, err := net.Dial("unix", path)
	if err != nil {
		return
	}
	inside := conn.(*net.UnixConn)
	defer inside.Close()
	go func() {
		copyAll(inside, outside)
		_ = inside.CloseWrite()
	}()
	copyAll(outside, inside)
	_ = outside.CloseWrite()
}

func copyAll(to, from net.Conn) {
	buffer := make([]byte, 8*1024)
	for {
		count, err := from.Read(buffer)
		if count > 0 {
			if _, err := to.Write(buffer[:count]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
