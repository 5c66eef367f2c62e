// Package delegate carries out plans: it runs the plugins of each step, one step
// after the other, keeps the journal meanwhile, and undoes, checks and collects from
// the journal alone.
//
// It runs plugins as the CNI library does, and without it: the library brings
// net/http and tracing into a process that is started for every pod, and reads each
// result from JSON four times. A test compares what the two give to plugins. Beside
// the journal lies a cache of results in the library's form, which serves where a
// journal is damaged, and others who know it.
package delegate
