package rig

import (
	"os/exec"
	"runtime"
	"syscall"
)

func endWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

func startLocked(cmd *exec.Cmd) error {
	runtime.LockOSThread()
	return cmd.Start()
}
