package cli

import "syscall"

// noCore has the kernel write no core of this process, which would have keys
// and credentials in it, and show its memory to nobody but root.
func noCore() {
	_ = syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{})
	const setDumpable = 4 // PR_SET_DUMPABLE, see prctl(2)
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, setDumpable, 0, 0)
}
