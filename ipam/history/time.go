package history

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// maxDays is the longest duration that fits.
const maxDays = 100_000

// ParseDuration reads a duration that is not negative, as [time.ParseDuration] does, or in days,
// such as 7d.
func ParseDuration(text string) (time.Duration, error) {
	days, ok := strings.CutSuffix(text, "d")
	if !ok {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return 0, fmt.Errorf("%q is no duration: write one such as 7d, 36h or 90m", text)
		}
		return d, nil
	}
	n, err := strconv.ParseFloat(days, 64)
	if err != nil || !(n >= 0 && n <= maxDays) {
		return 0, fmt.Errorf("%q is no duration: write one such as 7d, 36h or 90m", text)
	}
	return time.Duration(n * float64(24*time.Hour)), nil
}

// timeForms are the forms of a time without a zone, and of one with a zone and without seconds.
var timeForms = []string{"2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02", "2006-01-02T15:04Z07:00"}

// ParseTime reads a time: as RFC 3339 has it, with or without seconds and zone; a date, which is
// the beginning of its day; or a duration, which is so long before now. Without a zone it is in
// that of now. It may be yet to come: an agent is asked for a time by another machine's clock.
func ParseTime(text string, now time.Time) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	for _, form := range timeForms {
		if t, err := time.ParseInLocation(form, text, now.Location()); err == nil {
			return t, nil
		}
	}
	if d, err := ParseDuration(text); err == nil {
		return now.Add(-d), nil
	}
	return time.Time{}, fmt.Errorf("%q is no time: write one such as 2026-11-17T14:00, 2026-11-17T14:00:00Z, 2026-11-17, or 7d or 36h, which is so long ago", text)
}

// ParsePeriod reads what one may ask for: a time, which is from and to, or all since a time. One of
// both is "".
func ParsePeriod(at, since string, now time.Time) (from, to time.Time, err error) {
	switch {
	case at != "" && since != "":
		return from, to, errors.New("give one of --at and --since")
	case at != "":
		if from, err = ParseTime(at, now); err != nil {
			return from, to, fmt.Errorf("--at: %w", err)
		}
		return from, from, nil
	case since != "":
		if from, err = ParseTime(since, now); err != nil {
			return from, to, fmt.Errorf("--since: %w", err)
		}
		return from, now, nil
	}
	return from, to, errors.New("give --at or --since")
}
