// Command gorilla listens to devlxd's events with gorilla/websocket, and violates RFC 6455 to check
// the answers.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"time"

	"github.com/gorilla/websocket"

	"mote/report"
)

func main() {
	report.Case("an event arrives", event)
	report.Case("a ping is answered", ping)
	report.Case("a close is echoed with its code", closes)
	violation("a frame without a mask is answered by 1002", []byte{0x81, 0x02, 'h', 'i'})
	violation("a reserved bit is answered by 1002", masked(0xc1, 0x80))
	violation("an unknown opcode is answered by 1002", masked(0x83, 0x80))
	violation("a ping longer than 125 bytes is answered by 1002", masked(0x89, 0xfe, 0, 126))
	violation("a ping in two parts is answered by 1002", masked(0x09, 0x80))
	violation("a length with its top bit set is answered by 1002",
		masked(0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0))
}

// masked appends a mask of zeros to the head of a frame.
func masked(head ...byte) []byte { return append(head, 0, 0, 0, 0) }

func dial() (*websocket.Conn, error) {
	dialer := websocket.Dialer{
		NetDialContext: func(_ context.Context, _, _ string) (net.Conn, error) {
			return net.Dial("unix", report.Env("MOTE_DEVLXD"))
		},
	}
	conn, _, err := dialer.Dial("ws://any/1.0/events", nil)
	if err != nil {
		return nil, err
	}
	return conn, conn.SetReadDeadline(time.Now().Add(10 * time.Second))
}

func event() error {
	conn, err := dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	// The host repeats the event, because the agent may not have registered the listener yet.
	go func() {
		for number := range 10 {
			_ = exec.Command(report.Env("MOTE_POKE"), "user.gorilla", fmt.Sprint(number)).Run()
			time.Sleep(300 * time.Millisecond)
		}
	}()
	var seen struct {
		Type     string
		Metadata struct{ Key string }
	}
	for seen.Metadata.Key != "user.gorilla" {
		if err := conn.ReadJSON(&seen); err != nil {
			return err
		}
	}
	return report.Same("its type", seen.Type, "config")
}

func ping() error {
	conn, err := dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	answered := errors.New("answered")
	conn.SetPongHandler(func(text string) error {
		if err := report.Same("the pong", text, "hello"); err != nil {
			return err
		}
		return answered
	})
	if err := conn.WriteControl(websocket.PingMessage, []byte("hello"), time.Now().Add(time.Second)); err != nil {
		return err
	}
	for {
		if _, _, err := conn.ReadMessage(); errors.Is(err, answered) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func closes() error {
	conn, err := dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	message := websocket.FormatCloseMessage(4321, "done")
	if err := conn.WriteControl(websocket.CloseMessage, message, time.Now().Add(time.Second)); err != nil {
		return err
	}
	return closed(conn, 4321)
}

// closed reads up to the close frame, and requires its code.
func closed(conn *websocket.Conn, code int) error {
	for {
		_, _, err := conn.ReadMessage()
		var seen *websocket.CloseError
		if errors.As(err, &seen) {
			return report.Same("the code", seen.Code, code)
		}
		var late net.Error
		if errors.As(err, &late) && late.Timeout() {
			return errors.New("no close within 10 s")
		}
		if err != nil {
			return fmt.Errorf("no close: %w", err)
		}
	}
}

func violation(name string, frame []byte) {
	report.Case(name, func() error {
		conn, err := dial()
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := conn.UnderlyingConn().Write(frame); err != nil {
			return err
		}
		return closed(conn, websocket.CloseProtocolError)
	})
}
