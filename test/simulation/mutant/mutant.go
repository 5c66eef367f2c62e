// Package mutant says which mutant of the product runs. Only a program that was built with
// the overlay of test/simulation asks for it.
package mutant

// Built says that the program has the mutants.
const Built = false

// On is the mutant that runs, "" for none. It is set before anything runs.
var On string
