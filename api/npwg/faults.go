package npwg

import (
	"errors"
	"fmt"
)

// maxFaults is how many faults of one list are said: an annotation may have some hundred
// thousand, and what is said of it goes to logs and events.
const maxFaults = 16

// faults are what is wrong with the elements of a list.
type faults struct {
	said []error
	more int
}

func (f *faults) add(err error) {
	if len(f.said) == maxFaults {
		f.more++
		return
	}
	f.said = append(f.said, err)
}

func (f *faults) err() error {
	if f.more == 0 {
		return errors.Join(f.said...)
	}
	return errors.Join(append(f.said, fmt.Errorf("and %d more", f.more))...)
}
