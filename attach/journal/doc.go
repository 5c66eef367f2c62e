// Package journal keeps on disk what the meta-plugin is doing to a container: the
// plan from before its first step, how far it came, and what it has to say about
// it. From it alone an attachment is checked and undone, whatever has happened to
// the pod, the definitions, the API server, the agent, or to the process that
// attached it.
//
// A directory of state has
//
//	attachments/<name>           the journal of one attachment of the meta-plugin
//	attachments/<name>.tmp       one being written; nothing has been done yet
//	attachments/<name>.damaged   one that does not read, set aside
//	locks/<container ID>         held while somebody works on a container
//	unsent/<name>                the journal has a report that the agent did not take at its ADD
//	default                      the default network's configuration, as the last
//	                             ADD had it from a definition
//
// A journal is lines, each with its checksum. The first is the head with the whole
// plan; it is on disk, by file, rename and directory, before the first delegate
// is called, and never changes. Lines after it are added as the work goes on, and nobody
// waits until they are on disk. They outlive the process that wrote them, however it
// ends; a crash of the machine may take the last of them, and then every step counts
// as begun. It has ended every network namespace, too, so that no results are lost
// that anybody could use. For the same reason a journal that is removed may come back
// with such a crash: it names a container that is gone.
package journal
