// What local-path-provisioner runs in its helper pods: `volume -p PATH … -a create|delete` makes or removes a volume's folder.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	path := flag.String("p", "", "the volume's folder")
	action := flag.String("a", "", "create or delete")
	flag.String("s", "", "size; a folder has none")
	flag.String("m", "", "volume mode; always Filesystem")
	flag.Parse()
	if err := act(*action, *path); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func act(action, path string) error {
	switch action {
	case "create":
		if err := os.MkdirAll(path, 0o777); err != nil {
			return err
		}
		return os.Chmod(path, 0o777) // whatever the umask: pods that are not root write here
	case "delete":
		return os.RemoveAll(path)
	}
	return fmt.Errorf("unknown action %q", action)
}
