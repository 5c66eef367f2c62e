package npwg

import (
	"errors"
	"fmt"
)

// maxFaults is how many faults of one list are said: an annotation may have some hundred
// thousand, and what is said of it goes to logs and events.
const maxFaults = 16

// Faults are what is wrong with the elements of a list. The zero Faults are none.
type Faults struct {
	said []error
	more int
}

// Add adds a fault.
func (f *Faults) Add(err error) {
	if len(f.said) == maxFaults {
		f.more++
		return
	}
	f.said = append(f.said, err)
}

// Err returns what is wrong, of which the first are said, and of the others how many there are.
func (f *Faults) Err() error {
	if f.more == 0 {
		return errors.Join(f.said...)
	}
	return errors.Join(append(f.said, fmt.Errorf("and %d more", f.more))...)
}
