package journal

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// maxHolders is how many processes an error names.
const maxHolders = 4

// Holders names the processes that hold a lock on f's file, other than this one, as
// far as they can be seen. That looks at all open files of the node: it is for whoever
// has waited in vain. /proc/locks would not do: it has the process that took the lock,
// and those that are in question have inherited it from one that is dead.
func Holders(f *os.File) string {
	file, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return ""
	}
	processes, _ := filepath.Glob("/proc/[0-9]*")
	var found []string
	for _, p := range processes {
		if !holds(p, file) || filepath.Base(p) == fmt.Sprint(os.Getpid()) {
			continue
		}
		comm, _ := os.ReadFile(filepath.Join(p, "comm"))
		found = append(found, fmt.Sprintf("process %s (%s)", filepath.Base(p), strings.TrimSpace(string(comm))))
	}
	if more := len(found) - maxHolders; more > 0 {
		found = append(found[:maxHolders], fmt.Sprintf("%d more", more))
	}
	return strings.Join(found, ", ")
}

// holds reports whether a process, by its directory in /proc, holds a lock on file.
// Others that have the file open are waiting for it.
func holds(process, file string) bool {
	links, _ := filepath.Glob(process + "/fd/*")
	for _, link := range links {
		if to, err := os.Readlink(link); err != nil || to != file {
			continue
		}
		info, _ := os.ReadFile(filepath.Join(process, "fdinfo", filepath.Base(link)))
		if strings.Contains(string(info), "FLOCK") {
			return true
		}
	}
	return false
}
