package plan

import "encoding/json"

// ReadAhead reads the file or directory that c names for the default network, and returns a disk
// that has it in memory. So a plan that is made next need not wait for the disk. What cannot be
// read now is read when it is asked for.
func ReadAhead(c *Config, disk Disk) Disk {
	if c.Default.Path == "" {
		return disk
	}
	text, err := disk.Read(c.Default.Path)
	if err != nil {
		return disk
	}
	return readAhead{disk, c.Default.Path, text}
}

// readAhead has read one path of a Disk.
type readAhead struct {
	Disk
	path string
	text json.RawMessage
}

// Read implements [Disk].
func (r readAhead) Read(path string) (json.RawMessage, error) {
	if path == r.path {
		return r.text, nil
	}
	return r.Disk.Read(path)
}
