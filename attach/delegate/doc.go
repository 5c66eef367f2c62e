// Package delegate carries out plans: it runs the plugins of each step through the
// CNI library, one step after the other, keeps the journal meanwhile, and undoes,
// checks and collects from the journal alone.
//
// The library's cache lies beside the journal and is a copy of it: before a CHECK
// or a DEL the step's result is put there again. It serves on its own only where a
// journal is damaged.
package delegate
