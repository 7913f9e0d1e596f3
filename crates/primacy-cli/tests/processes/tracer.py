"""Keeps a process from being reaped after its death, until standard input ends. Usage: tracer.py PID"""

import ctypes
import sys

PTRACE_SEIZE = 0x4206

ptrace = ctypes.CDLL(None, use_errno=True).ptrace
ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
ptrace.restype = ctypes.c_long
if ptrace(PTRACE_SEIZE, int(sys.argv[1]), None, None) != 0:
    sys.exit(f"the process cannot be traced: error {ctypes.get_errno()}")
print("traced", flush=True)
sys.stdin.read()
