// Package report prints one line for each case: "NAME: ok", or what was seen instead.
package report

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// patience is for anything that should not take long.
const patience = 60 * time.Second

// Case runs one. A case that does not end is given up.
func Case(name string, run func() error) {
	done := make(chan error, 1)
	go func() {
		defer func() {
			if seen := recover(); seen != nil {
				done <- fmt.Errorf("a panic: %v", seen)
			}
		}()
		done <- run()
	}()
	var err error
	select {
	case err = <-done:
	case <-time.After(patience):
		err = fmt.Errorf("it does not end in %v", patience)
	}
	seen := "ok"
	if err != nil {
		seen = strings.Join(strings.Fields(err.Error()), " ")
	}
	fmt.Printf("%s: %s\n", name, seen)
}

// Same demands equality.
func Same(what string, seen, wanted any) error {
	if fmt.Sprint(seen) == fmt.Sprint(wanted) {
		return nil
	}
	return fmt.Errorf("%s is %q, not %q", what, fmt.Sprint(seen), fmt.Sprint(wanted))
}

// Env is a value that must be there.
func Env(name string) string {
	value := os.Getenv(name)
	if value == "" {
		fmt.Fprintln(os.Stderr, name, "is not set")
		os.Exit(2)
	}
	return value
}

// Flavour is what the host is: lxd, lxd-5.0 or incus.
func Flavour() string { return Env("MOTE_FLAVOUR") }

// Incus says whether the host is Incus.
func Incus() bool { return Flavour() == "incus" }
