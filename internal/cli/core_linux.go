package cli

import "syscall"

// disableCoreDumps disables core dumps, which could contain keys and
// credentials, and restricts access to the memory of this process to root.
func disableCoreDumps() {
	_ = syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{})
	const setDumpable = 4 // PR_SET_DUMPABLE, see prctl(2)
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, setDumpable, 0, 0)
}
