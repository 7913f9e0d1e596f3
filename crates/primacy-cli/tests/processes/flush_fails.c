/* Lets flushes of a process fail from when on the file FLUSH_FAILS is there, as a disk that loses its writes makes them. What was
   written is left to the operating system, which may bring it to the disk or not. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static int flush(long call, int file)
{
    const char *fails = getenv("FLUSH_FAILS");
    if (fails && !access(fails, F_OK)) {
        errno = EIO;
        return -1;
    }
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
