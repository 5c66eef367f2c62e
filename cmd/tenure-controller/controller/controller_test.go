package controller

import (
	"strings"
	"testing"
	"time"
)

func TestValidate(t *testing.T) {
	if err := DefaultConfig().validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	tests := []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"namespace", func(c *Config) { c.RegistrationNamespace = "" }, "RegistrationNamespace is empty"},
		{"renewal", func(c *Config) { c.RenewDeadline = time.Minute }, "RenewDeadline (1m0s), and that less than LeaseDuration (15s)"},
		{"workers", func(c *Config) { c.Workers = 0 }, "Workers is 0"},
		{"counts", func(c *Config) { c.CountsEvery = -1 }, "CountsEvery is -1ns"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := DefaultConfig()
			tt.change(&c)
			if err := c.validate(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v; want %q", err, tt.want)
			}
			if _, err := New(c, nil, nil); err == nil {
				t.Error("New takes it; want an error")
			}
		})
	}
}
