package plan

import (
	"testing"
	"testing/fstest"
)

// TestReadAhead: what was read is not read again, and nothing else is kept.
func TestReadAhead(t *testing.T) {
	file := func(name string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte(`{"cniVersion":"1.0.0","name":"` + name + `","type":"x"}`)}
	}
	root := fstest.MapFS{"net.d/10-a.conf": file("before"), "b.conf": file("before")}
	disk := ReadAhead(&Config{Default: Source{Path: "/net.d"}}, Files{Root: root, ConfDir: "/net.d"})
	root["net.d/10-a.conf"], root["b.conf"] = file("after"), file("after")
	for path, want := range map[string]string{"/net.d": "before", "/b.conf": "after"} {
		text, err := disk.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		l, err := parseList(text)
		if err != nil || l.name != want {
			t.Errorf("%s: %s, %v; want that of %s", path, text, err, want)
		}
	}
	if _, err := disk.Lookup("after"); err != nil {
		t.Errorf("Lookup: %v; want what is there now", err)
	}
	for _, c := range []*Config{{}, {Default: Source{Path: "/none"}}} {
		if disk, same := ReadAhead(c, Files{Root: root}).(Files); !same {
			t.Errorf("default network %+v: %v; want the disk", c.Default, disk)
		}
	}
}
