// Package report prints a line for each case: "NAME: ok", or what was observed instead.
package report

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// patience is the time limit of a case.
const patience = 60 * time.Second

// Case runs a case, and abandons it at the time limit.
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

// Same returns an error unless both values are equal.
func Same(what string, seen, wanted any) error {
	if fmt.Sprint(seen) == fmt.Sprint(wanted) {
		return nil
	}
	return fmt.Errorf("%s is %q, not %q", what, fmt.Sprint(seen), fmt.Sprint(wanted))
}

// Env returns an environment variable that must be set.
func Env(name string) string {
	value := os.Getenv(name)
	if value == "" {
		fmt.Fprintln(os.Stderr, name, "is not set")
		os.Exit(2)
	}
	return value
}

// Flavour returns the emulated server: lxd, lxd-5.0 or incus.
func Flavour() string { return Env("MOTE_FLAVOUR") }

// Incus returns whether the emulated server is Incus.
func Incus() bool { return Flavour() == "incus" }
