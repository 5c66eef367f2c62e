// Package imports holds the rules about the source tree as tests: which package
// may know of which, and how packages and documents present themselves. Its
// table is the design's table of parts, made to hold.
package imports
