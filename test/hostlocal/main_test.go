package main

import "testing"

func TestReplaced(t *testing.T) {
	for conf, want := range map[string]string{
		`{"name":"lan","ipam":{"type":"host-local","subnet":"10.0.0.0/24"}}`:      `{"ipam":{"mode":"local","subnet":"10.0.0.0/24","type":"tenure"},"name":"lan"}`,
		`{"name":"lan","ipam":{"type":"host-local","Name":"","resolvConf":null}}`: `{"ipam":{"Name":"","mode":"local","resolvConf":null,"type":"tenure"},"name":"lan"}`,
		`{"name":"lan"}`: `{"name":"lan"}`,
	} {
		got, err := replaced([]byte(conf))
		if err != nil || string(got) != want {
			t.Errorf("%s becomes %s, %v; want %s", conf, got, err, want)
		}
	}
}
