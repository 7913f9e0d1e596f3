/* Kills a process instead of its flush of which FLUSH_KILLS tells the number. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_int flushes;

static int flush(long call, int file)
{
    const char *last = getenv("FLUSH_KILLS");
    if (last && atomic_fetch_add(&flushes, 1) + 1 == atoi(last))
        kill(getpid(), SIGKILL);
    return (int)syscall(call, file);
}

int fsync(int file)
{
    return flush(SYS_fsync, file);
}

int fdatasync(int file)
{
    return flush(SYS_fdatasync, file);
}
